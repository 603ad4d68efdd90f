"""Output on stderr as JSON only, for jobs that ask for it."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from itertools import groupby
from typing import Any

import click

JSON_LINES = "bigkpca.json_lines"  # in the context, where each line on stderr is a JSON object


class JsonLines(io.TextIOBase):
    """A stream that turns each text written to it into a JSON object on one line, unless it already is one."""

    encoding = "utf-8"

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

    def fileno(self) -> int:
        return int(self._stream.fileno())


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def write_json_lines() -> None:
    """From now on, each line on stderr from this process is a JSON object, also one that another library logs."""
    click.get_current_context().meta[JSON_LINES] = True
    if isinstance(sys.stderr, JsonLines):
        return
    before, sys.stderr = sys.stderr, JsonLines(sys.stderr)
    root = logging.getLogger()
    for logger in (root, *map(logging.getLogger, list(root.manager.loggerDict))):
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(sys.stderr)
