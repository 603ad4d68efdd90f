"""Weighted rows: fits with weights are those of repeated and of absent rows, and certificates hold for them."""

import numpy as np
import pytest
import zarr

from bigkpca import KernelPCA, kernels
from bigkpca.data.blocks import Block
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.data.sample_weights import weighted
from bigkpca.errors import DataError, SpecError
from bigkpca.execution.engine import Engine, fit_blocks
from bigkpca.execution.passes import _draw, weighted_draw
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.merge import extend, fit_like, merge, spec_like
from bigkpca.spec import FitSpec
from tests.fitting.cases import CASES, fitted, not_uniform

ENGINE = Engine(threads=1)
SUMMED = ("kmeans", "thesis", "columns", "rff phase", "rff-pca pointwise", "tensor sketch", "standardize")


def like(model, X, weights=None):
    """The model of rows with these weights and the features of `model`."""
    return fit_like(weighted(ArrayRows(X), weights), model, spec_like(model, {}), ENGINE, None)


def exact_eigenvalues(X, weights, kernel, center=True):
    """Eigenvalues of W^(1/2) K W^(1/2), about the weighted mean, descending."""
    K = kernel.gram(np.asarray(X, np.float64))
    if center:
        means = K @ weights / weights.sum()
        K = K - means - means[:, None] + weights @ means / weights.sum()
    roots = np.sqrt(weights)
    return np.linalg.eigvalsh(roots * K * roots[:, None])[::-1]


@not_uniform
@pytest.mark.parametrize("case", SUMMED)
def test_whole_numbers_are_repeated_rows_and_zero_is_an_absent_row(case, X):
    model = fitted(X, **CASES[case])
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    found, repeated = like(model, X, weights), like(model, np.repeat(X, weights, axis=0))
    assert (found.sums.count, found.sums.weight) == (np.count_nonzero(weights), weights.sum())
    for name in ("eigenvalues", "mean", "total_variance"):
        np.testing.assert_allclose(getattr(found.solution, name), getattr(repeated.solution, name), rtol=1e-8)
    ours, theirs = found.certificate, repeated.certificate
    for name in ("lower", "unexplained"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-6)
    kept = weights > 0
    np.testing.assert_allclose(
        like(model, X[kept], weights[kept]).solution.eigenvalues, found.solution.eigenvalues, rtol=1e-9
    )


def test_columns_are_standardised_by_weighted_moments(X):
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    options = {"standardize": True, "landmarks": X[:40], "size": "auto", "sigma": 9.0}
    found = KernelPCA(4, **options).fit(X, sample_weight=weights).model_
    repeated = KernelPCA(4, **options).fit(np.repeat(X, weights, axis=0)).model_
    np.testing.assert_allclose(found.features.scale, repeated.features.scale, rtol=1e-12)
    np.testing.assert_allclose(found.solution.eigenvalues, repeated.solution.eigenvalues, rtol=1e-8)


@pytest.mark.parametrize("center", [True, False])
def test_all_rows_as_landmarks_give_the_eigenvalues_of_the_weighted_matrix(X, center):
    weights = np.random.default_rng(1).exponential(size=len(X))
    kpca = KernelPCA(8, sigma=30.0, landmarks=X, size="auto", center=center).fit(X, sample_weight=weights)
    expected = exact_eigenvalues(X, weights, kernels.Gaussian(30.0), center)[:8]
    np.testing.assert_allclose(kpca.eigenvalues_, expected, rtol=1e-8)
    Y = kpca.transform(X)
    np.testing.assert_allclose(kpca.fit_transform(X, sample_weight=weights), Y)


WEIGHTS = {
    "heavy tail": lambda rng, n: rng.pareto(0.7, n) + 1e-6,
    "one row has nearly all": lambda rng, n: np.where(np.arange(n) == 7, 1e4, 1.0),
    "mostly zero": lambda rng, n: (rng.random(n) < 0.2) * rng.exponential(size=n),
    "two sizes": lambda rng, n: np.where(np.arange(n) % 10 == 0, 1000.0, 0.001),
    "all as large as allowed": lambda rng, n: np.full(n, 1e15),
    "from nearly zero to the least that is allowed": lambda rng, n: 1e-15 * 10.0 ** rng.uniform(-300, 0, n).round(-2),
}


@pytest.mark.parametrize(
    "name",
    [each if each in ("heavy tail", "two sizes") else pytest.param(each, marks=pytest.mark.full) for each in WEIGHTS],
)
def test_bounds_hold_for_the_weighted_matrix(name, digits):
    for seed, dtype in enumerate(("f4", "f4", "f8")):
        rng = np.random.default_rng(seed)
        X = rng.permutation(digits)[:900].astype(dtype)
        weights = WEIGHTS[name](rng, len(X))
        kpca = KernelPCA(6, sigma=25.0, size=40, random_state=seed).fit(X, sample_weight=weights)
        exact, found = exact_eigenvalues(X, weights, kernels.Gaussian(25.0)), kpca.certificate_
        assert found.proven
        assert (found.lower <= exact[:6] * (1 + 1e-12)).all()
        assert (found.upper >= exact[:6] * (1 - 1e-12)).all()
        assert kpca.explained_variance_ratio_.sum() <= exact[:6].sum() / exact.sum() * (1 + 1e-9)
        for sure, about in zip(exact, found.estimate, strict=False):
            assert np.isnan(about) or abs(about / sure - 1) < 0.25


def test_parts_with_weights_add_up(X):
    weights = np.random.default_rng(2).exponential(size=len(X))
    first = KernelPCA(5, size=40, random_state=0).fit(X[:150], sample_weight=weights[:150])
    second = KernelPCA(5).fit(X[150:], sample_weight=weights[150:], like=first)
    merged, whole = merge([first.model_, second.model_], ENGINE), like(first.model_, X, weights)
    np.testing.assert_allclose(merged.solution.eigenvalues, whole.solution.eigenvalues, rtol=1e-9)
    assert merged.sums.weight == pytest.approx(weights.sum())
    grown = extend(first.model_, weighted(ArrayRows(X[150:]), weights[150:]), FitSpec.of(first.model_), ENGINE)
    np.testing.assert_allclose(grown.solution.eigenvalues, whole.solution.eigenvalues, rtol=1e-9)
    exact = exact_eigenvalues(X, weights, first.kernel_)
    for model in (merged, grown):
        assert (model.certificate.lower <= exact[:5]).all()
        assert (model.certificate.upper >= exact[:5]).all()


def test_a_model_knows_that_rows_had_weights_also_if_their_mean_is_one(X):
    weights = np.where(np.arange(len(X)) % 2, 0.5, 1.5)
    plain, found = (KernelPCA(3, size=20).fit(X, sample_weight=each) for each in (None, weights))
    assert found.model_.sums.weight == found.model_.sums.count == len(X)
    assert (plain.model_.weighted, found.model_.weighted) == (False, True)
    assert extend(plain.model_, weighted(ArrayRows(X), weights), FitSpec.of(plain.model_), ENGINE).weighted


def test_rows_are_drawn_in_proportion_to_their_weights():
    n, weights = 40, np.r_[np.zeros(10), np.full(20, 1.0), np.full(10, 3.0)]
    rows = weighted(ArrayRows(np.zeros((n, 1))), weights)
    times, equal = np.zeros(n), np.zeros(n)
    for seed in range(3000):
        for found, alike in ((times, False), (equal, True)):
            found[_draw(rows.weights, Block(0, 0, n), "", 1, seed, 0, alike).numbers] += 1
    np.testing.assert_allclose(times / 3000, weights / weights.sum(), atol=0.02)
    np.testing.assert_allclose(equal[10:] / 3000, 1 / 30, atol=0.015)
    every = weighted_draw(rows, 100, 0, 0, ENGINE)
    assert sorted(every.numbers) == list(range(10, 40))
    assert (every.weight, every.count, every.largest, every.effective) == (50, 30, 3, 22)
    X, weights = np.ones((9000, 1)), np.random.default_rng(0).exponential(size=9000)
    held, stored = ArrayRows(X), open_rows(zarr.create_array({}, data=X, chunks=(3000, 1)))
    assert fit_blocks(held, None) != fit_blocks(stored, None)  # on which the draw does not depend
    drawn = [weighted_draw(weighted(rows, weights), 500, 0, 0, ENGINE).numbers for rows in (held, stored)]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.full
def test_weights_on_disk_give_the_same_bits_on_any_workers_and_as_in_memory(tmp_path, engine, digits):
    X, weights = np.tile(digits, (3, 1)).astype(np.float32), np.random.default_rng(0).exponential(size=5391)
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    group.create_array("x", data=X, chunks=(700, 64))
    group.create_array("w", data=weights, chunks=(900,))
    rows = open_rows(tmp_path / "rows.zarr", "x")
    spec = FitSpec(n_components=4, size=30, standardize=True)
    expected = fit_rows(weighted(rows, weights), spec, ENGINE)
    found = fit_rows(weighted(rows, "w"), spec, engine)
    for name in ("eigenvalues", "components", "mean"):
        np.testing.assert_array_equal(getattr(found.solution, name), getattr(expected.solution, name))
    np.testing.assert_array_equal(found.certificate.upper, expected.certificate.upper)


@pytest.mark.full
def test_landmarks_are_drawn_by_weights(digits):
    X, weights = digits.astype(np.float64), np.where(digits[:, 36] > 14, 50.0, 1.0)  # 18 % of the rows, 92 % of weight
    rows = {row.tobytes() for row in X[weights > 1]}
    for rule in ("uniform", "rpcholesky"):
        kpca = KernelPCA(3, sigma=20.0, landmarks=rule, size=60, random_state=0).fit(X, sample_weight=weights)
        chosen = kpca.model_.features.landmarks_in_user_units().round()
        assert np.mean([row.tobytes() in rows for row in chosen]) > 0.75
    few, single = digits[:600], np.where(np.arange(600) == 7, 600.0, 1.0)  # which is a landmark itself
    kpca = KernelPCA(3, sigma=20.0, landmarks="kmeans", size=30, random_state=0).fit(few, sample_weight=single)
    assert (kpca.model_.features.landmarks_in_user_units() == few[7]).all(axis=1).any()


@pytest.mark.full
def test_column_sampling_has_no_bias_from_weights(digits):
    X, weights = digits.astype(np.float64), np.where(digits[:, 36] > 14, 50.0, 1.0)
    exact = exact_eigenvalues(X, weights, kernels.Gaussian(25.0))[:3]
    kpca = KernelPCA(3, method="columns", sigma=25.0, size=150)
    found = [kpca.set_params(random_state=seed).fit(X, sample_weight=weights).eigenvalues_ for seed in range(6)]
    np.testing.assert_allclose(np.mean(found, axis=0), exact, rtol=0.1)


def test_the_median_distance_is_that_of_repeated_rows(X):
    weights = np.random.default_rng(0).integers(0, 4, 60)
    found = KernelPCA(3).fit(X[:60], sample_weight=weights)
    repeated = np.repeat(X[:60], weights, axis=0)
    distances = np.linalg.norm(repeated[:, None] - repeated, axis=2)
    assert found.kernel_.sigma == pytest.approx(np.median(distances[distances > 0]) / np.sqrt(2), rel=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"kernel": "polynomial"}, {"standardize": True}, {"method": "rff", "solver": "randomized"}],
    ids=["polynomial", "standardize", "sketch"],
)
def test_rows_of_weight_zero_may_be_of_any_size(options, X):
    weights = np.random.default_rng(0).integers(0, 2, len(X))
    spec = FitSpec(n_components=3, size=40, dtype="float32", **options)
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.where(weights[:, None] == 0, 1e200, X)
        found, expected = (fit_rows(weighted(ArrayRows(rows), weights), spec, ENGINE) for rows in (far, X))
    np.testing.assert_array_equal(found.solution.eigenvalues, expected.solution.eigenvalues)


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        (np.r_[1.0, -1.0, np.ones(298)], DataError, "row 1 is -1: weights are finite numbers of at least 0"),
        (np.r_[np.ones(299), np.nan], DataError, "row 299 is nan"),
        (np.zeros(300), DataError, "all sample weights are zero: at least one must be positive"),
        (np.eye(300)[5], DataError, "all 1 sampled rows of positive weight are equal"),
        (np.full(300, 1e-200), DataError, r"largest sample weight is 1e-200: divide all .* between 1e-15 and 1e\+15"),
        (np.ones(299), SpecError, "299 sample weights for 300 rows"),
    ],
)
def test_bad_weights_are_refused(weights, error, words, X):
    with pytest.raises(error, match=words):
        KernelPCA(3).fit(X, sample_weight=weights)


def test_what_takes_no_weights_says_so(X):
    for options, option, instead in (
        ({"method": "exact"}, "method='exact'", "method='nystroem'"),
        ({"refine": 1}, "refine=1", "refine=0"),
        ({"kernel": "precomputed"}, "kernel='precomputed'", "another kernel"),
    ):
        message = f"{option} does not take sample weights: omit one of the two, or use {instead}"
        with pytest.raises(SpecError, match=message):
            KernelPCA(3, **options).fit(X @ X.T, sample_weight=np.ones(len(X)))
