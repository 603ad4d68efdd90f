"""The history of a job, rollback to an earlier version, and removal of old versions.

Pruning first updates the manifest, which then lists what is being removed, with its record, instead of the pruned
versions. Then the folders are removed, the record is added, and the entry in the manifest is deleted. Runs, rollbacks
and prunes first finish what an earlier one left undone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bigkpca.data.json_files import scratch_folder, scratch_folders
from bigkpca.data.stores import AnyPath, expanded, is_url, last_name, store_of
from bigkpca.data.stores.base import OURS
from bigkpca.data.versions import JOB, last_number, read_versions, version_path
from bigkpca.errors import CorruptionError, LockedError, SpecError
from bigkpca.execution.progress import Progress, shown
from bigkpca.spec.job import parse_keep
from bigkpca.storage import block_arrays, destination, groups, jobs
from bigkpca.workflows.scheduled import records

_PRUNING = "pruning"  # in the manifest of the versions


@dataclass(frozen=True)
class Pruned:
    """What is removed, or would be removed."""

    versions: Sequence[int]
    models: Sequence[Mapping[str, Any]]  # path and digest of each
    scratch: Sequence[str]  # paths
    bytes: int

    def __bool__(self) -> bool:
        return bool(self.versions or self.models or self.scratch)

    @property
    def facts(self) -> dict[str, Any]:
        models = [each["path"] for each in self.models]
        return {"versions": [*self.versions], "models": models, "scratch": [*self.scratch], "bytes": self.bytes}

    @property
    def sentence(self) -> str:
        parts = []
        if self.versions:
            parts.append(f"version{'s' * (len(self.versions) > 1)} {', '.join(map(str, self.versions))}")
        if self.models:
            parts.append(f"the model{'s' * (len(self.models) > 1)} {', '.join(each['path'] for each in self.models)}")
        if self.scratch:
            parts.append(f"{len(self.scratch)} unfinished item{'s' * (len(self.scratch) > 1)}")
        return f"removed {' and '.join(parts)}, {self.bytes / 1e6:,.1f} MB"


def to_prune(
    out: str, versions: Mapping[str, Any], keep: int | timedelta | None, spared: Collection[int] = ()
) -> Pruned:
    """What to remove: versions beyond those to keep, but none that is `spared`; without `keep`, all stay."""
    current, numbers = versions["current"], {each["number"] for each in versions["versions"]}
    if keep is None:
        kept = numbers
    elif isinstance(keep, int):  # this many in all: the current one and the newest others
        kept = {current, *sorted(numbers - {current}, reverse=True)[: keep - 1]}
    else:  # those current within this time; a version with an unknown time stays
        since, runs = datetime.fromisoformat(records.now()) - keep, jobs.read_records(out)[0]
        kept = {number for number in numbers if number == current or _last_use(out, number, runs, since) >= since}
    kept |= {*spared}
    old = [each for each in versions["versions"] if each["number"] not in kept]
    # Models of refits that made none of the kept versions. The first model, which the job names, stays, and so does
    # anything that is no longer that model.
    named, models = {each["model"]["path"] for each in versions["versions"] if each["number"] in kept}, {}
    for model in (each["model"] for each in old):
        path, number = model["path"], model["number"]
        of_refit = number > 1 and f"-{number}" in last_name(path)
        about = groups.describe(path) if of_refit and path not in named else None
        if about is not None and (about.get("format"), about.get("digest")) == ("model", model["digest"]):
            models[path] = {"path": path, "digest": model["digest"]}
    scratch = list(_scratch(out, versions))
    gone = [each["number"] for each in old]
    size = 0
    for path in [*(version_path(out, number) for number in gone), *models, *scratch]:
        if store_of(path).is_folder(path):
            size += sum(file.bytes for file in store_of(path).files(path).values())
    return Pruned(gone, list(models.values()), scratch, size)


def prune_versions(
    out: str, keep: int | timedelta | None, spared: Collection[int] = (), why: str | None = None
) -> Pruned:
    """Remove what `to_prune` lists. For the writer of the output."""
    versions = read_versions(out)
    if versions is None:
        return Pruned([], [], [], 0)
    found = to_prune(out, versions, keep, spared)
    if not found:
        return found
    current = next(each for each in versions["versions"] if each["number"] == versions["current"])
    record = records.ended_record(
        jobs.read_records(out)[0],
        status=records.PRUNED,
        message=found.sentence + (f" ({why})" if why else ""),
        version=versions["current"],
        model={"path": current["model"]["path"], "digest": current["model"]["digest"]},
        pruned=found.facts,
    )
    left = [each for each in versions["versions"] if each["number"] not in found.versions]
    pruning = {"versions": found.versions, "models": found.models, "record": record}
    jobs.write_versions(out, {**versions, "versions": left, "last": last_number(versions), _PRUNING: pruning})
    finish_pruning(out)
    return found


def finish_pruning(out: str) -> dict[str, Any] | None:
    """Finish an interrupted prune; return its record, or None if there was none. For the writer of the output."""
    versions = read_versions(out)
    if versions is None or _PRUNING not in versions:
        return None
    pruning, fits = versions[_PRUNING], False
    with suppress(KeyError, TypeError):
        texts = [text for model in pruning["models"] for text in (model["path"], model["digest"])]
        numbers = [*pruning["versions"], pruning["record"]["run"]]
        fits = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
    if not fits:
        raise CorruptionError(f"{out}/manifest.json does not list what is being pruned: restore it")
    kept = {each["number"] for each in versions["versions"]}
    for number in pruning["versions"]:
        if number not in kept:
            _remove(version_path(out, number))
    for model in pruning["models"]:
        if model["path"] not in [each["model"]["path"] for each in versions["versions"]]:
            _remove_model(model["path"], model["digest"])
    for path in _scratch(out, versions):
        store = store_of(path)
        (store.remove_folder if store.is_folder(path) else store.remove_file)(path)
    record: dict[str, Any] = pruning["record"]
    _add_record(out, record)
    jobs.write_versions(out, {key: value for key, value in versions.items() if key != _PRUNING})
    return record


def _last_use(out: str, number: int, runs: Sequence[Mapping[str, Any]], unknown: datetime) -> datetime:
    """When a run, or a rollback, last left a version current."""
    ends = [each.get("finished") for each in runs if each.get("version") == number]
    if not ends:
        with suppress(CorruptionError):
            ends = [block_arrays.read_grown(version_path(out, number))["run"].get("finished")]
    times = []
    for text in ends:
        with suppress(TypeError, ValueError):
            times.append(datetime.fromisoformat(text).astimezone())  # type: ignore[arg-type]  # of a file
    return max(times, default=unknown)


def _scratch(out: str, versions: Mapping[str, Any]) -> Iterator[str]:
    """Leftovers of killed runs in the folder of the output that no run will resume."""
    if jobs.read_pinned(out):
        return  # the same command will resume it
    known = {str(each["number"]) for each in versions["versions"]}
    for name in sorted(store_of(out).names(out)):
        version, mark, _ = name.partition(OURS)
        if not version.isdecimal():
            unneeded = name.endswith(".partial")
        elif mark:
            unneeded = version not in known
            if not unneeded:  # unless a run was, or could have been, interrupted while publishing there
                with suppress(CorruptionError):
                    unneeded = not block_arrays.is_publishing(block_arrays.read_grown(version_path(out, int(version))))
        else:  # put in place but never published
            about = groups.describe(f"{out}/{name}") or {}
            unneeded = int(version) > last_number(versions) and about.get("grows") is True
        if unneeded:
            yield f"{out}/{name}"


def _remove(path: str) -> None:
    """Remove an output, in one step as seen by readers, and leftovers beside it."""
    destination.remove_all_runs(path)  # also leftovers of an interrupted removal
    store_of(path).discard(path, scratch_folder(path))


def _remove_model(path: str, digest: str) -> None:
    """Remove a model, if it still has this digest."""
    store = store_of(path)
    if not (store.exists(path) or scratch_folders(path)):
        return
    with suppress(LockedError), store.writer(path):  # a model that is being replaced belongs to another run
        about = groups.describe(path)
        cut_off = about is None and is_url(path)  # a removal deletes the metadata first
        if cut_off or not store.exists(path) or (about or {}).get("digest") == digest:
            _remove(path)


def history(out: AnyPath, *, progress: Progress | bool = False) -> list[dict[str, Any]]:
    """The records of all runs of a job, in the order in which they ended.

    Parameters
    ----------
    out : path
        The output of the job.
    progress : Progress
        Receives a note about lines that do not parse, which are skipped.

    Returns
    -------
    list of dict
        See `docs/scheduled.md` for the content of a record.

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
    found, damaged = jobs.read_records(path)
    if damaged:
        lines = ", ".join(map(str, damaged[:10]))
        progress.note(f"{path}/{jobs.RECORDS}: skipping lines that do not parse: {lines}")
    return found


def rollback(out: AnyPath, to: int | None = None) -> dict[str, Any]:
    """Make an earlier version of the features the current one; nothing is removed.

    The next run adds all missing rows to that version, with its model.

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
    path = destination.group_path(out)
    groups.open_group(path, JOB)
    with store_of(path).writer(path):
        if (unfinished := finish_cut_off(path)) and to in (None, unfinished["version"]):
            records.refresh_metrics(path, jobs.read_records(path)[0])
            return unfinished
        versions = read_versions(path) or jobs.empty_versions()
        current, entries = versions["current"], {each["number"]: each for each in versions["versions"]}
        wanted = max((number for number in entries if number < current), default=0) if to is None else to
        if current:
            with suppress(CorruptionError):  # which can be the reason for the rollback
                block_arrays.go_on(version_path(path, current))  # otherwise the next run would remove what it lacks
        if to is None and not wanted:
            raise SpecError(f"{path} has no version before the current one{' that was not pruned' * (current > 1)}")
        jobs.check_version(path, versions, wanted)
        manifest = block_arrays.read_grown(version_path(path, wanted))
        model = entries[wanted]["model"]
        record = records.ended_record(
            jobs.read_records(path)[0],
            status=records.ROLLED_BACK,
            message=f"from version {current} to version {wanted}",
            total_rows=manifest["rows"],
            version=wanted,
            model={"path": model["path"], "digest": model["digest"]},
        )
        jobs.write_pinned(path, {"rollback": record})
        finish_cut_off(path)
        records.refresh_metrics(path, jobs.read_records(path)[0])
    return record


def prune(
    out: AnyPath, keep: int | str | None = None, *, dry_run: bool = False, progress: Progress | bool = False
) -> dict[str, Any]:
    """Remove old versions of the features, and leftovers of killed runs that no run will resume.

    The current version is never removed. The model of a removed version is also removed, if it comes from a refit and
    made no kept version. The records of all runs stay. Repeating the call finishes an interrupted one.

    Parameters
    ----------
    out : path
        The output of the job.
    keep : int or str, optional
        Number of versions to keep, the current one and the newest others; or the time, such as "90 days", to keep
        versions after a run or a rollback last left them current. By default, all are kept.
    dry_run : bool
        Remove nothing.
    progress : Progress
        Receives a note if an earlier prune was interrupted, which is finished first.

    Returns
    -------
    dict
        What was removed, or would be removed: `versions` (their numbers), `models` and `scratch` (their paths), and
        `bytes`.

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
    path, kept = destination.group_path(out), None if keep is None else parse_keep(keep)
    groups.open_group(path, JOB)
    if dry_run:
        return to_prune(path, read_versions(path) or jobs.empty_versions(), kept).facts
    with store_of(path).writer(path):
        if finished := finish_pruning(path):
            shown(progress).note(f"finished an earlier prune that was interrupted: it {finished.get('message')}")
        finish_cut_off(path)
        return prune_versions(path, kept).facts


def finish_cut_off(out: str) -> dict[str, Any] | None:
    """Finish an interrupted prune or rollback; return the record of the rollback, or None if there was none."""
    finish_pruning(out)
    record: dict[str, Any] | None = jobs.read_pinned(out).get("rollback")
    if record is not None:
        jobs.set_current(out, record["version"])
        _add_record(out, record)
        jobs.remove_pinned(out)
    return record


def _add_record(out: str, record: dict[str, Any]) -> None:
    """Add a record, unless an interrupted run already did."""
    if not any(each["run"] == record["run"] for each in jobs.read_records(out)[0]):
        jobs.append_record(out, record)
