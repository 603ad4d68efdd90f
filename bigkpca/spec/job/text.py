"""The text of a job file: reading, parsing, and the line of each key."""

from __future__ import annotations

import re
import tomllib
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
    """The line of each key and table, by its full name, in a text that `tomllib` has read; counted from 1.

    A table without a header has the line of its first key. Keys within a list count as keys of the list.

    Examples
    --------
    >>> lines_of_keys("seed = 1\\n[run]\\nworkers = 4")
    {('seed',): 1, ('run',): 2, ('run', 'workers'): 3}
    """
    own: dict[Key, int] = {}  # of keys and tables that have a line
    inside: dict[Key, int] = {}  # of tables, by the first key in them
    names: list[str] = []  # of the key that is being read: up to `=` or the end of a header
    table: Key = ()  # of the last header
    key: Key = ()  # whose value is being read
    brackets: list[tuple[str, Key]] = []  # open ones of that value, with the key that they belong to
    in_header = in_value = False
    line = stands = 1
    for found in _TOKEN.finditer(text + "\n"):
        kind, token, here = found.lastgroup, found[0], line
        line += token.count("\n")
        if kind == "comment" or (in_value and kind != "mark"):
            continue
        if kind != "mark":
            names.append(token if kind == "bare" else tomllib.loads(f"k = {token}")["k"])
            stands = here
        elif token == "}" or (in_value and token == "]"):  # also of a table without keys, or after a trailing comma
            key, in_value = brackets.pop()[1], True
        elif in_value and token in "[{":  # the value of a table contains names again
            brackets.append((token, key))
            in_value = token == "["
        elif in_value and token == ("," if brackets else "\n"):
            in_value = bool(brackets) and brackets[-1][0] == "["
        elif not in_value and token == "[":
            in_header = True
        elif not in_value and (token == "=" or (token == "\n" and in_header)):
            above = () if in_header else brackets[-1][1] if brackets else table
            full = (*above, *names)
            own.setdefault(full, stands)
            for depth in range(1, len(full)):
                inside.setdefault(full[:depth], stands)
            table, key = (full, key) if in_header else (table, full)
            names, in_header, in_value = [], False, not in_header
    return own | {key: line for key, line in inside.items() if key not in own}


_MOST_BYTES = 1_000_000
_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


@dataclass(frozen=True)
class JobText:
    """A job file that is valid TOML."""

    path: str  # as the user wrote it
    file: str  # the same as a full path
    folder: str  # that paths in it are relative to
    text: str
    values: dict[str, Any]

    @classmethod
    def read(cls, path: AnyPath) -> JobText:
        """Read a job file. Raises SpecError if that fails, with the line and column of a syntax error."""
        name = expanded(path)
        if is_url(name):
            raise SpecError(f"{name}: a job file must be on a local disk, not in an object store")
        try:
            with store_of(name).open(name) as file:
                content = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            raise SpecError(f"there is no job file {name}") from None
        except IsADirectoryError:
            example = f"{name.rstrip('/')}/nightly.toml"
            raise SpecError(f"{name} is a folder: give the job file itself, e.g. {example}") from None
        except (OSError, ValueError) as error:
            raise SpecError(f"the job file {name} cannot be read: {error}") from error
        if len(content) > _MOST_BYTES:
            raise SpecError(f"{name} is larger than 1 MB: a job file is a short text that names the data by path")
        try:
            text = content.decode("utf-8-sig")  # some editors write a byte order mark first
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise SpecError(
                f"{name}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
            ) from None
        if not text.strip():
            raise SpecError(
                f"{name} is empty: a job file has the tables [input], [model] and [output], each with a path"
            )
        folder = store_of(name).absolute(parent(name))
        return cls(name, f"{folder.rstrip('/')}/{name.rpartition('/')[2]}", folder, text, _parsed(name, text))

    @cached_property
    def lines(self) -> dict[Key, int]:
        """The line of each key and table."""
        return lines_of_keys(self.text)


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError(f"{name}: lists or tables are nested too deeply") from None
    except ValueError as error:
        found = _PLACE.fullmatch(str(error))
        if found is None:  # of a number with thousands of digits
            raise SpecError(f"{name} is not valid TOML: {error}") from None
        lines = text.split("\n")
        line, column = (int(found[2]), int(found[3])) if found[2] else (len(lines), len(lines[-1]) + 1)
        advice = " (text must be in quotes)" if found[1] == "Invalid value" and found[2] else ""
        raise SpecError(f"{name}, line {line}, column {column}: not valid TOML: {found[1]}{advice}") from None
