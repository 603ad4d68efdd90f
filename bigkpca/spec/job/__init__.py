"""A job file, which `bigkpca run` runs again and again: read into a value, or one error that names all its problems."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError, model_validator

from bigkpca.data.stores import AnyPath
from bigkpca.errors import SpecError
from bigkpca.spec.checks import landmarks_of_file
from bigkpca.spec.combinations import Clash, clashes, unused
from bigkpca.spec.fields import FitSpec
from bigkpca.spec.job.check import Check, JobError, check_keys, check_paths, error_of, is_file
from bigkpca.spec.job.tables import (
    MOST,
    JobInput,
    JobModel,
    JobOutput,
    JobRun,
    JobTop,
    ModelTable,
    job_schema,
    properties,
    words,
)
from bigkpca.spec.job.text import JobText
from bigkpca.spec.units import is_scheduler, lacks_unit, parse_bytes, parse_seconds

_SEED, _KERNEL, _LANDMARKS = ("seed",), ("model", "kernel"), ("model", "landmarks")
_NO_MORE = "this does not fit the other options of the model; the reason would show what the environment holds"


class _Fields(FitSpec):
    """A FitSpec whose fields are right one by one, and may not go together."""

    @model_validator(mode="after")
    def _combinations(self) -> _Fields:
        return self


def check_model(check: Check) -> dict[str, Any]:
    """The fields of FitSpec that a job file sets, where they are right by themselves and together."""
    fields = {name: value for name, value in check.table("model").items() if name != "path"}
    if fields.get("components") == "none":
        fields["components"] = None
    if is_file(fields.get("landmarks", "")):
        _read_landmarks(check, fields)
    spec = _checked(check, fields)
    if spec.precomputed:
        check.wrong("a job extracts features of rows, and a matrix of kernels has none: give another kernel", _KERNEL)
    _check_together(check, spec, fields)
    if _SEED in check.values:
        fields["seed"] = check.values[_SEED]
    return fields


def _read_landmarks(check: Check, fields: dict[str, Any]) -> None:
    try:
        fields["landmarks"] = landmarks_of_file(fields["landmarks"])
    except SpecError as error:
        del fields["landmarks"]
        check.wrong(str(error), _LANDMARKS, instead="landmarks cannot be read from there: give a .npy file of rows")


def _checked(check: Check, fields: dict[str, Any]) -> FitSpec:
    """The spec of the fields that are right; the others are noted and removed."""
    try:
        return _Fields(**fields)
    except ValidationError as error:
        for one in error.errors():
            name = str(one["loc"][0])
            key, value = ("model", name), fields.pop(name)
            if isinstance(value, str) and ":" not in value:
                check.wrong_kind(ModelTable, key)
                continue
            reason = str(one["ctx"]["error"]).removeprefix(f"{name}={value!r}: ")
            check.wrong(reason, key, instead=f"give {words(properties(ModelTable)[name])}")
        return _Fields(**fields)


def _check_together(check: Check, spec: FitSpec, fields: Mapping[str, Any]) -> None:
    """Note fields that do not go together, or would do nothing. Nothing is said of those that are wrong already."""
    wrong = {key[-1] for key in check.given if key[:-1] == ("model",) and key not in check.values}
    ignored = [
        Clash(clash.fields, f"{clash.fields[0]} {clash.message}")
        for clash in unused(fields, str(spec.kernel), spec.method_value.name)
    ]
    for clash in [*clashes(spec), *ignored]:
        if not wrong & {*clash.fields}:
            keys = [("model", name) for name in clash.fields if name in fields]
            check.wrong(clash.message, *keys, instead=_NO_MORE)


_OUTPUT, _METRICS, _LOG = ("output", "path"), ("run", "metrics"), ("run", "log")
_SCHEDULER, _WORKERS = ("run", "scheduler"), ("run", "workers")
_MEMORY, _TIMEOUT = ("run", "memory"), ("run", "timeout")
_GATEWAY, _KEEP = ("run", "push_metrics"), ("output", "keep")


class Job(JobTop):
    """What a job file says: paths are full, and environment variables are filled in. `file` is its own path."""

    input: JobInput
    model: JobModel
    output: JobOutput
    run: JobRun
    file: str | None = None


def read_job(path: AnyPath, environment: Mapping[str, str]) -> Job:
    """Read a job file, and check all of it.

    Parameters
    ----------
    path : str or path
        The job file. Relative paths in it start at its folder.
    environment : mapping
        Environment variables, which fill `${NAME}` in texts.

    Returns
    -------
    Job
        Its value.

    Raises
    ------
    SpecError
        Where the file cannot be read, or is wrong: one error names all that is wrong, each with line, key and value.
        Values from the environment are not shown.

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
    _check_run(check)
    if check.problems:
        error = error_of(file.path, file.lines, check.problems)
        error.output, error.metrics, error.log = (written[key] for key in (_OUTPUT, _METRICS, _LOG))
        raise error
    return Job(
        input=JobInput(**check.table("input")),
        model=JobModel(path=check.values["model", "path"], spec=FitSpec(**fields), given=frozenset(fields)),
        output=JobOutput(**check.table("output")),
        run=JobRun(**check.table("run")),
        file=file.file,
        **({"seed": fields["seed"]} if "seed" in fields else {}),
    )


def _check_run(check: Check) -> None:
    """Check the texts of the tables [run] and [output], and that the former names one place to work."""
    values = check.values
    if _SCHEDULER in values and not is_scheduler(values[_SCHEDULER]):
        check.wrong("give the address of a Dask scheduler, such as tcp://10.0.0.1:8786", _SCHEDULER)
    if _SCHEDULER in check.given and _WORKERS in check.given:
        check.wrong("give the address of a scheduler or a number of local processes, not both", _SCHEDULER, _WORKERS)
    if _MEMORY in values and not _is_amount(values[_MEMORY]):
        check.wrong('give an amount of memory with its unit, such as "2 GB" or "500 MB"', _MEMORY)
    if _TIMEOUT in values and not _is_time(values[_TIMEOUT]):
        check.wrong('give a time such as "90 s" or "10 min", or a number of seconds', _TIMEOUT)
    if _GATEWAY in values and not _is_web_address(values[_GATEWAY]):
        check.wrong("give the address of a Pushgateway, such as http://pushgateway:9091", _GATEWAY)
    if _KEEP in values:
        _check_keep(check)


def _check_keep(check: Check) -> None:
    try:
        found = parse_keep(check.values[_KEEP])
    except SpecError:
        check.wrong('give a number of versions such as 5, or a time such as "90 days"', _KEEP)
    else:
        if isinstance(found, int):  # also from a variable, which is text
            check.values[_KEEP] = found


def parse_keep(keep: str | int) -> int | timedelta:
    """How many versions of features are kept, or for how long: 5, "5", or "90 days". Raises SpecError for anything
    else."""
    count = int(keep) if isinstance(keep, str) and keep.strip().isdecimal() and len(keep) < 20 else keep
    if type(count) is int and 1 <= count <= MOST:
        return count
    try:
        if isinstance(keep, str) and not keep.strip().isdecimal():
            return timedelta(seconds=parse_seconds(keep))
    except (SpecError, OverflowError):
        pass
    raise SpecError(f"keep {keep!r:.80}: give a number of versions such as 5, or a time such as '90 days'")


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_amount(text: str) -> bool:
    try:
        return not lacks_unit(text) and parse_bytes(text) > 0
    except SpecError:
        return False


def _is_time(text: str | float) -> bool:
    try:
        return parse_seconds(text) > 0
    except SpecError:
        return False


__all__ = ["Job", "JobError", "JobInput", "JobModel", "JobOutput", "JobRun", "job_schema", "parse_keep", "read_job"]
