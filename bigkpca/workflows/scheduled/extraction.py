"""Extract features of a range of rows, beside the version that they belong to."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block
from bigkpca.data.retrying import retried
from bigkpca.data.rows import Rows
from bigkpca.data.stored import sha256
from bigkpca.data.stores import store_of
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array, CorruptionError, check_overflow
from bigkpca.execution.by_block import block_tiles, by_block
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import expansion_of, tile_scores
from bigkpca.execution.tasks import named_rows
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion
from bigkpca.storage import block_arrays
from bigkpca.storage.destination import Destination
from bigkpca.workflows.block_writer import Holding, check_unchanged
from bigkpca.workflows.scheduled.intervals import Interval, rows_drawn

_MOST_COMPARED = 16_384  # new rows by which drift is measured: what chance leaves is 0.01, whatever their number


@dataclass(frozen=True)
class Extraction:
    """Features to extract: those of the blocks `wanted`, which hold the rows of an interval, and perhaps others."""

    rows: ZarrRows  # pinned
    model: Model
    record: dict[str, Any]
    place: Destination
    held: str  # the output of the job, whose lock the run holds
    wanted: Sequence[Block]
    interval: Interval


@dataclass(frozen=True)
class ExtractedBlock:
    """What is known of a block whose scores are stored."""

    digests: dict[str, str]  # SHA-256 of each array
    input_sha256: str  # of the rows that it was computed from
    scores: Array  # (m, r) of those rows by which drift is measured
    residuals: Array | None  # (m,)


def extract(job: Extraction, seed: int, engine: Engine, progress: Progress) -> list[ExtractedBlock]:
    """Write the scores of all wanted blocks that an earlier run did not write.

    One pass over the rows of these blocks. Raises IncompleteError where the rows changed meanwhile.
    """
    place, model = job.place, job.model
    arrays: dict[str, Any] = {"scores": ((model.components,), model.features.dtype)}
    if not block_arrays.holds(place.work, arrays):
        place.clear()
        with place.made() as scratch:
            block_arrays.create(scratch, job.record, job.rows.shape[0], arrays)
    path = store_of(place.work).absolute(place.work)
    engine.check_paths(job.record["input"]["path"], path)
    if stored := block_arrays.stored_blocks(path, job.wanted):
        progress.note(f"continuing: {len(stored)} of {len(job.wanted)} blocks are written already")
    expansion = expansion_of(model) if model.reference else None
    compared = rows_drawn(job.interval.first, job.interval.stop, _MOST_COMPARED, seed)
    given = [path, model, compared, expansion]
    holding = Holding(progress, job.held)
    found = by_block("extracting features", extract_block, job.rows, given, job.wanted, engine, holding)
    block_arrays.check_stored(path, job.wanted, arrays)
    check_unchanged(job.rows, job.record["input"])
    return found


def extract_block(
    rows: Rows, block: Block, path: str, model: Model, compared: Array, expansion: Expansion | None
) -> ExtractedBlock:
    """Write the scores of a block, unless they are stored, and read its rows once for all that is known of them."""
    mine, digest = _between(compared, block.start, block.stop), hashlib.sha256()
    kept: list[Array] = []
    X_tiles, most_rows = block_tiles(rows, block, model.features, digest)
    X_tiles = _keeping(X_tiles, block.start, mine, kept)
    scores = _stored_scores(path, block)
    if scores is None:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = tile_scores(X_tiles, most_rows, len(block), model)
        check_overflow(scores, named_rows(rows, block))
        digests = block_arrays.write_block(path, block, {"scores": scores})
    else:
        deque(X_tiles, maxlen=0)  # they are read for the digest, and for the rows that are compared
        digests = {"scores": sha256(scores)}
    residuals = None if expansion is None else _residuals(kept, most_rows, model, expansion)
    return ExtractedBlock(digests, digest.hexdigest(), scores[mine - block.start], residuals)


def _between(numbers: Array, start: int, stop: int) -> Array:
    """Those of ascending numbers that are start <= number < stop."""
    return numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, stop)]


def _keeping(X_tiles: Iterator[Array], start: int, numbers: Array, kept: list[Array]) -> Iterator[Array]:
    """The tiles, the first of which begins with row `start`; their rows of these numbers are kept."""
    for X in X_tiles:
        inside = _between(numbers, start, start + len(X))
        if len(inside):
            kept.append(X[inside - start])
        start += len(X)
        yield X


def _residuals(X_tiles: Sequence[Array], most_rows: int, model: Model, expansion: Expansion) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate([np.zeros(0), *model.residuals(X_tiles, most_rows, expansion)])


def _stored_scores(path: str, block: Block) -> Array | None:
    """The scores of a block that an earlier run wrote whole; None where it did not, or its shard does not decode."""
    array = retried(lambda: block_arrays.open_arrays(path, ["scores"]), path)["scores"]
    if not store_of(path).exists(f"{path}/scores/{block_arrays.shard(array, block)}"):
        return None
    try:
        found = block_arrays.stored_values(path, array, block)
    except CorruptionError:  # as of one that a killed worker left: it is written again
        return None
    return None if np.isnan(found).any() else found
