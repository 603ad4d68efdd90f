"""Where the keys of a TOML text stand, which `tomllib` does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

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
