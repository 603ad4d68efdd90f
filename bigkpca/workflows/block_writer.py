"""Write an output block by block: what is missing of it, in one pass, and then its manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bigkpca.data.blocks import Block, split
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath
from bigkpca.data.zarr import Stored
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import RunOptions
from bigkpca.execution.plan import Plan, check_plans
from bigkpca.execution.tasks import Task, block_tasks
from bigkpca.numerics.model import Model
from bigkpca.storage import groups, output
from bigkpca.storage.output import NewArray, Output, Target
from bigkpca.workflows.inputs import check_unchanged


@dataclass(frozen=True)
class BlockOutput:
    """An output computed from rows and written block by block."""

    kind: str  # features or reconstruction
    rows: Rows
    made_by: str  # the digest of the model that identifies the output
    model: Model  # what computes it: that model, or a part of it
    arrays: Mapping[str, NewArray]  # the main one first
    plan: Callable[[int], Plan]  # from threads
    function: Callable[..., dict[str, Array]]  # of (rows, block, model, prepared value)
    title: str
    model_path: str | None
    prepared: Callable[[Model], Any] | None = None  # computed from the model, or kept in it, once for all blocks


def written(work: BlockOutput, out: AnyPath, options: Mapping[str, Any], run: RunOptions) -> Stored:
    """Write the missing blocks, publish the output, and open the main array."""
    fingerprint = work.rows.fingerprint()
    path = output.group_path(out, fingerprint["path"], work.model_path)
    with run.engine() as engine:
        remedy = "ask for smaller blocks with --block-rows, or fit a model with fewer landmarks"
        plan = check_plans(work.plan, engine, run.memory_limit, remedy)
        engine.check_paths(fingerprint["path"])
        record = {
            "format": work.kind,
            "model": work.made_by,
            "input": fingerprint,
            "block_rows": plan.block_rows,
            **options,
        }
        with output.opened(path, record, overwrite=run.overwrite, note=run.progress.note) as place:
            if place.done:
                run.progress.note(f"{path} already exists, from the same model and rows: nothing to do")
            else:
                n = work.rows.shape[0]
                place.create(work.arrays, n, plan.block_rows)
                _write(work, place, split(n, plan.block_rows), engine)
                check_unchanged(work.rows, fingerprint)
                place.publish({"rows": n, "arrays": sorted(work.arrays)})
    return groups.open_main(path, work.kind)


def _write(work: BlockOutput, place: Output, blocks: Sequence[Block], engine: Engine) -> None:
    """Write the blocks that are not stored wholly."""
    names, target = sorted(work.arrays), place.target(work.rows.shape[0])
    engine.check_paths(target.claim[0])
    missing = unwritten(place, blocks, names, engine)
    if not missing:
        return
    given = [work.function, target, engine.placed(work.model)]
    if work.prepared:
        given.append(engine.placed(work.prepared(work.model)))
    engine.each(work.title, block_tasks(_write_block, work.rows, missing, given))
    place.check_written(blocks, names)


def unwritten(place: Output, blocks: Sequence[Block], names: Sequence[str], engine: Engine) -> list[Block]:
    """The blocks that are not stored, or do not decode, as a power failure can leave them: an interrupted run may have
    written the others."""
    missing = place.missing(blocks, names)
    stored = sorted(set(blocks).difference(missing), key=lambda block: block.number)
    if not stored:
        return missing
    target = place.target(blocks[-1].stop)
    whole = engine.each("checking blocks", [Task(target.decodes, (block, names), len(block)) for block in stored])
    broken = [block for block, decodes in zip(stored, whole, strict=True) if not decodes]
    engine.progress.note(f"continuing: {len(stored) - len(broken)} of {len(blocks)} blocks are already written")
    return sorted([*missing, *broken], key=lambda block: block.number)


def _write_block(
    rows: Rows, block: Block, function: Callable[..., dict[str, Array]], target: Target, *given: Any
) -> None:
    target.write(block, function(rows, block, *given))
