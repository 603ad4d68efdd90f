"""Arrays enter tasks, and leave them, as NumPy would allocate them, whatever they were before."""

import copy
import pickle
from dataclasses import dataclass, is_dataclass
from functools import partial

import dask.array as da
import numpy as np
import pytest
import zarr

from bigkpca import KernelPCA, arrays
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.data.reading import take, tiles
from bigkpca.execution.carried import Carried
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import block_denoised, reconstruct_rows, residual_rows, score_rows
from bigkpca.execution.tasks import Task, shared
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.aligned import all_aligned
from bigkpca.spec import FitSpec
from bigkpca.storage.models import model_digest
from tests.helpers.askew import ASKEW, Array, every_askew, in_order, misaligned


def sum_of(A, B):
    return (A + B).sum()


class Slotted:
    """A value of the user's own, of which nothing is known."""

    __slots__ = ("X",)

    def __init__(self, X):
        self.X = X


@pytest.mark.parametrize(
    ("held", "array"),
    [
        (lambda X: {"X": X}, lambda held: held["X"]),
        (lambda X: ArrayRows(X), lambda held: held.values),
        (lambda X: partial(sum_of, X), lambda held: held.args[0]),
        (Slotted, lambda held: held.X),
    ],
    ids=["dictionary", "rows", "function", "object"],
)
def test_what_is_carried_is_aligned_where_it_is_unpacked(held, array):
    X = np.arange(12.0).reshape(3, 4)
    buffers = []
    packed = pickle.dumps(Carried(held(X)), protocol=5, buffer_callback=buffers.append)
    at = [memoryview(misaligned(np.frombuffer(buffer, np.uint8))) for buffer in buffers]  # as in a message
    found = array(pickle.loads(packed, buffers=at).value)
    assert in_order(found)
    np.testing.assert_array_equal(found, X)


@dataclass(frozen=True, slots=True)
class SlottedKernel:
    scale: float

    def __call__(self, A, B):
        return np.exp(-self.scale * ((A[:, None] - B) ** 2).sum(axis=2))


def test_kernels_of_any_class_are_taken():
    X = np.random.default_rng(0).normal(size=(60, 3))
    assert KernelPCA(2, kernel=SlottedKernel(0.3), size=20, random_state=0).fit(X).n_components_ == 2


# -- through the engine --------------------------------------------------------------------------------------


def looks(argument, inner, common):
    """Whether all that a task was given is in order; and a result that is not."""
    given = [argument, inner["X"], *common]
    return all(in_order(X) for X in given), misaligned(given[0])


@every_askew
def test_arguments_shared_values_and_results_are_in_order(how, engine):
    X = np.arange(15.0).reshape(5, 3)
    bad = ASKEW[how](X)
    tasks = [Task(looks, (bad, {"X": bad}, shared((bad, bad))), 1) for _ in range(3)]
    for seen, result in engine.each("looking", tasks, Silent()):
        assert seen
        assert in_order(result)
        np.testing.assert_array_equal(result, X)


def askew_sum(X):
    return Summand(misaligned(X), True)


@dataclass(frozen=True)
class Summand:
    X: Array
    fine: bool

    def __add__(self, other):
        fine = self.fine and other.fine and in_order(self.X) and in_order(other.X)
        return Summand(misaligned(self.X + other.X), fine)


def test_summands_are_in_order(engine):
    total = engine.total("adding", [Task(askew_sum, (np.full((3, 3), float(k)),), 1) for k in range(5)], Silent())
    assert total.fine
    assert in_order(total.X)
    assert (total.X == 10).all()


# -- what is read --------------------------------------------------------------------------------------------


@every_askew
def test_what_is_read_of_rows_is_in_order(how, tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
    bad = ASKEW[how](X)
    stored = zarr.create_array(str(tmp_path / "f.zarr"), data=np.asfortranarray(X), chunks=(16, 3))
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    sources = [
        ArrayRows(bad),
        open_rows(da.from_array(bad, chunks=(20, 2))),
        open_rows(stored),
        open_rows(str(tmp_path / "f.npy")),
    ]
    for rows in sources:
        read = [rows.block(5, 20), rows.block(5, 20, slice(1, 3)), take(rows, np.array([3, 7, 31]))]
        read += [next(tiles(rows, 0, 50, 16))]
        for found, expected in zip(read, [X[5:20], X[5:20, 1:3], X[[3, 7, 31]], X[:16]], strict=True):
            assert in_order(found)
            np.testing.assert_array_equal(found, expected)


# -- end to end ----------------------------------------------------------------------------------------------


OPTIONS = {"components": 5, "seed": 3, "block_rows": 64, "sigma": 3.0}
FITS = {
    "own landmarks": {"size": "auto"},
    "ridge": {"size": 40, "preimage": "ridge"},
    "rff-pca": {"method": "rff-pca", "size": 40},
    "exact": {"method": "exact"},
    "refine": {"size": 20, "refine": 2},
}


def askew(value, how):
    """A copy of a value of the package with every array of it laid out otherwise."""
    if isinstance(value, np.ndarray):
        return how(value) if value.ndim else value
    if isinstance(value, tuple | list):
        return type(value)(askew(item, how) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    other = copy.copy(value)  # not made anew: a Model would align what it is given
    vars(other).update({name: askew(held, how) for name, held in vars(value).items()})
    return other


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(2).normal(size=(300, 7)) + 1.0


def fitted(X, fit, how, engine):
    own = {"landmarks": how(X[::7] + 0.25)} if fit == "own landmarks" else {}
    return fit_rows(ArrayRows(how(X)), FitSpec.checked(**OPTIONS | FITS[fit] | own), engine, Silent())


@pytest.mark.bits
@pytest.mark.parametrize("fit", FITS)
@every_askew
def test_models_do_not_depend_on_how_rows_and_landmarks_lie_in_memory(fit, how, X):
    one, two = (fitted(X, fit, lay, Engine(threads=2)) for lay in (np.array, ASKEW[how]))
    assert model_digest(one) == model_digest(two)


@pytest.mark.parametrize("fit", FITS)
def test_a_model_holds_its_arrays_as_it_will_after_it_was_loaded(fit, X):
    model = fitted(X, fit, np.array, Engine(threads=2))
    assert all_aligned(model) is model
    assert all_aligned(askew(model, ASKEW["transposed"])) is not model


@pytest.mark.bits
@pytest.mark.parametrize("fit", ["own landmarks", "ridge"])
@every_askew
def test_what_a_model_makes_does_not_depend_on_how_its_arrays_lie_in_memory(fit, how, X):
    engine = Engine(threads=2)
    model = fitted(X, fit, np.array, engine)
    other, rows = askew(model, ASKEW[how]), ArrayRows(X)
    for make in (score_rows, residual_rows):
        assert make(rows, other, engine, Silent()).tobytes() == make(rows, model, engine, Silent()).tobytes()
    one, two = (reconstruct_rows(rows, m, block_denoised, engine, Silent()).rows for m in (model, other))
    assert one.tobytes() == two.tobytes()
    assert arrays.scores(other, X).compute().tobytes() == score_rows(rows, model, engine, Silent()).tobytes()


@pytest.mark.bits
@every_askew
def test_singular_values_do_not_depend_on_how_chunks_lie_in_memory(how, X):
    one, two = (
        arrays.randomized_svd(da.from_array(X, chunks=(90, 7)).map_blocks(lay), 3) for lay in (np.array, ASKEW[how])
    )
    for a, b in zip(one, two, strict=True):
        assert a.compute().tobytes() == b.compute().tobytes()
