"""Runs of a scheduled job: pin rows, extract features, measure drift, publish and record; and the plan of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from bigkpca.data.blocks import split
from bigkpca.data.retrying import error_of
from bigkpca.data.sample_weights import weighted
from bigkpca.data.stores import AnyPath, expanded, store_of
from bigkpca.data.versions import read_versions, version_path
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import BigKPCAError, DataError, DriftError, IncompleteError, LockedError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import RunOptions
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Progress, Silent, shown
from bigkpca.execution.projection import check_columns
from bigkpca.spec.job import Job, read_job
from bigkpca.storage import block_arrays, destination, jobs
from bigkpca.storage.models import load_model
from bigkpca.workflows.scheduled import input_rows, places, records
from bigkpca.workflows.scheduled.input_rows import Interval
from bigkpca.workflows.scheduled.places import Published, ScheduledRun, pinned_interval, run_options
from bigkpca.workflows.scheduled.publishing import (
    append,
    block_rows_of,
    finish_record,
    make_version,
    model_of_version,
    plan_extract,
)

_FEW = 8  # blocks that this process compares itself
_MOST_GAPS = 1000  # in a record


def extract_new(given: ScheduledRun) -> bool:
    """Extract new rows, publish them and fill the record. Returns whether an earlier run had pinned them."""
    job, record = given.job, given.record
    current, found = given.current, input_rows.open_input(job.input.path, job.input.array)
    record["input"] = {"path": job.input.path, "dtype": found.dtype.str, "columns": found.shape[1]}
    if current is not None:
        input_rows.check_not_shrunk(found, current.manifest)
    done = current.rows if current else 0
    gaps = record["input"]["gaps"] = found.gaps(done)[:_MOST_GAPS]
    published = current.manifest if current else None
    count = input_rows.rows_to_extract(found, done, given.earlier, published)
    interval = pinned_interval(given, done, count)
    record["input"]["tail"] = input_rows.tail_of(found, max(done, interval.stop), published)
    if count < found.shape[0]:
        given.options.progress.note(f"rows {count} to {found.shape[0] - 1} are not stored yet: left for the next run")
    for start, stop in gaps:
        if stop <= interval.stop:
            given.warn(f"rows {start} to {stop - 1} were never stored: using the fill value {found.array.fill_value}")
    if current is not None:
        model = model_of_version(job, current.entry)
        check_columns(found, model)
        _check_flag(job, current)
        _check_input(given, current, found, interval)
    if current is not None and not len(interval):
        finish_record(given, records.NOTHING_NEW, current.entry, [done, done], done)
        return interval.resumed
    rows = _pinned(found, max(done, interval.stop), job)
    before = jobs.read_pinned(given.out)
    pin = {"first": interval.first, "stop": interval.stop, "run": record["run"], "made_by": before.get("made_by")}
    jobs.write_pinned(given.out, pin)
    if current is not None:
        append(given, current, model, rows, interval)
    else:
        make_version(given, rows, interval)
    return interval.resumed


def _pinned(found: ZarrRows, count: int, job: Job) -> ZarrRows:
    """The first `count` rows, while others append more, with the weights that the job names."""
    return weighted(found.pin(count), job.input.sample_weight, "input.sample_weight")


def _check_flag(job: Job, current: Published) -> None:
    """Raise SpecError if existing features were made with another share of rows to flag, or without."""
    own, asked = current.manifest.get("flag"), job.output.flag
    if own != asked:
        there, here = ("is not set" if each is None else f"= {each:g}" for each in (own, asked))
        raise SpecError(
            f"output.flag {here} in the job, but {there} in {current.path}: restore it in the job or, to make all "
            "features again, name another output.path"
        )


def _check_input(given: ScheduledRun, current: Published, found: ZarrRows, interval: Interval) -> None:
    """Raise CorruptionError if rows that were extracted have changed."""
    rows = found.pin(current.rows)
    suspect = input_rows.suspect_blocks(rows, current.manifest)
    if not suspect:
        return
    if len(suspect) <= _FEW:  # e.g. the last block every night, which needs no cluster
        input_rows.check_unchanged_blocks(rows, current.manifest, suspect, Engine(progress=given.options.progress))
    else:
        with given.options.engine() as engine:
            input_rows.check_unchanged_blocks(rows, current.manifest, suspect, engine)
    if not len(interval):  # otherwise the run writes them
        stamps = rows.stamps(split(current.rows, current.manifest["block_rows"]))
        if stamps is not None:
            block_arrays.refresh_stamps(current.path, current.manifest, stamps)


def plan_run(job: Job) -> dict[str, Any]:
    """What `run` would do. Writes nothing, reads no rows, and raises the errors of `run`."""
    options = run_options(job, Silent())
    out = destination.group_path(job.output.path, job.input.path, job.model.path)
    places.check_there(job, out)
    versions = read_versions(out) or jobs.empty_versions()
    given = ScheduledRun(job, out, options, versions, jobs.read_records(out)[0], {})
    found, current = input_rows.open_input(job.input.path, job.input.array), given.current
    cut_off, done = False, 0
    if current is not None:
        manifest = block_arrays.read_finished(current.path)  # a run begins with this
        input_rows.check_not_shrunk(found, manifest)
        cut_off, done = block_arrays.is_publishing(current.manifest), manifest["rows"]
    count = input_rows.rows_to_extract(found, done, given.earlier, current.manifest if current else None)
    interval = pinned_interval(given, done, count)
    to_fit = current is None and not store_of(job.model.path).exists(job.model.path)
    action = "fit a model, and extract features" if to_fit else "extract features"
    facts = {
        "action": action if len(interval) else "nothing new",
        "rows": [interval.first, interval.stop],
        "rows_extracted_already": done,
        "resumed": interval.resumed or cut_off,
        "model": job.model.path,
    }
    if not len(interval):
        return facts
    pinned = _pinned(found, max(done, interval.stop), job)
    with options.engine() as engine:
        if to_fit:
            plan = plan_fit(pinned, job.spec, engine.threads, engine.device)
        else:
            model = model_of_version(job, current.entry) if current else load_model(job.model.path)
            size = block_rows_of(given, model, pinned)
            plan = plan_extract(job, pinned, model, size, engine.threads, engine.device)
    plan.check(options.memory_limit, "use a smaller model, or smaller blocks")
    return facts | {"peak_bytes": plan.peak_bytes, "block_rows": plan.block_rows}


def run(
    job: AnyPath | Job,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    progress: Progress | bool = False,
) -> list[dict[str, Any]]:
    """Run a scheduled job once: extract features of the rows that arrived since the last run.

    The first run fits the model, unless there is one. Rows are pinned before anything is computed, so others can append
    in the meantime. Repeating the call resumes a run that was stopped; if it had pinned fewer rows than there are now,
    it is finished first, as a separate run.

    Parameters
    ----------
    job : path or Job
        A job file: see `docs/scheduled.md`.
    scheduler, workers, memory : optional
        Override the keys of the same names in the table `[run]`: the address of a Dask cluster, the number of local
        processes, and the memory that a process may use.
    progress : bool or Progress
        True shows bars or, without a terminal, lines; a Progress object receives titles and rows of each pass, and
        notes. By default, nothing is shown.

    Returns
    -------
    list of dict
        The record of each run, usually one, as in `runs.jsonl` of the output.

    Raises
    ------
    SpecError
        The job file is invalid, or conflicts with what is at its paths.
    DataError
        NaN or infinity in new rows. DriftError: drift above the threshold, with `on_drift = "fail"`.
    CorruptionError
        The input changed or shrank, or stored files are damaged.
    LockedError, IncompleteError, MemoryLimitError
        As in `fit`.

    Notes
    -----
    One pass over new rows and the rows of the last incomplete block; a fit makes the passes of `fit`.
    """
    progress = shown(progress)
    job = (job if isinstance(job, Job) else read(job)).running(scheduler=scheduler, workers=workers, memory=memory)
    out = destination.group_path(job.output.path, job.input.path, job.model.path)
    with ExitStack() as stack:
        with _refusal_recorded(job, out):
            places.check_there(job, out)
            options = run_options(job, progress)
            stack.enter_context(store_of(out).writer(out))
        with _refusal_recorded(job, out, locked=True):
            jobs.prepare(out)
        record, resumed = _one_run(job, out, options)
        found = [record]
        done = record["total_rows"]
        if resumed and input_rows.open_input(job.input.path, job.input.array).stored_rows(done) > done:
            found.append(_one_run(job, out, options)[0])
        places.remember(job, out, progress)
    return found


def read(path: AnyPath) -> Job:
    """The job in a file, to be run. Mistakes in it are recorded as a failed run. Raises SpecError."""
    try:
        return read_job(expanded(path), os.environ)
    except SpecError as error:
        if known := places.last_places(path):
            _record_refusal(*known, error, locked=False)
        raise


@contextmanager
def _refusal_recorded(job: Job, out: str, *, locked: bool = False) -> Iterator[None]:
    """Record a run that is refused before it begins."""
    try:
        yield
    except LockedError:
        raise
    except BigKPCAError as error:
        _record_refusal(out, job.run.metrics, error, locked=locked)
        raise


def _record_refusal(out: str, metrics: str | None, error: BigKPCAError, *, locked: bool) -> None:
    """Write the record of a run that did not begin, if there is output, and the metrics that show it."""
    with suppress(BigKPCAError, OSError), ExitStack() as stack:
        there = places.has_output(out)
        earlier = jobs.read_records(out)[0] if there else []
        failed = {"status": records.FAILED, "exit_code": error.exit_code, "message": str(error), "metrics": metrics}
        record = records.ended_record(earlier, **failed)
        if there and not locked:
            stack.enter_context(store_of(out).writer(out))
            jobs.append_record(out, record)
        if metrics:
            records.write_metrics(metrics, out, [*earlier, record])


def _one_run(job: Job, out: str, options: RunOptions) -> tuple[dict[str, Any], bool]:
    """One run: its record, and whether an earlier run had pinned its rows."""
    started, record = time.monotonic(), records.started_record(0, metrics=job.run.metrics)
    with _failure_recorded(job, out, record, started):
        versions = read_versions(out) or jobs.empty_versions()
        if versions["current"]:
            _finish_earlier(out, options.progress)
        earlier, _ = jobs.read_records(out)
        record["run"] = records.next_number(earlier)
        given = ScheduledRun(job, out, options, versions, earlier, record)
        if warning := records.clock_warning(earlier):
            given.warn(warning)
        _write_metrics(job, out)  # of earlier runs: a missing folder is noticed before hours of work
        resumed = extract_new(given)
    _write_record(out, record, started)
    jobs.remove_pinned(out)
    _write_metrics(job, out)
    return record, resumed


def _finish_earlier(out: str, progress: Progress) -> None:
    """Finish the publication of an interrupted run, record it, and remove its leftovers."""
    path = version_path(out, 1)
    if block_arrays.go_on(path):
        progress.note("an earlier run was interrupted while publishing: finished now")
    ended: dict[str, Any] = block_arrays.read_grown(path)["run"]
    # A run that was stopped while publishing has another record, with another status.
    own = (ended.get("run"), ended.get("status"))
    if not any((each["run"], each.get("status")) == own for each in jobs.read_records(out)[0]):
        jobs.append_record(out, ended)
    if jobs.read_pinned(out).get("run", ended.get("run")) == ended.get("run"):  # otherwise it did not publish
        destination.remove_all_runs(path)
        jobs.remove_pinned(out)


@contextmanager
def _failure_recorded(job: Job, out: str, record: dict[str, Any], started: float) -> Iterator[None]:
    """Write the record and metrics of a run that fails in this context."""
    try:
        yield
    except BaseException as error:
        known = error_of(error, "") if isinstance(error, OSError) else error
        kind = IncompleteError if isinstance(error, KeyboardInterrupt) else BigKPCAError
        code = (known if isinstance(known, BigKPCAError) else kind).exit_code
        with suppress(BigKPCAError, OSError):  # the folder of the records can be what failed
            if isinstance(error, DataError) and not isinstance(error, DriftError):
                jobs.remove_pinned(out)  # more rows can succeed; drifted rows are retried separately
            record["run"] = record["run"] or records.next_number(jobs.read_records(out)[0])
            record.update(status=records.FAILED, exit_code=code, message=str(error) or "stopped", rows=None)
            _write_record(out, record, started)
            _write_metrics(job, out)
        raise


def _write_record(out: str, record: dict[str, Any], started: float) -> None:
    record["finished"] = record["finished"] or records.now()
    record["seconds"]["total"] = round(time.monotonic() - started, 3)
    jobs.append_record(out, record)


def _write_metrics(job: Job, out: str) -> None:
    if job.run.metrics:
        records.write_metrics(job.run.metrics, out, jobs.read_records(out)[0])
