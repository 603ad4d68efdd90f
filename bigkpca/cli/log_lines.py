"""Output of loggers, warnings and other libraries on stderr: as notes of the command or, if requested, only as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import click

JSON_LINES = "bigkpca.json_lines"  # in the context, where each line on stderr is a JSON object


class Notes(logging.Handler):
    """Shows each message that the package logs once, as a note."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        from bigkpca.execution.progress import print_json, stderr

        message = record.getMessage()
        if message in self._shown:
            return
        self._shown.add(message)
        if isinstance(sys.stderr, JsonLines):
            print_json(message=message)
        else:
            stderr().print(f"note: {message}", markup=False)


@contextmanager
def noted() -> Iterator[None]:
    """Within this context, warnings that the package logs appear as notes on stderr."""
    logger, handler = logging.getLogger("bigkpca"), Notes()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False  # otherwise another handler would show them again
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


class JsonFormatter(logging.Formatter):
    """A log record as a JSON object, which includes the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        from bigkpca.execution.progress import json_line

        more = {"traceback": self.formatException(record.exc_info)} if record.exc_info else {}
        return json_line(message=record.getMessage(), level=record.levelname, logger=record.name, **more)


# Dask sets up loggers when it is imported, here and in the worker processes of a run.
_OF_DASK = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": f"{__name__}.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"level": "WARNING", "handlers": ["stderr"]},
    "loggers": {"tornado": {"level": "CRITICAL"}, "tornado.application": {"level": "ERROR"}},
}


class JsonLines:
    """A stream that turns each text written to it into a JSON object on one line, unless it already is one."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._held, self._lock = stream, threading.local(), threading.Lock()

    def write(self, text: str) -> int:
        held = getattr(self._held, "text", "") + text
        self._held.text = "" if held.endswith("\n") else held
        if held.endswith("\n"):
            from bigkpca.execution.progress import json_line

            with self._lock:
                for done, group in groupby(held.splitlines(), _is_json):
                    message = "\n".join(group)
                    if message.strip():
                        self._stream.write((message if done else json_line(message=message)) + "\n")
                self._stream.flush()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def write_json_lines() -> None:
    """From now on, each line on stderr from this process or logged by its workers is a JSON object."""
    click.get_current_context().meta[JSON_LINES] = True
    if isinstance(sys.stderr, JsonLines):
        return
    before, sys.stderr = sys.stderr, JsonLines(sys.stderr)
    import dask.config

    os.environ["DASK_LOGGING"] = repr(_OF_DASK)
    dask.config.set({"logging": _OF_DASK})
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for logger in (root, *map(logging.getLogger, list(root.manager.loggerDict))):
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(sys.stderr)
                handler.setFormatter(JsonFormatter())
