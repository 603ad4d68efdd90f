"""The work of one run: from the rows of the input to published features."""

from __future__ import annotations

from bigkpca.data.blocks import split
from bigkpca.data.zarr import ZarrRows
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import check_columns
from bigkpca.storage import growing, job_output
from bigkpca.workflows.scheduled import input_rows, models, records
from bigkpca.workflows.scheduled.given import Given, Published, pinned_interval
from bigkpca.workflows.scheduled.intervals import Interval
from bigkpca.workflows.scheduled.publishing import append, finish_record, make_version

_FEW = 8  # blocks that are compared by this process
_MOST_GAPS = 1000  # in a record


def extract_new(given: Given) -> bool:
    """Extract what is asked for, publish it and fill the record. Returns whether an earlier run had pinned it."""
    job, record = given.job, given.record
    current, found = given.current, input_rows.open_input(job.input.path, job.input.array)
    record["input"] = {"path": job.input.path, "dtype": found.dtype.str, "columns": found.shape[1]}
    if current is not None and not given.asked.full:
        input_rows.check_not_shrunk(found, current.manifest)
    done = current.rows if current and not given.asked.full else 0
    gaps = record["input"]["gaps"] = found.gaps(done)[:_MOST_GAPS]
    published = current.readable if current else None
    count = input_rows.rows_to_extract(found, done, given.earlier, published)
    interval = pinned_interval(given.asked, given, done, count)
    record["input"]["tail"] = input_rows.tail_of(found, max(done, interval.stop), published)
    if count < found.shape[0]:
        given.options.progress.note(f"rows {count} to {found.shape[0] - 1} are not stored yet: left to the next run")
    for start, stop in gaps:
        if stop <= interval.stop:
            given.warn(f"rows {start} to {stop - 1} were never stored: taken as {found.array.fill_value}")
    if current is not None:
        model = models.model_of_version(job, current.entry)
        check_columns(found, model)
        _check_input(given, current, found, interval)
    if current is not None and not len(interval):
        finish_record(given, records.NOTHING_NEW, current.entry, [done, done], done)
        return interval.resumed
    before = job_output.read_pinned(given.out)
    pin = {"asked": repr(given.asked), "first": interval.first, "stop": interval.stop, "run": record["run"]}
    pin |= {"model": before.get("model") if interval.resumed else None, "made_by": before.get("made_by")}
    job_output.write_pinned(given.out, pin)
    rows = found.pin(max(done, interval.stop))
    if current is not None and interval.first == done and not given.asked.full:
        append(given, current, model, rows, interval)
    else:
        make_version(given, current, rows, interval)
    return interval.resumed


def _check_input(given: Given, current: Published, found: ZarrRows, interval: Interval) -> None:
    """Raise CorruptionError where rows that are not extracted again are no longer what they were."""
    if given.asked.full:
        return
    rows, progress = found.pin(current.rows), given.options.progress
    suspect = [block for block in input_rows.suspect_blocks(rows, current.manifest) if not interval.meets(block)]
    if not suspect:
        return
    if len(suspect) <= _FEW:  # as every night the last block, for which no cluster is started
        input_rows.check_unchanged_blocks(rows, current.manifest, suspect, Engine(), progress)
    else:
        with given.options.engine() as engine:
            input_rows.check_unchanged_blocks(rows, current.manifest, suspect, engine, progress)
    if not len(interval):  # else the run writes them
        stamps = rows.stamps(split(current.rows, current.manifest["block_rows"]))
        if stamps is not None:
            growing.refresh_stamps(current.path, current.manifest, stamps)
