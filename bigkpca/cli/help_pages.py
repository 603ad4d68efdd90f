"""Help pages: examples at their ends, and the default of every option that takes a value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click


class WithExamples(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self.examples:  # unlike text, they are not wrapped: who copies one copies all of it
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(*examples: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with these examples, and settings of click."""
    return click.command(cls=WithExamples, examples=examples, context_settings=settings)


class _Option(click.Option):
    """An option whose help ends with its default, or with what holds where it is not given (`unset`)."""

    def __init__(self, *args: Any, unset: str | None = None, **options: Any) -> None:
        if unset is not None:
            options["help"] = f"{options['help']}  [default: {unset}]"
        else:
            options["show_default"] = "default" in options
        super().__init__(*args, **options)


option: Callable[..., Callable[[Any], Any]] = partial(click.option, cls=_Option)
