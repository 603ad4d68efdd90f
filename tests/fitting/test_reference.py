"""The reference that a fit gives its model, and what it says of rows of the same kind and of others."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest

from bigkpca import KernelPCA
from bigkpca.data.rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.fitting import others, reference
from bigkpca.fitting.merge import extend
from bigkpca.fitting.reference import with_reference
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.linear_pca import captured
from bigkpca.numerics.preimages import FixedPoint
from bigkpca.spec import FitSpec
from tests.fitting.cases import CASES, OPTIONS, fitted
from tests.helpers.fits import fit

MOST = 0.2  # the figure from which a run warns
ONE = Engine(threads=1)


def drift(model, X):
    """The drift of rows X, counted in three parts."""
    pairs = model.scores_and_residuals(np.array_split(X, 3), len(X), model.expansion())
    return model.reference.drift(reduce(add, (model.reference.count(*pair) for pair in pairs)))


@pytest.mark.parametrize("case", ["nystroem", "exact", "randomized rff", "rff-pca pointwise"])
def test_a_model_of_every_method_tells_rows_of_its_kind_from_others(case, digits):
    shuffled = np.random.default_rng(0).permutation(digits).astype(np.float64)
    own, new = shuffled[:300], shuffled[300:]
    model = fitted(own, **CASES[case])
    assert model.reference.rows == (300 if case == "randomized rff" else 150)  # the others make a second model
    assert model.reference.edges.shape[0] == model.components + 1
    assert drift(model, own).figure == drift(model, new).figure == 0
    noise = np.random.default_rng(1).normal(size=new.shape) * new.std()
    assert drift(model, new + 3 * noise).figure > MOST
    assert drift(model, np.random.default_rng(2).permutation(new.T).T).figure > MOST


@pytest.mark.parametrize("options", [{"refine": 4}, {"method": "exact", "center": False}], ids=str)
def test_kept_rows_give_the_reference_that_projecting_them_gives(options, X):
    model = fit(X[:300], n_components=4, sigma=25.0, residual_tol=1e-6, **options)
    found, own = (with_reference(model, rows, 300, 0, ONE).reference for rows in (X[:300], None))
    scale = np.abs(found.edges).max(axis=1, keepdims=True)
    np.testing.assert_allclose(own.edges / scale, found.edges / scale, atol=2e-4)
    assert own.rows == found.rows == 300
    assert drift(model, X[:300]).figure == 0


def test_scores_of_a_fit_that_has_not_converged_may_be_off_by_more(X):
    model = fit(X[:300], n_components=4, sigma=25.0, refine=4, residual_tol=1e-6)
    coarse = replace(model, certificate=replace(model.certificate, residuals=np.full(4, 0.2)))
    found = with_reference(coarse, None, 300, 0, ONE).reference
    spread = np.sqrt(model.solution.eigenvalues / 300)
    np.testing.assert_allclose(model.reference.edges[:-1, 0] - found.edges[:-1, 0], 0.8 * spread, rtol=1e-3)


@pytest.mark.full
def test_a_reference_is_of_so_many_rows_at_most():
    X = np.random.default_rng(0).normal(size=(5000, 3))
    assert fit(X, n_components=3, sigma=2.0, size=50).reference.rows == REFERENCE_ROWS
    refined = fit(X[: REFERENCE_ROWS + 50], n_components=1, sigma=2.0, size=20, refine=1, residual_tol=0.5)
    assert refined.reference.rows == REFERENCE_ROWS


@pytest.mark.parametrize("components", [3, 80])
def test_rows_that_were_fitted_are_nearer_than_new_ones_and_no_drift(components):
    X = np.random.default_rng(components).normal(size=(4200, 30))
    model = fit(X[:200], n_components=components, size=200)
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


@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
@pytest.mark.parametrize(
    ("kind", "options", "dtype"),
    [
        ("few distinct rows", {"size": 100}, "float32"),
        ("blank rows among others", {"method": "exact"}, "float64"),
        ("sentinels", {"size": 100}, "float32"),
        ("narrow kernel", {"sigma": 0.05, "size": 300}, "float64"),
        pytest.param("blank rows among others", {"method": "rff", "size": 300}, "float32", marks=pytest.mark.full),
        pytest.param("sentinels", {"kernel": "laplacian", "size": 100}, "float64", marks=pytest.mark.full),
    ],
)
def test_rows_that_repeat_and_narrow_kernels_raise_no_alarm(kind, options, dtype):
    rng = np.random.default_rng(0)
    X, new = (of_kind(kind, rng, n).astype(dtype) for n in (900, 3000))
    model = fit(X, n_components=5, **options)
    assert drift(model, X).figure == drift(model, new).figure == 0


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
@pytest.mark.parametrize(
    ("rows", "columns", "options"),
    [
        (2000, 100, {"n_components": 50}),
        (1500, 10, {"n_components": 40, "sigma": 1.0, "method": "rff", "size": 200}),
        (500, 200, {"n_components": 20, "kernel": "linear"}),
        (600, 30, {"n_components": 10, "method": "exact"}),
    ],
    ids=["gaussian", "narrow rff", "linear", "exact"],
)
def test_flat_spectra_raise_no_alarm_and_others_do(rows, columns, options):
    rng = np.random.default_rng(0)
    model = fit(rng.normal(size=(rows, columns)), **options)
    for _ in range(3):
        assert drift(model, rng.normal(size=(2000, columns))).figure == 0
    assert drift(model, 2 * rng.normal(size=(2000, columns))).figure > 0.02


NIGHTS = {
    "flat": (lambda rng, n: rng.normal(size=(n, 100)), 2000, {"n_components": 50}),
    "flat and narrow": (
        lambda rng, n: rng.normal(size=(n, 10)),
        1500,
        {"n_components": 40, "sigma": 1.0, "method": "rff", "size": 200},
    ),
    "flat and linear": (lambda rng, n: rng.normal(size=(n, 200)), 500, {"n_components": 20, "kernel": "linear"}),
    "flat and exact": (lambda rng, n: rng.normal(size=(n, 30)), 500, {"n_components": 10, "method": "exact"}),
    "blobs": (
        lambda rng, n: rng.normal(size=(n, 4)) + 4 * np.eye(4)[rng.integers(0, 4, n)],
        1000,
        {"n_components": 8, "landmarks": "uniform", "size": 300},
    ),
    "heavy tails": (lambda rng, n: rng.standard_t(2, size=(n, 5)), 1000, {"n_components": 10, "size": 200}),
    "counts": (lambda rng, n: rng.poisson(1.0, (n, 6)).astype(float), 1000, {"n_components": 10, "size": 200}),
    "one-hot": (lambda rng, n: np.eye(30)[rng.integers(0, 30, n)], 1000, {"n_components": 10, "size": 60}),
    "a curve": (
        lambda rng, n: np.column_stack([f(rng.uniform(0, 6, n)) for f in (np.cos, np.sin)]),
        1000,
        {"n_components": 12, "sigma": 0.3, "landmarks": "rpcholesky"},
    ),
    "skewed": (
        lambda rng, n: rng.lognormal(size=(n, 8)),
        1000,
        {"n_components": 10, "kernel": "laplacian", "size": 200},
    ),
}


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
def test_a_thousand_nights_of_the_same_kind_raise_three_alarms_at_most():
    alarms = []
    for kind, (draw, rows, options) in NIGHTS.items():
        for seed in range(10):
            rng = np.random.default_rng(seed)
            model = fit(draw(rng, rows), random_state=seed, **options)
            alarms += [(kind, seed) for _ in range(10) if drift(model, draw(rng, 1000)).figure > 0]
    assert len(alarms) <= 3, alarms


def test_precomputed_and_extended_models_have_no_reference_nor_those_that_overflow(X):
    assert fit(X[:50] @ X[:50].T, n_components=3, method="exact", kernel="precomputed").reference is None
    model = fitted(X[:150])
    assert model.reference is not None
    assert model.leading(2).reference is None
    assert extend(model, ArrayRows(X[150:]), FitSpec.checked(**OPTIONS), ONE).reference is None
    rows = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    cubic = fit(rows, n_components=2, kernel="polynomial", degree=3, size=50)
    assert cubic.reference is not None
    assert with_reference(cubic, rows * np.float32(1e25), 200, 0, ONE).reference is None


@pytest.mark.parametrize("options", [{}, {"standardize": True}, {"method": "exact"}, {"refine": 2}], ids=str)
def test_a_model_knows_what_its_scores_capture_of_rows_of_the_fit(options, X, tmp_path):
    X = X[:300, 20:44]
    kpca = KernelPCA(3, size=50, random_state=0, **options).fit(X)
    model = kpca.model_
    assert kpca.captured_ is model.captured
    expected = captured(model.features, X, kpca.transform(X))  # of more rows, and in another order
    assert (model.captured.rows, model.captured.held_out) == (225, 75)
    assert not model.captured.seen
    np.testing.assert_allclose(model.captured.shares, expected.shares, atol=0.1)
    kpca.save(tmp_path / "m.zarr")
    again = KernelPCA.load(tmp_path / "m.zarr").model_.captured
    assert (again.rows, again.components, again.seen) == (model.captured.rows, 3, False)
    np.testing.assert_array_equal(again.by_scores, model.captured.by_scores)
    assert model.leading(2).captured is None
    if not options:
        assert extend(model, ArrayRows(X), FitSpec.of(model), ONE).captured is None
        known = with_reference(model, X[:60], 300, 0, ONE)
        assert known.captured is model.captured


def test_what_scores_capture_is_found_on_a_bounded_number_of_values(X, monkeypatch):
    monkeypatch.setattr("bigkpca.fitting.reference.MOST_VALUES", 64 * 40)
    found = fitted(X[:300]).captured
    assert (found.rows, found.held_out) == (30, 10)


def test_a_fit_computes_the_features_of_its_reference_rows_once(monkeypatch):
    X = np.random.default_rng(0).normal(size=(REFERENCE_ROWS + 500, 4))
    seen, real = [], others.mapped

    def counted(features, X, in_order, weights=None):
        seen.append(len(X))
        return real(features, X, in_order)

    for module in (others, reference):
        monkeypatch.setattr(module, "mapped", counted)
    model = fit(X, n_components=3, size=60, sigma=2.0)
    assert model.captured.seen is False
    assert seen == [REFERENCE_ROWS]


def test_the_model_of_the_other_rows_needs_no_second_decomposition(few, monkeypatch):
    expected = fitted(few)
    assert expected.reference.rows < len(few)

    def again(*_):
        raise AssertionError("W is decomposed again")

    monkeypatch.setattr("bigkpca.numerics.expansion.basis_of", again)
    np.testing.assert_array_equal(fitted(few).reference.edges, expected.reference.edges)


@pytest.mark.bits
def test_any_number_of_threads_gives_the_same_reference(few):
    for options in ({}, {"method": "exact", "size": "auto"}, {"method": "rff"}, {"refine": 2}):
        one, two = (fitted(few, Engine(threads=threads), **options).reference for threads in (1, 2))
        for name in one.shapes:
            np.testing.assert_array_equal(getattr(one, name), getattr(two, name), str(options))


@pytest.mark.full
def test_the_decoder_has_the_expansion_that_a_decomposition_gives(few):
    for options in ({}, {"method": "columns"}, {"method": "rff"}, {"center": False}):
        model = fitted(few, **options)
        np.testing.assert_array_equal(model.expansion().origin, model.decoder.expansion(model.solution).origin)
        for preimage in ("ridge", FixedPoint(mean_term=False)):
            other = fitted(few, preimage=preimage, **options)
            np.testing.assert_array_equal(model.residual(few), other.residual(few), str(options))
