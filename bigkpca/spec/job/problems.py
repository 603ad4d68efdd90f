"""What is wrong in a job file, and how messages say it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bigkpca.errors import SpecError
from bigkpca.spec.job.toml_lines import Key

_MOST_PROBLEMS = 100  # which a file that is no job file exceeds
_MOST_CHARACTERS = 80  # of a value in a message
_LOOKED_AT = 2000  # characters of it in which secrets are looked for
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Problem:
    """What is wrong, and the keys or tables that it is about."""

    text: str
    keys: tuple[Key, ...] = ()


class JobError(SpecError):
    """What is wrong in a job file (exit code 2). Where these keys are right, it says to whom a failed run matters."""

    output: str | None = None
    metrics: str | None = None
    log: str | None = None


def error_of(path: str, lines: Mapping[Key, int], problems: Iterable[Problem]) -> JobError:
    """One error of all problems of a job file: a line for each, in the order of the file."""
    placed = [(sorted({lines[key] for key in problem.keys if key in lines}), problem.text) for problem in problems]
    placed.sort(key=lambda each: each[0] or [0])
    told = [f"{path}{_where(at)}: {_printable(text)}" for at, text in placed[:_MOST_PROBLEMS]]
    more = [f"{path}: and {len(placed) - len(told)} more"] if len(placed) > len(told) else []
    return JobError("\n".join([*told, *more]))


def _where(lines: Sequence[int]) -> str:
    if not lines:
        return ""
    return f", line {lines[0]}" if len(lines) == 1 else f", lines {' and '.join(map(str, lines))}"


def _printable(text: str) -> str:
    """A text in one line, with what a terminal would obey escaped."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def name_of(key: Key) -> str:
    """A key as messages call it: run.workers.

    Examples
    --------
    >>> name_of(("run", "the workers"))
    'run."the workers"'
    """
    return ".".join(_cut(part) if _BARE.fullmatch(part) else _text(part) for part in key)


def shown(key: Key, value: Any) -> str:
    """A key and its value, as a job file gives them.

    Examples
    --------
    >>> shown(("run", "log"), "${LOG}")
    'run.log = "${LOG}"'
    """
    if isinstance(value, dict):
        return f"[{name_of(key)}]"
    if isinstance(value, list):
        return f"{name_of(key)} = [...]"
    if isinstance(value, str):
        return f"{name_of(key)} = {_text(_without_secrets(value))}"
    told = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{name_of(key)} = {_cut(told)}"


def _text(value: str) -> str:
    return json.dumps(_cut(value), ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _without_secrets(text: str) -> str:
    """A text, without what may be a password in a URL."""
    text = re.sub(r"://[^/\s]*@", "://...@", text[:_LOOKED_AT])
    return re.sub(r"(://[^?]*\?).*", r"\1...", text, flags=re.DOTALL)
