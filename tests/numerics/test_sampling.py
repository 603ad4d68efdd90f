"""Rows drawn in a pass, and what their error bounds and estimates."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from bigkpca.numerics.certificates import estimates
from bigkpca.numerics.certificates.estimates import refined
from bigkpca.numerics.certificates.sampling import Draw, DrawnRows, Residuals, Sampler, least_threshold, threshold_of
from bigkpca.numerics.certificates.spectral import SampledError, sampled_error, upper_mean
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics import solvers
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Cosine, Gaussian, Laplacian, Linear, Polynomial
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import basis_of, eigenvector_basis, span_of
from tests.helpers import oracles
from tests.numerics.fits import threads

KERNELS = [Gaussian(1.5), Laplacian(2.0), Linear(), Polynomial(0.3), Cosine()]


def rows(seed, n, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.uniform(0.3, 2, d) + rng.normal(size=(4, d))[rng.integers(0, 4, n)]


def remainder(kernel, X, S):
    """E = K - C W⁺ C', by definition."""
    return kernel.gram(X) - oracles.nystroem_gram(kernel(X, S), kernel.gram(S), 1e-12)


def drawn(draw, features, X, start=0, tile=64):
    """The rows that a block X draws, which begins with row `start`."""
    sampler = Sampler(draw, start)
    tiles = [X[at : at + tile] for at in range(0, len(X), tile)]

    def evaluated():
        for each in tiles:
            sampler.see(each)
            yield features.kernel(each, features.landmarks), features.kernel.diagonal(each)

    for _ in sampler.drawing(evaluated()):
        pass
    return sampler.found


@pytest.fixture(scope="module")
def X():
    return rows(0, 600)


@pytest.fixture(scope="module")
def features(X):
    return KernelRows(Gaussian(1.5), np.zeros(3), X[:40])


@pytest.fixture(scope="module")
def residuals(features):
    return Residuals.of(basis_of(features.gram(), 1e-12), np.dtype(np.float64))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("basis", [basis_of, eigenvector_basis])
def test_residuals_are_at_least_what_all_landmarks_leave(kernel, dtype, basis):
    X = rows(1, 300).astype(dtype)
    S = X[:48]
    found = Residuals.of(basis(kernel.gram(S), 1e-12), np.dtype(dtype))
    r = found(kernel(X, S), kernel.diagonal(X))
    exact = np.diag(remainder(kernel, X.astype(float), S.astype(float)))
    assert (r >= exact).all()
    assert (r <= kernel.diagonal(X) * (1 + 2**-7)).all()
    assert found.P.shape[1] > 1
    if basis is basis_of and kernel == Gaussian(1.5):  # as documented: of every 4th landmark, and a 256th of k(x, x)
        quarter = np.diag(remainder(kernel, X.astype(float), S[::4].astype(float)))
        assert_allclose(r, quarter + 2**-8, atol=1e-5)


def test_directions_beyond_rounding_are_not_used():
    X = 1000 + 1e-3 * rows(2, 100)
    kernel = Gaussian(1.0)
    basis = basis_of(kernel.gram(X), 1e-12)
    single, double = (Residuals.of(basis, np.dtype(dtype)).P.shape[1] for dtype in (np.float32, np.float64))
    assert single < double


@pytest.mark.full
def test_rows_are_drawn_as_often_as_stated(X, features, residuals):
    r = residuals(features.kernel(X, features.landmarks), features.kernel.diagonal(X))
    most, count = 50, 400
    times, sizes = np.zeros(len(X)), []
    for seed in range(count):
        found = drawn(Draw(residuals, most, 0.0, seed), features, X)
        numbers = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in found.X]
        assert_allclose(found.residuals, r[numbers])
        assert_allclose(found.probabilities, np.minimum(1, r[numbers] * most / r.sum()))
        times[numbers] += 1
        sizes.append(len(numbers))
    p = np.minimum(1, r * most / r.sum())
    deviation = (times - count * p) / np.sqrt(count * p * (1 - p) + 1e-9)
    assert abs(deviation).max() < 5
    assert abs(np.mean(deviation**2) - 1) < 0.2
    assert abs(np.mean(sizes) - p.sum()) < 5 * np.sqrt(p.sum() / count)


def test_samples_of_parts_are_the_sample_of_the_whole(X, features, residuals):
    draw = Draw(residuals, 50, 0.0, seed=3)
    parts = [drawn(draw, features, X[start : start + 128], start) for start in range(0, len(X), 128)]
    whole = drawn(draw, features, X)
    for joined in (reduce(add, parts), parts[0] + (parts[1] + (parts[2] + (parts[3] + parts[4])))):
        assert_array_equal(joined.X, whole.X)
        assert_array_equal(joined.uniform, whole.uniform)
        assert_allclose(joined.threshold, whole.threshold)
        assert joined.count == len(X)
    least = whole.threshold / 2  # a block keeps fewer rows then, and none of the final ones is lost
    fewer = [drawn(replace(draw, least=least), features, X[start : start + 128], start) for start in range(0, 600, 128)]
    assert sum(len(each.X) for each in fewer) < sum(len(each.X) for each in parts)
    assert_array_equal(reduce(add, fewer).X, whole.X)


@pytest.mark.parametrize("heavy", [False, True])
def test_the_threshold_makes_the_wanted_number_of_rows(heavy):
    rng = np.random.default_rng(0)
    r = rng.pareto(0.7, 500) if heavy else rng.uniform(0.5, 1, 500)
    for most in (1, 20, 400):
        t = threshold_of(rng.permutation(r), r.sum(), most)
        assert_allclose(np.minimum(1, r / t).sum(), most)
        assert_allclose(threshold_of(np.append(r[r >= t], 0.9 * t), r.sum(), most), t)  # which are enough
    assert threshold_of(np.r_[5.0, 5.0, np.zeros(9)], 10.0, 4) < 5.0  # fewer rows have residuals


@pytest.mark.parametrize("tail", [0.5, 1.5, 50.0])
def test_a_few_rows_say_what_the_threshold_is_at_least(tail):
    rng = np.random.default_rng(0)
    r = rng.pareto(tail, 20_000)
    exact = threshold_of(r, r.sum(), 300)
    found = np.array([least_threshold(rng.choice(r, 512), np.full(512, len(r) / 512), 300) for _ in range(200)])
    assert (found > exact).mean() < 0.02
    assert np.median(found) > (0.05 if tail < 1 else 0.5) * exact
    assert least_threshold(np.full(10, np.nan), np.full(10, 10), 5) == 0


def test_samples_of_a_heavy_tail_have_as_many_rows_as_wanted(features):
    X = rows(5, 4000) * (1 + np.random.default_rng(1).pareto(1.0, 4000))[:, None]
    kernel = Polynomial(0.3, 3)
    heavy = KernelRows(kernel, np.zeros(3), X[:8])
    draw = Draw(Residuals.of(basis_of(heavy.gram(), 1e-12), np.dtype(np.float64)), 300, 0.0, seed=0)
    whole = drawn(draw, heavy, X)
    assert 230 < len(whole.X) < 370
    parts = [drawn(draw, heavy, X[start : start + 1024], start) for start in range(0, 4000, 1024)]
    assert_array_equal(reduce(add, parts).X, whole.X)


def test_rows_that_block_work_merges_have_no_bound():
    X = np.random.default_rng(0).normal(size=(100, 3))
    X[:5] += 1e8
    double = KernelRows(Gaussian(1.0), np.zeros(3), X[4:60])
    single = double.in_precision(np.dtype(np.float32))
    residuals = Residuals.of(basis_of(double.gram(), 1e-9), np.dtype(np.float32))
    assert residuals.hold(single, X[5:])
    assert residuals.hold(double, X)
    assert not residuals.hold(single, X)


def test_whether_residuals_hold_takes_kernels_with_their_landmarks_only(features, residuals, X):
    assert len(residuals.numbers) == 10
    other = features.landmarks.copy()
    other[np.setdiff1d(np.arange(40), residuals.numbers)] = np.nan
    assert residuals.hold(replace(features, landmarks=other), X[:50])


def test_variances_are_those_of_the_double_sum():
    rng = np.random.default_rng(0)
    q, others = rng.normal(size=(2, 50, 4))
    weights, own = rng.uniform(size=(2, 50, 1))
    found = estimates._variances(weights, q, others, own)
    for j in range(4):
        for k in range(4):
            lost = q[:, j] * others[:, k] + q[:, k] * others[:, j] + own[:, 0] * q[:, j] * q[:, k]
            assert_allclose(found[j, k], np.sum(weights[:, 0] * lost**2))


@pytest.mark.parametrize(
    ("name", "value"),
    [("most", 0), ("threshold", -1.0), ("total", np.nan), ("count", 3), ("kept", 1), ("uniform", np.full(40, 1.0))],
)
def test_numbers_that_no_fit_makes_are_refused(name, value, X, features, residuals):
    found = drawn(Draw(residuals, 600, 0.0, seed=0), features, X[:40])
    span = span_of(features.gram(), Moments(1, 1, np.zeros(40), np.eye(40), 1.0), 1e-12)
    kept = DrawnRows.of(found, residuals, span)
    assert (kept.cholesky, kept.eigenvectors, kept.kept) == (True, False, 40)
    with pytest.raises(SpecError, match="numbers that no fit makes"):
        replace(kept, **{name: value})


def test_equal_values_have_equal_random_numbers(X, features, residuals):
    draw = Draw(residuals, 50, 0.0, seed=0)
    X = np.where(X > 0, X, 0.0)
    expected = drawn(draw, features, X).uniform
    for same in (X.astype(">f8"), np.asfortranarray(X), np.where(X == 0, -0.0, X)):
        assert_array_equal(drawn(draw, features, same).uniform, expected)


def test_all_rows_are_drawn_if_they_are_few(X, features, residuals):
    found = drawn(Draw(residuals, 600, 0.0, 0), features, X)
    assert_array_equal(found.X, X)
    assert_array_equal(found.probabilities, np.ones(600))
    more = drawn(Draw(residuals, 600, 0.0, 0), features, X + 0.1, start=600)
    assert len((found + more).X) < 700


def test_other_rows_have_other_random_numbers(X, features, residuals):
    draw = Draw(residuals, 600, 0.0, 0)
    one, other = drawn(draw, features, X), drawn(draw, features, X + 0.1)
    assert not np.isin(one.uniform, other.uniform).any()
    assert not np.isin(one.uniform, drawn(replace(draw, seed=1), features, X).uniform).any()
    assert not np.isin(one.uniform, drawn(replace(draw, before=1), features, X).uniform).any()


@pytest.mark.parametrize("m", [1, 511, 512, 1100])
def test_the_error_of_sampled_rows_is_that_of_the_matrix(m, features):
    X = rows(3, m)
    span = span_of(features.gram(), Moments(1, 1, np.zeros(40), np.eye(40), 1.0), 1e-12)
    E, p = remainder(features.kernel, X, features.landmarks), np.random.default_rng(0).uniform(0.1, 1, m)
    found = sampled_error(features, span.basis, X, p, threads)
    assert_allclose(found.E, E, atol=1e-9)
    assert found.E.tobytes() == sampled_error(features, span.basis, X, p).E.tobytes()
    Q = np.random.default_rng(0).normal(size=(m, 3))
    assert_allclose(found.times(Q, threads), E @ Q, atol=1e-9)
    assert_allclose(found.squares_times(Q, threads), E**2 @ Q, atol=1e-9)
    assert_allclose(found.scaled_times(Q), E / np.sqrt(p) / np.sqrt(p[:, None]) @ Q, atol=1e-8)
    assert_allclose(found.diagonal, np.diag(E), atol=1e-9)
    model = replace(solvers.nystroem(span, 3, center=True, tolerance=1e-12), mean=np.linspace(0, 1, 40))
    scores = (features.kernel(X, features.landmarks) - model.mean) @ model.components
    assert_allclose(found.scores(model, threads), scores, atol=1e-9)


@pytest.mark.parametrize("s", [0.0, 5e-324, 1e-9, 1.0, 1e4, 1e10, 1e20, 1e40, 1e300])
def test_the_upper_mean_satisfies_its_equation_in_any_range(s):
    """With y = p / s - 1, s (y - ln(1 + y)) is the limit; here in more digits than float64 has."""
    limit = -np.log(0.05)
    found = upper_mean(s, 0.05)
    assert found >= max(s, limit)
    assert found <= (s + limit + np.sqrt(limit * (limit + 2 * s))) * (1 + 2e-6)
    if s < 1e9:
        at = np.longdouble(found) - s
        assert at - s * np.log1p(at / max(s, 1e-300)) >= limit
        less = np.longdouble(found) * (1 - 3e-6) - s
        assert less - s * np.log1p(less / max(s, 1e-300)) <= limit
    assert upper_mean(np.inf, 0.05) == upper_mean(np.nan, 0.05) == np.inf


@pytest.mark.parametrize("s", [0.0, 1e-9, 0.3, 2.0, 50.0, 1e4])
@pytest.mark.parametrize("allowed", [0.05, 1e-3])
def test_the_upper_mean_is_the_largest_that_is_not_ruled_out(s, allowed):
    p = s + np.linspace(1e-9, 12 + 6 * np.sqrt(12 * s), 10**6)
    exponent = p - s + (s * np.log(s / p) if s else 0)
    assert_allclose(upper_mean(s, allowed), p[exponent <= -np.log(allowed)][-1], rtol=1e-4)


def _groups(rng, sizes):
    """Residuals of groups of rows, each in a direction of its own."""
    return np.repeat(np.eye(len(sizes)), sizes, axis=0) * rng.uniform(0.2, 1, sum(sizes))[:, None]


def _one_direction(rng, share):
    """Random residuals, and a share of the rows with large ones in one direction."""
    vectors = rng.normal(size=(900, 30)) * 0.05
    vectors[: int(900 * share), 0] += 3
    return vectors


HARD_RESIDUALS = {
    "groups of few rows": lambda rng: _groups(rng, [1] * 300 + [3] * 60 + [30] * 10 + [200]),
    "every row its own direction": lambda rng: _groups(rng, [1] * 700),
    "two equal groups": lambda rng: _groups(rng, [150, 150] + [1] * 300),
    "the largest group is the smallest": lambda rng: (
        _groups(rng, [4] + [1] * 800) * np.r_[[9.0] * 4, [0.5] * 800][:, None]
    ),
    "a few rows of one direction": lambda rng: _one_direction(rng, 0.0134),
    "one row of one direction": lambda rng: _one_direction(rng, 0.0012),
    "half of the rows of one direction": lambda rng: _one_direction(rng, 0.5),
    "random directions": lambda rng: rng.normal(size=(900, 40)) / 6,
    "lengths of a heavy tail": lambda rng: rng.normal(size=(900, 5)) * rng.pareto(1.2, 900)[:, None],
    "equal rows": lambda rng: np.ones((500, 1)),
}


@pytest.mark.parametrize("vectors", HARD_RESIDUALS.values(), ids=HARD_RESIDUALS)
@pytest.mark.parametrize(
    "draws", [pytest.param(100, marks=pytest.mark.full), pytest.param(2000, marks=pytest.mark.long)]
)
def test_bounds_hold_as_often_as_stated(vectors, draws):
    rng = np.random.default_rng(0)
    vectors = vectors(rng)
    E = vectors @ vectors.T
    for slack in (1.0, 4.0):  # how much larger the residuals may be that rows are drawn by
        norm, r = np.linalg.norm(vectors, 2) ** 2, np.diag(E) * rng.uniform(1, slack, len(E))
        for most in (10, 60):
            t, misses = r.sum() / most, 0
            p = np.minimum(1, r / t)
            for _ in range(draws // 4):
                kept = rng.random(len(r)) < p
                s = np.linalg.norm(vectors[kept] / np.sqrt(p[kept, None]), 2) ** 2 if kept.any() else 0.0
                misses += t * upper_mean(s / t, 0.05) < norm
            assert misses <= 0.05 * draws / 4, (slack, most)


def pairs_of(X, features, center, count):
    """The span of the landmarks, Q and Q'K^Q of rows X, for Nyström."""
    V = features.kernel(X, features.landmarks)
    moments = Moments(len(X), len(X), *oracles.two_pass_moments(V), float(features.kernel.diagonal(X).sum()))
    span = span_of(features.gram(), moments, 1e-12)
    found = solvers.nystroem(span, count, center=center, tolerance=1e-12)
    Q = found.projection()(V) / np.sqrt(found.eigenvalues)
    return span, Q, np.diag(found.eigenvalues)


@pytest.mark.parametrize("center", [True, False])
def test_estimates_from_all_rows_are_those_of_rayleigh_and_ritz(X, features, center):
    span, Q, approximate = pairs_of(X, features, center, 12)
    K = features.kernel.gram(X)
    if center:
        K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    error = sampled_error(features, span.basis, X, np.ones(len(X)))
    found, whole = refined(error, Q, approximate, len(X) if center else None), error.E
    values, Z = np.linalg.eigh(Q.T @ K @ Q)
    values, Z = values[::-1], Z[:, ::-1]
    outside = np.linalg.norm(K @ Q @ Z - Q @ Z * values, axis=0)
    assert_allclose(found.outside, outside, atol=1e-6)
    assert_allclose(found.eigenvalues, values + outside**2 / values, rtol=1e-9)
    assert_allclose(np.abs(np.sum(found.rotation * Z, axis=0)), 1, rtol=1e-6)
    assert_array_equal(found.standard_errors, np.zeros(12))
    exact, U = np.linalg.eigh(K)
    exact, U = exact[::-1], U[:, ::-1]
    assert_allclose(found.eigenvalues[:6], exact[:6], rtol=1e-4)
    assert np.abs(np.diag(approximate)[:6] / exact[:6] - 1).max() > 1e-3
    assert_allclose(
        found.cosines(np.linalg.eigvalsh(whole)[-1])[:6], np.abs(np.sum(Q[:, :6] * U[:, :6], axis=0)), atol=5e-3
    )


@pytest.mark.parametrize("m", [1, 2, 20, 400])
@pytest.mark.parametrize("common", [0.0, 0.1, 0.2, 0.5])
def test_rows_have_in_common_what_lies_in_one_direction_outside_of_the_landmarks(m, common):
    rng = np.random.default_rng(m)
    X = rng.normal(size=(m, 6)) * [1, 1, 0.2, 0.2, 0.2, 0.2]
    X[:, 2] += common
    features = KernelRows(Linear(), np.zeros(6), np.eye(6)[:2])  # which leave columns 2 to 5
    left = X[:, 2:]
    products = [float(left[i] @ left[j]) for i in range(m) for j in range(m) if i != j]
    U = sum(products) / max(len(products), 1)
    error = np.sqrt(2 * sum(each**2 for each in products)) / max(len(products), 1)
    expected = max(0.0075 * np.mean(np.sum(X**2, axis=1)), 8 * error) < U
    assert sampled_error(features, basis_of(features.gram(), 1e-12), X, np.ones(m)).in_common == expected
    if m == 400:
        assert expected == (common >= 0.2)


def test_estimates_are_right_on_average_and_know_their_errors(X, features, residuals):
    span, Q, approximate = pairs_of(X, features, True, 12)
    whole = sampled_error(features, span.basis, X, np.ones(len(X)))
    exact = refined(whole, Q, approximate, len(X))
    r = residuals(features.kernel(X, features.landmarks), features.kernel.diagonal(X))
    p = np.minimum(1, r * 250 / r.sum())
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        kept = np.flatnonzero(rng.random(len(X)) < p)
        part = SampledError(whole.E[np.ix_(kept, kept)], whole.C[kept], whole.kernels[kept], p[kept], whole.roots[kept])
        found.append(refined(part, Q[kept], approximate, len(X)))
    assert all((np.diff(each.eigenvalues) <= 0).all() for each in found)
    values = np.array([each.eigenvalues[:5] for each in found])
    errors = np.array([each.standard_errors[:5] for each in found])
    assert (np.abs(values.mean(axis=0) - exact.eigenvalues[:5]) < 5 * values.std(axis=0) / np.sqrt(60)).all()
    assert_allclose(np.sqrt(np.mean(errors**2, axis=0)), values.std(axis=0), rtol=0.5)
    assert np.mean(np.abs(values - exact.eigenvalues[:5]) <= 1.96 * errors) >= 0.9
    plain = np.abs(np.diag(approximate)[:5] - exact.eigenvalues[:5])
    assert (np.abs(values - exact.eigenvalues[:5]).mean(axis=0) < plain / 2).all()
