"""What a run of a job begins with: the job, what is published, and what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bigkpca.data.versions import last_number, version_path
from bigkpca.errors import CorruptionError
from bigkpca.execution.progress import WARNING, Progress
from bigkpca.execution.run_options import RunOptions
from bigkpca.spec.job import Job
from bigkpca.storage import growing, job_output
from bigkpca.workflows.scheduled.intervals import Asked, Interval


@dataclass(frozen=True)
class Published:
    """A version of the features, as it was before the run."""

    entry: Mapping[str, Any]  # in the manifest of the versions: number, model, reason
    path: str

    @property
    def readable(self) -> Mapping[str, Any] | None:
        """The manifest; None where it is damaged."""
        with suppress(CorruptionError):
            return self.manifest
        return None

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """Read when it is needed, which it is not where all rows are extracted again. Raises CorruptionError."""
        return growing.read(self.path)

    @property
    def rows(self) -> int:
        """How many rows are extracted."""
        count: int = self.manifest["rows"]
        return count


@dataclass(frozen=True)
class Given:
    """What a run begins with."""

    job: Job
    out: str
    asked: Asked
    options: RunOptions
    versions: Mapping[str, Any]  # the manifest of the versions
    earlier: Sequence[Mapping[str, Any]]  # records of runs
    record: dict[str, Any]  # of this run, which fills it

    @property
    def current(self) -> Published | None:
        """The current version; None before the first."""
        found = [each for each in self.versions["versions"] if each["number"] == self.versions["current"]]
        if not found:
            return None
        return Published(found[0], version_path(self.out, found[0]["number"]))

    @property
    def next_version(self) -> int:
        """The number of the next version."""
        return 1 + last_number(self.versions)

    def warn(self, message: str) -> None:
        """Show a warning, and keep it in the record."""
        warn(self.record, self.options.progress, message)


def warn(record: dict[str, Any], progress: Progress, message: str) -> None:
    """Show a warning, and keep it in the record of a run."""
    progress.note(f"{WARNING}{message}")
    record["message"] = "; ".join(filter(None, [record["message"], message]))


def pinned_interval(asked: Asked, given: Given, done: int, rows: int) -> Interval:
    """The interval of a run where `rows` rows are stored and `done` of them extracted: that which an earlier run of the
    same kind pinned and did not finish, or else all that are asked for."""
    first, stop, before = asked.start(given.earlier, done), asked.stop(rows), job_output.read_pinned(given.out)
    unfinished = before.get("stop") if before.get("asked") == repr(asked) and before.get("first") == first else None
    if type(unfinished) is int and first < unfinished <= stop:
        return Interval(first, unfinished, True)
    return Interval(first, stop, False)


def run_options(job: Job, progress: Progress) -> RunOptions:
    """How the job says that it is run."""
    given = job.run
    return RunOptions(given.scheduler, given.workers, given.memory, None, False, progress, given.timeout)
