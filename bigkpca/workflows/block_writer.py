"""Write arrays block by block: find the missing blocks, write them, publish the manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bigkpca.data.blocks import Block, split
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath, store_of
from bigkpca.errors import Array, SpecError
from bigkpca.execution.by_block import by_block
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import Plan
from bigkpca.execution.progress import Progress
from bigkpca.execution.run_options import RunOptions
from bigkpca.execution.tasks import Task
from bigkpca.numerics.model import Model
from bigkpca.storage import block_arrays, destination, models, output_paths
from bigkpca.storage.block_arrays import Stored


@dataclass(frozen=True)
class BlockOutput:
    """An output that is computed from rows and written block by block."""

    kind: block_arrays.Kind
    rows: Rows
    model: Model
    arrays: Mapping[str, tuple[tuple[int, ...], Any]]
    plan: Callable[[int], Plan]  # from threads
    function: Callable[..., dict[str, Array]]  # of (rows, block, model, prepared value)
    title: str
    model_path: str | None
    prepared: Callable[[Model], Any] | None = None  # computed from the model once for all blocks


def written(
    work: BlockOutput,
    out: AnyPath,
    options: Mapping[str, Any],
    run: RunOptions,
) -> Stored:
    """Write the missing blocks, publish the manifest, and open the main array."""
    fingerprint = work.rows.fingerprint()
    out = output_paths.group_path(out, fingerprint["path"], work.model_path)
    with store_of(out).writer(out), run.engine() as engine:
        plan = work.plan(engine.threads)
        plan.check(run.memory_limit, "ask for smaller blocks with --block-rows, or fit a model with fewer landmarks")
        engine.check_memory(lambda threads: work.plan(threads).peak_bytes)
        record = {
            "format": work.kind,
            "model": models.model_digest(work.model),
            "input": fingerprint,
            "block_rows": plan.block_rows,
            **options,
        }
        place = destination.open_destination(out, record, overwrite=run.overwrite)
        if place.state == "done":
            run.progress.note(f"{out} exists already, from the same model and rows: nothing to do")
            return block_arrays.open_main(out, work.kind)
        blocks = split(work.rows.shape[0], plan.block_rows)
        if place.state == "new":
            with place.made() as scratch:
                block_arrays.create(scratch, record, work.rows.shape[0], work.arrays)
        digests = _write_missing(work, store_of(out).absolute(place.work), blocks, engine, run.progress)
        check_unchanged(work.rows, fingerprint)
        block_arrays.publish(place.work, record, blocks, digests)
        place.put_in_place()
    return block_arrays.open_main(out, work.kind)


def _write_missing(
    work: BlockOutput, path: str, blocks: tuple[Block, ...], engine: Engine, progress: Progress
) -> list[dict[str, str]]:
    """Write the missing and damaged blocks. Returns the digests of all blocks, in order."""
    stored = block_arrays.stored_blocks(path, blocks)
    checks = [Task(block_arrays.block_digests, (path, block), len(block)) for block in stored]
    found = engine.each("checking finished blocks", checks, progress) if stored else []
    digests = {block.number: digest for block, digest in zip(stored, found, strict=True) if digest is not None}
    missing = [block for block in blocks if block.number not in digests]
    if digests:
        progress.note(f"continuing: {len(blocks) - len(missing)} of {len(blocks)} blocks are written already")
    given = [work.function, path, work.model]
    if work.prepared and missing:
        given.append(work.prepared(work.model))
    new = by_block(work.title, _write, work.rows, given, missing, engine, progress)
    digests |= {block.number: digest for block, digest in zip(missing, new, strict=True)}
    return [digests[block.number] for block in blocks]


def _write(
    rows: Rows, block: Block, function: Callable[..., dict[str, Array]], path: str, *given: Any
) -> dict[str, str]:
    return block_arrays.write_block(path, block, function(rows, block, *given))


def check_unchanged(rows: Rows, before: dict[str, Any]) -> None:
    """Raise SpecError if the fingerprint of the rows is no longer `before`."""
    # Stores remember what they listed, so the rows are opened afresh.
    path = before["path"]
    if path is not None and open_rows(path, rows.name).fingerprint() != before:
        raise SpecError(f"{rows.where} changed while it was read: run again when nothing writes to it")
