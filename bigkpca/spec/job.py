"""A job file for `bigkpca run`: read into a value, or refused in one error that lists all its problems."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from bigkpca.data.devices import Device
from bigkpca.data.stores import AnyPath, expanded, is_url, last_name, parent, store_of
from bigkpca.errors import SpecError, nearest
from bigkpca.numerics.outliers import CALIBRATION_ROWS
from bigkpca.spec.checks import landmarks_of_file, unused, without_weights
from bigkpca.spec.fields import FitSpec
from bigkpca.spec.units import TIMEOUT_WRITTEN, is_scheduler, lacks_unit, parse_bytes, parse_seconds

_MOST_BYTES = 1_000_000
_MOST_PROBLEMS, _MOST_CHARACTERS = 100, 500  # exceeded only by files that are not job files
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE = "file"  # the full path of the job file, in the context of validation


def _file_of(info: ValidationInfo) -> str:
    context: Any = info.context
    return str(context[_FILE])


def _full(path: str, info: ValidationInfo) -> str:
    """The full path of a path in a job file."""
    if "\0" in path:
        raise SpecError("a path cannot contain a zero character")
    path = expanded(path)
    try:
        inside = is_url(path) or path.startswith("/")
        return store_of(path).absolute(path if inside else f"{parent(_file_of(info))}/{path}")
    except OSError as error:
        raise SpecError(str(error)) from error


def _writable(path: str, info: ValidationInfo) -> str:
    """The full path of an output."""
    path = _full(path, info)
    try:
        store_of(path).output_path(path, ())
    except OSError as error:
        raise SpecError(str(error)) from error
    return path


def _local(path: str, info: ValidationInfo) -> str:
    if is_url(path):
        raise SpecError("metrics go to a file for the node exporter of this machine: give a local path")
    return _writable(path, info)


def _array(name: str) -> str:
    if "/" in name or name.endswith(".npy"):
        raise SpecError("give the name of an array in the Zarr group of the rows, such as sample_weight")
    return name


def _scheduler(address: str) -> str:
    if not is_scheduler(address):
        raise SpecError("give the address of a Dask scheduler, such as tcp://10.0.0.1:8786")
    return address


def _memory(amount: str) -> str:
    if lacks_unit(amount):
        raise SpecError("give an amount of memory with its unit, such as '2 GB'")
    parse_bytes(amount)
    return amount


def _valid(check: Callable[[Any], Any]) -> AfterValidator:
    """Keeps values for which a function raises no error."""

    def keep(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(keep)


_Text = Annotated[str, Field(min_length=1)]
_Output = Annotated[_Text, AfterValidator(_writable)]
_Count = Annotated[int, Field(ge=1, le=2**31)]


class JobTable(BaseModel):
    """A table of a job file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JobInput(JobTable):
    """The rows, to which others can append between and during runs."""

    path: Annotated[_Text, AfterValidator(_full)]
    array: _Text | None = None
    sample_weight: Annotated[_Text, AfterValidator(_array)] | None = None


class JobModel(JobTable):
    """The model: its path, and what to fit if there is none; `options.model_fields_set` names what the file sets."""

    path: _Output
    options: FitSpec

    @model_validator(mode="before")
    @classmethod
    def _of_file(cls, table: Any, info: ValidationInfo) -> Any:
        if not isinstance(table, dict):
            return table
        options = {name: None if value == "none" else value for name, value in table.items() if name != "path"}
        landmarks = options.get("landmarks")
        if isinstance(landmarks, str) and landmarks.endswith(".npy"):
            options["landmarks"] = landmarks_of_file(_full(landmarks, info))
        return {name: value for name, value in table.items() if name == "path"} | {"options": options}

    @model_validator(mode="after")
    def _used(self) -> JobModel:
        given = {name: getattr(self.options, name) for name in self.options.model_fields_set}
        for clash in unused(given, str(self.options.kernel), self.options.method_value.name):
            raise SpecError(f"{clash.option} {clash.message}")
        if self.options.precomputed:
            raise SpecError("a job extracts features of rows, and a kernel matrix has none: give another kernel")
        return self


class JobOutput(JobTable):
    """The features. must_exist: whether earlier runs left some; None if the record beside the job file decides."""

    path: _Output
    block_rows: _Count | None = None
    flag: Annotated[float, Field(gt=0, lt=1)] | None = None
    must_exist: bool | None = None


class JobRun(JobTable):
    """Where a run works and what it may use, how it reacts to drift, and how to monitor it."""

    scheduler: Annotated[_Text, AfterValidator(_scheduler)] | None = None
    workers: _Count | None = None
    device: Annotated[_Text, _valid(Device.named)] | None = None
    memory: Annotated[_Text, AfterValidator(_memory)] | None = None
    timeout: Annotated[float | _Text, _valid(parse_seconds)] = TIMEOUT_WRITTEN
    on_drift: Literal["warn", "fail"] = "warn"
    drift_threshold: Annotated[float, Field(gt=0, le=1)] = 0.2
    metrics: Annotated[_Text, AfterValidator(_local)] | None = None
    log: Literal["plain", "json"] = "plain"

    @model_validator(mode="after")
    def _one_place(self) -> JobRun:
        if self.scheduler is not None and self.workers is not None:
            raise SpecError("give a scheduler or a number of workers, not both")
        return self


class Job(JobTable):
    """The content of a job file, with full paths and environment variables filled in."""

    input: JobInput
    model: JobModel
    output: JobOutput
    run: JobRun = JobRun()
    _file: str = PrivateAttr("")

    @property
    def file(self) -> str:
        """The full path of the job file."""
        return self._file

    @property
    def spec(self) -> FitSpec:
        """What to fit. With flags, calibration rows are set aside even if the file does not say how many."""
        options = self.model.options
        if self.output.flag is None or "calibration_rows" in options.model_fields_set:
            return options
        return options.model_copy(update={"calibration_rows": CALIBRATION_ROWS})

    def running(self, **options: Any) -> Job:
        """The same job with other options of a run, except those that are None."""
        given = {name: value for name, value in options.items() if value is not None}
        places = dict.fromkeys(("scheduler", "workers") if given.keys() & {"scheduler", "workers"} else ())
        return self.model_copy(update={"run": self.run.model_copy(update=places | given)})

    @model_validator(mode="after")
    def _consistent(self, info: ValidationInfo) -> Job:
        self._file = _file_of(info)
        if problems := [*self._overlaps(), *self._clashes()]:
            raise SpecError("; ".join(problems))
        return self

    def _overlaps(self) -> Iterator[str]:
        """Paths that would be written over another one."""
        written = {"model.path": self.model.path, "output.path": self.output.path}
        if self.run.metrics is not None:
            written["run.metrics"] = self.run.metrics
        read = {"input.path": self.input.path, "the job file": self.file}
        for (name, path), (other, taken) in [
            *combinations(written.items(), 2),
            *((one, two) for one in written.items() for two in read.items()),
        ]:
            try:
                store_of(path).output_path(path, (taken,))
            except SpecError:
                yield f"{name} and {other} are the same, or one lies in the other: give each a separate path"

    def _clashes(self) -> Iterator[str]:
        """Keys that conflict with the model. Values are not shown, since they can come from the environment."""
        flag, spec = self.output.flag, self.spec
        for name, value in {"input.sample_weight": self.input.sample_weight, "output.flag": flag}.items():
            if value is not None and (clash := without_weights(spec, name)):
                yield f"{name} does not work with this model.{clash.option}: leave one of the two out"
        if flag is not None and flag < 1 / (spec.calibration_rows + 1):
            yield "output.flag is below 1 / (1 + model.calibration_rows): give a larger share, or set more such rows"


class JobError(SpecError):
    """All problems of a job file (exit code 2). log: in which format the file asks for messages."""

    log = "plain"


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
        The file cannot be read, or is wrong: one error lists all problems with their keys. Values from the environment
        are not shown.

    Examples
    --------
    >>> import pathlib
    >>> text = '[input]\\npath="${LAKE}/x.zarr"\\n[model]\\npath="/m.zarr"\\n[output]\\npath="/out"'
    >>> _ = pathlib.Path("nightly.toml").write_text(text)
    >>> job = read_job("nightly.toml", {"LAKE": "s3://lake"})
    >>> job.input.path, job.run.on_drift, job.spec.kernel
    ('s3://lake/x.zarr', 'warn', 'gaussian')
    """
    name = expanded(path)
    tables = _tables(name)
    file = f"{store_of(name).absolute(parent(name)).rstrip('/')}/{last_name(name)}"
    filled = _Filled(environment)
    values = filled.of(tables, ())
    problems = {key: f"the environment variable {variable} is not set" for key, variable in filled.unset.items()}
    try:
        job = Job.model_validate(values, context={_FILE: file})
        if not problems:
            return job
    except ValidationError as errors:
        problems = _told(errors, filled.hidden) | problems
    lines = [f"{name}: {'.'.join(key)}{': ' if key else ''}{text}" for key, text in problems.items()]
    found = JobError("\n".join(map(_shown, [*lines[:_MOST_PROBLEMS], *lines[_MOST_PROBLEMS:][:1]])))
    if isinstance(run := values.get("run"), dict):
        found.log = str(run.get("log"))
    raise found


def _tables(name: str) -> dict[str, Any]:
    """The values of a job file. Raises SpecError if it cannot be read."""
    if is_url(name):
        raise SpecError(f"{name}: a job file must be on a local disk, not in an object store")
    try:
        with store_of(name).open(name) as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no job file {name}") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"the job file {name} cannot be read: {error}") from error
    if len(content) > _MOST_BYTES:
        raise SpecError(f"{name} is larger than 1 MB: a job file is a short text that names the data by path")
    try:
        return tomllib.loads(content.decode("utf-8-sig"))  # some editors write a byte order mark first
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{name} is not valid TOML: {error}") from None


class _Filled:
    """Fills environment variables into values: keys whose values hold some (hidden), and those that are not set."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.hidden: set[tuple[str, ...]] = set()
        self.unset: dict[tuple[str, ...], str] = {}

    def of(self, value: Any, key: tuple[str, ...]) -> Any:
        """The value with its variables replaced."""
        if isinstance(value, dict):
            return {name: self.of(each, (*key, name)[:2]) for name, each in value.items()}
        if not isinstance(value, str):
            return value
        for variable in _VARIABLE.findall(value):
            self.hidden.add(key)
            if variable not in self._environment:
                self.unset.setdefault(key, variable)
        return _VARIABLE.sub(lambda found: self._environment.get(found[1], found[0]), value)


def _told(errors: ValidationError, hidden: set[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """What is wrong with each key, without values from the environment."""
    found: dict[tuple[str, ...], list[str]] = {}
    for one in errors.errors():
        key = tuple(str(part) for part in one["loc"] if part != "options")[:2]
        # Conflicts within a table do not show its path.
        secret = key in hidden or any(each[:-1] == key and each[-1] != "path" for each in hidden)
        own = one.get("ctx", {}).get("error")
        if one["type"] == "extra_forbidden":
            text = _unknown(*key)
        elif one["type"] == "model_type":
            text = f"this must be a table: write [{'.'.join(key)}], and its keys below it"
        elif own is not None and secret:
            text = "this is not valid; the reason is hidden, since it would show values of the environment"
        else:
            text = one["msg"] if own is None else str(own)
        found.setdefault(key, []).append(text)
    return {key: ", or ".join(dict.fromkeys(texts)) for key, texts in found.items()}


def _unknown(*key: str) -> str:
    """What to say about a key that does not exist."""
    table: Any = Job if len(key) == 1 else Job.model_fields[key[0]].annotation
    known = ["path", *FitSpec.model_fields] if table is JobModel else list(table.model_fields)
    near = nearest(key[-1][:_MOST_CHARACTERS], known)
    return f"unknown key: {f'did you mean {near}? ' if near else ''}known are {', '.join(known)}"


def _shown(line: str) -> str:
    """A line of a message, with control characters escaped."""
    shown = "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in line)
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}..."


__all__ = ["Job", "JobError", "JobInput", "JobModel", "JobOutput", "JobRun", "read_job"]
