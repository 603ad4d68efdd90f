"""Arrays enter tasks, and leave them, as NumPy would allocate them, whatever they were before."""

import pickle
from dataclasses import dataclass
from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest

from bigkpca import arrays
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import take, tiles
from bigkpca.execution.engine import Engine
from bigkpca.execution.tasks import Carried, Task
from bigkpca.numerics.linalg import all_aligned
from bigkpca.storage.models import model_digest
from tests.helpers.askew import ASKEW, Array, in_order, misaligned
from tests.helpers.fits import fit
from tests.helpers.stores import as_zarr


class Slotted:
    """A value of the user's own, of which nothing is known."""

    __slots__ = ("X",)

    def __init__(self, X):
        self.X = X


def test_what_is_carried_is_aligned_where_it_is_unpacked():
    X = np.arange(12.0).reshape(3, 4)
    for held, array in [
        ({"X": X}, lambda held: held["X"]),
        (partial(np.add, X), lambda held: held.args[0]),
        (Slotted(X), lambda held: held.X),
    ]:
        buffers = []
        packed = pickle.dumps(Carried(held), protocol=5, buffer_callback=buffers.append)
        at = [memoryview(misaligned(np.frombuffer(buffer, np.uint8))) for buffer in buffers]  # as in a message
        found = array(pickle.loads(packed, buffers=at).value)
        assert in_order(found), held
        np.testing.assert_array_equal(found, X)


def looks(argument, inner, common):
    """Whether all that a task was given is in order; and a result that is not."""
    given = [argument, inner["X"], *common]
    return all(in_order(X) for X in given), misaligned(given[0])


def test_arguments_shared_values_results_and_summands_are_in_order(engine):
    X = np.arange(15.0).reshape(5, 3)
    bad = [lay(X) for lay in ASKEW.values()]
    tasks = [Task(looks, (each, {"X": each}, Carried((each, each))), 1) for each in bad]
    for how, (seen, result) in zip(ASKEW, engine.each("looking", tasks), strict=True):
        assert seen, how
        assert in_order(result), how
        np.testing.assert_array_equal(result, X)
    total = engine.total("adding", [Task(askew_sum, (np.full((3, 3), float(k)),), 1) for k in range(5)])
    assert total.fine
    assert in_order(total.X)
    assert (total.X == 10).all()


def askew_sum(X):
    return Summand(misaligned(X), True)


@dataclass(frozen=True)
class Summand:
    X: Array
    fine: bool

    def __add__(self, other):
        fine = self.fine and other.fine and in_order(self.X) and in_order(other.X)
        return Summand(misaligned(self.X + other.X), fine)


def test_what_is_read_of_rows_is_in_order(tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    sources = [lay(X) for lay in ASKEW.values()]
    sources += [da.from_array(lay(X), chunks=(20, 2)) for lay in ASKEW.values()]
    for source in [*sources, as_zarr(tmp_path, np.asfortranarray(X), (16, 3)), tmp_path / "f.npy"]:
        rows = open_rows(source)
        read = [rows.block(5, 20), rows.block(20, 30), take(rows, np.array([3, 7, 31]))]
        read += [next(tiles(rows, 0, 50, 16))]
        for found, expected in zip(read, [X[5:20], X[20:30], X[[3, 7, 31]], X[:16]], strict=True):
            assert in_order(found), source
            np.testing.assert_array_equal(found, expected)


OPTIONS = {"n_components": 5, "random_state": 3, "block_rows": 32, "sigma": 3.0}
X = np.random.default_rng(2).normal(size=(160, 7)) + 1.0


def fitted(lay=np.array, size="auto", **options):
    """A model of rows, and without a size of landmarks, that lie so in memory."""
    own = {"landmarks": lay(X[::4] + 0.25)} if size == "auto" else {"size": size}
    return fit(lay(X), Engine(threads=2), **OPTIONS | own | options)


@pytest.mark.bits
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"size": 40, "preimage": "ridge"},
        pytest.param({"method": "rff-pca", "size": 40}, marks=pytest.mark.full),
        pytest.param({"size": 20, "refine": 2}, marks=pytest.mark.full),
    ],
)
def test_models_do_not_depend_on_how_rows_and_landmarks_lie_in_memory(options):
    model = fitted(**options)
    assert all_aligned(model) is model  # it holds its arrays as it will after it was loaded
    for how in ("misaligned and read-only", "off by eight", "transposed", "strided"):
        assert model_digest(fitted(ASKEW[how], **options)) == model_digest(model), how


@pytest.mark.bits
def test_what_is_computed_of_lazy_chunks_does_not_depend_on_how_they_lie_in_memory():
    model = fitted()

    def made(lay):
        chunks = da.from_array(X, chunks=(50, 7)).map_blocks(lay)
        parts = [*arrays.randomized_svd(chunks, 3), arrays.scores(model, chunks), arrays.leverage(model, chunks)]
        return [part.tobytes() for part in dask.compute(*parts)]

    assert made(np.array) == made(ASKEW["misaligned and read-only"]) == made(ASKEW["transposed"])
