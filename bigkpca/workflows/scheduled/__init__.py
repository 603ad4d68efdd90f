"""Runs of a scheduled job: lock, find what is new, work, and record what was done or why it failed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any

from bigkpca.data.stores import AnyPath, expanded, store_of
from bigkpca.errors import BigKPCAError, IncompleteError, LockedError, SpecError, meaning_of
from bigkpca.execution.options import RunOptions
from bigkpca.execution.progress import Progress, shown
from bigkpca.spec.job import Job, read_job
from bigkpca.storage.output import group_path
from bigkpca.workflows.scheduled import records
from bigkpca.workflows.scheduled.finding import look
from bigkpca.workflows.scheduled.night import Night, work
from bigkpca.workflows.scheduled.records import ENDING, append_record, read_records


def run(
    job: AnyPath | Job,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    progress: Progress | bool = False,
) -> list[dict[str, Any]]:
    """Run a scheduled job once: extract features of the rows that arrived since the last run.

    The first run fits the model, unless there is one. Others can append rows in the meantime. Repeating the call
    finishes a run that was killed, and then takes the rows that arrived since, as a separate run.

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
        The record of each run, usually one, as `history` returns them.

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
    job = job if isinstance(job, Job) else read_job(expanded(job), os.environ)
    job = job.running(scheduler=scheduler, workers=workers, memory=memory)
    out = group_path(job.output.path, job.input.path, job.model.path)
    own = {each.name: getattr(job.run, each.name) for each in fields(RunOptions) if hasattr(job.run, each.name)}
    options = RunOptions(progress=shown(progress), **own)
    records.check_there(job, out)
    found, more = [], True
    with store_of(out).writer(out + ENDING):
        records.complete(out)
        while more:  # rows are left that arrived since a run began that was killed
            with _recorded(job, out) as record:
                night = Night(look(job, out), options, record)
                work(night)
            found.append(record)
            more = night.found.stored > night.found.rows.count
        records.remember(job, out, options.progress)
    return found


@contextmanager
def _recorded(job: Job, out: str) -> Iterator[dict[str, Any]]:
    """The record of a run, which is added to the others when the run ends, even if it fails; not if another run is at
    work."""
    started, earlier = time.monotonic(), read_records(out)
    record = records.started_record(earlier)

    def ended() -> None:
        record["finished"] = records.now()
        record["seconds"]["total"] = round(time.monotonic() - started, 3)
        append_record(out, record)
        records.write_metrics(job.run.metrics, out, [*earlier, record])

    try:
        records.write_metrics(job.run.metrics, out, earlier)  # a missing folder is noticed before hours of work
        yield record
    except LockedError:
        raise
    except BaseException as error:
        known = meaning_of(error, out) if isinstance(error, OSError) else error
        kind = IncompleteError if isinstance(error, KeyboardInterrupt) else BigKPCAError
        code = (known if isinstance(known, BigKPCAError) else kind).exit_code
        record.update(status=records.FAILED, exit_code=code, message=str(error) or "stopped", rows=None)
        with suppress(BigKPCAError, OSError):  # the folder of the records can be what failed
            ended()
        raise
    ended()


def history(out: AnyPath) -> list[dict[str, Any]]:
    """The records of all runs of a job, in the order in which they ended.

    Parameters
    ----------
    out : path
        The output of the job.

    Returns
    -------
    list of dict
        See `docs/scheduled.md` for the content of a record.

    Raises
    ------
    SpecError
        No run of a job has been recorded there.

    Notes
    -----
    Reads no rows and no features.
    """
    path = expanded(out)
    if not store_of(path).exists(path + ENDING):
        raise SpecError(f"{path} is not the output of a job: {path}{ENDING}, the records of its runs, does not exist")
    return read_records(path)
