"""The reference that a fit gives its model, and what it says of rows of the same kind and of others."""

from dataclasses import replace

import numpy as np
import pytest

from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import NarrowKernelWarning
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Silent
from bigkpca.fitting.partial_fit import extend
from bigkpca.fitting.reference import with_reference
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.preimages import FixedPoint
from bigkpca.spec import FitSpec
from tests.fitting.cases import CASES, OPTIONS, fitted
from tests.helpers.fits import fit

MOST = 0.2  # the figure from which a run warns


def drift(model, X):
    """The drift of rows X, counted in three parts."""
    assert model.reference is not None
    parts = [part for part in np.array_split(X, 3) if len(part)]
    pairs = model.scores_and_residuals(parts, len(X), model.expansion())
    first, *others = [model.reference.count(*pair) for pair in pairs]
    for each in others:
        first += each
    return model.reference.drift(first)


@pytest.mark.parametrize("case", CASES)
def test_a_model_of_every_method_tells_rows_of_its_kind_from_others(case, digits):
    shuffled = np.random.default_rng(0).permutation(digits).astype(np.float64)
    own, new = shuffled[:600], shuffled[600:]
    model = fitted(own, **OPTIONS | CASES[case])
    assert model.reference is not None
    assert model.reference.rows == 600
    assert model.reference.edges.shape[0] == model.components + 1
    assert drift(model, own).figure == 0
    assert drift(model, new).figure == 0
    noise = np.random.default_rng(1).normal(size=new.shape) * new.std()
    assert drift(model, new + 3 * noise).figure > MOST
    assert drift(model, np.random.default_rng(2).permutation(new.T).T).figure > MOST


@pytest.mark.parametrize("options", [{"method": "exact"}, {"refine": 4}, {"method": "exact", "center": False}])
def test_kept_rows_give_the_reference_that_projecting_them_gives(options, X):
    model = fit(X[:300], components=4, sigma=25.0, residual_tol=1e-6, **options)
    found = with_reference(model, X[:300], 300, 0, Engine(threads=1)).reference
    own = model.reference
    assert own is not None
    assert found is not None
    scale = np.abs(found.edges).max(axis=1, keepdims=True)
    np.testing.assert_allclose(own.edges / scale, found.edges / scale, atol=2e-4)
    assert own.rows == found.rows == 300
    assert drift(model, X[:300]).figure == 0


def test_scores_of_a_fit_that_has_not_converged_may_be_off_by_more(X):
    model = fit(X[:300], components=4, sigma=25.0, refine=4, residual_tol=1e-6)
    coarse = replace(model, certificate=replace(model.certificate, residuals=np.full(4, 0.2)))
    found = with_reference(coarse, None, 300, 0, Engine(threads=1)).reference
    assert found is not None
    assert model.reference is not None
    spread = np.sqrt(model.solution.eigenvalues / 300)
    np.testing.assert_allclose(model.reference.edges[:-1, 0] - found.edges[:-1, 0], 0.8 * spread, rtol=1e-3)


def test_a_reference_is_of_so_many_rows_at_most():
    X = np.random.default_rng(0).normal(size=(5000, 3))
    for options in ({"size": 50}, {"method": "rff", "size": 50}, {"method": "exact"}):
        model = fit(X[:2500] if "method" in options else X, components=3, sigma=2.0, **options)
        assert model.reference is not None
        assert model.reference.rows == REFERENCE_ROWS


@pytest.mark.parametrize("components", [3, 20, 80])
def test_rows_that_were_fitted_are_nearer_than_new_ones_and_no_drift(components):
    X = np.random.default_rng(components).normal(size=(4200, 30))
    model = fit(X[:200], components=components, size=200)
    own, new = model.residual(X[:200]), model.residual(X[200:])
    assert own.mean() < (1 - components / 200) * new.mean()
    assert drift(model, X[200:]).figure == 0


def of_kind(kind, rng, n):
    X = rng.normal(size=(n, 5))
    if kind == "few distinct rows":
        return np.eye(6)[rng.choice(6, n, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05])]
    if kind == "blank rows among others":
        X[rng.random(n) < 0.4] = 0.25
    if kind == "sentinels":
        X[rng.random(n) < 0.05, 2] = -9999
    return X


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"method": "exact"}, {"method": "rff", "size": 300}, {"kernel": "laplacian"}])
@pytest.mark.parametrize("kind", ["few distinct rows", "blank rows among others", "sentinels"])
def test_rows_that_repeat_raise_no_alarm(kind, options, dtype):
    rng = np.random.default_rng(0)
    X, new = of_kind(kind, rng, 900).astype(dtype), of_kind(kind, rng, 3000).astype(dtype)
    model = fit(X, components=5, **{"size": 100} | options if options != {"method": "exact"} else options)
    assert drift(model, X).figure == 0
    assert drift(model, new).figure == 0


@pytest.mark.filterwarnings(f"ignore::{NarrowKernelWarning.__module__}.{NarrowKernelWarning.__name__}")
@pytest.mark.parametrize("n", [60, 300, 2000])
def test_a_kernel_that_is_too_narrow_raises_no_alarm(n):
    X = np.random.default_rng(n).normal(size=(n + 2000, 2))
    model = fit(X[:n], components=3, sigma=0.05)
    assert drift(model, X[n:]).figure == 0


def test_precomputed_and_extended_models_have_no_reference(X):
    assert fit(X[:50] @ X[:50].T, components=3, method="exact", kernel="precomputed").reference is None
    model = fitted(X[:300])
    assert model.reference is not None
    assert model.leading(2).reference is None
    spec = FitSpec.checked(**OPTIONS)
    assert extend(model, ArrayRows(X[300:]), spec, Engine(threads=1), Silent()).reference is None


def test_values_that_overflow_leave_no_reference():
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    model = fit(X, components=2, kernel="polynomial", degree=3, size=50)
    assert model.reference is not None
    assert with_reference(model, X * np.float32(1e25), 200, 0, Engine(threads=1)).reference is None


@pytest.mark.parametrize("options", [{}, {"method": "exact", "size": "auto"}, {"method": "rff"}, {"refine": 2}])
def test_any_number_of_threads_gives_the_same_reference(options, X):
    one, two = (fit(X, Engine(threads=threads), **OPTIONS | options).reference for threads in (1, 2))
    assert one is not None
    assert two is not None
    for name in one.shapes:
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_workers_and_threads_give_the_same_reference(X, two_processes):
    here, there = (fit(X, engine, **OPTIONS).reference for engine in (Engine(threads=1), two_processes))
    assert here is not None
    assert there is not None
    for name in here.shapes:
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))


def test_blocks_do_not_matter_where_the_fit_has_none(X):
    options = {"components": 4, "method": "exact"}
    one, two = (fit(X[:300], block_rows=rows, **options).reference for rows in (None, 100))
    assert one is not None
    assert two is not None
    np.testing.assert_array_equal(one.edges, two.edges)


@pytest.mark.parametrize("options", [{}, {"method": "columns"}, {"method": "rff"}, {"center": False}])
def test_the_decoder_has_the_expansion_that_a_decomposition_gives(options, X):
    model = fitted(X, **OPTIONS | options)
    assert model.decoder is not None
    known = model.decoder.expansion(model.solution)
    np.testing.assert_array_equal(model.expansion().origin, known.origin)
    without = fitted(X, **OPTIONS | options | {"preimage": "linear"})
    np.testing.assert_array_equal(model.residual(X), without.residual(X))
    thesis = fitted(X, **OPTIONS | options | {"preimage": FixedPoint(mean_term=False)})
    np.testing.assert_array_equal(model.residual(X), thesis.residual(X))


def test_rows_of_the_reference_are_planned_for(monkeypatch):
    rows = ArrayRows(np.broadcast_to(np.zeros(1, np.float32), (10**6, 4000)))
    spec = FitSpec.checked(method="rff", size=16)
    with_them = plan_fit(rows, spec, 4).peak_bytes
    monkeypatch.setattr("bigkpca.execution.planning.fits.REFERENCE_ROWS", 0)
    assert with_them - plan_fit(rows, spec, 4).peak_bytes >= REFERENCE_ROWS * 4000 * 4
