"""Extract features of rows, measure their drift, and publish them."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, output_block_rows, split
from bigkpca.data.devices import Device
from bigkpca.data.retrying import retried
from bigkpca.data.rows import Rows
from bigkpca.data.stored import sha256
from bigkpca.data.stores import store_of
from bigkpca.data.versions import version_path
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array, CorruptionError, DriftError, SpecError, check_overflow
from bigkpca.execution.engine import block_tiles
from bigkpca.execution.options import RunOptions
from bigkpca.execution.planning import Plan, plan_transform
from bigkpca.execution.projection import check_columns, expansion_of, tile_scores, tile_scores_and_residuals
from bigkpca.execution.tasks import BlockTasks, named_rows
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion
from bigkpca.spec import FitSpec
from bigkpca.spec.job import Job
from bigkpca.storage import block_arrays, destination, groups, jobs
from bigkpca.storage.destination import Destination
from bigkpca.storage.models import load_model, model_digest
from bigkpca.workflows.block_writer import Holding, begun, check_count, check_unchanged
from bigkpca.workflows.fit import fit_and_save
from bigkpca.workflows.flags import ARRAYS, FlaggedShare, flags_of
from bigkpca.workflows.scheduled import records
from bigkpca.workflows.scheduled.input_rows import Interval, rows_drawn
from bigkpca.workflows.scheduled.places import Published, ScheduledRun

_MOST_COMPARED = 16_384  # new rows used to measure drift: chance contributes 0.01, whatever their number


@dataclass(frozen=True)
class ExtractedBlock:
    """Facts about a block whose scores are stored."""

    digests: dict[str, str]  # SHA-256 of each array
    input_sha256: str  # of the rows that the block was computed from
    scores: Array  # (m, r) of the rows used to measure drift
    residuals: Array | None  # (m,)
    flagged: int  # flagged rows of the interval


def extract_block(
    rows: Rows,
    block: Block,
    path: str,
    model: Model,
    compared: Array,
    expansion: Expansion | None,
    interval: Interval,
    flag: float | None,
) -> ExtractedBlock:
    """Write the scores of a block and its flags, unless they are stored, and read its rows once for all facts about
    them."""
    mine, digest = _between(compared, block.start, block.stop), hashlib.sha256()
    kept: list[Array] = []
    X_tiles, most_rows = block_tiles(rows, block, model.features, digest)
    X_tiles = _keeping(X_tiles, block.start, mine, kept)
    values = _stored_values(path, block, _names(flag))
    if values is None:
        values = _computed(X_tiles, most_rows, len(block), model, expansion, flag, named_rows(rows, block))
        digests = block_arrays.write_block(path, block, values)
    else:
        deque(X_tiles, maxlen=0)  # rows are read for the digest, and for comparison
        digests = {name: sha256(found) for name, found in values.items()}
    inside = slice(max(interval.first - block.start, 0), max(interval.stop - block.start, 0))
    flagged = 0 if flag is None else int(np.count_nonzero(values["flagged"][inside]))
    residuals = None
    if expansion is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            residuals = np.concatenate([np.zeros(0), *model.residuals(kept, most_rows, expansion)])
    return ExtractedBlock(digests, digest.hexdigest(), values["scores"][mine - block.start], residuals, flagged)


def _computed(
    X_tiles: Iterator[Array],
    most_rows: int,
    count: int,
    model: Model,
    expansion: Expansion | None,
    flag: float | None,
    where: str,
) -> dict[str, Array]:
    """The scores of the rows of these tiles and, with a share of rows to flag, their flags."""
    with np.errstate(over="ignore", invalid="ignore"):
        if flag is None or expansion is None:
            scores = tile_scores(X_tiles, most_rows, count, model)
            check_overflow(scores, where)
            return {"scores": scores}
        scores, left = tile_scores_and_residuals(X_tiles, most_rows, model, expansion)
    check_overflow(np.column_stack([scores, left]), where)
    return {"scores": scores} | flags_of(model, scores, left, flag)


def _between(numbers: Array, start: int, stop: int) -> Array:
    """Those of the ascending numbers with start <= number < stop."""
    return numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)]


def _keeping(X_tiles: Iterator[Array], start: int, numbers: Array, kept: list[Array]) -> Iterator[Array]:
    """The tiles, which begin with row `start`; rows with these numbers are added to `kept`."""
    for X in X_tiles:
        inside = _between(numbers, start, start + len(X))
        if len(inside):
            kept.append(X[inside - start])
        start += len(X)
        yield X


def _names(flag: float | None) -> tuple[str, ...]:
    """The names of the arrays of a version, with or without flags."""
    return ("scores", *(() if flag is None else ARRAYS))


def _stored_values(path: str, block: Block, names: Sequence[str]) -> dict[str, Array] | None:
    """The arrays of a block that an earlier run wrote completely; None if it did not, or a shard does not decode."""
    arrays = retried(lambda: block_arrays.open_arrays(path, names), path)
    files = [f"{path}/{name}/{block_arrays.shard(array, block)}" for name, array in arrays.items()]
    if not all(map(store_of(path).exists, files)):
        return None
    try:
        found = {name: block_arrays.stored_values(path, array, block) for name, array in arrays.items()}
    except CorruptionError:  # e.g. of a shard left by a killed worker: it is rewritten
        return None
    return None if np.isnan(found["scores"]).any() else found


def drift_of(model: Model, blocks: Sequence[ExtractedBlock], threshold: float) -> dict[str, Any] | None:
    """The drift of the rows that the blocks hold for it; None if the model has no reference to compare with."""
    kept = [block for block in blocks if block.residuals is not None]
    if model.reference is None or not sum(len(block.scores) for block in kept):
        return None
    scores = np.concatenate([block.scores for block in kept])
    residuals = np.concatenate([block.residuals for block in kept if block.residuals is not None])
    found = model.reference.drift(model.reference.count(scores, residuals))
    return {**asdict(found), "threshold": threshold}


_MEMORY = "set a smaller output.block_rows, or fit a model with fewer landmarks"
_FEWER_BLOCKS = "set a larger output.block_rows, and name another output.path"
_MANY_ROWS = 2**40  # so that blocks have the size that they have in a large output
_Known = tuple[dict[str, str], list[str]]  # of a block: digests of its scores; digest and stamp of its input


def append(given: ScheduledRun, current: Published, model: Model, rows: ZarrRows, interval: Interval) -> None:
    """Add the features of new rows. The last block is computed again if it was not full: the bits of a score depend on
    the rows beside it."""
    about = dict(groups.describe(current.path) or {})
    about.pop("format_version", None)
    pinned = {**about, "input": rows.fingerprint()}
    place = destination.destination_of_rows(current.path, pinned)
    wanted = block_arrays.changed_blocks(current.rows, interval.stop, about["block_rows"])
    blocks = split(interval.stop, about["block_rows"])
    check_count(len(blocks), 700, _FEWER_BLOCKS)
    new = _extracted(given, rows, model, pinned, place, wanted, interval, current)
    known = [*_known_before(current, rows)[: wanted[0].number], *new]
    finish_record(given, records.DONE, current.entry, [interval.first, interval.stop], interval.stop, known)
    _write_manifest(given, place.work, about, blocks, known)
    block_arrays.publish_grown(current.path, place.work, current.manifest)
    place.clear()


def make_version(given: ScheduledRun, rows: ZarrRows, interval: Interval) -> None:
    """Fit the model, unless there is one, and write the features of all rows."""
    with _timed(given, "fit"):
        model = first_model(given.job, rows, given.options)
    described = {"number": 1, "path": given.job.model.path, "digest": model_digest(model)}
    entry = {"number": 1, "model": described, "reason": "first run"}
    path = version_path(given.out, 1)
    about: dict[str, Any] = {
        "format": "features",
        "model": described["digest"],
        "input": rows.fingerprint(),
        "block_rows": block_rows_of(given, model, rows),
        "residual": False,
        "flag": given.job.output.flag,
        "grows": True,
    }
    place = destination.open_destination(path, about, overwrite=True)  # existing output there was never published
    if not place.done:
        blocks = split(rows.shape[0], about["block_rows"])
        check_count(len(blocks), 700, _FEWER_BLOCKS)
        known = _extracted(given, rows, model, about, place, blocks, interval, None)
        finish_record(given, records.DONE, entry, [interval.first, interval.stop], rows.shape[0], known)
        _write_manifest(given, place.work, about, blocks, known)
        place.put_in_place()
    given.record.update(block_arrays.read_grown(path)["run"])
    # So that a run interrupted after this point counts as published, even if it adopted an earlier run's features.
    jobs.write_pinned(given.out, {**jobs.read_pinned(given.out), "run": given.record["run"]})
    jobs.write_versions(given.out, {**given.versions, "current": 1, "versions": [entry]})


def block_rows_of(given: ScheduledRun, model: Model, rows: ZarrRows) -> int:
    """Rows of a block: as set, or as `transform` chooses for large output; always whole chunks of the input."""
    row_bytes = model.components * model.features.dtype.itemsize
    grain = rows.array.chunks[0]  # even if there are fewer rows so far
    return output_block_rows(_MANY_ROWS, grain, row_bytes, given.job.output.block_rows)


def _known_before(current: Published, rows: ZarrRows) -> list[_Known]:
    """Facts about each block of a version whose input was found unchanged, with the current stamps of the input."""
    manifest = current.manifest
    blocks, names = split(current.rows, manifest["block_rows"]), _names(manifest.get("flag"))
    each = zip(manifest["blocks"], block_arrays.input_digests(manifest), _stamps(rows, blocks), strict=True)
    return [
        ({name: block[block_arrays.digest_key(name, "scores")] for name in names}, [sha256, stamp])
        for block, (sha256, _), stamp in each
    ]


def _stamps(rows: ZarrRows, blocks: Sequence[Block]) -> list[str]:
    return rows.stamps(blocks) or [""] * len(blocks)


def _extracted(
    given: ScheduledRun,
    rows: ZarrRows,
    model: Model,
    record: dict[str, Any],
    place: Destination,
    wanted: Sequence[Block],
    interval: Interval,
    beside: Published | None,
) -> list[_Known]:
    """Write the wanted blocks, and measure drift, in one pass. IncompleteError for rows that changed."""
    progress, flag = given.options.progress, record.get("flag")
    with _timed(given, "extract"), given.options.engine() as engine:

        def plan(threads: int) -> Plan:
            return plan_extract(given.job, rows, model, record["block_rows"], threads, engine.device)

        plan(engine.threads).check(given.options.memory_limit, _MEMORY)
        engine.check_memory(lambda threads: plan(threads).peak_bytes, lambda threads: plan(threads).device_bytes)
        given.record["processors"] = [*engine.core_types(), *engine.devices]
        _check_makers(given, place, beside)
        arrays: dict[str, Any] = {"scores": ((model.components,), model.features.dtype)}
        arrays |= {} if flag is None else ARRAYS
        path = begun(place, record, rows, arrays)
        engine.check_paths(record["input"]["path"], path)
        if stored := block_arrays.stored_blocks(path, wanted):
            progress.note(f"continuing: {len(stored)} of {len(wanted)} blocks are already written")
        expansion = expansion_of(model) if model.reference or flag is not None else None
        numbers = rows_drawn(interval.first, interval.stop, _MOST_COMPARED, given.job.spec.seed)
        placed = expansion and engine.placed(expansion)
        passed = [path, engine.placed(model), numbers, placed, interval, flag]
        holding = replace(engine, progress=Holding(progress, given.out))
        found = holding.each("extracting features", BlockTasks(extract_block, rows, wanted, passed))
        block_arrays.check_stored(path, wanted, arrays)
        check_unchanged(rows, record["input"])
    count = sum(len(block) for block in wanted)
    given.record["bytes"] = {
        "read": count * rows.dtype.itemsize * rows.shape[1],
        "written": count * sum(np.dtype(dtype).itemsize * prod(row) for row, dtype in arrays.values()),
    }
    if flag is not None:
        _record_flags(given, model, FlaggedShare(flag, len(interval), sum(each.flagged for each in found)))
    drift = given.record["drift"] = drift_of(model, found, given.job.run.drift_threshold)
    if drift is None:
        progress.note("drift is not measured, since the model has no reference rows; a new fit would have them")
    elif drift["figure"] > drift["threshold"]:
        message = f"drift {drift['figure']:.3f} is above {drift['threshold']:g}: new rows are unlike those of the fit"
        if given.job.run.on_drift == "fail":
            raise DriftError(
                f"{message}; nothing was published. Inspect these rows, then set on_drift to warn, or name another "
                "model.path and output.path, which fits a model to all rows"
            )
        given.warn(message)
    pairs = zip(found, _stamps(rows, wanted), strict=True)
    return [(each.digests, [each.input_sha256, stamp]) for each, stamp in pairs]


def plan_extract(job: Job, rows: ZarrRows, model: Model, block_rows: int, threads: int, device: Device | None) -> Plan:
    """The cost of extracting the features of all rows."""
    judged, flag = model.reference is not None, job.output.flag is not None
    return plan_transform(rows, model, block_rows, threads, residual=judged, flag=flag, device=device)


def _record_flags(given: ScheduledRun, model: Model, share: FlaggedShare) -> None:
    """Record how many new rows are flagged, and warn where chance does not explain so many."""
    calibration = model.check_calibrated()
    given.record["flagged"] = {**asdict(share), "share": share.share, "range": [*share.range(calibration)]}
    if warning := share.warning(calibration):
        given.warn(warning)


def _check_makers(given: ScheduledRun, place: destination.Destination, beside: Published | None) -> None:
    """Make sure that features made by other packages or processor types are not mixed with those made now."""
    now, pinned = records.makers(given.record), jobs.read_pinned(given.out)
    if pinned.get("made_by") != now:
        place.clear()
        jobs.write_pinned(given.out, {**pinned, "made_by": now})
    if beside is None:
        return
    before = records.makers(beside.manifest["run"])
    other = [name for name in now if name in before and before[name] != now[name]]
    if not other:
        return
    here, there = (", ".join(f"{name} {of[name]}" for name in other) for of in (now, before))
    given.warn(
        f"{beside.path} holds features made with {there}, but this run has {here}: last digits can differ; to make all "
        "features again, name another output.path"
    )


@contextmanager
def _timed(given: ScheduledRun, what: str) -> Iterator[None]:
    """Add the seconds spent in this context to those of this kind of work in the record."""
    started = time.monotonic()
    yield
    given.record["seconds"][what] = round(given.record["seconds"][what] + time.monotonic() - started, 3)


def finish_record(
    given: ScheduledRun,
    status: str,
    entry: Mapping[str, Any],
    rows: list[int],
    total_rows: int,
    known: Sequence[_Known] = (),
) -> None:
    """Complete the record of a run, except its duration."""
    digests = "".join(digests["scores"] for digests, _ in known)
    given.record.update(
        {
            "status": status,
            "finished": records.now(),
            "rows": rows,
            "total_rows": total_rows,
            "model": {"path": entry["model"]["path"], "digest": entry["model"]["digest"]},
            "seconds": {**given.record["seconds"], "total": sum(given.record["seconds"].values())},
            "features_digest": hashlib.sha256(digests.encode()).hexdigest() if known else None,
        }
    )


def _write_manifest(
    given: ScheduledRun, path: str, about: Mapping[str, Any], blocks: Sequence[Block], known: Sequence[_Known]
) -> None:
    """Write the manifest of all blocks of a version, which names the run that made it."""
    more = {"input_blocks": [of_input for _, of_input in known], "run": given.record}
    block_arrays.publish(path, {**about, **more}, blocks, [digests for digests, _ in known])


def first_model(job: Job, rows: ZarrRows, run: RunOptions) -> Model:
    """The model at the path of the job, or else a fit of these rows."""
    path = job.model.path
    model = _stored_model(path)
    if model is None:
        return fit_and_save(rows, job.spec, path, run)
    _check_options(job, model, path)
    check_columns(rows, model)
    return model


def model_of_version(job: Job, version: Mapping[str, Any]) -> Model:
    """The model that made a version. Raises SpecError if the path of the job has another model, or none."""
    path = job.model.path
    model = _stored_model(path)
    if model is None:
        raise SpecError(
            f"{path}, the model that extracted the features in {job.output.path}, is gone: restore it, or name "
            "another output"
        )
    if (own := model_digest(model)) != version["model"]["digest"]:
        raise SpecError(
            f"{job.output.path} holds features of the model {version['model']['digest'][:12]}, but {path} is the model "
            f"{own[:12]} (digests): restore that model, or name another output"
        )
    _check_options(job, model, path)
    return model


def _stored_model(path: str) -> Model | None:
    """The model at a path, after finishing an interrupted publication; None if there is none."""
    store = store_of(path)
    if store.is_moving(path):
        with store.writer(path):
            store.recover(path)
    return load_model(path) if store.exists(path) else None


def _check_options(job: Job, model: Model, path: str) -> None:
    """Raise SpecError if the job sets options of a fit that differ from those of the model."""
    own, asked = FitSpec.of(model).to_dict(), job.spec.to_dict()
    other = [name for name in sorted(job.model.options.model_fields_set) if own.get(name) != asked.get(name)]
    if other:
        both = ", ".join(f"{name} = {own.get(name)!r} there and {asked.get(name)!r} in the job" for name in other)
        raise SpecError(
            f"{path} was fitted with other options: {both}. Remove these from the job, or name another model and output"
        )
    if job.output.flag is not None:
        if model.calibration is None:
            raise SpecError(
                f"{path} was fitted without calibration rows, which flags need: remove output.flag from the job, or "
                "name another model and output"
            )
        model.calibration.exceeding(job.output.flag, "output.flag")
    if job.input.sample_weight is not None and not model.weighted:
        raise SpecError(
            f"{path} was fitted without sample weights: remove input.sample_weight from the job, or name another model "
            "and output"
        )
