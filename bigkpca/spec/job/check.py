"""Check the keys of a job file one by one, with environment variables filled in, and say what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bigkpca.data.stores import expanded, is_url, store_of
from bigkpca.errors import SpecError, nearest
from bigkpca.spec.job.tables import MOST, TABLES, VARIABLE, JobTop, Table, choices, either, properties, words
from bigkpca.spec.job.text import JobText, Key

_MOST_PROBLEMS = 100  # which a file that is no job file exceeds
_SHOWN_CHARACTERS = 80  # of a value in a message
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
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _without_secrets(text: str) -> str:
    """A text, without what may be a password in a URL."""
    text = re.sub(r"://[^/\s]*@", "://...@", text[:_LOOKED_AT])
    return re.sub(r"(://[^?]*\?).*", r"\1...", text, flags=re.DOTALL)


_VARIABLE = re.compile(VARIABLE)
_MOST_CHARACTERS = 80  # of a word that is compared with known ones


@dataclass
class Check:
    """What is found while a job file is checked: values that are right, as given and as read, and problems."""

    environment: Mapping[str, str]
    given: dict[Key, Any] = field(default_factory=dict)
    values: dict[Key, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def table(self, name: str) -> dict[str, Any]:
        """The values of a table that are right."""
        return {key[-1]: value for key, value in self.values.items() if key[:-1] == (name,)}

    def hidden(self, key: Key) -> bool:
        """Whether a value came from the environment, so that no message may show it."""
        return _from_environment(self.given.get(key))

    def wrong(self, reason: str, *keys: Key, instead: str = "") -> None:
        """Note a problem of the values of keys that are in the file, which are right no more.

        `instead` is the reason without a value, for values from the environment.
        """
        reason = instead if instead and any(map(self.hidden, keys)) else reason
        self.problem(f"{' and '.join(shown(key, self.given[key]) for key in keys)}: {reason}", *keys)
        for key in keys:
            self.values.pop(key, None)

    def wrong_kind(self, kind: type[Table], key: Key) -> None:
        """Note a value that is none of those that the key of a table may have."""
        told, raw, hint, quotes = properties(kind)[key[-1]], self.given[key], "", ""
        if isinstance(raw, int) and raw > MOST:
            hint = "too large: "
        if isinstance(raw, str):
            near = nearest(raw[:_MOST_CHARACTERS], choices(told))
            hint = f'did you mean "{near}"? ' if near else ""
            with suppress(ValidationError):
                _read(kind, key[-1], [_literal(raw)])
                quotes = "" if isinstance(_literal(raw), str) else ", without quotes"
        self.wrong(f"{hint}give {words(told)}{quotes}", key)

    def problem(self, text: str, *keys: Key) -> None:
        """Note a problem."""
        self.problems.append(Problem(text, keys))


def check_keys(raw: Mapping[str, Any], environment: Mapping[str, str]) -> Check:
    """Check the tables and keys of a job file: that they are known, complete, and of the right kind."""
    check = Check(environment)
    for name, value in raw.items():
        if name not in TABLES:
            _check_key(check, JobTop, (name,), value)
        elif isinstance(value, dict):
            for key, each in value.items():
                _check_key(check, TABLES[name], (name, key), each)
        else:
            check.problem(f"{shown((name,), value)}: this is a table: write [{name}], and its keys below", (name,))
    for name, kind in TABLES.items():
        if isinstance(raw.get(name, {}), dict):
            _check_complete(check, name, kind, raw.get(name))
    return check


def _check_complete(check: Check, name: str, kind: type[Table], table: Mapping[str, Any] | None) -> None:
    """Note the required keys that a table lacks."""
    for key, about in kind.model_fields.items():
        if not about.is_required() or (table is not None and key in table):
            continue
        example = f'{key} = "{properties(kind)[key]["examples"][0]}"'
        if table is None:
            check.problem(f"the table [{name}] is missing: add [{name}] and below it, e.g., {example}")
        else:
            check.problem(f"[{name}] lacks {key}: add, e.g., {example}", (name,))


def _check_key(check: Check, kind: type[Table], key: Key, raw: Any) -> None:
    """Fill in the variables of a value, and check it."""
    check.given[key] = raw
    value, unset = _filled(raw, check.environment)
    for name in unset:
        check.wrong(f"the environment variable {name} is not set", key)
    if key[-1] not in kind.model_fields:
        _unknown(check, kind, key, raw)
        return
    if unset:
        return
    try:
        check.values[key] = _read(kind, key[-1], _candidates(raw, value))
    except ValidationError:
        check.wrong_kind(kind, key)


def _read(kind: type[Table], name: str, candidates: Iterable[Any]) -> Any:
    """The first of these values that a key may have. Raises ValidationError where it may have none."""
    *first, last = candidates
    for candidate in first:
        with suppress(ValidationError):
            return _adapter(kind, name).validate_python(candidate)
    return _adapter(kind, name).validate_python(last)


@cache
def _adapter(kind: type[Table], name: str) -> TypeAdapter[Any]:
    """What checks one key, without the conversions of pydantic: in TOML, text is no number."""
    about = kind.model_fields[name]
    written: Any = Annotated[about.annotation, about]
    return TypeAdapter(written, config=ConfigDict(strict=True, allow_inf_nan=False))


def _filled(raw: Any, environment: Mapping[str, str]) -> tuple[Any, list[str]]:
    """A value with its variables filled in, and those of them that are not set."""
    if not isinstance(raw, str):
        return raw, []
    names = dict.fromkeys(name[2:-1] for name in _VARIABLE.findall(raw))
    if unset := [name for name in names if name not in environment]:
        return raw, unset
    return _VARIABLE.sub(lambda name: environment[name[0][2:-1]], raw), []


def _from_environment(raw: Any) -> bool:
    return isinstance(raw, str) and bool(_VARIABLE.search(raw))


def _candidates(raw: Any, value: Any) -> list[Any]:
    """What a value may stand for: 50.0 is 50, and a variable may hold a number or a truth value."""
    whole = isinstance(raw, str) and _VARIABLE.fullmatch(raw)
    found = [value, _literal(value)] if whole else [value]
    return [int(each) if isinstance(each, float) and each.is_integer() else each for each in found]


def _literal(text: str) -> Any:
    """The number or truth value that a text is; the text where it is neither."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    return text


def _unknown(check: Check, kind: type[Table], key: Key, raw: Any) -> None:
    """Note a key or table that a job file does not have."""
    *above, name = key
    tables = [f"[{table}]" for table in TABLES]
    if not above and _is_table(raw):
        hint = _hint(name, list(TABLES), "[{}]")
        check.problem(f"unknown table [{name_of(key)}]: {hint}known are {', '.join(tables)}", key)
        return
    homes = [f"[{table}]" for table, other in TABLES.items() if name in other.model_fields]
    if homes or name in JobTop.model_fields:
        hint = f"it belongs {f'in {either(homes)}' if homes else 'before the first table'}"
    else:
        known = [*kind.model_fields, *(tables if not above else [])]
        hint = f"{_hint(name, list(kind.model_fields), '{}')}known are {', '.join(known)}"
    check.wrong(f"unknown key{f' of [{above[0]}]' if above else ''}: {hint}", key)


def _hint(name: str, known: Collection[str], form: str) -> str:
    near = nearest(name[:_MOST_CHARACTERS], known)
    return f"did you mean {form.format(near)}? " if near else ""


def _is_table(raw: Any) -> bool:
    return isinstance(raw, dict) or (isinstance(raw, list) and bool(raw) and isinstance(raw[0], dict))


_INPUT, _MODEL, _OUTPUT = ("input", "path"), ("model", "path"), ("output", "path")
_METRICS, _LANDMARKS = ("run", "metrics"), ("model", "landmarks")
_WRITTEN = (_MODEL, _OUTPUT, _METRICS)
_NO_PATH = "give a local path, or a URL that begins with s3://, gs:// or az://"
_NO_OUTPUT = "nothing can be written there: name a new folder"


def check_paths(check: Check, file: JobText) -> None:
    """Make the paths of a job absolute, and check that none is written where another is."""
    if is_url(check.values.get(_METRICS, "")):
        check.wrong("metrics are a file for the node exporter of this machine: give a local path", _METRICS)
    for key in (_INPUT, _MODEL, _OUTPUT, _METRICS, _LANDMARKS):
        if key in check.values and (key != _LANDMARKS or is_file(check.values[key])):
            _make_absolute(check, key, file.folder)
    for key in _WRITTEN:
        if key in check.values:
            _check_writable(check, key)
    _check_apart(check, file)


def _make_absolute(check: Check, key: Key, folder: str) -> None:
    try:
        check.values[key] = absolute(check.values[key], folder)
    except (SpecError, ValueError, OSError) as error:
        check.wrong(str(error), key, instead=_NO_PATH)


def absolute(path: str, folder: str) -> str:
    """The full path of what a job file in a folder names. Raises SpecError for anything but a path."""
    if "\0" in path:
        raise SpecError("a path holds no zero character: leave it out")
    path = expanded(path)
    return store_of(path).absolute(path if is_url(path) or path.startswith("/") else f"{folder}/{path}")


def _check_writable(check: Check, key: Key) -> None:
    path = check.values[key]
    try:
        store_of(path).output_path(path, ())
    except (SpecError, OSError) as error:
        check.wrong(str(error), key, instead=_NO_OUTPUT)


def _check_apart(check: Check, file: JobText) -> None:
    """Note each pair of paths of which one is written, and is, holds or lies in the other."""
    values = check.values
    read = [key for key in (_INPUT, _LANDMARKS) if key in values and (key == _INPUT or is_file(values[key]))]
    written = [key for key in _WRITTEN if key in values]
    pairs = [*product(written, read), *combinations(written, 2)]
    met = [pair for pair in pairs if _meet(values[pair[0]], values[pair[1]])]
    over = [key for key in written if _meet(values[key], file.file)]
    for pair in met:
        check.wrong("these are the same path, or one lies in the other: give each a path of its own", *pair)
    for key in over:
        check.wrong("this is, or holds, the job file: give another path", key)


def _meet(written: str, other: str) -> bool:
    """Whether a path that is written is, holds or lies in another one."""
    try:
        store_of(written).output_path(written, (other,))
    except SpecError:
        return True
    except OSError:
        return False  # which the run will tell
    return False


def is_file(landmarks: str) -> bool:
    """Whether landmarks are those in a file, rather than chosen by a rule."""
    return landmarks.endswith(".npy")
