"""What a run of a job would do."""

from __future__ import annotations

from datetime import date
from typing import Any

from bigkpca.data.stores import store_of
from bigkpca.data.versions import read_versions
from bigkpca.data.zarr import ZarrRows
from bigkpca.execution.planning import Plan, plan_fit, plan_transform
from bigkpca.execution.progress import Silent
from bigkpca.spec.job import Job
from bigkpca.storage import growing, job_output, models, output_paths, run_records
from bigkpca.workflows.scheduled import input_rows, places
from bigkpca.workflows.scheduled.given import Given, pinned_interval, run_options
from bigkpca.workflows.scheduled.intervals import Asked
from bigkpca.workflows.scheduled.models import model_of_version, model_path
from bigkpca.workflows.scheduled.publishing import block_rows_of


def plan_run(
    job: Job,
    *,
    rows: str | tuple[int, int] | None = None,
    since: str | date | None = None,
    full: bool = False,
) -> dict[str, Any]:
    """What `run` with these arguments would do. Writes nothing, and reads no rows.

    Raises SpecError, CorruptionError and MemoryLimitError as `run` would before it computes anything.
    """
    asked, options = Asked.parsed(rows, since, full), run_options(job, Silent())
    out = output_paths.group_path(job.output.path, job.input.path, job.model.path)
    places.check_there(job, out)
    versions = read_versions(out) or job_output.empty_versions()
    given = Given(job, out, asked, options, versions, run_records.read_records(out)[0], {})
    found, current = input_rows.open_input(job.input.path, job.input.array), given.current
    cut_off, done = False, 0
    if current is not None and not full:
        manifest = growing.read_finished(current.path)  # a run begins with that
        input_rows.check_not_shrunk(found, manifest)
        cut_off, done = growing.is_publishing(current.manifest), manifest["rows"]
    count = input_rows.rows_to_extract(found, done, given.earlier, current.readable if current else None)
    interval = pinned_interval(asked, given, done, count)
    facts = {
        "action": _action(given, len(interval) > 0),
        "rows": [interval.first, interval.stop],
        "rows_extracted_already": done,
        "resumed": interval.resumed or cut_off,
        "version": current.entry["number"] if current and interval.first == done and not full else given.next_version,
        "model": current.entry["model"]["path"] if current else model_path(job, 1),
    }
    if not len(interval):
        return facts
    plan = _plan(given, found.pin(max(done, interval.stop)))
    plan.check(options.memory_limit, "take a smaller model, or smaller blocks")
    return facts | {"peak_bytes": plan.peak_bytes, "block_rows": plan.block_rows}


def _action(given: Given, some: bool) -> str:
    if not some:
        return "nothing new"
    if given.current is None and not store_of(model_path(given.job, 1)).exists(model_path(given.job, 1)):
        return "fit a model, and extract features"
    return "extract features"


def _plan(given: Given, rows: ZarrRows) -> Plan:
    """The cost of the fit, or where there is a model, of the extraction."""
    first = model_path(given.job, 1)
    with given.options.engine() as engine:
        if given.current is None and not store_of(first).exists(first):
            return plan_fit(rows, given.job.model.spec, engine.threads)
        model = models.load_model(first) if given.current is None else model_of_version(given.job, given.current.entry)
        size = block_rows_of(given, model, rows)
        return plan_transform(rows, model, size, engine.threads, residual=model.reference is not None)
