"""What stays of runs: the record of each, the metrics for Prometheus, and the record beside the job file.

A volume that is not mounted looks like a path where nothing was written yet. The record beside the job file, which lies
outside the output, distinguishes the two. If it cannot be written, `output.must_exist` serves the same purpose.
"""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bigkpca.data.stores import read_small, store_of
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.execution.progress import Progress
from bigkpca.spec.job import Job
from bigkpca.storage import groups

DECIDING = ("bigkpca", "numpy", "scipy")  # packages that, like processors, affect the bytes of features
_PACKAGES = (*DECIDING, "zarr", "dask")
DONE, NOTHING_NEW, FAILED = "done", "nothing new", "failed"
ENDING = ".runs.jsonl"  # of the file with a line of JSON for each run, behind the name of the output


def read_records(out: str) -> list[dict[str, Any]]:
    """The records of all runs of the job that writes `out`, in the order in which they ended. Lines that no run wrote
    are skipped."""
    found: list[Any] = []
    for line in _content(out).split(b"\n"):
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [record for record in found if isinstance(record, dict) and type(record.get("run")) is int]


def append_record(out: str, record: Mapping[str, Any]) -> None:
    """Add a line. Existing lines stay as they are."""
    # The whole file is rewritten atomically: object stores cannot append, and no partial line is left behind.
    before = _content(out)
    if before and not before.endswith(b"\n"):
        before += b"\n"
    store_of(out).write(out + ENDING, before + json.dumps(record).encode() + b"\n")


def _content(out: str) -> bytes:
    try:
        with store_of(out).open(out + ENDING) as file:
            return file.read()
    except FileNotFoundError:
        return b""


def now() -> str:
    """The current time in UTC, as in records."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def started_record(earlier: Sequence[Mapping[str, Any]], **values: Any) -> dict[str, Any]:
    """The record of a run that begins after these; what is not known yet is None."""
    later = ("finished", "status", "message", "rows", "total_rows", "model", "input", "processors", "drift", "flagged")
    return {
        "run": 1 + max((each["run"] for each in earlier), default=0),
        "started": now(),
        **dict.fromkeys(later),
        "exit_code": 0,
        "seconds": {"fit": 0.0, "extract": 0.0, "total": 0.0},
        "packages": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        **values,
    }


def complete(out: str) -> None:
    """Add a record of rows that a job published without one, as after a kill between the two."""
    about: Mapping[str, Any] = {}
    with suppress(CorruptionError):  # of a manifest that the run itself refuses
        about = groups.describe(out) or {}
    earlier, rows = read_records(out), about.get("rows") if "job" in about else None
    known: int = next((each["total_rows"] for each in reversed(earlier) if each.get("total_rows") is not None), 0)
    if isinstance(rows, int) and rows > known:
        facts = {"status": DONE, "rows": [known, rows], "total_rows": rows, "message": "published, but not recorded"}
        append_record(out, started_record(earlier, finished=now(), **facts))


def metrics_text(out: str, records: Sequence[Mapping[str, Any]]) -> bytes:
    """Metrics of the last run and of all runs, in Prometheus' text format."""
    label, lines = json.dumps(out, ensure_ascii=False), []  # which escapes as Prometheus does
    for name, help_text, value in _metrics(records):
        if value is not None:
            kind, name = "counter" if name.endswith("_total") else "gauge", f"bigkpca_{name}"
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name}{{output={label}}} {value}"]
    return "".join(f"{line}\n" for line in lines).encode()


def _metrics(records: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, float | None]]:
    def last_of(key: str) -> Mapping[str, Any]:
        return next((each[key] for each in reversed(records) if each.get(key)), {})

    last: Mapping[str, Any] = records[-1] if records else {}
    successes = [record for record in records if record.get("status") in (DONE, NOTHING_NEW)]
    published = successes[-1]["total_rows"] if successes else None
    drift, flagged = last_of("drift"), last_of("flagged")
    new = last["rows"][1] - last["rows"][0] if last.get("rows") and last.get("status") == DONE else 0
    return [
        ("last_success_timestamp_seconds", "End of the last successful run", _seconds(successes)),
        ("last_run_timestamp_seconds", "End of the last run", _seconds(records)),
        ("last_run_exit_code", "Exit code of the last run", last.get("exit_code")),
        ("last_run_new_rows", "Rows that the last run extracted", new),
        ("last_run_seconds", "Duration of the last run", last.get("seconds", {}).get("total")),
        ("rows", "Rows whose features are published", published),
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
    """Raise SpecError if the output of a job is gone."""
    if groups.describe(out) is not None:
        return
    if job.output.must_exist:
        raise SpecError(
            f"{out} holds no features, but the job sets output.must_exist = true: mount its volume or restore it; for "
            "a first run, remove must_exist from the job"
        )
    if _recorded_output(job) == os.fsencode(out):
        raise SpecError(
            f"{out}, which earlier runs of this job wrote, is gone: mount its volume or restore it; to start anew, "
            f"remove {_beside(job)}"
        )


def remember(job: Job, out: str, progress: Progress) -> None:
    """Record the output of the job beside the job file, since from now on it must exist."""
    path, content = _beside(job), os.fsencode(out)
    if _recorded_output(job) == content:
        return
    try:
        store_of(path).write(path, content)
    except OSError:  # e.g. in a read-only folder
        if not job.output.must_exist:
            progress.note(
                f"{path} cannot be written, so a later run could take an unmounted volume for a first run: set "
                "output.must_exist = true in the job"
            )


def _recorded_output(job: Job) -> bytes | None:
    """The output of the earlier runs of a job; None if no run recorded it."""
    try:
        return read_small(_beside(job))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _beside(job: Job) -> str:
    """The path of the record of a job file."""
    return f"{job.file}.bigkpca-record"
