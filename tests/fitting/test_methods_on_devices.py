"""Fits and scores of every method on arrays of other libraries, against NumPy's, and what they claim of hard data
against the truth. Kernels and features by themselves: `numerics/kernels` and `numerics/features`."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca import KernelPCA, kernels
from bigkpca.data.devices import Device
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import score_rows, scores_and_residuals_of_rows
from bigkpca.storage.models import model_digest
from tests.fitting.cases import CASES as METHODS
from tests.hard_data.test_adversarial import NAMED
from tests.helpers.adversarial import outcomes
from tests.helpers.adversarial.cases import case as hard_case
from tests.helpers.devices import TOLERANCES, agree, every_device, every_dtype
from tests.helpers.fits import fit
from tests.helpers.oracles import inverse_quadratic

OPTIONS = {"n_components": 5, "size": 40, "random_state": 3}
# Where landmarks are all but dependent, float32 itself is less precise than what is asked of all that follow.
CASES = {name: options for name, options in METHODS.items() if name != "exact"} | {
    "laplacian": {"kernel": "laplacian"},
    "matern on the processor": {"kernel": kernels.Matern(30.0, 2.2)},
    "sigmoid": {"kernel": kernels.Sigmoid(2e-4, 0.0), "size": 15},
    "cosine": {"kernel": "cosine"},
    "combined": {"kernel": kernels.Gaussian(20.0) * kernels.Cosine() + 0.5 * kernels.Laplacian(np.float64(100.0))},
    "function": {"kernel": kernels.Function(inverse_quadratic, vectors=True, psd=True)},
    "not centred": {"center": False},
    "calibration rows": {"calibration_rows": 30},
    "size of a tolerance": {"tol": 0.3, "size": "auto"},
    "one block for 60 rows": {"block_rows": 60},
    "refined": {"refine": 3},
    "refined, laplacian, standardized": {"refine": 2, "kernel": "laplacian", "standardize": True},
}
QUICK = {
    *("nystroem", "columns", "rff phase", "rff-pca pointwise", "tensor sketch", "standardize rff-pca"),
    *("randomized rff", "laplacian", "cosine", "combined", "not centred", "calibration rows", "refined"),
}
every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in QUICK else pytest.mark.full) for case in CASES]
)


def fitted(X, device=None, **options):
    """A model of rows, computed by NumPy or on a device, and its engine."""
    engine = Engine(threads=1).on_device(None if device is None else Device.named(device))
    return fit(X, engine, **OPTIONS | options), engine


def assert_same_model(there, here, dtype):
    assert there.features.dtype == here.features.dtype == dtype
    assert_allclose(there.solution.eigenvalues, here.solution.eigenvalues, rtol=TOLERANCES[dtype])
    assert there.certificate.trust == here.certificate.trust
    for name, values in here.features.arrays().items():
        agree(there.features.arrays()[name], values, dtype)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
@every_device
@every_dtype
@every_case
def test_fits_and_scores_are_those_of_numpy(case, dtype, device, digits):
    X, new = digits[:150].astype(dtype), digits[150:200].astype(dtype)
    here, engine = fitted(X, **CASES[case])
    there, on_device = fitted(X, device, **CASES[case])
    assert_same_model(there, here, dtype)
    assert there.provenance["devices"] == [str(Device.named(device))]
    for rows in (X, new):
        scores, left = scores_and_residuals_of_rows(open_rows(rows), here, engine)
        for model in (here, there):
            found, found_left = scores_and_residuals_of_rows(open_rows(rows), model, on_device)
            assert isinstance(found, np.ndarray)
            assert found.dtype == scores.dtype
            diagonal = here.features.kernel.diagonal(here.features.shifted(rows)).max()
            # Scores are inner products of directions with rows of length √k(x, x), which may be larger than they are.
            size = max(np.sqrt(diagonal), np.abs(scores).max())
            assert_allclose(found, scores, rtol=0, atol=TOLERANCES[dtype] * size)
            assert_allclose(found_left, left, rtol=0, atol=TOLERANCES[dtype] * diagonal)
            agree(score_rows(open_rows(rows), model, on_device), found, dtype)


@every_device
def test_models_are_the_same_bytes_with_any_number_of_threads(device, digits):
    engines = [Engine(threads=count).on_device(Device.named(device)) for count in (1, 3)]
    one, other = (fit(digits[:200], engine, **OPTIONS, block_rows=60) for engine in engines)
    assert model_digest(one) == model_digest(other)


def estimators(device, dtype, **options):
    """The same estimator for NumPy and for a device."""
    options = {"n_components": 4, "size": 30, "random_state": 0, "dtype": dtype} | options
    return KernelPCA(**options), KernelPCA(**options, device=device)


def assert_same(estimators, X, dtype):
    here, there = estimators
    assert_same_model(there.model_, here.model_, dtype)
    agree(there.transform(X), here.transform(X), dtype)


@every_device
@every_dtype
def test_weights_of_rows_some_of_them_zero(dtype, device, digits):
    X, w = digits[:200].astype(dtype), np.arange(200) % 3 / 2.0
    X[w == 0] *= np.finfo(dtype).max / 100  # which nothing may see
    assert_same([each.fit(X, sample_weight=w) for each in estimators(device, dtype)], X[w > 0], dtype)


@every_device
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.full)])
def test_added_rows_and_merged_models(dtype, device, digits):
    X = digits[:300].astype(dtype)
    grown = [each.fit(X[:200]).partial_fit(X[200:]) for each in estimators(device, dtype)]
    assert_same(grown, X, dtype)
    firsts = [each.fit(X[:200]) for each in estimators(device, dtype)]
    others = estimators(device, dtype)
    merged = [one + other.fit(X[200:], like=one) for one, other in zip(firsts, others, strict=True)]
    assert_same(merged, X, dtype)
    assert_allclose(merged[1].eigenvalues_, grown[1].eigenvalues_, rtol=TOLERANCES[dtype])
    assert merged[1].model_.provenance["devices"] == grown[1].model_.provenance["devices"]


@every_device
def test_rows_whose_kernels_overflow_are_refused_as_by_numpy(device):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype("f4")
    X[150] *= 1e25
    told = []
    for each in estimators(device, "float32", kernel="polynomial", landmarks="uniform"):
        with pytest.raises(DataError) as error:
            each.fit(X)
        told.append(str(error.value))
    assert told[0] == told[1]


# What fits claim of hard data, against the truth.


@pytest.fixture
def hard(device, monkeypatch):
    """The outcome of a hard case whose passes compute on the device."""
    made = outcomes.estimator_of
    monkeypatch.setattr(outcomes, "estimator_of", lambda case, X: made(case, X).set_params(device=device))
    return outcomes.outcome


NEVER = ("false proven bound", "silent wrong spectrum", "nan", "unexpected error")
QUICK_HARD = ("squares beyond the range of float32", "refined in single precision with a sentinel")


@every_device
@pytest.mark.parametrize(
    "seeds",
    [range(3), pytest.param(range(3, 60), marks=pytest.mark.full)],
    ids=lambda seeds: f"{seeds.start} to {seeds.stop}",
)
def test_no_false_bounds_of_hard_data(seeds, hard):
    found = [(seed, *problem) for seed in seeds for problem in hard(hard_case(seed)).problems]
    assert not [each for each in found if each[1] in NEVER]


@every_device
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK_HARD else pytest.mark.full) for name in NAMED]
)
def test_fits_that_were_wrong_once_are_right_or_say_so(name, hard):
    assert not hard(NAMED[name]).problems
