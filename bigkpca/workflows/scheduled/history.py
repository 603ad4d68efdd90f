"""What earlier runs of a job did, the way back to an earlier version, and the end of old ones.

The manifest comes first: it names no pruned version any more, but what is being removed and the record of that. Then
the folders go, the record is added, and the manifest forgets it. Runs, rollbacks and prunes begin with what one of them
left undone.
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
    """What is removed, or would be."""

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
    """What goes: versions beyond those that are kept, never one of the `spared`; without `keep` all stay."""
    current, numbers = versions["current"], {each["number"] for each in versions["versions"]}
    if keep is None:
        kept = numbers
    elif isinstance(keep, int):  # the current one and the newest others, so many in all
        kept = {current, *sorted(numbers - {current}, reverse=True)[: keep - 1]}
    else:  # those that were current within this time; one of which nobody knows when stays
        since, runs = datetime.fromisoformat(records.now()) - keep, jobs.read_records(out)[0]
        kept = {number for number in numbers if number == current or _last_use(out, number, runs, since) >= since}
    kept |= {*spared}
    old = [each for each in versions["versions"] if each["number"] not in kept]
    # The models of refits that made none of the versions that are kept. The first model, which the job names, stays; so
    # does what is no longer that model.
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
    """Remove what `to_prune` names. For the writer of the output."""
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
    """Do what a prune began; its record, or None where none was cut off. For the writer of the output."""
    versions = read_versions(out)
    if versions is None or _PRUNING not in versions:
        return None
    pruning, fits = versions[_PRUNING], False
    with suppress(KeyError, TypeError):
        texts = [text for model in pruning["models"] for text in (model["path"], model["digest"])]
        numbers = [*pruning["versions"], pruning["record"]["run"]]
        fits = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in numbers)
    if not fits:
        raise CorruptionError(f"{out}/manifest.json does not say what is being pruned; restore it")
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
    """What killed runs left in the folder of the output, and no run goes on with."""
    if jobs.read_pinned(out):
        return  # the same command will
    known = {str(each["number"]) for each in versions["versions"]}
    for name in sorted(store_of(out).names(out)):
        version, mark, _ = name.partition(OURS)
        if not version.isdecimal():
            unneeded = name.endswith(".partial")
        elif mark:
            unneeded = version not in known
            if not unneeded:  # unless a run was cut off while it published there, or may have been
                with suppress(CorruptionError):
                    unneeded = not block_arrays.is_publishing(block_arrays.read_grown(version_path(out, int(version))))
        else:  # put in place, and never published
            about = groups.describe(f"{out}/{name}") or {}
            unneeded = int(version) > last_number(versions) and about.get("grows") is True
        if unneeded:
            yield f"{out}/{name}"


def _remove(path: str) -> None:
    """Remove an output, in one step for those who look for it, and what was left beside it."""
    destination.remove_all_runs(path)  # also what a removal left that was cut off
    store_of(path).discard(path, scratch_folder(path))


def _remove_model(path: str, digest: str) -> None:
    """Remove a model, if it still is that with this digest."""
    store = store_of(path)
    if not (store.exists(path) or scratch_folders(path)):
        return
    with suppress(LockedError), store.writer(path):  # one that is being replaced is not ours
        about = groups.describe(path)
        cut_off = about is None and is_url(path)  # a removal takes away the metadata first
        if cut_off or not store.exists(path) or (about or {}).get("digest") == digest:
            _remove(path)


def history(out: AnyPath, *, progress: Progress | bool = False) -> list[dict[str, Any]]:
    """The records of all runs of a job, in the order in which they ended.

    Parameters
    ----------
    out : path
        The output of the job.
    progress : Progress
        Receives a note on lines that do not parse, which are left out.

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
    found, damaged = jobs.read_records(path)
    if damaged:
        lines = ", ".join(map(str, damaged[:10]))
        progress.note(f"{path}/{jobs.RECORDS}: lines that do not parse are left out: {lines}")
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
            with suppress(CorruptionError):  # which may be why another one is wanted
                block_arrays.go_on(version_path(path, current))  # else what it lacks would be removed by the next run
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
    path, kept = destination.group_path(out), None if keep is None else parse_keep(keep)
    groups.open_group(path, JOB)
    if dry_run:
        return to_prune(path, read_versions(path) or jobs.empty_versions(), kept).facts
    with store_of(path).writer(path):
        if finished := finish_pruning(path):
            shown(progress).note(f"an earlier prune was cut off, and is finished now: it {finished.get('message')}")
        finish_cut_off(path)
        return prune_versions(path, kept).facts


def finish_cut_off(out: str) -> dict[str, Any] | None:
    """Do what a prune or a rollback began; the record of a rollback, or None where none was cut off."""
    finish_pruning(out)
    record: dict[str, Any] | None = jobs.read_pinned(out).get("rollback")
    if record is not None:
        jobs.set_current(out, record["version"])
        _add_record(out, record)
        jobs.remove_pinned(out)
    return record


def _add_record(out: str, record: dict[str, Any]) -> None:
    """Add a record, unless a run that was cut off did."""
    if not any(each["run"] == record["run"] for each in jobs.read_records(out)[0]):
        jobs.append_record(out, record)
