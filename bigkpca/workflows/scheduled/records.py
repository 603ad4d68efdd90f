"""What stays of runs: the record of each, the metrics for Prometheus, and the record beside the job file.

A volume that is not mounted looks like a path where nothing was written yet. The record beside the job file, which lies
outside the output, distinguishes the two. If it cannot be written, `output.must_exist` serves the same purpose.
"""

from __future__ import annotations

import errno
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bigkpca.data.stores import read_json, read_record, store_of, write_json
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.execution.progress import Progress
from bigkpca.spec.job import Job
from bigkpca.storage import groups
from bigkpca.storage.runs import append_record, read_records

_DECIDING = ("bigkpca", "numpy", "scipy")  # packages that, like processors, affect the bytes of features
_PACKAGES = (*_DECIDING, "zarr", "dask")
DONE, NOTHING_NEW, FAILED = "done", "nothing new", "failed"


def now() -> str:
    """The current time in UTC, as in records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def started_record(earlier: Sequence[Mapping[str, Any]], **values: Any) -> dict[str, Any]:
    """The record of a run that begins after these."""
    return {
        "run": 1 + max((each["run"] for each in earlier), default=0),
        "started": now(),
        "finished": None,
        "status": None,
        "exit_code": 0,
        "message": None,
        "rows": None,
        "total_rows": None,
        "model": None,
        "input": None,
        "bytes": {"read": 0, "written": 0},
        "seconds": {"fit": 0.0, "extract": 0.0, "total": 0.0},
        "packages": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "processors": None,
        "drift": None,
        "flagged": None,
        **values,
    }


def complete(out: str) -> None:
    """Add a record of rows that a job published without one, as after a kill between the two."""
    about: Mapping[str, Any] = {}
    with suppress(CorruptionError):  # of a manifest that the run itself refuses
        about = groups.describe(out) or {}
    earlier, rows = read_records(out)[0], about.get("rows") if "job" in about else None
    known: int = next((each["total_rows"] for each in reversed(earlier) if each.get("total_rows") is not None), 0)
    if isinstance(rows, int) and rows > known:
        facts = {"status": DONE, "rows": [known, rows], "total_rows": rows, "message": "published, but not recorded"}
        append_record(out, started_record(earlier, finished=now(), **facts))


def makers(record: Mapping[str, Any]) -> dict[str, str]:
    """What the bytes of features depend on besides rows and model: package versions, and the processor types for which
    BLAS computes."""
    found = {name: record["packages"][name] for name in _DECIDING}
    return found | {"processors": ", ".join(record["processors"]) or "unknown"}


def metrics_text(out: str, records: Sequence[Mapping[str, Any]]) -> bytes:
    """Metrics of the last run and of all runs, in Prometheus' text format."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    class Collected(Collector):
        def collect(self) -> Iterator[Metric]:
            for name, help_text, value in _metrics(records):
                if value is not None:
                    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                    family = kind(f"bigkpca_{name}", help_text, labels=["output"])
                    family.add_metric([out], value)
                    yield family

    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry)


def _metrics(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, float | None]]:
    last: Mapping[str, Any] = records[-1] if records else {}
    successes = [record for record in records if record.get("status") in (DONE, NOTHING_NEW)]
    published: Mapping[str, Any] = successes[-1] if successes else {}
    drift: Mapping[str, Any] = next((record["drift"] for record in reversed(records) if record.get("drift")), {})
    flagged: Mapping[str, Any] = next((each["flagged"] for each in reversed(records) if each.get("flagged")), {})
    new = last["rows"][1] - last["rows"][0] if last.get("rows") and last.get("status") == DONE else 0
    return [
        ("last_success_timestamp_seconds", "End of the last successful run", _seconds(successes)),
        ("last_run_timestamp_seconds", "End of the last run", _seconds(records)),
        ("last_run_exit_code", "Exit code of the last run", last.get("exit_code")),
        ("last_run_new_rows", "Rows that the last run extracted", new),
        ("last_run_seconds", "Duration of the last run", last.get("seconds", {}).get("total")),
        ("rows", "Rows whose features are published", published.get("total_rows")),
        ("drift", "Drift of the last new rows, from 0 to 1", drift.get("figure")),
        ("drift_threshold", "Drift above which a run warns or fails", drift.get("threshold")),
        ("rows_outside", "Compared new rows beyond all rows of the fit, last run", drift.get("outside")),
        ("rows_flagged", "Flagged new rows, last run", flagged.get("count")),
        ("flagged_share", "Share of the last new rows that is flagged", flagged.get("share")),
        ("flagged_share_threshold", "Share of flagged rows above which a run warns", flagged.get("range", [None])[-1]),
        ("failed_runs_total", "Runs that failed", sum(record.get("status") == FAILED for record in records)),
    ]


def _seconds(records: Sequence[Mapping[str, Any]]) -> float | None:
    return datetime.fromisoformat(records[-1]["finished"]).timestamp() if records else None


def write_metrics(path: str | None, out: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Write the metrics file atomically, if the job names one. Raises SpecError if that is not possible."""
    if path is None:
        return
    try:
        store_of(path).write(path, metrics_text(out, records))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SpecError(
            f"metrics cannot be written to {path} ({error.strerror}): create its folder, or change run.metrics"
        ) from error


def check_there(job: Job, out: str) -> None:
    """Raise SpecError if the output of a job is gone or, before there is one, its model."""
    if job.output.must_exist is False or groups.describe(out) is not None:
        return
    if job.output.must_exist:
        raise SpecError(
            f"{out} holds no features, but the job sets output.must_exist = true: mount its volume or restore it; for "
            "a first run, remove must_exist from the job"
        )
    path = _beside(job.file)
    known = read_record(path, "remove it once the output and the model of the job are in place") or {}
    missing = [out] if known.get("output") == out else []
    if known.get("model") == job.model.path and groups.describe(job.model.path) is None:
        missing.append(job.model.path)
    if missing:
        raise SpecError(
            f"{missing[0]}, which earlier runs of this job wrote, is gone: mount its volume or restore it; to start "
            f"anew, remove {path}, or set output.must_exist = false in the job"
        )


def remember(job: Job, out: str, progress: Progress) -> None:
    """Record the output of the job beside the job file, since from now on it must exist."""
    path, entry = _beside(job.file), {"output": out, "model": job.model.path}
    with suppress(OSError, ValueError):
        if read_json(path) == entry:
            return
    try:
        write_json(path, entry)
    except OSError:  # e.g. in a read-only folder
        if job.output.must_exist is None:
            progress.note(
                f"{path} cannot be written, so a later run could take an unmounted volume for a first run: set "
                "output.must_exist = true in the job"
            )


def _beside(file: str) -> str:
    """The path of the record of a job file."""
    return f"{file}.bigkpca-record"
