"""What the rows of a draw say of E = K - K^: bounds hold as often as stated, estimates are right on average."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics import judge, solvers
from bigkpca.numerics.drawn_rows import DrawnRows
from bigkpca.numerics.features import FourierRows, KernelRows
from bigkpca.numerics.judge import DrawnError, error_of, estimates, missed_of_any, missed_of_positive, upper_mean
from bigkpca.numerics.kernels import Gaussian
from tests.helpers import oracles
from tests.helpers.oracles import matrix_with
from tests.numerics.fits import clustered_rows, moments_of, span_of

KERNEL = Gaussian(1.5)


def drawn(X, p, weights=None):
    """Rows that were drawn with these probabilities, of some measure."""
    t = 1.0 if (p < 1).any() else 0.0
    one = np.ones(len(X))
    return DrawnRows(X, one if weights is None else weights, p, 0 * one, np.arange(0), len(X), len(X), t, 1)


@pytest.fixture(scope="module")
def X():
    return clustered_rows(0, 600)


@pytest.fixture(scope="module")
def fit(X):
    """Landmarks, the coordinates of their span, and Nyström's solution with twelve components."""
    features = KernelRows(KERNEL, np.zeros(3), X[:40])
    span = span_of(features.gram(), moments_of(features, X)[0], 1e-12, positive=True)
    solution = solvers.nystroem(span, 12, center=True, tolerance=1e-12)
    return features, span.basis.P, solution


def in_double(features, P, rows, added=0.0):
    """E of drawn rows where float32 would be too coarse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "_COARSE", 0.0)
        return error_of(features, lambda _: lambda V: V @ P, np.ones(P.shape[1]), rows, added)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 511, 512, 1100])
def test_the_error_of_drawn_rows_is_that_of_the_matrix(m, dtype, fit):
    features, P, solution = fit
    features, P = features.in_precision(np.dtype(dtype)), P.astype(dtype)
    X, rng = clustered_rows(3, m), np.random.default_rng(0)
    p, w = rng.uniform(0.1, 1, (2, m))
    C, W = KERNEL(X, fit[0].landmarks), fit[0].gram()
    E = np.sqrt(w[:, None] * w) * (KERNEL.gram(X) - oracles.nystroem_gram(C, W, 1e-12))
    drawn_rows = drawn(X, p, w)
    found = error_of(features, lambda dtype: lambda V: V @ P.astype(dtype), np.ones(40), drawn_rows)
    assert found.E.dtype == np.float32
    close = {"atol": 1e-4}
    if dtype == np.float64:
        found, close = in_double(features, P, drawn_rows), {"atol": 1e-9}
    Q = rng.normal(size=(m, 3))
    F = E / np.sqrt(p) / np.sqrt(p[:, None])
    for ours, true in (
        (found.E, E),
        (found.times(Q), E @ Q),
        (found.squares_times(Q), E**2 @ Q),
        (found.scaled_times(Q), F @ Q),
        (found.diagonal, np.diag(E)),
        (found.scores(solution.mean, solution.components), np.sqrt(w)[:, None] * solution.projection()(C)),
    ):
        assert_allclose(ours, true, atol=close["atol"] * max(np.abs(true).max(), 1) * m**0.5)
    if dtype == np.float32:  # in float64, that of the oracle is as large
        assert np.linalg.norm(found.E / np.sqrt(p) / np.sqrt(p[:, None]) - F, 2) <= found.rounding


def test_random_features_have_an_error_of_either_sign(X):
    features = FourierRows(KERNEL, np.zeros(3), np.random.default_rng(0).normal(size=(30, 3)))
    ((V, _),) = features.tiles([X], len(X))
    V = V.copy()
    E = KERNEL.gram(X) - V @ V.T - 0.1 * np.eye(len(X))
    found = error_of(features, lambda _: lambda V: V, np.ones(60), drawn(X, np.ones(600)), added=0.1)
    assert_allclose(found.E, E, atol=1e-5)  # in float32
    found = in_double(features, np.eye(60), drawn(X, np.ones(600)), 0.1)
    assert_allclose(found.E, E, atol=1e-9)
    assert_allclose(missed_of_any(found, 0.0).norm, np.abs(np.linalg.eigvalsh(E)).max(), rtol=1e-2)
    far = 2 * np.abs(np.diag(E)).sum()  # more than these rows stand for
    assert_allclose(missed_of_any(found, -far - 1e4).most, far / 2 + 1e4)


def test_bounds_have_95_percent_and_without_a_finite_error_nothing_is_bounded(X):
    E = np.full((3, 3), np.inf)
    found = DrawnError(E, np.zeros((3, 1)), np.ones(3), np.ones(3), 0.0)
    given = drawn(X[:3], np.ones(3))
    assert missed_of_any(found, 0.0).most == missed_of_positive(found, given, np.random.default_rng(0)).most == np.inf
    more = DrawnError(2 * np.eye(3), np.zeros((3, 1)), np.ones(3), np.ones(3), 0.0)  # than their measure, of 1
    assert missed_of_positive(more, given, np.random.default_rng(0)).most == np.inf
    half = np.full(1, 0.5)
    one = DrawnError(half[:, None], np.zeros((1, 1)), np.ones(1), half, 0.0)
    found = missed_of_positive(one, drawn(X[:1], half), np.random.default_rng(0))
    assert_allclose([found.norm, found.most], [1, upper_mean(1, 0.05)], rtol=1e-3)


@pytest.mark.parametrize("s", [0.0, 5e-324, 1e-9, 0.3, 1.0, 50.0, 1e4, 1e10, 1e20, 1e40, 1e300])
@pytest.mark.parametrize("allowed", [0.05, 1e-3])
def test_the_upper_mean_satisfies_its_equation_in_any_range(s, allowed):
    """With y = p / s - 1, s (y - ln(1 + y)) is the limit; here in more digits than float64 has."""
    limit = -np.log(allowed)
    found = upper_mean(s, allowed)
    assert found >= max(s, limit)
    assert found <= (s + limit + np.sqrt(limit * (limit + 2 * s))) * (1 + 2e-6)
    if s < 1e9:
        at = np.longdouble(found) - s
        assert at - s * np.log1p(at / max(s, 1e-300)) >= limit
        less = np.longdouble(found) * (1 - 3e-6) - s
        assert less - s * np.log1p(less / max(s, 1e-300)) <= limit
    assert upper_mean(np.inf, allowed) == upper_mean(np.nan, allowed) == np.inf


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
    for slack in (1.0, 4.0):  # how much larger the measures may be that rows are drawn by
        norm, r = np.linalg.norm(vectors, 2) ** 2, np.diag(E) * rng.uniform(1, slack, len(E))
        for most in (10, 60):
            t, misses = r.sum() / most, 0
            p = np.minimum(1, r / t)
            for _ in range(draws // 4):
                kept = rng.random(len(r)) < p
                s = np.linalg.norm(vectors[kept] / np.sqrt(p[kept, None]), 2) ** 2 if kept.any() else 0.0
                misses += t * upper_mean(s / t, 0.05) < norm
            assert misses <= 0.05 * draws / 4, (slack, most)


def pairs(X, fit):
    """E of all rows, unit scores of Nyström's twelve components, and the centred Gram matrix."""
    features, P, solution = fit
    error = in_double(features, P, drawn(X, np.ones(len(X))))
    Q = error.scores(solution.mean, solution.components) / np.sqrt(solution.eigenvalues)
    return error, Q, oracles.centred(KERNEL.gram(X))


def test_estimates_from_all_rows_are_those_of_rayleigh_and_ritz(X, fit):
    error, Q, K = pairs(X, fit)
    found = estimates(error, Q, fit[2].eigenvalues, len(X))
    values, Z = (each[..., ::-1] for each in np.linalg.eigh(Q.T @ K @ Q))
    outside = np.linalg.norm(K @ Q @ Z - Q @ Z * values, axis=0)
    assert_allclose(found.outside, outside, atol=1e-6)
    assert_allclose(found.eigenvalues, values + outside**2 / values, rtol=1e-9)
    assert_allclose(np.abs(np.sum(found.rotation * Z, axis=0)), 1, rtol=1e-6)
    assert_array_equal(found.standard_errors, np.zeros(12))
    exact, U = (each[..., ::-1] for each in np.linalg.eigh(K))
    assert_allclose(found.eigenvalues[:6], exact[:6], rtol=1e-4)
    assert np.abs(fit[2].eigenvalues[:6] / exact[:6] - 1).max() > 1e-3
    cosines = found.cosines(np.linalg.eigvalsh(error.E)[-1])
    assert_allclose(cosines[:6], np.abs(np.sum(Q[:, :6] * U[:, :6], axis=0)), atol=5e-3)
    assert (found.cosines(exact[3] + 1)[4:] == 0).all()


def test_estimates_are_right_on_average_and_know_their_errors(X, fit):
    whole, Q, _ = pairs(X, fit)
    exact = estimates(whole, Q, fit[2].eigenvalues, len(X))
    r = whole.diagonal + 2**-8
    p = np.minimum(1, r * 250 / r.sum())
    rng, found = np.random.default_rng(0), []
    for _ in range(60):
        kept = np.flatnonzero(rng.random(len(X)) < p)
        part = DrawnError(whole.E[np.ix_(kept, kept)], whole.V[kept], whole.roots[kept], p[kept], 0.0)
        found.append(estimates(part, Q[kept], fit[2].eigenvalues, len(X)))
    assert all((np.diff(each.eigenvalues) <= 0).all() for each in found)
    values = np.array([each.eigenvalues[:5] for each in found])
    errors = np.array([each.standard_errors[:5] for each in found])
    assert (np.abs(values.mean(axis=0) - exact.eigenvalues[:5]) < 5 * values.std(axis=0) / np.sqrt(60)).all()
    assert_allclose(np.sqrt(np.mean(errors**2, axis=0)), values.std(axis=0), rtol=0.5)
    assert np.mean(np.abs(values - exact.eigenvalues[:5]) <= 1.96 * errors) >= 0.9
    plain = np.abs(fit[2].eigenvalues[:5] - exact.eigenvalues[:5])
    assert (np.abs(values - exact.eigenvalues[:5]).mean(axis=0) < plain / 2).all()


def test_a_row_counts_once_beside_itself():
    E, p = 3 * np.eye(100), np.full(100, 0.25)  # a quarter of 400 rows
    error = DrawnError(E, np.zeros((100, 1)), np.ones(100), p, 0.0)
    assert_allclose(estimates(error, np.full((100, 1), 0.05), np.array([100.0])).eigenvalues, 103)


@pytest.mark.parametrize("center", [True, False])
def test_the_agreement_of_two_solutions_is_the_cosine_of_their_scores(X, fit, center):
    features, _, _ = fit
    moments, C = moments_of(features, X)
    span = span_of(features.gram(), moments, 1e-12, positive=True)
    one = solvers.nystroem(span, 8, center=center, tolerance=1e-12)
    other = solvers.column_sampling(span, 4, center=center, tolerance=1e-12)
    Y, Z = (each.projection()(C) for each in (one, other))
    cosines = [abs(y @ z) / np.linalg.norm(y) / np.linalg.norm(z) for y, z in zip(Y.T, Z.T, strict=False)]
    assert_allclose(judge.agreement_of(moments, one, other, center), cosines, atol=1e-6)
    turned = replace(one, components=one.components[:, [1, 0, 2, 3]], eigenvalues=one.eigenvalues[:4])
    assert (judge.agreement_of(moments, one, turned, center)[:2] < 1e-6).all()
    tied = replace(one, eigenvalues=np.r_[one.eigenvalues[[0, 0]] * [1, 0.99], one.eigenvalues[2:]])
    assert_allclose(judge.agreement_of(moments, tied, turned, center)[:2], 1)  # within 2 %: one group


def test_angles_add_up():
    a, b = np.random.default_rng(0).uniform(0, np.pi / 4, (2, 50))
    assert_allclose(judge.cosine_of_both(np.cos(a), np.cos(b)), np.cos(a + b), atol=1e-9)
    assert judge.cosine_of_both(np.array([0.1]), np.array([0.2]))[0] == 0


@pytest.mark.parametrize(("m", "decay"), [(5, 1.0), (300, 0.5), (700, 0.02)])
def test_the_largest_eigenvalue_is_not_missed(m, decay):
    E = matrix_with(np.exp(-decay * np.arange(m)))
    upper, found = judge._largest_eigenvalue(lambda B: E @ B, m, np.random.default_rng(0))
    assert 1 - 1e-9 <= upper <= 1.1
    assert upper >= found > 0.99
