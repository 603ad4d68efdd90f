"""Errors, warnings and signals, as a shell sees them: a few lines on stderr and the exit code of their meaning."""

from __future__ import annotations

import signal
import sys
import traceback
import warnings
from typing import Any

import click

from bigkpca.cli.memory import return_freed_memory
from bigkpca.cli.progress import stderr
from bigkpca.errors import BigKPCAError, IncompleteError


class Commands(click.Group):
    """Turns errors into a few lines on stderr and the exit code of their meaning."""

    def invoke(self, ctx: click.Context) -> Any:
        return_freed_memory()
        signal.signal(signal.SIGTERM, _interrupt)
        warnings.showwarning = lambda message, *_: stderr.print(f"bigkpca: warning: {message}", markup=False)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _leave(IncompleteError("stopped; nothing half-done was published: run the same command again"))
        except BigKPCAError as error:
            _leave(error)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _leave(error: BigKPCAError) -> None:
    if "-v" in sys.argv or "--verbose" in sys.argv:
        traceback.print_exc()
    stderr.print(f"bigkpca: {error}", markup=False)
    sys.exit(error.exit_code)
