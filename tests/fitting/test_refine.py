"""Refined and exact fits of many rows: eigenpairs from products with the Gram matrix, against the dense method."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca import kernels, methods
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution import passes
from bigkpca.execution.engine import Engine
from bigkpca.fitting.refine import _error_of_kernels
from bigkpca.numerics.features import Columns
from bigkpca.spec import FitSpec
from tests.helpers import oracles
from tests.helpers.commands import run
from tests.helpers.fits import fit, scores
from tests.helpers.progress import Recorder

R = 6
OPTIONS = {"n_components": R, "size": 60, "random_state": 3}


def hold_at_most(rows, monkeypatch):
    for module in ("spec.resolved", "evaluating"):
        monkeypatch.setattr(f"bigkpca.{module}.EXACT_MOST_ROWS", rows)


@pytest.fixture
def no_gram(monkeypatch):
    """The exact method holds no more than 100 rows' Gram matrix; the true limit of 8,192 would take minutes."""
    hold_at_most(100, monkeypatch)
    monkeypatch.setattr(passes, "_STRIP_ROWS", 64)


def some_rows(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 5))


def fitted(X, engine=None, **options):
    return fit(X, engine, **OPTIONS | options)


def eigenvectors(model, X):
    """Those that the model found, of length one."""
    U = model.solution.components if "products" in model.provenance else scores(model, X)
    return U / np.linalg.norm(U, axis=0)


CASES = {
    "gaussian": {},
    "polynomial, not centred": {"kernel": "polynomial", "center": False},
    "product, standardized": {"kernel": kernels.Gaussian(3.0) * kernels.Linear(), "standardize": True},
    "function": {"kernel": kernels.Function(oracles.inverse_quadratic)},
    "float32": {"dtype": "float32", "residual_tol": 1e-4},
}


@pytest.mark.parametrize("case", CASES)
def test_eigenpairs_are_those_of_the_dense_method(case, no_gram, monkeypatch):
    X, new = some_rows(220) * [3, 1, 2, 1, 0.5] + 4, some_rows(40, seed=9) + 4
    found = fitted(X, method="exact", **{"residual_tol": 1e-7} | CASES[case])
    hold_at_most(8192, monkeypatch)
    dense = fitted(X, method="exact", **CASES[case] | {"dtype": None})
    assert "products" not in dense.provenance
    assert found.provenance["products"] >= 1
    if case == "float32":
        assert found.features.dtype == np.float32
        assert_allclose(found.solution.eigenvalues, dense.solution.eigenvalues, rtol=1e-5)
        return
    assert_allclose(found.solution.eigenvalues, dense.solution.eigenvalues, rtol=1e-11)
    assert_allclose(found.solution.total_variance, dense.solution.total_variance, rtol=1e-11)
    assert_allclose(found.solution.mean, dense.solution.mean, rtol=1e-10, atol=1e-13)
    largest = np.sqrt(dense.solution.eigenvalues[0])
    assert_allclose(scores(found, X), scores(dense, X), atol=1e-5 * largest)  # signs as well
    assert_allclose(scores(found, new), scores(dense, new), atol=1e-5 * largest)
    assert found.moments is None


@pytest.mark.parametrize(("tol", "center"), [(0.3, False), (1e-2, True), (1e-4, False)])
def test_residuals_are_the_true_ones_and_eigenvalues_lower_bounds(tol, center, no_gram):
    X = some_rows(250)
    notes = Recorder()
    model = fitted(X, progress=notes, method="exact", residual_tol=tol, center=center)
    K, U = model.features.kernel.gram(X), eigenvectors(model, X)
    K = oracles.centred(K) if center else K
    values, certificate = model.solution.eigenvalues, model.certificate
    left = np.linalg.norm(K @ U - U * values, axis=0) / values
    assert (certificate.residuals >= left).all()  # widened by rounding
    assert_allclose(certificate.residuals, left, rtol=1e-6, atol=1e-12)
    assert certificate.residuals.max() <= tol + 1e-12
    told = [note.partition(": largest relative residual ")[::2] for note in notes.notes if note.startswith("product ")]
    assert [each for each, _ in told] == [f"product {i + 1}" for i in range(model.provenance["products"])]
    assert_allclose(float(told[-1][1]), certificate.residuals.max(), rtol=0.06)
    true = np.linalg.eigvalsh(K)[::-1]
    assert (values <= true[:R] * (1 + 1e-12)).all()
    assert_allclose(certificate.lower, values, rtol=1e-10)
    assert (certificate.lower < values).all()
    assert_allclose(model.solution.total_variance, np.trace(K), rtol=1e-12)
    for value, residual in zip(values, certificate.residuals, strict=True):  # what a residual proves
        assert np.abs(true - value).min() <= residual * value * (1 + 1e-9)


@pytest.mark.parametrize("method", ["nystroem", "columns", "rff-pca"])
def test_refining_raises_the_accuracy_of_every_method(method, no_gram):
    X = some_rows(250)
    rule = {"landmarks": "uniform"} if method == "nystroem" else {}
    options = {"method": method, "size": 40, "sigma": 2.0, **rule}
    true, vectors = oracles.gram_kpca(kernels.Gaussian(2.0).gram(X), R)
    vectors /= np.linalg.norm(vectors, axis=0)
    errors = []
    for refine in (0, 1, 2):
        model = fitted(X, refine=refine, residual_tol=1e-9, **options)
        sines = np.sqrt(np.maximum(1 - np.linalg.norm(vectors.T @ eigenvectors(model, X), axis=0) ** 2, 0))
        errors.append((np.abs(1 - model.solution.eigenvalues / true).max(), sines.max()))
        assert model.provenance.get("products", 0) == refine
    assert errors[2] < errors[1] < errors[0]
    assert errors[2][1] < errors[1][1] < errors[0][1]
    assert errors[1][0] < errors[0][0] / 2


def test_errors_of_kernels_are_those_of_all_rows():
    """A hundred thousand rows of which half are equal: their kernels are off by the same, and that adds up."""
    X = np.repeat([[0.1, 0.7], [0.3, 0.2]], 50_000, axis=0)
    features = Columns(kernels.Polynomial(gamma=0.7, degree=3, coef0=0.1), np.zeros(2), block_dtype=np.dtype("f4"))
    found = _error_of_kernels(ArrayRows(X), features, np.arange(4), FitSpec.checked(), Engine(threads=1))
    two = X[[0, -1]]
    single = features.kernel(*2 * [two.astype("f4")]).astype(float)
    assert found >= 50_000 * np.linalg.norm(single - features.kernel(two, two), 2) > 1e-3


def test_options_that_make_no_sense_are_refused(no_gram):
    for components in (None, 0.9):
        assert fitted(some_rows(100), method="exact", n_components=components).features.size == 100
        with pytest.raises(SpecError, match="above 100 rows needs a number of components"):
            fitted(some_rows(101), method="exact", n_components=components)
        with pytest.raises(SpecError, match="refine=2 needs a number of components"):
            FitSpec.checked(refine=2, n_components=components)
    for options, message in (
        ({"method": methods.Exact(), "refine": 1}, "iterates until residual_tol is met: leave refine out"),
        ({"refine": -1}, "refine=-1"),
        ({"residual_tol": 0.0}, "residual_tol=0.0"),
    ):
        with pytest.raises(SpecError, match=message):
            FitSpec.checked(**options)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.FewerComponentsWarning")
def test_components_follow_the_rank_and_not_the_landmarks_of_the_start(no_gram):
    of_rank_five = {"method": "exact", "kernel": "linear", "dtype": "float32", "n_components": 10}
    for options in (
        of_rank_five | {"residual_tol": 1e-12},
        {"n_components": 170, "refine": 3, "size": 200, "residual_tol": 1e-9, "sigma": 20.0},  # some below rounding
    ):
        model = fitted(some_rows(300), **options)
        assert (model.solution.eigenvalues > 0).all()
        assert np.isfinite(model.solution.components).all()
    assert fitted(some_rows(300), method="exact", n_components=30, size=8, residual_tol=0.1).components == 30


def test_commands_take_both_options_and_print_residuals(no_gram, tmp_path):
    np.save(tmp_path / "rows.npy", some_rows(250))
    command = ("fit", tmp_path / "rows.npy", tmp_path / "m.zarr", "--components", R)
    shown = run(*command, "--refine", 4, "--residual-tol", 1e-3, "--size", 40)
    assert shown.exit_code == 0, shown.output
    assert re.search(r"largest relative residual: \S+ \(proven", shown.stdout)
    assert "product 1: largest relative residual" in shown.stderr
