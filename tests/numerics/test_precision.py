"""The precision of a pass, and bounds of its eigenvalues, against exact ones of differences in float64."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from bigkpca import KernelPCA
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics import precision
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian, Laplacian, Linear
from bigkpca.numerics.moments import FAR, shifted_sums
from bigkpca.numerics.precision import Slack, bounds, in_single, kept_directions, measured_rows, rounding_of_rows
from tests.helpers import oracles
from tests.numerics.fits import span_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigkpca.errors.FewerComponentsWarning"),
    pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning"),
]


def normal(n=1200, d=3):
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def with_outlier(X):
    X[0, 0] = 1e6
    return X


def giants():
    X = normal(1200, 5)
    X[:3] *= 1e3
    return X


DATA = {
    "normal": (normal(), {}, "float32"),
    "a kernel of 30 deviations": (normal(), {"sigma": 30.0, "n_components": 8}, "float64"),
    "a kernel of 150 deviations": (normal(), {"sigma": 150.0}, "float64"),
    "an outlier": (with_outlier(normal()), {}, "float32"),
    "near-duplicates": (
        np.repeat(normal(100), 12, axis=0) + np.float32(1e-4) * normal(1200),
        {"sigma": 1.0},
        "float64",
    ),
    "one-hot": (np.eye(20, dtype=np.float32)[np.random.default_rng(0).integers(0, 20, 1200)], {}, "float32"),
    "an offset": (normal() + np.float32(1e4), {}, "float32"),
    "giants of a linear kernel": (giants(), {"kernel": "linear", "n_components": 5}, "float64"),
}


@pytest.mark.parametrize("name", DATA)
def test_single_precision_is_chosen_where_it_moves_no_wanted_eigenvalue_and_bounds_hold(name):
    X, options, dtype = DATA[name]
    kpca = KernelPCA(size=150, random_state=0, **{"n_components": 3} | options).fit(X)
    assert kpca.model_.features.dtype == dtype
    found, Z = kpca.certificate_, X.astype(float)
    K = Z @ Z.T if "kernel" in options else np.exp(-cdist(Z, Z, "sqeuclidean") / (2 * kpca.sigma_**2))
    true = np.linalg.eigvalsh(oracles.centred(K))[::-1][: kpca.n_components_]
    assert (found.lower <= true * (1 + 1e-12)).all()
    assert (true <= found.upper * (1 + 1e-12)).all()
    assert (found.rounding <= 0.011).all()
    assert found.unexplained < 0.5
    least = np.abs(kpca.eigenvalues_ - found.lower) / kpca.eigenvalues_
    assert_allclose(least, found.rounding, atol=1e-9)


def measure(features, X, shift):
    with single_threaded_blas:
        rows = measured_rows(features, X)
        single = in_single(features.in_precision(np.dtype(np.float32)), rows, shift)
        return rounding_of_rows(features, rows, shift, single)


def passed(features, X, shift, rounding, tile=300):
    """The sums of a pass over X."""
    return shifted_sums(
        [(V.copy(), k) for at in range(0, len(X), tile) for V, k in features.tiles([X[at : at + tile]], tile)],
        shift,
        rounding,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [Gaussian(2.0), Gaussian(10.0), Laplacian(3.0), Linear()], ids=str)
def test_errors_of_sums_are_below_their_bounds_in_every_direction(kernel, dtype):
    X = normal()
    features = KernelRows(kernel, np.zeros(3), X[:60].astype(dtype))
    exact = kernel(X.astype(float), X[:60].astype(float))
    shift = exact[::5].mean(axis=0)
    found = measure(features, X[::5], shift).of(np.dtype(dtype))
    sums, (one, other) = passed(features, X, shift, found), (passed(features, X[k::2], shift, found) for k in (0, 1))
    for name in ("errors", "coarse"):  # of two passes, those of their sum
        assert_allclose(getattr(one + other, name), getattr(sums, name), rtol=1e-6)
    slack, centred = Slack.of(features, sums.errors, sums.coarse), exact - exact.mean(axis=0)
    P = span_of(features.gram(), sums.moments, 1e-12, positive=True).basis.P
    for A in (np.eye(60), P, np.random.default_rng(0).normal(size=(60, 100))):
        S, ours = (np.maximum(np.einsum("ij,ij->j", A, M @ A), 0) for M in (centred.T @ centred, sums.moments.scatter))
        e, g = slack.of_values(A), np.einsum("ij,i,ij->j", A, slack.coarse, A)
        assert (np.abs(ours - S) <= 2 * e * np.sqrt(S) + e**2 + g).all()


@pytest.mark.parametrize("far", [1e3, 1e20, 1e30])
def test_rounding_next_to_a_giant_is_that_of_the_others(far):
    """A later tile may be without the giant, whose squares may overflow, too."""
    X = normal()
    features = KernelRows(Linear(), np.zeros(3), X[:20])
    plain = measure(features, X, np.zeros(20)).single.beta
    X[5] = far
    assert measure(features, X, np.zeros(20)).single.beta > plain / 3
    assert far**2 > FAR * float((X[:5] ** 2).sum())


def test_a_shift_beyond_single_precision_leaves_finite_errors():
    X = np.random.default_rng(0).normal(size=(100, 2)) * 1e30
    features = KernelRows(Linear(), np.zeros(2), X[:10])
    found = measure(features, X, features.kernel(X, X[:10]).mean(axis=0))
    for rounding in (found.single, found.of(np.dtype(np.float64))):
        assert np.isfinite(rounding.errors).all()
        assert np.isfinite(rounding.beta)
    assert not precision.single_is_enough(found, features, None, len(found.exact), 100, 2)


def test_products_that_vanish_in_single_precision_are_in_the_bound():
    X = 1e-11 * normal()
    features = KernelRows(Linear(), np.zeros(3), X[:20])
    sums = passed(features, X, np.zeros(20), measure(features, X, np.zeros(20)).single)
    exact = X.astype(float) @ X[:20].astype(float).T
    off = np.abs(np.diag(sums.moments.about_zero) - np.sum(exact**2, axis=0))
    assert off.max() > 1e-4 * np.sum(exact**2, axis=0).max()
    assert (off <= sums.coarse).all()


def test_directions_of_mostly_rounding_are_dropped_and_the_rest_bounds_the_trace():
    X = normal()
    features = KernelRows(Gaussian(8.0), np.zeros(3), X[:150])
    C = Gaussian(8.0)(X.astype(float), X[:150].astype(float))
    shift = C.mean(axis=0)
    sums = passed(features, X, shift, measure(features, X, shift).single)
    span = span_of(features.gram(), sums.moments, 1e-12, positive=True)
    kept = kept_directions(Slack.of(features, sums.errors, sums.coarse), span)
    P = span.basis.P[:, kept.directions]
    assert 5 < len(kept.directions) < span.basis.P.shape[1]
    left = len(X) - np.sum((C @ P) ** 2)
    assert abs(span.keep(kept.directions).trace_error - left) <= kept.trace
    assert kept.trace < 0.01 * len(X)


def test_without_rounding_bounds_are_the_values_and_with_too_much_nothing():
    values, A = np.array([4.0, 2.0, 1.0]), np.random.default_rng(0).normal(size=(5, 3))
    none, features = np.zeros(5), KernelRows(Linear(), np.zeros(2), np.zeros((5, 2)))
    for slack in (Slack(none, none, none, 0.0), Slack.of(features, none, none)):
        assert_allclose(bounds(slack, values, A), [values, values], rtol=1e-12)
    for huge in (1e3, 1e300, np.inf, np.nan):
        for errors, coarse in ((huge, huge), (huge, 0), (0, huge)):
            found = bounds(Slack.of(features, none + errors, none + coarse), values, A)
            assert not found.lower.any()
            assert (found.upper >= values).all()
