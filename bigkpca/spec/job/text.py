"""The text of a job file: read, parsed, and the lines on which its keys stand."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bigkpca.data.stores import AnyPath, expanded, is_url, parent, store_of
from bigkpca.errors import SpecError

Key = tuple[str, ...]

_TOKEN = re.compile(
    r'''(?P<comment>\#[^\n]*)
    | (?P<text>"""(?:\\.|[^\\])*?"""(?:"{0,2}) | \'{3}.*?\'{3}(?:'{0,2}) | "(?:\\.|[^"\\])*" | '[^']*')
    | (?P<bare>[^\s#"'.,=\[\]{}]+)
    | (?P<mark>[.,=\[\]{}\n])''',
    re.VERBOSE | re.DOTALL,
)


def lines_of_keys(text: str) -> dict[Key, int]:
    """The line of each key and table, by its full name.

    Parameters
    ----------
    text : str
        A text that `tomllib` has read.

    Returns
    -------
    dict
        Lines, counted from 1. A table that stands nowhere itself has the line of the first key in it. Keys in a list
        count as those of the list.

    Examples
    --------
    >>> lines_of_keys("seed = 1\\n[run]\\nworkers = 4")
    {('seed',): 1, ('run',): 2, ('run', 'workers'): 3}
    """
    scan = _Scan()
    for kind, token, line in _tokens(text + "\n"):
        scan.take(kind, token, line)
    return scan.own | {key: line for key, line in scan.inside.items() if key not in scan.own}


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """(kind, token, line) of all but comments."""
    line = 1
    for found in _TOKEN.finditer(text):
        if found.lastgroup and found.lastgroup != "comment":
            yield found.lastgroup, found[0], line
        line += found[0].count("\n")


class _Scan:
    """Reads tokens one by one: names up to `=` or the end of a header, then a value, which may hold names again."""

    def __init__(self) -> None:
        self.own: dict[Key, int] = {}  # of keys and tables that are written
        self.inside: dict[Key, int] = {}  # of tables, by the first key in them
        self._table: Key = ()  # of the last header
        self._names: list[str] = []  # of the key that is being read
        self._line = 1  # on which it stands
        self._in_header = self._in_value = False
        self._key: Key = ()  # whose value is being read
        self._open: list[tuple[str, Key]] = []  # brackets of that value, and whose they are

    def take(self, kind: str, token: str, line: int) -> None:
        if self._in_value:
            self._value(kind, token)
        elif kind != "mark":
            self._line = line
            self._names.append(token if kind == "bare" else tomllib.loads(f"k = {token}")["k"])
        elif token == "[":
            self._in_header = True
        elif token == "=":
            self._key = self._found(self._open[-1][1] if self._open else self._table)
            self._in_value = True
        elif token == "\n" and self._in_header:
            self._table = self._found(())
            self._in_header = False
        elif token == "}":  # of a table without keys, or after a last comma
            self._close()

    def _value(self, kind: str, token: str) -> None:
        if kind != "mark":
            return
        if token in "[{":
            self._open.append((token, self._key))
            self._in_value = token == "["
        elif token in "]}":
            self._close()
        elif token == ("," if self._open else "\n"):
            self._in_value = bool(self._open) and self._open[-1][0] == "["

    def _close(self) -> None:
        _, self._key = self._open.pop()
        self._in_value = True

    def _found(self, above: Key) -> Key:
        """Note the key that was read, and return it."""
        key = (*above, *self._names)
        self.own.setdefault(key, self._line)
        for depth in range(1, len(key)):
            self.inside.setdefault(key[:depth], self._line)
        self._names = []
        return key


_MOST_BYTES = 1_000_000
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


@dataclass(frozen=True)
class JobText:
    """A job file that is valid TOML."""

    path: str  # as it was given
    file: str  # the same as a full path
    folder: str  # where relative paths in it start
    text: str
    values: dict[str, Any]

    @classmethod
    def read(cls, path: AnyPath) -> JobText:
        """Read a job file. Raises SpecError where that cannot be done, with line and column of a syntax error."""
        name = expanded(path)
        if is_url(name):
            raise SpecError(f"{name}: a job file lies on a local disk, not in an object store")
        text = _decoded(name, _content(name))
        if not text.strip():
            raise SpecError(
                f"{name} is empty: a job file has the tables [input], [model] and [output], each of them with a path"
            )
        folder = store_of(name).absolute(parent(name))
        return cls(name, f"{folder.rstrip('/')}/{name.rpartition('/')[2]}", folder, text, _parsed(name, text))

    @cached_property
    def lines(self) -> dict[Key, int]:
        """The line of each key and table."""
        return lines_of_keys(self.text)


def _content(name: str) -> bytes:
    try:
        with store_of(name).open(name) as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no job file {name}") from None
    except IsADirectoryError:
        raise SpecError(f"{name} is a folder: give the job file itself, e.g. {name.rstrip('/')}/nightly.toml") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"the job file {name} cannot be read: {error}") from error
    if len(content) > _MOST_BYTES:
        raise SpecError(f"{name} is larger than 1 MB: a job file is a short text, which names the data by their path")
    return content


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")  # some editors put a mark of that encoding first
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise SpecError(
            f"{name}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
        ) from None


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError(f"{name}: lists or tables lie too deep in each other") from None
    except ValueError as error:
        found = _PLACE.fullmatch(str(error))
        if found is None:  # of a number with thousands of digits
            raise SpecError(f"{name} is not valid TOML: {error}") from None
        lines = text.split("\n")
        line, column = (int(found[2]), int(found[3])) if found[2] else (len(lines), len(lines[-1]) + 1)
        advice = " (text stands in quotes)" if found[1] == "Invalid value" and found[2] else ""
        raise SpecError(f"{name}, line {line}, column {column}: not valid TOML: {found[1]}{advice}") from None
