"""The eigenproblem of a fit: the randomized solver, and what spectra and kernels are told of."""

import numpy as np
import pytest

from bigkpca.errors import DataError, IndefiniteKernelWarning, NarrowKernelWarning
from tests.fitting.cases import fitted
from tests.helpers import oracles
from tests.helpers.fits import scores

OF_RANDOM_FEATURES = [
    {"method": "rff"},
    {"method": "rff-pca", "center": False},
    {"method": "rff", "kernel": "polynomial"},
]


@pytest.mark.parametrize("options", OF_RANDOM_FEATURES, ids=str)
def test_the_randomized_solver_agrees_with_the_dense_one(options, few):
    dense, sketched = (fitted(few, **options, size=300, solver=solver) for solver in ("dense", "randomized"))
    assert sketched.sums is None
    below = 1 - sketched.solution.eigenvalues / dense.solution.eigenvalues
    assert below.min() > -1e-9
    assert below.max() < 1e-4
    np.testing.assert_allclose(sketched.solution.mean, dense.solution.mean, atol=1e-9 * dense.solution.eigenvalues[0])
    np.testing.assert_allclose(
        sketched.solution.explained_variance_ratio, dense.solution.explained_variance_ratio, rtol=1e-4
    )
    expected = scores(dense, few)
    ours = oracles.with_signs_of(scores(sketched, few), expected)
    np.testing.assert_allclose(ours[:, :3], expected[:, :3], atol=1e-3 * np.abs(expected).max())


def test_a_sketch_has_no_more_components_than_features(few):
    assert fitted(few, method="rff", size=20, n_components=50, solver="randomized").components <= 20


def test_a_narrow_kernel_is_told_with_the_share_it_leaves(X):
    for method in ("nystroem", "rff"):
        with pytest.warns(NarrowKernelWarning, match=r"leave (9\d|100)% of Σ k\(x, x\) unexplained.*`bigkpca sigma`"):
            fitted(X, method=method, sigma=3.0)
        fitted(X, method=method)  # the median length warns of nothing


def test_an_indefinite_kernel_says_how_negative_with_every_landmark_method(few):
    for method in ("nystroem", "columns", "exact"):
        with pytest.warns(IndefiniteKernelWarning, match=r"most negative eigenvalue is -\d+(\.\d+)? of the largest"):
            fitted(few, method=method, kernel="sigmoid", gamma=3e-4, coef0=-1.0)


def test_a_kernel_that_is_zero_for_all_rows_or_with_all_landmarks_is_an_error_of_the_data(X):
    def nothing(A, B):
        return np.zeros((len(A), len(B)))

    for rule, message in (
        *((rule, "matrix of the landmarks has no positive") for rule in ("uniform", "basic-patterns")),
        ("rpcholesky", r"k\(x, x\) is zero for all sampled rows, so landmarks cannot be chosen"),
        ("rpcholesky", r"k\(x, x\) is zero for all sampled rows"),
    ):
        with pytest.raises(DataError, match=message):
            fitted(X[:50], kernel=nothing, landmarks=rule, size=10, n_components=2)
    message = "no direction varies in feature space: .* for which `bigkpca sigma` prints values"
    for options in ({"landmarks": np.eye(3, 64) * 1e6}, {"sigma": 1e12}):
        with pytest.raises(DataError, match=message):
            fitted(X, size="auto", **options)
