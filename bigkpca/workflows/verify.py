"""Check everything stored at a path."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

from bigkpca.data.beside import arrays_of
from bigkpca.data.blocks import Block
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows, tiles
from bigkpca.data.stored import StoredArray, versions_of
from bigkpca.data.stores import AnyPath, expanded
from bigkpca.data.versions import JOB, read_versions, version_path
from bigkpca.data.zarr import ZarrRows, stored_array
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.execution.engine import Engine, fit_blocks
from bigkpca.execution.options import ReadingOptions, RunOptions, takes
from bigkpca.execution.planning import check_peak, resident
from bigkpca.execution.tasks import BlockTasks, Carried, Task
from bigkpca.storage import block_arrays, damage, describe, groups, models
from bigkpca.storage.block_arrays import Stored
from bigkpca.storage.damage import Damage, told
from bigkpca.workflows.block_writer import checked


@dataclass(frozen=True)
class Verified:
    """A stored object that was checked and found intact.

    Attributes
    ----------
    path : str
        Path of the object.
    kind : str
        dataset, model, features, reconstruction, job, zarr array or npy.
    shape : tuple of int
        Shape of the rows; for a model, columns and components.
    files : int
        Number of files with values, all of which were read.
    """

    path: str
    kind: str
    shape: tuple[int, ...]
    files: int


@takes(ReadingOptions)
def verify(path: AnyPath, **options: Unpack[ReadingOptions]) -> Verified:
    """Read everything stored at a path, and check it.

    Scores and reconstructed rows are compared with the SHA-256 of each block in their manifest, and a model with its
    digest. All versions in the output of a job are checked. Every chunk of a dataset must exist and decode, as must
    every stored chunk of another Zarr array.

    Parameters
    ----------
    path : path
        A dataset, a model, scores, reconstructed rows, a Zarr array or group, or a .npy file.
    **options
        Options of the run.

    Returns
    -------
    Verified
        The checked object; `files` counts the files that were read.

    Raises
    ------
    CorruptionError
        Something is damaged, missing, or does not belong there: the message lists it file by file.
    IncompleteError
        The run that writes it did not finish.
    SpecError
        There is nothing at the path that can be checked.
    MemoryLimitError
        Reading one shard needs more than `memory`, or than a worker has.

    Notes
    -----
    One pass over the stored data.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2)
    >>> scores = bigkpca.transform(model, X, "scores.zarr")
    >>> bigkpca.verify("scores.zarr")
    Verified(path='scores.zarr', kind='features', shape=(500, 2), files=1)
    """
    run = RunOptions.of(ReadingOptions, options)
    path = expanded(path)
    if (facts := describe.unfinished(path)) is not None:  # there or, if written block by block, beside it
        missing = facts["missing_blocks"]
        named = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise IncompleteError(
            f"{path} is not finished: {facts['blocks'] - len(missing)} of {facts['blocks']} blocks are written, "
            f"{len(missing)} are missing{f' ({named})' if missing else ''}; run the command that makes it again"
        )
    about = groups.describe(path)
    kind = None if about is None else about["format"]
    if kind is not None and run.array is not None:
        raise SpecError(f"{path} is a bigkpca {groups.named(kind)}, which is checked as a whole: leave --array out")
    if kind == "model":
        model, files = models.load_model(path), sum(1 for _ in groups.open_group(path, kind))
        return Verified(path, kind, (model.columns, model.components), files)
    with run.engine() as engine:
        if kind == "dataset":
            return _dataset(path, engine, run)
        if kind == JOB:
            groups.open_group(path, JOB)
            versions = read_versions(path)
            if versions is None:
                raise IncompleteError(f"{path} is not finished: its first run was stopped; run the same job again")
            numbers = [each["number"] for each in versions["versions"]]
            found = {number: _blocks(version_path(path, number), "features", engine, run) for number in numbers}
            return Verified(path, JOB, found[versions["current"]].shape, sum(each.files for each in found.values()))
        if kind is not None:
            return _blocks(path, kind, engine, run)
        rows = open_rows(path, run.array)
        if not isinstance(rows, ZarrRows):
            engine.each("checking", BlockTasks(_read, rows, fit_blocks(rows, None), ()))
            return Verified(path, "npy", rows.shape, 1)
        stored = StoredArray(rows.array, path, rows.shape[0], versions_of(rows.array))
        files = _check_arrays(path, {rows.name or "": stored}, engine, run, whole=())
        return Verified(path, "zarr array", rows.shape, files)


def _blocks(path: str, kind: block_arrays.Kind, engine: Engine, run: RunOptions) -> Verified:
    """Check block-wise output against its manifest."""
    groups.open_group(path, kind)  # raises SpecError for other versions
    manifest = block_arrays.read_manifest(path)
    assert manifest is not None  # it is finished
    arrays = [array for _, array in sorted(block_arrays.open_arrays(path).items())]
    _check_memory(arrays, engine, run, whole=True)
    damaged, strange = checked(path, manifest, engine)
    if (damaged or strange) and block_arrays.read_manifest(path) != manifest:
        raise IncompleteError(f"{path} was replaced during the check: run the same command again")
    if damaged and block_arrays.is_publishing(manifest):
        raise IncompleteError(f"{path}: a run was interrupted while it published new rows: run its job again")
    remedy = "rerun the command that made it, which rewrites damaged blocks"
    if manifest.get("grows"):
        remedy = block_arrays.again(path)
    _report(path, [*damaged, *strange], remedy)
    shape = manifest["rows"], *block_arrays.open_main(path, kind).shape[1:]
    return Verified(path, kind, shape, len(manifest["blocks"]) * len(arrays))


def _dataset(path: str, engine: Engine, run: RunOptions) -> Verified:
    """Check that all chunks of a dataset exist and decode."""
    group, about = groups.finished_dataset(path)
    arrays = block_arrays.open_arrays(path)
    wanted = arrays_of(about)
    if gone := wanted - arrays.keys():
        raise CorruptionError(f"{path}: the arrays {sorted(gone)} are missing; restore them or ingest the data again")
    rows, columns = about["rows"], about["columns"]
    if arrays["x"].shape[1:] != (columns,) or any(array.shape[0] < rows for array in arrays.values()):
        shapes = {name: array.shape for name, array in arrays.items()}
        raise CorruptionError(
            f"{path} holds {shapes}, not the {rows} rows of {columns} columns that its attribute states; restore it or "
            "ingest the data again"
        )
    stored = {name: stored_array(path, group, name) for name in arrays}
    files = _check_arrays(path, stored, engine, run, whole=wanted)
    return Verified(path, "dataset", (rows, columns), files)


def _read(rows: Rows, block: Block) -> None:
    deque(tiles(rows, block.start, block.stop, len(block)), maxlen=0)


def _check_arrays(
    path: str, arrays: Mapping[str, StoredArray], engine: Engine, run: RunOptions, *, whole: Collection[str]
) -> int:
    """Read all arrays, and return the number of files that hold their rows. Raises CorruptionError. Every file of the
    arrays in `whole` must exist; in other arrays, chunks of the fill value need not be stored."""
    _check_memory([stored.array for stored in arrays.values()], engine, run, whole=False)
    found, tasks, files = [], [], 0
    for name, stored in arrays.items():
        array, rows, given = stored.array, stored.count, Carried(stored)
        indices, step = damage.stored_files(array, rows), damage.files_of_a_task(array)
        if name in whole:
            indices, gone = damage.split_by_presence(array, path, name, rows, indices)
            found += gone
        files += len(indices)
        for first in range(0, len(indices), step):
            some = indices[first : first + step]
            tasks.append(Task(damage.file_damage, (given, name, some), damage.rows_of(array, rows, some)))
    found += [each for some in engine.each("checking", tasks) for each in some]
    _report(path, found, "restore these files, or make the data again")
    return files


def _check_memory(arrays: Sequence[Stored], engine: Engine, run: RunOptions, *, whole: bool) -> None:
    """Raise MemoryLimitError if reading one shard of each array, as a `whole` or piece by piece, needs too much."""
    largest = max(damage.read_bytes(array, whole=whole) for array in arrays)

    def peak(threads: int) -> int:
        return resident(threads * 3 * largest)

    check_peak(peak(engine.threads), run.memory_limit, "allow more with --memory (memory= in Python)")
    engine.check_memory(peak)


def _report(path: str, found: Sequence[Damage], remedy: str) -> None:
    """Raise CorruptionError if there is any damage."""
    if found:
        raise CorruptionError(
            f"{path}: {len(found):,} of its files differ from what was written\n{told(found)}\n{remedy}"
        )
