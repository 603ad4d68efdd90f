"""The record of a run, and the metrics for Prometheus derived from all records."""

from __future__ import annotations

import errno
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bigkpca.data.stores import store_of
from bigkpca.errors import SpecError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_DECIDING = ("bigkpca", "numpy", "scipy")  # packages that, like processors, affect the bytes of features
_PACKAGES = (*_DECIDING, "zarr", "dask")
DONE, NOTHING_NEW, FAILED = "done", "nothing new", "failed"
_SUCCESSES = (DONE, NOTHING_NEW)


def now() -> str:
    """The current time in UTC, as in records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def started_record(run: int, **values: Any) -> dict[str, Any]:
    return {
        "run": run,
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
        "features_digest": None,
        "drift": None,
        "flagged": None,
        "metrics": None,
        **values,
    }


def ended_record(earlier: Sequence[Mapping[str, Any]], **values: Any) -> dict[str, Any]:
    """The record, after `earlier` ones, of something that ended as soon as it began."""
    return started_record(next_number(earlier), finished=now(), **values)


def makers(record: Mapping[str, Any]) -> dict[str, str]:
    """What the bytes of features depend on besides rows and model, as far as the record has it: package versions, and
    the processor types for which BLAS computes."""
    packages, processors = record.get("packages"), record.get("processors")
    found = {name: packages[name] for name in _DECIDING if name in packages} if isinstance(packages, dict) else {}
    if isinstance(processors, list):
        found["processors"] = ", ".join(map(str, processors)) or "unknown"
    return found


def next_number(records: Sequence[Mapping[str, Any]]) -> int:
    return 1 + max((record["run"] for record in records), default=0)


def gaps_seen(records: Sequence[Mapping[str, Any]], age: timedelta) -> list[Any]:
    """The gaps in the input seen by runs that began at least this long ago."""
    before = (datetime.now(UTC) - age).isoformat(timespec="seconds")
    old = [record for record in records if str(record.get("started")) <= before]
    return [gap for record in old for gap in (record.get("input") or {}).get("gaps", [])]


def clock_warning(records: Sequence[Mapping[str, Any]]) -> str | None:
    """A warning if the clock is behind the end of an earlier run."""
    last = max((record["finished"] for record in records if isinstance(record.get("finished"), str)), default="")
    if last > now():
        return f"the clock of this machine shows {now()}, but an earlier run ended at {last}: check the clock"
    return None


def _registry(out: str, records: Sequence[Mapping[str, Any]]) -> CollectorRegistry:
    """Metrics of the last run and of all runs."""
    from prometheus_client import CollectorRegistry
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
    return registry


def metrics_text(out: str, records: Sequence[Mapping[str, Any]]) -> bytes:
    """The metrics in Prometheus' text format."""
    from prometheus_client import generate_latest

    return generate_latest(_registry(out, records))


def _metrics(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, float | None]]:
    last: Mapping[str, Any] = records[-1] if records else {}
    successes = [record for record in records if record.get("status") in _SUCCESSES]
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


def write_metrics(path: str, out: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Write the metrics file atomically. Raises SpecError if that is not possible."""
    try:
        store_of(path).write(path, metrics_text(out, records))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SpecError(
            f"metrics cannot be written to {path} ({error.strerror}): create its folder, or change run.metrics"
        ) from error
