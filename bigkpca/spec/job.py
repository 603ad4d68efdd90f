"""A job file for `bigkpca run`: read into a value, or refused in one error that lists its problems."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from bigkpca.data.devices import Device
from bigkpca.data.stores import AnyPath, expanded, is_url, last_name, parent, store_of
from bigkpca.errors import SpecError, unknown_name
from bigkpca.numerics.calibration import CALIBRATION_ROWS
from bigkpca.spec.checks import typed, unused, without_weights
from bigkpca.spec.fit_spec import FitSpec
from bigkpca.spec.units import TIMEOUT_WRITTEN, check_scheduler, parse_bytes, parse_seconds

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _full(path: str, info: Any) -> str:
    """The full path of a path in a job file."""
    if "\0" in path:
        raise SpecError("a path cannot contain a zero character")
    path = expanded(path)
    try:
        inside = is_url(path) or path.startswith("/")
        return store_of(path).absolute(path if inside else f"{parent(info.context['file'])}/{path}")
    except OSError as error:
        raise SpecError(str(error)) from error


def _local(path: str, info: Any) -> str:
    if is_url(path):
        raise SpecError("metrics go to a file for the node exporter of this machine: give a local path")
    return _full(path, info)


def _valid(check: Callable[[Any], Any]) -> AfterValidator:
    """Keeps values for which a function raises no error."""

    def keep(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(keep)


_Text = Annotated[str, Field(min_length=1)]
_Path = Annotated[_Text, AfterValidator(_full)]
_Count = Annotated[int, Field(ge=1, le=2**31)]


class JobTable(BaseModel):
    """A table of a job file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JobInput(JobTable):
    """The rows, to which others can append between and during runs."""

    path: _Path


class JobModel(JobTable):
    """The model: its path, and what to fit if there is none; `options.model_fields_set` names what the file sets."""

    path: _Path
    options: FitSpec

    @model_validator(mode="before")
    @classmethod
    def _of_file(cls, table: Any, info: Any) -> Any:
        if not isinstance(table, dict):
            return table
        options = {name: value for name, value in table.items() if name != "path"}
        path = {"path": table["path"]} if "path" in table else {}
        return path | {"options": typed(options, lambda file: _full(file, info))}

    @model_validator(mode="after")
    def _used(self) -> JobModel:
        given = {name: getattr(self.options, name) for name in self.options.model_fields_set}
        for clash in unused(given, str(self.options.kernel), self.options.method_value.name):
            raise SpecError(f"{clash.option} {clash.message}")
        if self.options.precomputed:
            raise SpecError("a job extracts features of rows, and a kernel matrix has none: give another kernel")
        return self


class JobOutput(JobTable):
    """The features. must_exist: whether earlier runs left some; otherwise the record beside the job file tells."""

    path: _Path
    block_rows: _Count | None = None
    flag: Annotated[float, Field(gt=0, lt=1)] | None = None
    must_exist: bool = False


class JobRun(JobTable):
    """Where a run works and what it may use, how it reacts to drift, and how to monitor it."""

    scheduler: Annotated[_Text, _valid(check_scheduler)] | None = None
    workers: _Count | None = None
    device: Annotated[_Text, _valid(Device.named)] | None = None
    memory: Annotated[_Text, _valid(parse_bytes)] | None = None
    timeout: Annotated[float | _Text, _valid(parse_seconds)] = TIMEOUT_WRITTEN
    on_drift: Literal["warn", "fail"] = "warn"
    drift_threshold: Annotated[float, Field(gt=0, le=1)] = 0.2
    metrics: Annotated[_Text, AfterValidator(_local)] | None = None

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
        """What to fit. The last rows are set aside for calibration unless the file says which, if the model can have
        any."""
        options = self.model.options
        usual: dict[str, Any] = {"calibration_rows": CALIBRATION_ROWS, "calibration": "last"}
        if without_weights(options, "calibration_rows"):
            return options
        given = options.model_fields_set
        return options.model_copy(update={name: value for name, value in usual.items() if name not in given})

    def running(self, **options: Any) -> Job:
        """The same job with other options of a run, except those that are None."""
        given = {name: value for name, value in options.items() if value is not None}
        places = dict.fromkeys(("scheduler", "workers") if given.keys() & {"scheduler", "workers"} else ())
        return self.model_copy(update={"run": self.run.model_copy(update=places | given)})

    @model_validator(mode="after")
    def _consistent(self, info: Any) -> Job:
        self._file = info.context["file"]
        if problems := [*self._overlaps(), *self._clashes()]:
            raise SpecError("; ".join(problems))
        return self

    def _overlaps(self) -> Iterator[str]:
        """Paths that cannot be written, or would be written over another one."""
        written = {"model.path": self.model.path, "output.path": self.output.path, "run.metrics": self.run.metrics}
        for name, path in written.items():
            others = [self.file, self.input.path, *(other for key, other in written.items() if key != name)]
            try:
                if path is not None:
                    store_of(path).output_path(path, tuple(filter(None, others)))
            except (SpecError, OSError) as error:
                yield f"{name}: {error}"

    def _clashes(self) -> Iterator[str]:
        """Keys that conflict with the model. Values are not shown, since they can come from the environment."""
        flag, spec = self.output.flag, self.spec
        if flag is not None and (clash := without_weights(spec, "output.flag")):
            yield f"output.flag does not work with this model.{clash.option}: leave one of the two out"
        if flag is not None and flag < 2 / (spec.calibration_rows + 1):
            yield "output.flag is below 2 / (1 + model.calibration_rows): give a larger share, or set more such rows"


def read_job(path: AnyPath, environment: Mapping[str, str]) -> Job:
    """The job in a file, in whose texts `${NAME}` stands for a variable of the environment. Raises SpecError that lists
    all problems with their keys, and shows the names of variables in place of their values, which may be secret."""
    name = expanded(path)
    if is_url(name):
        raise SpecError(f"{name}: a job file must be on a local disk, not in an object store")
    try:
        with store_of(name).open(name) as file:
            content = file.read().decode("utf-8-sig")  # some editors write a byte order mark first
        tables = tomllib.loads(content)
    except FileNotFoundError:
        raise SpecError(f"there is no job file {name}") from None
    except OSError as error:
        raise SpecError(f"the job file {name} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{name} is not valid TOML: {error}") from None
    full = f"{store_of(name).absolute(parent(name)).rstrip('/')}/{last_name(name)}"
    try:
        return Job.model_validate(_filled(tables, environment, f"{name}: "), context={"file": full})
    except ValidationError as error:
        told = "\n".join(f"{name}: {problem}" for problem in _problems(error))
        for variable in filter(environment.get, _VARIABLE.findall(content)):
            told = told.replace(environment[variable], f"${{{variable}}}")
        raise SpecError(told) from None


def _filled(value: Any, environment: Mapping[str, str], where: str) -> Any:
    """A value with the variables in its texts replaced. Raises SpecError for a variable that is not set."""
    if isinstance(value, dict):
        return {key: _filled(each, environment, f"{where}{key}.") for key, each in value.items()}
    if not isinstance(value, str):
        return value
    if unset := [name for name in _VARIABLE.findall(value) if name not in environment]:
        raise SpecError(f"{where.removesuffix('.')}: the environment variable {unset[0]} is not set")
    return _VARIABLE.sub(lambda found: environment[found[1]], value)


def _problems(errors: ValidationError) -> list[str]:
    """What is wrong, with the path of the key."""
    found: dict[str, list[str]] = {}
    for one in errors.errors():
        # The options of the fit stand in the table of the model; deeper keys are those of kinds that a value may have.
        key = [str(part) for part in one["loc"] if part != "options"][:2]
        text = str(one.get("ctx", {}).get("error", one["msg"]))
        if one["type"] == "extra_forbidden":
            table: Any = Job if len(key) == 1 else Job.model_fields[key[0]].annotation
            known = ["path", *FitSpec.model_fields] if table is JobModel else list(table.model_fields)
            text = str(unknown_name("key", key[-1], known))
        found.setdefault(".".join(key), []).append(text)
    return [f"{key}: {', or '.join(dict.fromkeys(texts))}".removeprefix(": ") for key, texts in found.items()]
