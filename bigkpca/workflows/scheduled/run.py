"""One run of a scheduled job: pin rows, extract their features, measure drift, publish, record."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import date
from typing import Any

from bigkpca.data.retrying import error_of
from bigkpca.data.stores import AnyPath, expanded, store_of
from bigkpca.data.versions import read_versions, version_path
from bigkpca.errors import (
    BigKPCAError,
    CorruptionError,
    DataError,
    DriftError,
    IncompleteError,
    LockedError,
    SpecError,
)
from bigkpca.execution.progress import Progress, shown
from bigkpca.execution.run_options import RunOptions
from bigkpca.spec.job import Job, JobError, parse_keep, read_job
from bigkpca.storage import destination, growing, job_output, output_paths, run_records
from bigkpca.workflows.scheduled import input_rows, places, pruning, records
from bigkpca.workflows.scheduled.given import Given, run_options, warn
from bigkpca.workflows.scheduled.history import finish_cut_off
from bigkpca.workflows.scheduled.intervals import Asked
from bigkpca.workflows.scheduled.new_rows import extract_new


def run(
    job: AnyPath | Job,
    *,
    rows: str | tuple[int, int] | None = None,
    since: str | date | None = None,
    full: bool = False,
    progress: Progress | bool = False,
) -> list[dict[str, Any]]:
    """Run a scheduled job once: extract features of the rows that arrived since the last run.

    The first run fits the model, unless there is one. Rows are pinned before anything is computed, so that others may
    append meanwhile. The same call goes on where a run was stopped; where that had pinned fewer rows than are there
    now, it is finished first, as a run of its own.

    Parameters
    ----------
    job : path or Job
        A job file: see `docs/scheduled.md`.
    rows : str or (int, int), optional
        Rows A to B, as "A:B". Rows that are extracted already are extracted again, into a new version of the features.
    since : str or date, optional
        Extract all rows again that runs extracted on this day or later (UTC), into a new version.
    full : bool
        Extract all rows again, into a new version.
    progress : bool or Progress
        True shows bars, or lines where there is no terminal; a Progress receives
        titles and rows of each pass, and notes; by default nothing is shown.

    Returns
    -------
    list of dict
        The record of each run, as in `runs.jsonl` of the output: mostly one.

    Raises
    ------
    SpecError
        The job file, or what is at its paths, does not fit.
    DataError
        NaN or infinity in new rows. DriftError: drift above the threshold, with `on_drift = "fail"`.
    CorruptionError
        The input changed or shrank, or stored files are damaged.
    LockedError, IncompleteError, MemoryLimitError
        As `fit`.

    Notes
    -----
    One pass over new rows and the rows of the last block that was not full; a fit takes those of `fit`.
    """
    progress = shown(progress)
    asked = Asked.parsed(rows, since, full)
    if not isinstance(job, Job):
        job = read(job, asked)
    out = output_paths.group_path(job.output.path, job.input.path, job.model.path)
    with ExitStack() as stack:
        with _refusal_told(job, out, asked):
            places.check_there(job, out)
            options = run_options(job, progress)
            stack.enter_context(store_of(out).writer(out))
        with _refusal_told(job, out, asked, locked=True):
            job_output.prepare(out)
        record, resumed = _one_run(job, out, asked, options)
        found = [record]
        if resumed and _rows_left(job, record):
            found.append(_one_run(job, out, Asked(), options)[0])
        places.remember(job, out, progress)
    return found


def read(path: AnyPath, asked: Asked) -> Job:
    """The job in a file, to be run. Where it has mistakes, the record and the metrics of the job show a failed run.

    Raises SpecError.
    """
    try:
        return read_job(expanded(path), os.environ)
    except SpecError as error:
        known = isinstance(error, JobError) and error.output and (error.output, error.metrics)
        if asked == Asked() and (known := known or places.last_places(path)):
            _tell_failure(*known, error, locked=False)
        raise


@contextmanager
def _refusal_told(job: Job, out: str, asked: Asked, *, locked: bool = False) -> Iterator[None]:
    """Record a run that is refused before it begins, but not a command typed by hand that cannot be done."""
    try:
        yield
    except LockedError:
        raise
    except BigKPCAError as error:
        if asked == Asked():
            _tell_failure(out, job.run.metrics, error, locked=locked)
        raise


def _tell_failure(out: str, metrics: str | None, error: BigKPCAError, *, locked: bool) -> None:
    """Write the record of a run that did not begin, where there is output, and the metrics that show it."""
    with suppress(BigKPCAError, OSError), ExitStack() as stack:
        failed = {"status": records.FAILED, "exit_code": error.exit_code, "message": str(error), "metrics": metrics}
        earlier: list[dict[str, Any]] = []
        if places.has_output(out):
            earlier, _ = run_records.read_records(out)
        record = records.started_record(records.next_number(earlier), finished=records.now(), **failed)
        if places.has_output(out) and not locked:
            stack.enter_context(store_of(out).writer(out))
            run_records.append_record(out, record)
        if metrics:
            records.write_metrics(metrics, out, [*earlier, record])


def _rows_left(job: Job, last: Mapping[str, Any]) -> bool:
    """Whether rows arrived since those that a run finished were pinned."""
    done: int = last["total_rows"]
    return input_rows.open_input(job.input.path, job.input.array).stored_rows(done) > done


def _one_run(job: Job, out: str, asked: Asked, options: RunOptions) -> tuple[dict[str, Any], bool]:
    """One run: its record, and whether an earlier run had pinned its rows."""
    started, record = time.monotonic(), records.started_record(0, metrics=job.run.metrics)
    with _failure_recorded(job, out, asked, record, started, options.progress):
        finish_cut_off(out)
        versions = read_versions(out) or job_output.empty_versions()
        if versions["current"] and (ended := _finished_earlier(out, versions, asked, options.progress)):
            _push_metrics(job, out, ended, options.progress)
            _write_metrics(job, out)
            return ended, False
        earlier, _ = run_records.read_records(out)
        record["run"] = records.next_number(earlier)
        given = Given(job, out, asked, options, versions, earlier, record)
        if warning := records.clock_warning(earlier):
            given.warn(warning)
        _write_metrics(job, out)  # those of earlier runs: a folder that is not there is told before hours of work
        resumed = extract_new(given)
    _write_record(job, out, record, started, options.progress)
    job_output.remove_pinned(out)
    destination.remove_all_runs(version_path(out, given.next_version))  # of a run that was asked for something else
    if (keep := job.output.keep) is not None:
        # The version that was current before stays for those who read it, until the next run.
        spared = {versions["current"], record["version"]}
        pruning.prune_versions(out, parse_keep(keep), spared, f"keep = {keep!r}")
    _write_metrics(job, out)
    return record, resumed


def _finished_earlier(out: str, versions: Mapping[str, Any], asked: Asked, progress: Progress) -> dict[str, Any] | None:
    """Finish the publication of a run that was cut off, record it, and remove what it left.

    Returns its record where it extracted rows again, as is asked for now: the same command does not do so twice.
    """
    path = version_path(out, versions["current"])
    try:
        if growing.go_on(path):
            progress.note("an earlier run was cut off while it published: finished now")
        ended: dict[str, Any] = growing.read(path)["run"]
    except CorruptionError:
        if asked.full:  # what makes all anew needs nothing of it
            return None
        raise
    if not any(_is_end(record, ended) for record in run_records.read_records(out)[0]):
        run_records.append_record(out, ended)
    pinned = job_output.read_pinned(out)
    if pinned.get("run", ended.get("run")) != ended.get("run"):
        return None  # that one was cut off before it published
    for each in versions["versions"]:
        place = version_path(out, each["number"])
        with suppress(CorruptionError):  # of a version that nothing uses
            if not growing.is_publishing(growing.read(place)):
                destination.remove_all_runs(place)
    job_output.remove_pinned(out)
    return ended if asked != Asked() and pinned.get("asked") == repr(asked) else None


def _is_end(record: Mapping[str, Any], ended: Mapping[str, Any]) -> bool:
    """Whether a record is that of the run that published; one that was stopped while it did has a record before."""
    return record["run"] == ended.get("run") and record.get("status") == ended.get("status")


@contextmanager
def _failure_recorded(
    job: Job, out: str, asked: Asked, record: dict[str, Any], started: float, progress: Progress
) -> Iterator[None]:
    """Write the record and the metrics of a run that fails within; but not of a command by hand that cannot be done."""
    try:
        yield
    except BaseException as error:
        if asked != Asked() and isinstance(error, SpecError):
            raise
        code, message = _exit_code(error), str(error) or "stopped"
        with suppress(BigKPCAError, OSError):  # what failed may be the place of the records
            if isinstance(error, DataError) and not isinstance(error, DriftError):
                job_output.remove_pinned(out)  # more rows may do; rows that drifted are tried again by themselves
            record["run"] = record["run"] or records.next_number(run_records.read_records(out)[0])
            record.update(status=records.FAILED, exit_code=code, message=message, rows=None, extracted=None)
            _write_record(job, out, record, started, progress)
            _write_metrics(job, out)
        raise


def _exit_code(error: BaseException) -> int:
    """The exit code of a command that ends with this error."""
    if isinstance(error, BigKPCAError):
        return error.exit_code
    if isinstance(error, OSError) and (known := error_of(error, "")) is not None:
        return known.exit_code
    return (IncompleteError if isinstance(error, KeyboardInterrupt) else BigKPCAError).exit_code


def _write_record(job: Job, out: str, record: dict[str, Any], started: float, progress: Progress) -> None:
    record["finished"] = record["finished"] or records.now()
    record["seconds"]["total"] = round(time.monotonic() - started, 3)
    _push_metrics(job, out, record, progress)
    run_records.append_record(out, record)


def _push_metrics(job: Job, out: str, record: dict[str, Any], progress: Progress) -> None:
    """Send metrics up to those of this record, which keeps a warning where that is not possible."""
    if job.run.push_metrics is None:
        return
    earlier = [each for each in run_records.read_records(out)[0] if each["run"] != record["run"]]
    if reason := records.push_metrics(job.run.push_metrics, out, [*earlier, record]):
        warn(record, progress, f"metrics could not be sent to the address of run.push_metrics: {reason}")


def _write_metrics(job: Job, out: str) -> None:
    if job.run.metrics:
        records.write_metrics(job.run.metrics, out, run_records.read_records(out)[0])
