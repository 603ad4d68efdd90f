"""Errors, warnings and signals as lines on stderr and exit codes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from typing import Any

import click

from bigkpca.cli.freed_memory import return_freed_memory
from bigkpca.cli.progress import print_json, stderr
from bigkpca.errors import BigKPCAError, IncompleteError

_VERBOSE = "bigkpca.verbose"
JSON_LINES = "bigkpca.json_lines"  # in the context, where each line on stderr is a JSON object


class Commands(click.Group):
    """A group of commands that turns errors into lines on stderr and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        return_freed_memory()
        signal.signal(signal.SIGTERM, _interrupt)
        warnings.showwarning = lambda message, *_: stderr.print(f"bigkpca: warning: {message}", markup=False)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _leave(ctx, IncompleteError("stopped; nothing half-done was published: run the same command again"))
        except BigKPCAError as error:
            _leave(ctx, error)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are used."""
        return list(self.commands)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _verbose(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    ctx.meta[_VERBOSE] = asked  # contexts of commands share it with their group's


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_verbose,
    help="Show where an error comes from.",
)


def _leave(ctx: click.Context, error: BigKPCAError) -> None:
    if ctx.meta.get(_VERBOSE):
        traceback.print_exc()
    if ctx.meta.get(JSON_LINES):
        print_json(message=str(error), exit_code=error.exit_code)
    else:
        stderr.print(f"bigkpca: {error}", markup=False)
    if any(thread.name.startswith("bigkpca") and not thread.daemon for thread in threading.enumerate()):
        # One that hangs, or has work left, would hold this process back.
        sys.stdout.flush()
        os._exit(error.exit_code)
    sys.exit(error.exit_code)
