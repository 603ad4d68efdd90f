"""The starting point of a run, and the paths of its output, model and metrics, recorded beside the job file.

A volume that is not mounted looks like a path where nothing was written yet. The record, which lies outside the output,
distinguishes the two. If the folder of the job file is not writable, the record goes to the state folder of systemd
($STATE_DIRECTORY); without one, `output.must_exist` serves the same purpose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from bigkpca.data.json_files import read_json, write_json
from bigkpca.data.stores import AnyPath, expanded, last_name, parent, store_of
from bigkpca.data.versions import VERSIONS, version_path
from bigkpca.errors import SpecError
from bigkpca.execution.options import RunOptions
from bigkpca.execution.progress import WARNING, Progress
from bigkpca.spec.job import Job
from bigkpca.storage import block_arrays, jobs
from bigkpca.storage.records import is_text
from bigkpca.workflows.scheduled.input_rows import Interval

_RECORD = ".bigkpca-record"  # appended to the name of a job file


def has_output(out: str) -> bool:
    """Whether a run published features there."""
    return store_of(out).exists(f"{out}/{VERSIONS}")


def check_there(job: Job, out: str) -> None:
    """Raise SpecError if the output of a job is gone or, before there is one, its model."""
    if job.output.must_exist is False or has_output(out):
        return
    if job.output.must_exist:
        raise SpecError(
            f"{out} holds no features, but the job sets output.must_exist = true: mount its volume or restore it; for "
            "a first run, remove must_exist from the job"
        )
    for record, known in _known(job.file):
        gone = [("output", out)] if known["output"] == out else []
        model, store = job.model.path, store_of(job.model.path)
        if known["model"] == model and not (store.exists(model) or store.is_moving(model)):
            gone.append(("model", model))
        for what, path in gone:
            raise SpecError(
                f"{path}, the {what} of earlier runs of this job, is gone: mount its volume or restore it; to start "
                f"anew, remove {record}, or set output.must_exist = false in the job"
            )


def remember(job: Job, out: str, progress: Progress) -> None:
    """Record the current output path of the job."""
    entry = {"output": out, "model": job.model.path, "metrics": job.run.metrics}
    for path in _records(job.file):
        try:
            before = _read(path)
        except (OSError, SpecError):
            before = []
        if before and before[-1] == entry:
            return
        kept = [each for each in before if each["output"] != out]
        try:
            write_json(path, {"places": [*kept, entry]})
            return
        except OSError:  # e.g. in a read-only folder
            continue
    if job.output.must_exist is None:
        progress.note(
            f"{_records(job.file)[0]} cannot be written, so a later run could take an unmounted volume for a first "
            "run: set output.must_exist = true in the job"
        )


def last_places(file: AnyPath) -> tuple[str, str | None] | None:
    """The output and the metrics of the last run of a job file, if known."""
    try:
        found = [known for _, known in _known(store_of(expanded(file)).absolute(expanded(file)))]
    except SpecError:
        return None
    return (found[-1]["output"], found[-1]["metrics"]) if found else None


def _records(file: str) -> list[str]:
    """Possible paths of the record of a job file."""
    state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return [folder.rstrip("/") + f"/{last_name(file)}{_RECORD}" for folder in (parent(file), state) if folder]


def _known(file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each record of a job file, with its outputs, models and metrics."""
    for path in _records(file):
        try:
            yield from ((path, known) for known in _read(path))
        except OSError:
            continue


def _read(path: str) -> Sequence[dict[str, Any]]:
    """The content of a record. Raises OSError if there is none, SpecError if it is damaged."""
    places: Any = None
    with suppress(ValueError, TypeError, KeyError):
        places = read_json(path)["places"]
    whole = isinstance(places, list) and all(
        isinstance(each, dict)
        and set(each) == {"output", "model", "metrics"}
        and all(map(is_text, (each["output"], each["model"], each["metrics"] or "")))
        for each in places
    )
    if not whole:
        raise SpecError(
            f"{path} is not a valid record of the paths of a job: remove it once the output and model of the job "
            "are in place"
        )
    return list(places)


@dataclass(frozen=True)
class Published:
    """The features, as they were before the run."""

    entry: Mapping[str, Any]  # in the manifest of the versions: number, model, reason
    path: str

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest. Raises CorruptionError."""
        return block_arrays.read_grown(self.path)

    @property
    def rows(self) -> int:
        count: int = self.manifest["rows"]
        return count


@dataclass(frozen=True)
class ScheduledRun:
    """The starting point of a run."""

    job: Job
    out: str
    options: RunOptions
    versions: Mapping[str, Any]  # the manifest of the versions
    earlier: Sequence[Mapping[str, Any]]  # records of runs
    record: dict[str, Any]  # of this run, filled in as it goes

    @property
    def current(self) -> Published | None:
        """The features; None before the first run."""
        for entry in self.versions["versions"]:
            return Published(entry, version_path(self.out, entry["number"]))
        return None

    def warn(self, message: str) -> None:
        """Show a warning, and add it to the record."""
        self.options.progress.note(f"{WARNING}{message}")
        self.record["message"] = "; ".join(filter(None, [self.record["message"], message]))


def pinned_interval(given: ScheduledRun, done: int, rows: int) -> Interval:
    """The interval of a run, given that `rows` rows are stored and `done` of them extracted: the interval that an
    earlier run pinned and did not finish, or else all new rows."""
    before = jobs.read_pinned(given.out)
    unfinished = before.get("stop") if before.get("first") == done else None
    if type(unfinished) is int and done < unfinished <= rows:
        return Interval(done, unfinished, True)
    return Interval(done, rows, False)


def run_options(job: Job, progress: Progress) -> RunOptions:
    """The run options set by the job: its keys that are options of a run."""
    given = {each.name: getattr(job.run, each.name) for each in fields(RunOptions) if hasattr(job.run, each.name)}
    return RunOptions(progress=progress, **given)
