"""Write arrays block by block: find missing blocks, write them, publish the output, and repair damaged blocks."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from bigkpca.data.blocks import Block, split
from bigkpca.data.labels import Labels, bytes_of_labels
from bigkpca.data.opening import opened_again
from bigkpca.data.retrying import changed, retried
from bigkpca.data.rows import Rows
from bigkpca.data.stores import MOST_JSON_BYTES, AnyPath, store_of
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import Array, CorruptionError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import RunOptions
from bigkpca.execution.plan import Plan, check_peak, check_plans
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import BlockTasks, Task
from bigkpca.numerics.model import Model
from bigkpca.storage import block_arrays, damage, destination
from bigkpca.storage.block_arrays import Stored
from bigkpca.storage.damage import Damage, told
from bigkpca.storage.destination import Destination, open_destination


def checked(path: str, manifest: Mapping[str, Any], engine: Engine) -> tuple[list[Damage], list[Damage]]:
    """Shards that are missing or damaged, in the order of their blocks, and files that do not belong to the output. One
    pass over the output. Raises CorruptionError if the manifest does not describe this output."""
    path = store_of(path).absolute(path)
    promised = block_arrays.promised(path, manifest)
    gone, strange = damage.listed_damage(path, manifest["format"], [block for block, _ in promised])
    missing = {(each.block, each.file.partition("/")[0]) for each in gone}
    there = [
        (block, {name: digest for name, digest in digests.items() if (block, name) not in missing})
        for block, digests in promised
    ]
    tasks = [Task(damage.block_damage, (path, block, digests), len(block)) for block, digests in there]
    found = [each for some in engine.each("checking finished blocks", tasks) for each in some]
    return sorted([*gone, *found], key=lambda each: each.block.number), strange


def _number(found: Damage) -> int:
    assert found.block is not None
    return found.block.number


def check_count(blocks: int, block_bytes: int, advice: str) -> None:
    """Raise SpecError if a manifest with this many bytes per block would be larger than the most that is read."""
    if blocks > (most := MOST_JSON_BYTES // block_bytes):
        raise SpecError(f"the output would have {blocks:,} blocks, more than the limit of {most:,}: {advice}")


@dataclass(frozen=True)
class BlockOutput:
    """An output computed from rows and written block by block."""

    kind: block_arrays.Kind
    rows: Rows
    made_by: str  # the digest of the model that identifies the output
    model: Model  # what computes it: that model, or a part of it
    arrays: Mapping[str, tuple[tuple[int, ...], Any]]
    plan: Callable[[int], Plan]  # from threads
    function: Callable[..., dict[str, Array]]  # of (rows, block, model, prepared value)
    title: str
    model_path: str | None
    prepared: Callable[[Model], Any] | None = None  # computed from the model, or kept in it, once for all blocks


@dataclass(frozen=True)
class Holding:
    """Progress that checks, at every finished block, whether this run still holds the lock on its output: workers do
    not see the lock, and would continue for hours."""

    shown: Progress
    path: str

    def start(self, title: str, rows: int) -> None:
        self.shown.start(title, rows)

    def advance(self, rows: int) -> None:
        store_of(self.path).check_writer(self.path, ask=False)
        self.shown.advance(rows)

    def finish(self) -> None:
        self.shown.finish()

    def note(self, message: str) -> None:
        self.shown.note(message)


@dataclass(frozen=True)
class _Job:
    """A run that writes this output, or rewrites some of its blocks."""

    work: BlockOutput
    labels: Labels | None  # of the rows
    record: dict[str, Any]  # identifies the output
    place: Destination
    blocks: tuple[Block, ...]
    engine: Engine


def written(work: BlockOutput, out: AnyPath, options: Mapping[str, Any], run: RunOptions) -> Stored:
    """Write the missing blocks, publish the output, and open the main array. If the output is finished, check all
    blocks, and rewrite the damaged ones."""
    fingerprint = work.rows.fingerprint()
    out = destination.group_path(out, fingerprint["path"], work.model_path)
    with store_of(out).writer(out), run.engine() as engine:
        remedy = "ask for smaller blocks with --block-rows, or fit a model with fewer landmarks"
        plan = check_plans(work.plan, engine, run.memory_limit, remedy)
        engine.check_paths(fingerprint["path"])
        labels = _labels_of(work, plan, run.memory_limit)
        record = {
            "format": work.kind,
            "model": work.made_by,
            "input": fingerprint,
            "block_rows": plan.block_rows,
            **options,
            "coordinates": labels and labels.identity,
        }
        place = open_destination(out, record, overwrite=run.overwrite)
        if place.note:
            run.progress.note(place.note)
        if labels is not None and labels.left_out:
            run.progress.note(
                f"coordinates that are not stored: {', '.join(labels.left_out)} (only numbers, text and times are, "
                "under names without blanks and slashes that no other array or file has)"
            )
        of_block = 500 + sum(len(name) + 90 for name in (labels.coords if labels else ()))  # bytes in the manifest
        check_count(ceil(work.rows.shape[0] / plan.block_rows), of_block, "use larger blocks with --block-rows")
        holding = replace(engine, progress=Holding(engine.progress, out))
        job = _Job(work, labels, record, place, split(work.rows.shape[0], plan.block_rows), holding)
        if not place.done or not _repaired(job, overwrite=run.overwrite):
            digests = _write_missing(job, job.blocks)
            block_arrays.publish(place.work, record, job.blocks, digests)
            place.put_in_place()
    return block_arrays.open_main(out, work.kind)


def _repaired(job: _Job, *, overwrite: bool) -> bool:
    """Check finished output, and rewrite what is damaged: its shards one by one, and the manifest if their digests
    changed. False if damage cannot be determined and all output may be replaced; CorruptionError if it may not.
    """
    path, note = job.place.path, job.engine.progress.note
    try:
        manifest = block_arrays.read_manifest(path)
        assert manifest is not None  # the output is finished
        damaged, strange = checked(path, manifest, job.engine)
    except CorruptionError as error:
        if not overwrite:
            raise
        note(f"rewriting all of {path}: {error}")
        return False
    if strange:
        note(f"{path} holds files that do not belong to it:\n{told(strange)}")
    if damaged:
        note(f"{path} is damaged; rewriting the blocks of these files:\n{told(damaged)}")
    else:
        note(f"{path} already exists, from the same model and rows: nothing to do")
    # Here, too, workers write beside the output, and this process, which holds the lock, moves files into place: so no
    # late worker can write into published output.
    broken = {(each.block.number, each.file.partition("/")[0]) for each in damaged if each.block}
    if wanted := sorted({number for number, _ in broken}):
        old = dict(enumerate(digests for _, digests in block_arrays.promised(path, manifest)))
        new = dict(zip(wanted, _write_missing(job, [job.blocks[number] for number in wanted]), strict=True))
        other = {(number, name) for number in wanted for name in old[number] if old[number][name] != new[number][name]}
        for number in wanted:
            # Only these: a run that is stopped here must find what it was writing.
            names = {name for changed, name in broken | other if changed == number}
            block_arrays.replace_block(path, job.place.work, job.blocks[number], names)
        if other:
            block_arrays.write_manifest(path, job.record, job.blocks, list((old | new).values()))
            note("the new blocks differ in some bits, as on another type of processor: the manifest has their digests")
    job.place.clear()
    return True


def _write_missing(job: _Job, blocks: Sequence[Block]) -> list[dict[str, str]]:
    """Write the missing blocks beside the output; return the digests of all these blocks, in order."""
    work, place, engine = job.work, job.place, job.engine
    path = begun(place, job.record, work.rows, work.arrays, job.labels)
    engine.check_paths(path)
    names = _names(work.arrays, job.labels)
    stored = block_arrays.stored_blocks(path, blocks, names)
    checks = [Task(block_arrays.block_digests, (path, block, names), len(block)) for block in stored]
    found = engine.each("checking finished blocks", checks) if stored else []
    digests = {block.number: digest for block, digest in zip(stored, found, strict=True) if digest is not None}
    missing = [block for block in blocks if block.number not in digests]
    if digests:
        engine.progress.note(f"continuing: {len(blocks) - len(missing)} of {len(blocks)} blocks are already written")
    given = [work.function, path, engine.placed(work.model)]
    if work.prepared and missing:
        given.append(engine.placed(work.prepared(work.model)))
    # First the coordinates, so that a block is finished once its rows are written.
    labels = job.labels
    coords = [{} if labels is None else block_arrays.write_coordinates(path, block, labels) for block in missing]
    new = engine.each(work.title, BlockTasks(_write, work.rows, missing, given))
    for block, digest, of_coordinates in zip(missing, new, coords, strict=True):
        digests[block.number] = digest | of_coordinates
    block_arrays.check_stored(path, blocks, names)
    check_unchanged(work.rows, job.record["input"])
    return [digests[block.number] for block in blocks]


def begun(
    place: Destination, record: dict[str, Any], rows: Rows, arrays: Mapping[str, Any], labels: Labels | None = None
) -> str:
    """The folder in which an output is written block by block: that of an interrupted run, or a new one."""
    if not block_arrays.holds(place.work, _names(arrays, labels)):
        place.clear()
        with place.made() as scratch:
            block_arrays.create(scratch, record, rows.shape[0], arrays, labels)
    return store_of(place.work).absolute(place.work)


def _labels_of(work: BlockOutput, plan: Plan, limit: int | None) -> Labels | None:
    """The dim and coordinates of the rows of an output, if they are a DataArray. Raises MemoryLimitError, before lazy
    ones are computed, if they need more memory than the plan leaves."""
    if (given := work.rows.data_array) is None:
        return None
    dim, held = given.dims[0], bytes_of_labels(given, 0)
    # An array of the output with the name of the dim would be its coordinate.
    taken, free = block_arrays.TYPES[work.kind].keys() | ({*given.dims, *given.coords} - {dim}), dim
    while free in taken:
        free = f"{free}_"
    given = given.rename({dim: free})
    check_peak(
        plan.peak_bytes + held,
        limit,
        f"the coordinates of the rows take {held / 1e6:.0f} MB of it; leave out large ones with X.drop_vars",
    )
    labels = Labels.of(given, 0)
    return labels.only([name for name in labels.coords if block_arrays.can_be_named(name, work.kind)])


def _names(arrays: Mapping[str, Any], labels: Labels | None) -> tuple[str, ...]:
    """The names of all arrays of an output."""
    return (*arrays, *(() if labels is None else labels.coords))


def _write(
    rows: Rows, block: Block, function: Callable[..., dict[str, Array]], path: str, *given: Any
) -> dict[str, str]:
    return block_arrays.write_block(path, block, function(rows, block, *given))


def check_unchanged(rows: Rows, before: dict[str, Any]) -> None:
    """Raise IncompleteError if the fingerprint of the rows is no longer `before`."""
    path = before["path"]

    def now() -> dict[str, Any]:
        if path is None:  # of an array in memory, or of a store that only Zarr reads
            return rows.fingerprint() if isinstance(rows, ZarrRows) else before
        if not store_of(path).exists(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return opened_again(rows, path).fingerprint()

    if retried(now, rows.where, CorruptionError) != before:
        raise changed(rows.where)
