"""The text of a job file: read, parsed, and the lines of its keys."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bigkpca.data.stores import AnyPath, expanded, is_url, parent, store_of
from bigkpca.errors import SpecError
from bigkpca.spec.job.toml_lines import Key, lines_of_keys

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
