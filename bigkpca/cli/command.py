"""What all commands share: a help page with examples, and one exit code for each kind of error."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from bigkpca.errors import BigKPCAError, IncompleteError, meaning_of, nearest
from bigkpca.execution import return_freed_memory

_VERBOSE = "bigkpca.verbose"  # in the context, which commands share with their group


class WithExamples(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in self.examples:  # never wrapped, so that an example can be copied whole
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


def command(*examples: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with these examples and click settings."""
    return click.command(cls=WithExamples, examples=examples, context_settings=settings)


# An option whose help ends with its default, or with a text in its place.
option: Callable[..., Callable[[Any], Any]] = partial(click.option, show_default=True)


class Commands(WithExamples, click.Group):
    """A group of commands, imported when they run, whose errors become lines on stderr and exit codes.

    `modules` holds the module and the one-line help of each command, in the order of use.
    """

    def __init__(self, *args: Any, modules: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._modules = modules

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if near := nearest(args[0], self.list_commands(ctx)):
                raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near!r}?", ctx) from None
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._modules:
            return None
        found: click.Command = getattr(import_module(self._modules[name][0]), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._modules.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Command names with their one-line help, and options; no command is imported."""
        named = [CompletionItem(name, help=line) for name, (_, line) in self._modules.items()]
        return [item for item in named if item.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return_freed_memory()
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            warnings.showwarning = lambda message, *_: _say(f"warning: {message}")
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _leave(ctx, IncompleteError("stopped; no partial output was published: rerun the same command to resume"))
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            known = _known(error)
            if not isinstance(known, BigKPCAError):
                raise
            _leave(ctx, known)


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, asked: ctx.meta.update({_VERBOSE: asked}),
    help="Show a traceback for errors.",
)


def outcome(error: Exception) -> tuple[int, str]:
    """The exit code and the message of an error of a command."""
    error = _known(error)
    if isinstance(error, BigKPCAError):
        return error.exit_code, str(error)
    if isinstance(error, click.ClickException):
        return error.exit_code, error.format_message()
    return BigKPCAError.exit_code, f"{type(error).__name__}: {error}"


def _known(error: Exception) -> Exception:
    """The error with the meaning that an error of the system has for a command, or the same error."""
    return (meaning_of(error, "the output") if isinstance(error, OSError) else None) or error


def _say(message: str) -> None:
    from bigkpca.execution.progress import stderr

    stderr().print(f"bigkpca: {message}", markup=False)


def _leave(ctx: click.Context, error: BigKPCAError) -> None:
    if ctx.meta.get(_VERBOSE):
        traceback.print_exc()
    _say(str(error))
    if any(thread.name.startswith("bigkpca") and not thread.daemon for thread in threading.enumerate()):
        # A thread that hangs or still has work would keep this process alive.
        sys.stdout.flush()
        os._exit(error.exit_code)
    sys.exit(error.exit_code)
