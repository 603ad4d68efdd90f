"""Check everything stored at a path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from bigkpca.data.blocks import READ_BYTES, Block, fit_block_rows, split
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import AnyPath, expanded, store_of
from bigkpca.data.stores.base import PARTIAL
from bigkpca.data.zarr import StoredArray, ZarrRows, named_arrays, open_array, rows_of_manifest, whole
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import ReadingOptions, RunOptions
from bigkpca.execution.plan import check_arrays
from bigkpca.execution.tasks import Task
from bigkpca.storage import groups, models

_MOST = 10  # problems in a message


@dataclass(frozen=True)
class Verified:
    """A stored object that was checked and found intact.

    Attributes
    ----------
    path : str
    kind : str
        dataset, model, features, reconstruction or zarr array.
    shape : tuple of int
        Shape of the rows; for a model, columns and components.
    """

    path: str
    kind: str
    shape: tuple[int, ...]


def verify(path: AnyPath, **options: Unpack[ReadingOptions]) -> Verified:
    """Read everything stored at a path, and check it.

    Every chunk of what bigkpca wrote must exist and match its checksum, as must every stored chunk of another Zarr
    array; a model is also compared with its digest.

    Parameters
    ----------
    path : path
        A dataset, a model, scores, reconstructed rows, or any Zarr array or group.
    **options
        Options of the run, as in `fit`: scheduler, workers, memory, timeout and progress.

    Returns
    -------
    Verified
        The checked object.

    Raises
    ------
    CorruptionError
        Something is damaged or missing: the message lists it.
    IncompleteError
        The run that writes it did not finish.
    SpecError
        There is nothing at the path that can be checked.
    MemoryLimitError
        Reading one chunk needs more than `memory`, or than a worker has.

    Notes
    -----
    One pass over the stored data.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = bigkpca.fit(X, "model.zarr", n_components=2)
    >>> scores = bigkpca.transform(model, X, "scores.zarr")
    >>> bigkpca.verify("scores.zarr")
    Verified(path='scores.zarr', kind='features', shape=(500, 2))
    """
    run, path = RunOptions.of(ReadingOptions, options), expanded(path)
    about = groups.describe(path)
    if about is None and store_of(path).exists(path + PARTIAL):
        raise IncompleteError(f"{path} is not finished: run the command that makes it again")
    if about is not None and about["format"] == "model":
        model = models.load_model(path)
        return Verified(path, "model", (model.columns, model.components))
    with run.engine() as engine:
        if about is None:
            rows = open_rows(path)
            if not isinstance(rows, ZarrRows):
                raise SpecError(
                    f"{path} is not stored as Zarr, whose chunks are checked: np.load reads all of a .npy file"
                )
            arrays = [StoredArray(rows.array, f"{path}/{rows.name}" if rows.name else path, rows.count)]
            kind, shape = "zarr array", arrays[0].shape
        else:
            kind, main = about["format"], groups.open_main(path, about["format"])  # raises SpecError for other versions
            shape = rows_of_manifest(path, about, main), *main.shape[1:]
            places = [f"{path}/{name}" for name in sorted(named_arrays(about))]
            arrays = [StoredArray(whole(open_array(place)), place, shape[0]) for place in places]
        damage = _damage(arrays, engine, run)
    if damage and groups.describe(path) != about:
        raise IncompleteError(f"{path} was replaced during the check: run the same command again")
    if damage:
        shown = "".join(f"  {each}\n" for each in damage[:_MOST])
        more = f"  and {len(damage) - _MOST} more\n" if len(damage) > _MOST else ""
        raise CorruptionError(
            f"{path}: {len(damage):,} parts are damaged or missing\n{shown}{more}restore these files, or make the data "
            "again with --overwrite"
        )
    return Verified(path, kind, shape)


def _damage(arrays: Sequence[StoredArray], engine: Engine, run: RunOptions) -> list[str]:
    """What is wrong with chunks of these arrays."""
    largest = max(READ_BYTES, *(math.prod(array.chunk) * array.dtype.itemsize for array in arrays))
    remedy = "allow more with --memory (memory= in Python)"
    check_arrays(lambda threads: threads * 3 * largest, engine, run.memory_limit, remedy)
    tasks = [
        Task(_damaged, (array, block), len(block) if array.ndim > 1 else 0)
        for array in arrays
        for block in split(array.count, fit_block_rows(array.count, array.chunk[0]))
    ]
    return [each for some in engine.each("checking", tasks) for each in some]


def _damaged(array: StoredArray, block: Block) -> list[str]:
    """What is wrong with the rows of a block, chunk by chunk."""
    found = []
    for start in range(block.start, block.stop, array.chunk[0]):
        try:
            array[start : start + array.chunk[0]]
        except CorruptionError as error:
            found.append(str(error))
    return found
