"""A job file for `bigkpca run`: read into a value, or reported in one error that lists all its problems."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, product
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, model_validator

from bigkpca.data.devices import Device
from bigkpca.data.stores import AnyPath, expanded, is_url, store_of
from bigkpca.errors import SpecError, nearest
from bigkpca.numerics.outliers import CALIBRATION_ROWS
from bigkpca.spec.checks import Clash, clashes, landmarks_of_file, unused, without_weights
from bigkpca.spec.fields import FitSpec
from bigkpca.spec.job.tables import (
    MOST,
    TABLES,
    VARIABLE,
    JobInput,
    JobModel,
    JobOutput,
    JobRun,
    JobTable,
    JobTop,
    ModelTable,
    choices,
    either,
    job_schema,
    properties,
    words,
)
from bigkpca.spec.job.text import JobText, Key
from bigkpca.spec.units import is_scheduler, lacks_unit, parse_bytes, parse_seconds

_MOST_PROBLEMS = 100  # exceeded only by files that are not job files
_SHOWN_CHARACTERS = 80  # of a value in a message
_LOOKED_AT = 2000  # characters of it that are searched for secrets
_MOST_CHARACTERS = 80  # of a word that is compared with known words
_VARIABLE = re.compile(VARIABLE)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_INPUT, _MODEL, _OUTPUT = ("input", "path"), ("model", "path"), ("output", "path")
_METRICS, _LOG = ("run", "metrics"), ("run", "log")
_FLAG, _CALIBRATION = ("output", "flag"), ("model", "calibration_rows")
_SCHEDULER, _WORKERS = ("run", "scheduler"), ("run", "workers")
_KERNEL, _LANDMARKS = ("model", "kernel"), ("model", "landmarks")
_SAMPLE_WEIGHT = ("input", "sample_weight")
_WRITTEN = (_MODEL, _OUTPUT, _METRICS)


class JobError(SpecError):
    """All problems of a job file (exit code 2). If these keys are valid, it states whom a failed run concerns."""

    output: str | None = None
    metrics: str | None = None
    log: str | None = None


def error_of(path: str, lines: Mapping[Key, int], problems: Iterable[tuple[str, tuple[Key, ...]]]) -> JobError:
    """One error for all problems of a job file: one line each, in the order of the file."""
    placed = [(sorted({lines[key] for key in keys if key in lines}), text) for text, keys in problems]
    placed.sort(key=lambda each: each[0] or [0])
    messages = []
    for at, text in placed[:_MOST_PROBLEMS]:
        where = f", line{'s' if len(at) > 1 else ''} {' and '.join(map(str, at))}" if at else ""
        # On one line, with terminal control characters escaped.
        shown = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)
        messages.append(f"{path}{where}: {shown}")
    if len(placed) > _MOST_PROBLEMS:
        messages.append(f"{path}: and {len(placed) - _MOST_PROBLEMS} more")
    return JobError("\n".join(messages))


def name_of(key: Key) -> str:
    """The name of a key in messages: run.workers.

    Examples
    --------
    >>> name_of(("run", "the workers"))
    'run."the workers"'
    """
    return ".".join(_cut(part) if _BARE.fullmatch(part) else _text(part) for part in key)


def shown(key: Key, value: Any) -> str:
    """A key and its value as in a job file, without anything that could be a password in a URL.

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
        value = re.sub(r"://[^/\s]*@", "://...@", value[:_LOOKED_AT])
        value = re.sub(r"(://[^?]*\?).*", r"\1...", value, flags=re.DOTALL)
        return f"{name_of(key)} = {_text(value)}"
    return f"{name_of(key)} = {_cut(str(value).lower() if isinstance(value, bool) else str(value))}"


def _text(value: str) -> str:
    return json.dumps(_cut(value), ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


@dataclass
class Check:
    """Findings of the check of a job file: valid values, as written and as read, and problems."""

    environment: Mapping[str, str]
    given: dict[Key, Any] = field(default_factory=dict)
    values: dict[Key, Any] = field(default_factory=dict)
    problems: list[tuple[str, tuple[Key, ...]]] = field(default_factory=list)

    def table(self, name: str) -> dict[str, Any]:
        """The valid values of a table."""
        return {key[-1]: value for key, value in self.values.items() if key[:-1] == (name,)}

    def hidden(self, key: Key) -> bool:
        """Whether a value came from the environment, so that messages must not show it."""
        raw = self.given.get(key)
        return isinstance(raw, str) and bool(_VARIABLE.search(raw))

    def wrong(self, reason: str, *keys: Key, instead: str = "") -> None:
        """Record a problem with the values of keys in the file, which then no longer count as valid.

        `instead` is the reason without the value, for values from the environment.
        """
        reason = instead if instead and any(map(self.hidden, keys)) else reason
        self.problem(f"{' and '.join(shown(key, self.given[key]) for key in keys)}: {reason}", *keys)
        for key in keys:
            self.values.pop(key, None)

    def wrong_kind(self, kind: type[JobTable], key: Key) -> None:
        """Record a value that the key of a table does not accept."""
        schema, raw, hint, quotes = properties(kind)[key[-1]], self.given[key], "", ""
        if isinstance(raw, int) and raw > MOST:
            hint = "too large: "
        if isinstance(raw, str):
            hint, literal = _hint(raw, choices(schema), '"{}"'), _literal(raw)
            with suppress(ValidationError):
                _read(kind, key[-1], [literal])
                quotes = "" if isinstance(literal, str) else ", without quotes"
        self.wrong(f"{hint}give {words(schema)}{quotes}", key)

    def problem(self, text: str, *keys: Key) -> None:
        """Record a problem."""
        self.problems.append((text, keys))


def check_keys(raw: Mapping[str, Any], environment: Mapping[str, str]) -> Check:
    """Check that the tables and keys of a job file are known, complete and of the right kind."""
    check = Check(environment)
    for name, value in raw.items():
        if name not in TABLES:
            _check_key(check, JobTop, (name,), value)
        elif isinstance(value, dict):
            for key, each in value.items():
                _check_key(check, TABLES[name], (name, key), each)
        else:
            check.problem(
                f"{shown((name,), value)}: this must be a table: write [{name}], and its keys below it", (name,)
            )
    for name, kind in TABLES.items():
        table = raw.get(name)
        if table is not None and not isinstance(table, dict):
            continue
        for key, about in kind.model_fields.items():
            if not about.is_required() or key in (table or ()):
                continue
            example = f'{key} = "{properties(kind)[key]["examples"][0]}"'
            if table is None:
                check.problem(f"the table [{name}] is missing: add [{name}], and below it, for example, {example}")
            else:
                check.problem(f"[{name}] lacks {key}: add, for example, {example}", (name,))
    return check


def _check_key(check: Check, kind: type[JobTable], key: Key, raw: Any) -> None:
    """Fill in the variables of a value and check it."""
    check.given[key] = raw
    texts = [each for each in (raw.values() if isinstance(raw, dict) else [raw]) if isinstance(each, str)]
    names = dict.fromkeys(name[2:-1] for text in texts for name in _VARIABLE.findall(text))
    unset = [name for name in names if name not in check.environment]
    for name in unset:
        check.wrong(f"the environment variable {name} is not set", key)
    if key[-1] not in kind.model_fields:
        _unknown(check, kind, key, raw)
        return
    if unset:
        return
    if isinstance(raw, dict):
        candidates: list[Any] = [{name: _filled(check, each)[-1] for name, each in raw.items()}]
    else:
        candidates = _filled(check, raw)
    # 50.0 is 50.
    whole = [int(each) if isinstance(each, float) and each.is_integer() else each for each in candidates]
    try:
        check.values[key] = _read(kind, key[-1], whole)
    except ValidationError:
        check.wrong_kind(kind, key)


def _filled(check: Check, raw: Any) -> list[Any]:
    """A value with its variables filled in, as text and, if it is a variable, as the number or boolean that this can
    hold."""
    if not isinstance(raw, str):
        return [raw]
    value = _VARIABLE.sub(lambda name: check.environment[name[0][2:-1]], raw)
    return [value, _literal(value)] if _VARIABLE.fullmatch(raw) else [value]


def _read(kind: type[JobTable], name: str, candidates: Iterable[Any]) -> Any:
    """The first of these values that a key accepts. Raises ValidationError if it accepts none."""
    *first, last = candidates
    for candidate in first:
        with suppress(ValidationError):
            return _adapter(kind, name).validate_python(candidate)
    return _adapter(kind, name).validate_python(last)


@cache
def _adapter(kind: type[JobTable], name: str) -> TypeAdapter[Any]:
    """The checker of one key, without the conversions of pydantic: in TOML, text is not a number."""
    about = kind.model_fields[name]
    written: Any = Annotated[about.annotation, about]
    return TypeAdapter(written, config=ConfigDict(strict=True, allow_inf_nan=False))


def _literal(text: str) -> Any:
    """The number or boolean that a text represents, or else the text."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    return text


def _unknown(check: Check, kind: type[JobTable], key: Key, raw: Any) -> None:
    """Record an unknown key or table."""
    *above, name = key
    tables = [f"[{table}]" for table in TABLES]
    if not above and (isinstance(raw, dict) or (isinstance(raw, list) and raw and isinstance(raw[0], dict))):
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


_NO_PATH = "give a local path, or a URL that begins with s3://, gs:// or az://"
_NO_OUTPUT = "nothing can be written there: name a new folder"


def check_paths(check: Check, file: JobText) -> None:
    """Make the paths of a job absolute, and check that nothing is written where another path lies."""
    values = check.values
    if is_url(values.get(_METRICS, "")):
        check.wrong("metrics go to a file for the node exporter of this machine: give a local path", _METRICS)
    for key in (_INPUT, _MODEL, _OUTPUT, _METRICS, _LANDMARKS):
        if key in values and (key != _LANDMARKS or is_file(values[key])):
            try:
                values[key] = absolute(values[key], file.folder)
            except (SpecError, ValueError, OSError) as error:
                check.wrong(str(error), key, instead=_NO_PATH)
    for key in _WRITTEN:
        if key in values:
            try:
                store_of(values[key]).output_path(values[key], ())
            except (SpecError, OSError) as error:
                check.wrong(str(error), key, instead=_NO_OUTPUT)
    read = [key for key in (_INPUT, _LANDMARKS) if key in values and (key == _INPUT or is_file(values[key]))]
    written = [key for key in _WRITTEN if key in values]
    pairs = [*product(written, read), *combinations(written, 2)]
    met = [pair for pair in pairs if _meet(values[pair[0]], values[pair[1]])]
    over = [key for key in written if _meet(values[key], file.file)]
    for pair in met:
        check.wrong("these paths are the same, or one lies in the other: give each a separate path", *pair)
    for key in over:
        check.wrong("this is the job file or a folder that contains it: give another path", key)


def absolute(path: str, folder: str) -> str:
    """The full path of a path in a job file in `folder`. Raises SpecError for anything but a path."""
    if "\0" in path:
        raise SpecError("a path cannot contain a zero character: remove it")
    path = expanded(path)
    return store_of(path).absolute(path if is_url(path) or path.startswith("/") else f"{folder}/{path}")


def _meet(written: str, other: str) -> bool:
    """Whether a written path is the same as another one, contains it, or lies in it."""
    try:
        store_of(written).output_path(written, (other,))
    except SpecError:
        return True
    except OSError:
        return False  # the run will report this
    return False


def is_file(landmarks: str) -> bool:
    """Whether landmarks come from a file, rather than from a rule."""
    return landmarks.endswith(".npy")


_NO_MORE = (
    "this conflicts with the other options of the model; the reason is hidden because it would show the environment"
)


class _Fields(FitSpec):
    """A FitSpec whose fields are each valid, but can conflict."""

    @model_validator(mode="after")
    def _combinations(self) -> _Fields:
        return self


def check_model(check: Check) -> dict[str, Any]:
    """The fields of FitSpec that a job file sets, if they are valid and do not conflict."""
    fields = {name: value for name, value in check.table("model").items() if name != "path"}
    if fields.get("components") == "none":
        fields["components"] = None
    if is_file(fields.get("landmarks", "")):
        try:
            fields["landmarks"] = landmarks_of_file(fields["landmarks"])
        except SpecError as error:
            del fields["landmarks"]
            check.wrong(str(error), _LANDMARKS, instead="landmarks cannot be read from there: give a .npy file of rows")
    try:
        spec = _Fields(**fields)
    except ValidationError as errors:
        for one in errors.errors():
            name = str(one["loc"][0])
            key, value = ("model", name), fields.pop(name)
            if isinstance(value, str) and ":" not in value:
                check.wrong_kind(ModelTable, key)
                continue
            reason = str(one["ctx"]["error"]).removeprefix(f"{name}={value!r}: ")
            check.wrong(reason, key, instead=f"give {words(properties(ModelTable)[name])}")
        spec = _Fields(**fields)
    if spec.precomputed:
        check.wrong("a job extracts features of rows, and a kernel matrix has none: give another kernel", _KERNEL)
    ignored = [
        Clash(clash.fields, f"{clash.fields[0]} {clash.message}")
        for clash in unused(fields, str(spec.kernel), spec.method_value.name)
    ]
    wrong = {key[-1] for key in check.given if key[:-1] == ("model",) and key not in check.values}
    conflicts = [*clashes(spec), *ignored]
    for clash in conflicts:
        if not wrong & {*clash.fields}:  # otherwise that field alone could be the cause
            keys = [("model", name) for name in clash.fields if name in fields]
            check.wrong(clash.message, *keys, instead=_NO_MORE)
    for key, what in ((_SAMPLE_WEIGHT, "sample weights"), (_FLAG, "flags, which need calibration rows")):
        if key in check.values and not (wrong or conflicts) and (other := without_weights(spec, what)):
            check.wrong(other.message, key, ("model", *other.fields), instead=_NO_MORE)
    if ("seed",) in check.values:
        fields["seed"] = check.values["seed",]
    return fields


class Job(JobTop):
    """The content of a job file, with full paths and environment variables filled in. `file` is its path."""

    input: JobInput
    model: JobModel
    output: JobOutput
    run: JobRun
    file: str | None = None


def read_job(path: AnyPath, environment: Mapping[str, str]) -> Job:
    """Read a job file and check all of it.

    Parameters
    ----------
    path : str or path
        The job file. Paths in it are relative to its folder.
    environment : mapping
        Environment variables, which replace `${NAME}` in texts.

    Returns
    -------
    Job

    Raises
    ------
    SpecError
        The file cannot be read, or is wrong: one error lists all problems with their lines, keys and values. Values
        from the environment are not shown.

    Examples
    --------
    >>> import pathlib
    >>> text = '[input]\\npath="${LAKE}/x.zarr"\\n[model]\\npath="/m.zarr"\\n[output]\\npath="/out"'
    >>> _ = pathlib.Path("nightly.toml").write_text(text)
    >>> job = read_job("nightly.toml", {"LAKE": "s3://lake"})
    >>> job.input.path, job.run.on_drift, job.model.spec.components
    ('s3://lake/x.zarr', 'warn', 50)
    """
    file = JobText.read(path)
    check = check_keys(file.values, environment)
    check_paths(check, file)
    written = {key: check.values.get(key) for key in (_OUTPUT, _METRICS, _LOG)}
    fields = check_model(check)
    for key, (read, wanted) in _TEXTS.items():
        if key in check.values:
            try:
                found = read(check.values[key])
            except ValueError:  # SpecError is one, too
                found = False
            if found is False:
                check.wrong(wanted, key)
    spec = {"calibration_rows": CALIBRATION_ROWS} | fields if _FLAG in check.values else fields
    _check_flag(check, spec.get("calibration_rows", 0))
    if _SCHEDULER in check.given and _WORKERS in check.given:
        check.wrong("give the address of a scheduler or a number of local processes, not both", _SCHEDULER, _WORKERS)
    if check.problems:
        error = error_of(file.path, file.lines, check.problems)
        error.output, error.metrics, error.log = (written[key] for key in (_OUTPUT, _METRICS, _LOG))
        raise error
    return Job(
        input=JobInput(**check.table("input")),
        model=JobModel(path=check.values["model", "path"], spec=FitSpec(**spec), given=frozenset(fields)),
        output=JobOutput(**check.table("output")),
        run=JobRun(**check.table("run")),
        file=file.file,
        **({"seed": fields["seed"]} if "seed" in fields else {}),
    )


def _check_flag(check: Check, calibration_rows: int) -> None:
    """Check that so many calibration rows can show the share of rows that may be flagged."""
    if _FLAG in check.values and check.values[_FLAG] < (least := 1 / (calibration_rows + 1)):
        check.wrong(
            f"with {calibration_rows:,} calibration rows, the least share is {least:.2g}: give a larger share, or set "
            "a larger model.calibration_rows",
            *[key for key in (_FLAG, _CALIBRATION) if key in check.given],
        )


# A reader of texts, which returns False or raises ValueError for an invalid one, and a description of valid texts.
_TEXTS: Mapping[Key, tuple[Callable[[Any], Any], str]] = {
    _SAMPLE_WEIGHT: (
        lambda text: "/" not in text and not text.endswith(".npy"),
        "give the name of an array in the Zarr group of the rows, such as sample_weight",
    ),
    _SCHEDULER: (is_scheduler, "give the address of a Dask scheduler, such as tcp://10.0.0.1:8786"),
    ("run", "device"): (Device.named, 'give the name of a device, such as "cuda", "cuda:1" or "cupy:cuda:0"'),
    ("run", "memory"): (
        lambda text: not lacks_unit(text) and parse_bytes(text),
        'give an amount of memory with its unit, such as "2 GB" or "500 MB"',
    ),
    ("run", "timeout"): (parse_seconds, 'give a time such as "90 s" or "10 min", or a number of seconds'),
}

__all__ = ["Job", "JobError", "JobInput", "JobModel", "JobOutput", "JobRun", "job_schema", "read_job"]
