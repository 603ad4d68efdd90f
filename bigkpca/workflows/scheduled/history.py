"""What earlier runs of a job did, the way back to an earlier version, and the end of old ones."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bigkpca.data.stores import AnyPath, expanded, store_of
from bigkpca.data.versions import JOB, read_versions, version_path
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.execution.progress import Progress, shown
from bigkpca.spec.job import parse_keep
from bigkpca.storage import groups, growing, job_output, output_paths, run_records
from bigkpca.workflows.scheduled import pruning, records


def history(out: AnyPath, *, progress: Progress | bool = False) -> list[dict[str, Any]]:
    """The records of all runs of a job, in the order in which they ended.

    Parameters
    ----------
    out : path
        The output of the job.
    progress : Progress
        Is told of lines that do not parse, which are left out.

    Returns
    -------
    list of dict
        `docs/scheduled.md` lists what a record holds.

    Raises
    ------
    SpecError
        There is no output of a job.

    Notes
    -----
    Reads no rows and no features.
    """
    progress = shown(progress)
    path = expanded(out)
    groups.open_group(path, JOB)
    found, damaged = run_records.read_records(path)
    if damaged:
        lines = ", ".join(map(str, damaged[:10]))
        progress.note(f"{path}/{run_records.RECORDS}: lines that do not parse are left out: {lines}")
    return found


def rollback(out: AnyPath, to: int | None = None) -> dict[str, Any]:
    """Make an earlier version of the features the current one; nothing is removed.

    The next run adds to that version, with its model, all rows that it does not have.

    Parameters
    ----------
    out : path
        The output of the job.
    to : int, optional
        The number of the version; by default the largest below the current one.

    Returns
    -------
    dict
        The record, as in `runs.jsonl`.

    Raises
    ------
    SpecError
        There is no such version, or it was pruned.
    LockedError
        A run is at work.

    Notes
    -----
    Reads no rows and no features.
    """
    path = output_paths.group_path(out)
    groups.open_group(path, JOB)
    with store_of(path).writer(path):
        if (unfinished := finish_cut_off(path)) and to in (None, unfinished["version"]):
            records.refresh_metrics(path, run_records.read_records(path)[0])
            return unfinished
        versions = read_versions(path) or job_output.empty_versions()
        current, entries = versions["current"], {each["number"]: each for each in versions["versions"]}
        wanted = max((number for number in entries if number < current), default=0) if to is None else to
        if current:
            with suppress(CorruptionError):  # which may be why another one is wanted
                growing.go_on(version_path(path, current))  # else what it lacks would be removed by the next run
        if to is None and not wanted:
            raise SpecError(f"{path} has no version before the current one{' that was not pruned' * (current > 1)}")
        job_output.check_version(path, versions, wanted)
        manifest = growing.read(version_path(path, wanted))
        model = entries[wanted]["model"]
        earlier, _ = run_records.read_records(path)
        record = records.started_record(
            records.next_number(earlier),
            finished=records.now(),
            status=records.ROLLED_BACK,
            message=f"from version {current} to version {wanted}",
            total_rows=manifest["rows"],
            version=wanted,
            model={"path": model["path"], "digest": model["digest"]},
        )
        job_output.write_pinned(path, {"rollback": record})
        finish_cut_off(path)
        records.refresh_metrics(path, run_records.read_records(path)[0])
    return record


def prune(
    out: AnyPath, keep: int | str | None = None, *, dry_run: bool = False, progress: Progress | bool = False
) -> dict[str, Any]:
    """Remove old versions of the features, never the current one, and what killed runs left that none goes on with.

    With a version goes the model by which it was made, if that is of a refit and made no version that is kept. The
    records of all runs stay. The same call finishes what was cut off.

    Parameters
    ----------
    out : path
        The output of the job.
    keep : int or str, optional
        How many versions are kept: the current one and the newest others; or for how long, such as "90 days", after a
        run or a rollback last left them current. By default all are kept.
    dry_run : bool
        Remove nothing.
    progress : Progress
        Receives a note where an earlier prune was cut off, which is finished first.

    Returns
    -------
    dict
        What was removed, or would be: `versions` (their numbers), `models` and `scratch` (their paths), and `bytes`.

    Raises
    ------
    SpecError
        There is no output of a job, or `keep` is neither a number nor a time.
    LockedError
        A run is at work.

    Notes
    -----
    Reads no rows and no features.
    """
    path, kept = output_paths.group_path(out), None if keep is None else parse_keep(keep)
    groups.open_group(path, JOB)
    if dry_run:
        return pruning.to_prune(path, read_versions(path) or job_output.empty_versions(), kept).facts
    with store_of(path).writer(path):
        if finished := pruning.finish_pruning(path):
            shown(progress).note(f"an earlier prune was cut off, and is finished now: it {finished.get('message')}")
        finish_cut_off(path)
        return pruning.prune_versions(path, kept).facts


def finish_cut_off(out: str) -> dict[str, Any] | None:
    """Do what a prune or a rollback began; the record of a rollback, or None where none was cut off."""
    pruning.finish_pruning(out)
    return _finish_rollback(out)


def _finish_rollback(out: str) -> dict[str, Any] | None:
    record: dict[str, Any] | None = job_output.read_pinned(out).get("rollback")
    if record is not None:
        job_output.set_current(out, record["version"])
        if not any(each["run"] == record["run"] for each in run_records.read_records(out)[0]):
            run_records.append_record(out, record)
        job_output.remove_pinned(out)
    return record
