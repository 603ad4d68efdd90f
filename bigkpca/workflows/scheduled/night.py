"""One night of a job: the model, the features of rows that arrived, their drift and flags, and publishing them.

The output is a feature store that grows in place. A new block that is full is a pure function of rows, model and block
number, so tasks write it, however often or late. A block of which readers already see rows, and one that will grow, are
written by the process that holds the lock, after all checks and right before the manifest, which readers trust alone.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, output_block_rows, split
from bigkpca.data.rows import Rows, digest_of_rows
from bigkpca.errors import Array, CorruptionError, DriftError, SpecError, check_overflow
from bigkpca.execution.engine import block_tiles
from bigkpca.execution.options import RunOptions
from bigkpca.execution.plan import check_plans, plan_transform
from bigkpca.execution.progress import WARNING
from bigkpca.execution.projection import check_columns, expansion_of, tile_scores, tile_scores_and_residuals
from bigkpca.execution.tasks import block_tasks, named_rows
from bigkpca.numerics.array_api import on_host
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion
from bigkpca.numerics.random_streams import COMPARED, random_stream
from bigkpca.spec import FitSpec
from bigkpca.storage import output
from bigkpca.storage.groups import NewArray
from bigkpca.storage.models import load_model, model_digest
from bigkpca.storage.output import Output
from bigkpca.workflows.fit import fit_and_save
from bigkpca.workflows.flags import ARRAYS, FlaggedShare, flags_of
from bigkpca.workflows.inputs import check_unchanged
from bigkpca.workflows.scheduled import records
from bigkpca.workflows.scheduled.finding import ELSEWHERE, Found

_MOST_COMPARED = 16_384  # new rows used to measure drift: chance contributes 0.01, whatever their number
_MOST_NAMED = 5  # ranges of rows in a message
_MOST_MOVED = 3  # columns in a message
_MANY_ROWS = 2**40  # of a large output
_MEMORY = "set a smaller output.block_rows, or fit a model with fewer landmarks"


@dataclass(frozen=True)
class Night:
    """A run at work: its options, and its record, which it completes."""

    found: Found
    options: RunOptions
    record: dict[str, Any]

    def warn(self, message: str) -> None:
        """Show a warning, and add it to the record."""
        self.options.progress.note(f"{WARNING}{message}")
        self.record["message"] = "; ".join(filter(None, [self.record["message"], message]))

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Records how long a part of a run takes."""
        started = time.monotonic()
        yield
        self.record["seconds"][part] = round(time.monotonic() - started, 3)


def work(night: Night) -> None:
    """Fit the model if there is none, and extract, publish and record the rows that arrived."""
    found, record = night.found, night.record
    job, rows = found.job, found.rows
    record["input"] = {"path": job.input.path, "dtype": rows.dtype.str, "columns": rows.shape[1]}
    if found.stored < found.room:
        night.options.progress.note(
            f"rows {found.stored} to {found.room - 1} are not stored yet: left for the next run"
        )
    if found.to_fit:
        again = output.claimed(job.model.path) is not None  # of a run of this job, perhaps of other rows
        with night.timed("fit"):
            model = fit_and_save(rows, job.spec, job.model.path, replace(night.options, overwrite=again))
    else:
        model = load_model(job.model.path)
    fingerprint = rows.fingerprint()
    record["model"] = {"path": job.model.path, "digest": model_digest(model)}
    _check_model(night, model)
    if found.about:
        _check_unchanged_rows(night)
    else:
        output.tidy(job.model.path)
    record["rows"], record["total_rows"] = [found.new.start, found.new.stop], found.new.stop
    if not found.new:
        output.tidy(found.out)
        record["status"] = records.NOTHING_NEW
        return
    with night.timed("extract"):
        _extract(night, model, fingerprint)
    record["status"] = records.DONE


def _check_model(night: Night, model: Model) -> None:
    """Raise SpecError unless it is the model of the features that are there, of the rows, and of the job."""
    found, job = night.found, night.found.job
    path, digest, flag = job.model.path, night.record["model"]["digest"], job.output.flag
    if found.about.get("model", digest) != digest:
        raise SpecError(
            f"{found.out} holds features of the model {str(found.about['model'])[:12]}, but {path} is the model "
            f"{digest[:12]} (digests): restore that model, or name another output"
        )
    own, asked = FitSpec.of(model).to_dict(), job.spec.to_dict()
    other = [name for name in sorted(job.model.options.model_fields_set) if own.get(name) != asked.get(name)]
    if other:
        both = ", ".join(f"{name} = {own.get(name)!r} there and {asked.get(name)!r} in the job" for name in other)
        raise SpecError(
            f"{path} was fitted with other options: {both}. Remove these from the job, or name another model and output"
        )
    if flag is not None:
        model.check_calibrated().exceeding(flag, "output.flag")
    check_columns(found.rows, model)
    if found.about and found.about.get("flag") != flag:
        there, here = ("is not set" if each is None else f"= {each:g}" for each in (found.about.get("flag"), flag))
        raise SpecError(
            f"output.flag {here} in the job, but {there} in {found.out}: restore it in the job, or {ELSEWHERE}"
        )


def _check_unchanged_rows(night: Night) -> None:
    """Raise CorruptionError if rows that have features changed. If only their files did, rows are read and compared;
    a run that finds nothing new then records the new stamps."""
    found, about = night.found, night.found.about
    rows = found.rows.pin(found.done)
    now = rows.fingerprint()
    if now == about["input"]:
        return
    blocks = split(rows.count, about["block_rows"])
    with night.options.engine() as engine:
        digests = engine.each("comparing rows", block_tasks(digest_of_rows, rows, blocks))
    before = about["job"]["rows_sha256"]
    other = [block for block, one, two in zip(blocks, digests, before, strict=True) if one != two]
    if other:
        ranges = ", ".join(f"{block.start}:{block.stop}" for block in other[:_MOST_NAMED])
        more = f" and {len(other) - _MOST_NAMED} more blocks" if len(other) > _MOST_NAMED else ""
        raise CorruptionError(
            f"{rows.where} changed since features were extracted from it, in the rows {ranges}{more}. Restore them or, "
            f"if the change is intended, {ELSEWHERE}"
        )
    if not found.new:
        with output.growing(found.out, {"format": "features", "made_by": about["made_by"], "input": now}) as place:
            place.publish({"input": now})


@dataclass(frozen=True)
class Asked:
    """What tasks do with each block."""

    block_rows: int
    arrays: tuple[str, ...]  # that are written
    numbers: Array  # of the rows whose drift is measured, ascending
    first: int  # new row
    flag: float | None  # share of rows to flag


@dataclass(frozen=True)
class Extracted:
    """Facts about a block of features, and its values if the task did not write them."""

    sha256: str  # of its rows
    scores: Array  # (m, r) of the rows whose drift is measured
    residuals: Array  # (m,); empty if no drift can be measured
    total: Array  # (d,) of these rows, if their columns have names
    flagged: int
    values: Mapping[str, Array]


def extract_block(
    rows: Rows, block: Block, place: Output, model: Model, expansion: Expansion | None, asked: Asked
) -> Extracted:
    """Write the features of a block, and read its rows once for all facts about them."""
    mine, digest = _between(asked.numbers, block), hashlib.sha256()
    kept: list[Array] = []
    X_tiles, most_rows = block_tiles(rows, block, model.features, digest)
    X_tiles = _keeping(X_tiles, block.start, mine, kept)
    pure = len(block) == asked.block_rows and block.start >= asked.first
    values = place.read(block, asked.arrays) if place.resumed and pure else None
    with np.errstate(over="ignore", invalid="ignore"):
        if values:
            deque(X_tiles, maxlen=0)
        else:
            if asked.flag is None or expansion is None:
                scores = tile_scores(X_tiles, most_rows, len(block), model)
                check_overflow(scores, named_rows(rows, block))
                values = {"scores": scores}
            else:
                scores, left = tile_scores_and_residuals(X_tiles, most_rows, model, expansion)
                check_overflow(np.column_stack([scores, left]), named_rows(rows, block))
                values = {"scores": scores, "residual": left} | flags_of(model, scores, left, asked.flag)
            if pure:
                place.write(block, values)
        residuals, total = np.empty(0), np.zeros(model.columns if model.names else 0)
        if expansion is not None:
            judged = map(model.scoring(most_rows, expansion), kept)
            residuals = np.concatenate([residuals, *(left for _, left in judged)])
        if model.names:
            total = sum((on_host(X).sum(axis=0, dtype=np.float64) for X in kept), total)
    flags = values.get("flagged", np.empty(0))[max(asked.first - block.start, 0) :]
    compared, flagged = values["scores"][mine - block.start], int(np.count_nonzero(flags))
    return Extracted(digest.hexdigest(), compared, residuals, total, flagged, {} if pure else values)


def _between(numbers: Array, block: Block) -> Array:
    """Those of the ascending numbers that are rows of a block."""
    return numbers[slice(*np.searchsorted(numbers, [block.start, block.stop]))]


def _keeping(X_tiles: Iterator[Array], start: int, numbers: Array, kept: list[Array]) -> Iterator[Array]:
    """The tiles, which begin with row `start`; rows with these numbers are added to `kept`."""
    for X in X_tiles:
        inside = _between(numbers, Block(0, start, start + len(X)))
        if len(inside):
            kept.append(X[inside - start])
        start += len(X)
        yield X


def _drawn(new: range, seed: int) -> Array:
    """The numbers of the new rows whose drift is measured, ascending: all, or drawn without replacement."""
    if len(new) <= _MOST_COMPARED:
        return np.arange(new.start, new.stop)
    drawn = random_stream(seed, COMPARED).choice(len(new), _MOST_COMPARED, replace=False)
    found: Array = new.start + np.sort(drawn)
    return found


def _extract(night: Night, model: Model, fingerprint: dict[str, Any]) -> None:
    """Extract features of the new rows and of the others in their first block, judge them, and publish."""
    found, options, record = night.found, night.options, night.record
    rows, flag, dtype = found.rows, found.job.output.flag, model.features.dtype
    # As `transform` chooses for a large output, of whole chunks of the input, even if there are fewer rows so far.
    row_bytes, wanted = model.components * dtype.itemsize, found.job.output.block_rows
    size = found.about.get("block_rows") or output_block_rows(_MANY_ROWS, rows.array.chunks[0], row_bytes, wanted)
    tail = rows.chunk_stamps(rows.count - 1)
    blocks = split(rows.count, size)[found.done // size :]
    arrays = {"scores": NewArray(dtype, (model.components,), "component")}
    arrays |= {} if flag is None else {"residual": NewArray(dtype), **ARRAYS}
    with options.engine() as engine:
        plan = partial(plan_transform, rows, model, size, judged=model.calibration is not None, device=engine.device)
        check_plans(plan, engine, options.memory_limit, _MEMORY)
        record["processors"] = [*engine.core_types(), *engine.devices]
        made_by = {name: record["packages"][name] for name in records.DECIDING}
        made_by["processors"] = ", ".join(record["processors"]) or "unknown"
        _warn_of_others(night, made_by)
        request: dict[str, Any] = {
            "format": "features",
            "model": record["model"]["digest"],
            "input": fingerprint,
            "block_rows": size,
            "residual": flag is not None,
            "flag": flag,
            "made_by": made_by,
        }
        expansion = expansion_of(model) if model.calibration is not None else None
        asked = Asked(size, tuple(sorted(arrays)), _drawn(found.new, found.job.spec.random_state), found.done, flag)
        with _opened(night, request) as place:
            if not found.done:
                place.create(arrays, rows.count, size)
            engine.check_paths(record["input"]["path"], place.claim)
            sent = replace(place, before=None)  # a manifest, which may be large, and which tasks do not need
            given = [sent, engine.placed(model), expansion and engine.placed(expansion), asked]
            extracted = engine.each("extracting features", block_tasks(extract_block, rows, blocks, given))
            left = {block: each.values for block, each in zip(blocks, extracted, strict=True) if each.values}
            place.check_written([block for block in blocks if block not in left], asked.arrays)
            _judge(night, model, extracted)
            check_unchanged(rows, fingerprint)
            for block, values in left.items():
                place.write(block, values)
            known = found.about.get("job", {}).get("rows_sha256", [])[: found.done // size]
            job = {"rows_sha256": [*known, *(each.sha256 for each in extracted)], "tail": tail}
            about = {**request, "job": job, "rows": rows.count, "arrays": list(asked.arrays)}
            place.publish({key: value for key, value in about.items() if value is not None})


def _opened(night: Night, request: dict[str, Any]) -> AbstractContextManager[Output]:
    """The output, for this request. What another request of the job began is given up."""
    out, note, done = night.found.out, night.options.progress.note, night.found.done
    before = output.claimed(out)
    ours = request | ({"rows_before": done} if done else {})
    stale = before is not None and "made_by" in before and before != ours
    if not done:
        return output.opened(out, request, overwrite=stale, note=note)
    if stale:
        output.clear(out)
    return output.growing(out, request, note)


def _judge(night: Night, model: Model, found: Sequence[Extracted]) -> None:
    """Record how many new rows are flagged and how far they drifted. Warns where chance does not explain it, and raises
    DriftError if the job asks for that."""
    job, calibration, record = night.found.job, model.calibration, night.record
    if calibration is None:  # a job with flags was refused
        night.options.progress.note("drift is not measured, since the model has no calibration rows")
        return
    if job.output.flag is not None:
        share = FlaggedShare(job.output.flag, len(night.found.new), sum(each.flagged for each in found))
        record["flagged"] = {**asdict(share), "share": share.share, "range": [*share.range(calibration)]}
        if warning := share.warning(calibration):
            night.warn(warning)
    scores, residuals = (np.concatenate([getattr(each, name) for each in found]) for name in ("scores", "residuals"))
    drift, most = calibration.drift(calibration.counted(scores, residuals)), job.run.drift_threshold
    record["drift"] = {**asdict(drift), "threshold": most}
    if drift.figure > most:
        message = f"drift {drift.figure:.3f} is above {most:g}: new rows are unlike those of the fit"
        if model.names:
            means = sum((each.total for each in found), np.zeros(model.columns)) / drift.rows
            moved = calibration.moved(means, drift.rows, model.variables)[:_MOST_MOVED]
            message += f", most in the means of {', '.join(map(repr, moved))}" if moved else ""
        if job.run.on_drift == "fail":
            raise DriftError(
                f"{message}; nothing was published. Inspect these rows, then set on_drift to warn, or name another "
                "model.path and output.path, which fits a model to all rows"
            )
        night.warn(message)


def _warn_of_others(night: Night, now: Mapping[str, str]) -> None:
    """Warn if other packages or processor types made the features that are there."""
    before = night.found.about.get("made_by", now)
    other = [name for name in now if before.get(name, now[name]) != now[name]]
    if other:
        here, there = (", ".join(f"{name} {of[name]}" for name in other) for of in (now, before))
        night.warn(
            f"{night.found.out} holds features made with {there}, but this run has {here}: last digits can differ; for "
            f"the same bits in all rows, {ELSEWHERE}"
        )
