"""What a fit's own sums prove about its error, against the whole Gram matrix."""

from dataclasses import replace

import numpy as np
import pytest
from bigkpca.numerics.certificates import Certificate, Evidence, spectral
from bigkpca.numerics.certificates.spectral import largest_eigenvalue
from numpy.testing import assert_allclose

from bigkpca.numerics import certificates, rounding, solvers
from bigkpca.numerics.features import FourierRows, KernelRows
from bigkpca.numerics.kernels import Cosine, Gaussian, Laplacian, Linear, Matern, Polynomial
from bigkpca.numerics.landmarks import KMeans
from bigkpca.numerics.methods import ColumnSampling, Nystroem, RandomFeatures
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import span_of
from tests.helpers import oracles
from tests.numerics.fits import centred_or_not

ORTHOGONAL = Nystroem()
KERNELS = [Gaussian(1.0), Gaussian(4.0), Laplacian(3.0), Matern(1.0), Linear(), Polynomial(0.3), Cosine()]


def rows(seed, n=80, d=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * rng.uniform(0.3, 2, d) + rng.normal(size=(4, d))[rng.integers(0, 4, n)]


def moments_of(kernel, X, S):
    V = kernel(X, S)
    return Moments(len(X), len(X), *oracles.two_pass_moments(V), float(kernel.diagonal(X).sum()))


def certified(kernel, X, S, center=True, method=ORTHOGONAL, r=5, uniform=False):
    features = KernelRows(kernel, np.zeros(X.shape[1]), S)
    moments = moments_of(kernel, X, S)
    measured = rounding.measured(features, moments, kernel(X, S).mean(axis=0), X)
    solution = method.solve(moments, features, r, center, 1e-12)
    span = span_of(features.gram(), moments, 1e-12)
    kept = replace(measured.significant(span), span=span)
    evidence = Evidence(measured, kept, uniform=uniform)
    wide = solvers.nystroem(span, r + spectral.SPARE, center=center, tolerance=1e-12)
    return solution, certificates.of_landmarks(
        method, features, solution, wide, span, evidence, center=center, tolerance=1e-12
    )


def truth(kernel, X, S, center):
    """(eigenvalues of K, its trace, tr(K - C W+ C')), K centred for the first two if asked."""
    K = kernel.gram(X)
    error = np.trace(K - oracles.nystroem_gram(kernel(X, S), kernel.gram(S), 1e-12))
    K = oracles.centred(K) if center else K
    return np.linalg.eigvalsh(K)[::-1], np.trace(K), error


@centred_or_not
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_every_bound_holds_and_the_trace_error_is_the_direct_one(kernel, center):
    for seed in range(2):
        X = rows(seed, 60)
        for S in (X[:20], KMeans().choose(X, kernel, 15, np.random.default_rng(seed))):
            values, total, error = truth(kernel, X, S, center)
            for method in (Nystroem(), ColumnSampling(), Nystroem(form="thesis")):
                solution, found = certified(kernel, X, S, center, method)
                true, shares = values[: len(found.eigenvalue_lower)], values[: len(found.eigenvalue_lower)] / total
                assert (found.eigenvalue_lower <= true).all()
                assert (true <= found.eigenvalue_upper).all()
                assert (found.explained_variance_ratio_lower <= shares).all()
                assert (shares <= found.explained_variance_ratio_upper).all()
                assert_allclose(found.trace_error, max(error, 0), rtol=1e-6, atol=1e-9 * np.trace(kernel.gram(X)))
                assert len(found.eigenvalue_upper) == len(solution.eigenvalues)


def test_with_every_row_a_landmark_all_bounds_collapse():
    X, kernel = rows(0, 40), Gaussian(1.0)
    values, total, _ = truth(kernel, X, X, True)
    _, found = certified(kernel, X, X)
    for end in ("lower", "upper"):
        assert_allclose(getattr(found, f"eigenvalue_{end}"), values[:5], rtol=1e-7, atol=1e-9 * values[0])
        shares = getattr(found, f"explained_variance_ratio_{end}")
        assert_allclose(shares, values[:5] / total, rtol=1e-7, atol=1e-9)
    assert_allclose(found.trace_error, 0, atol=1e-9 * total)


def test_the_exact_method_leaves_nothing_to_bound():
    solution = solvers.gram(Gaussian(1.0).gram(rows(0, 30)), 4, center=True, tolerance=1e-12, positive=True)
    found = certificates.of_gram(solution, 1.0, 0.0, 1e-16, positive=True)
    assert found.trace_error == 0
    for bound in (found.eigenvalue_lower, found.eigenvalue_upper):
        assert_allclose(bound, solution.eigenvalues, rtol=1e-10)
    assert found.trust == ("solid",) * 4


@centred_or_not
def test_upper_bounds_are_those_of_weyl_and_tighter_than_the_trace_error(center):
    X, kernel = rows(1), Gaussian(1.0)
    solution, found = certified(kernel, X, X[:20], center, r=6)
    for j in range(6):
        naive = min(solution.eigenvalues[i] + found.trace_error / (j - i + 1) for i in range(j + 1))
        assert_allclose(found.eigenvalue_upper[j], naive, rtol=1e-9)
        # tr(HEH), which is part of the variance, may be anything up to tr(E).
        explained, left = solution.total_variance - found.trace_error, np.linspace(0, found.trace_error, 50)
        shares = [(solution.eigenvalues[i] + left / (j - i + 1)) / (explained + left) for i in range(j + 1)]
        assert_allclose(found.explained_variance_ratio_upper[j], min(max(each) for each in shares), rtol=1e-9)
    assert found.eigenvalue_upper[5] < solution.eigenvalues[5] + found.trace_error / 2


@centred_or_not
def test_the_learning_curve_is_of_models_of_a_part_of_the_landmarks(center):
    X, kernel = rows(2), Gaussian(1.0)
    S = X[:24]
    _, found = certified(kernel, X, S, center)
    for (count, share), step in zip(found.learning_curve, (8, 4, 2, 1), strict=True):
        _, part = certified(kernel, X, S[::step], center, r=1)
        assert count == len(S[::step])
        assert_allclose(share, part.relative_trace_error, rtol=1e-9)
    assert (np.diff(found.learning_curve[:, 1]) <= 0).all()


@pytest.mark.parametrize(
    ("method", "center"),
    [(Nystroem(), True), (Nystroem(), False), (Nystroem("thesis"), True), (ColumnSampling(), True)],
)
def test_stability_is_the_cosine_between_scores_of_the_model_and_of_half_a_nystroem_model(method, center):
    X, kernel = rows(3), Gaussian(1.5)
    S = X[:24]

    def directions(landmarks, r, method=ORTHOGONAL):
        features = KernelRows(kernel, np.zeros(3), landmarks)
        solution = method.solve(moments_of(kernel, X, landmarks), features, r, center, 1e-12)
        Y = (kernel(X, landmarks) - solution.mean) @ solution.components
        Y -= Y.mean(axis=0) * center  # the thesis's are centred about the landmarks
        return Y / np.linalg.norm(Y, axis=0)

    _, found = certified(kernel, X, S, center, method, r=4)
    expected = np.abs(directions(S[::2], 12).T @ directions(S, 4, method)).max(axis=0)
    if method == ORTHOGONAL:
        assert_allclose(found.stability, expected, atol=1e-6)
    else:  # which must agree with the component of its rank, too
        assert (found.stability <= expected + 1e-6).all()
        whole = directions(S, 4)
        same_rank = np.abs(np.sum(whole * directions(S, 4, method), axis=0))
        assert (found.stability >= np.minimum(expected, same_rank) - 1e-6).all()


def test_the_residual_left_out_is_that_of_each_uniform_landmark_by_all_others():
    X, kernel = rows(0), Gaussian(1.0)
    S = X[:20]
    K, left = kernel.gram(S), []
    for i in range(20):
        others = np.delete(np.arange(20), i)
        left.append(K[i, i] - K[i, others] @ np.linalg.solve(K[np.ix_(others, others)], K[others, i]))
    _, found = certified(kernel, X, S, uniform=True)
    assert_allclose(found.leave_one_out_residual, np.mean(left), rtol=1e-6)
    assert certified(kernel, X, S)[1].leave_one_out_residual is None


def test_stability_of_random_features_keeps_sines_with_their_cosines():
    X, rng = rows(4), np.random.default_rng(0)
    features = FourierRows(Gaussian(1.5), np.zeros(3), rng.normal(size=(20, 3)))

    def unit_scores(features, r):
        (V, _), *_ = features.tiles([X], len(X))
        moments = Moments(len(X), len(X), *oracles.two_pass_moments(V), float(len(X)))
        solution = solvers.plain(moments, r, center=True, tolerance=1e-12)
        Y = (V - solution.mean) @ solution.components
        return Y / np.linalg.norm(Y, axis=0), moments, solution

    U, moments, solution = unit_scores(features, 3)
    given = RandomFeatures(), moments, features, solution, Evidence()
    found = certificates.of_random_features(*given, center=True, tolerance=1e-12)
    half, *_ = unit_scores(replace(features, frequencies=features.frequencies[::2]), 13)
    cosines = np.abs(half.T @ U).max(axis=0)
    assert_allclose(found.stability, np.maximum(2 * cosines**2 - 1, 0), atol=1e-6)
    assert (found.stability > 0).any()
    assert (found.trace_error, found.eigenvalue_upper, found.learning_curve) == (None, None, None)


def test_angles_add_up():
    a, b = np.random.default_rng(0).uniform(0, np.pi / 4, (2, 50))
    assert_allclose(certificates.cosine_of_both(np.cos(a), np.cos(b)), np.cos(a + b), atol=1e-9)
    assert certificates.cosine_of_both(np.array([0.1]), np.array([0.2]))[0] == 0


STABILITY, RESIDUALS = [1.0, 0.995, 0.99, 0.95, 0.94], [1e-3, 0.01, 0.011, 0.1, 0.2]


@pytest.mark.parametrize(
    ("numbers", "trust"),
    [
        ({"stability": STABILITY, "missed": [0.3] * 5}, "solid solid fair fair doubtful"),
        ({"stability": STABILITY, "missed": [0.5] * 5}, "fair fair fair fair doubtful"),
        ({"stability": STABILITY, "missed": [0.01] * 5}, "solid solid solid solid solid"),
        ({"stability": STABILITY, "missed": [0.6] * 5}, " ".join(["doubtful"] * 5)),
        (
            {"stability": STABILITY, "missed": [1.0] * 5, "eigenvalue_estimate": [1.0] * 5},
            "fair fair fair fair doubtful",
        ),
        (
            {"stability": STABILITY, "missed": [0.01] * 5, "eigenvalue_estimate": [1.0] * 5},
            "solid solid fair fair doubtful",
        ),
        ({"stability": STABILITY}, "fair fair fair fair doubtful"),
        ({"missed": [0.01, 0.1, 0.2]}, "solid fair doubtful"),
        (
            {"stability": STABILITY, "missed": [0.3] * 5, "rounding": [0.01, 0.02, 0.01, 0.2, 0.01]},
            "solid fair fair doubtful doubtful",
        ),
        ({"residuals": RESIDUALS}, "solid solid fair fair doubtful"),
        ({"residuals": RESIDUALS, "missed": [0.4] * 5}, "fair fair fair fair doubtful"),
        ({"residuals": RESIDUALS[::-1], "stability": STABILITY}, "doubtful fair fair solid solid"),
        ({}, None),
    ],
)
def test_trust_goes_by_stability_or_residuals_and_by_what_may_be_missed(numbers, trust):
    found = Certificate(**{name: np.array(values) for name, values in numbers.items()}).trust
    assert found == (trust and tuple(trust.split()))


@pytest.mark.parametrize(("m", "decay"), [(5, 1.0), (300, 0.5), (700, 0.02)])
def test_the_largest_eigenvalue_is_not_missed(m, decay):
    E = oracles.matrix_with(np.exp(-decay * np.arange(m)))
    upper, found = largest_eigenvalue(lambda B: E @ B, m, np.random.default_rng(0))
    assert 1 - 1e-9 <= upper <= 1.1
    assert upper >= found.values[0] > 0.99
    assert abs(found.vectors[:, 0] @ np.linalg.eigh(E)[1][:, -1]) > 0.9
