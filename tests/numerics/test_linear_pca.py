"""Linear PCA as the baseline, and what scores explain of the columns, against plain loops."""

from dataclasses import replace

import numpy as np
import pytest

from bigkpca import kernels
from bigkpca.numerics.features import Columns, GivenKernels
from bigkpca.numerics.linear_pca import Captured, LinearPCA, captured
from tests.helpers.memory import traced_peak


def by_svd(train, test, r):
    """PCA of rows, by the definition."""
    mean = train.mean(axis=0)
    V = np.linalg.svd(train - mean, full_matrices=False)[2][:r]
    return mean + (test - mean) @ V.T @ V


def of_columns(X, scale=None, dtype=np.float64):
    """The feature map of plain columns in the units of the model."""
    return Columns(kernels.Gaussian(1.0), X.mean(axis=0), np.dtype(dtype), scale=scale)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40), (12, 12)])
def test_pca_is_the_best_linear_reconstruction(shape):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=shape) + 5, rng.normal(size=(9, shape[1]))
    for r in (1, 5):
        np.testing.assert_allclose(LinearPCA.of(X, r).reconstruct(new), by_svd(X, new, r), atol=1e-9)
    np.testing.assert_allclose(LinearPCA.of(X, 50).reconstruct(X), X, atol=1e-9)  # as many as there are
    same = np.full(shape, 2.0)  # which has no axes
    np.testing.assert_array_equal(LinearPCA.of(same, 2).reconstruct(same), same)


@pytest.mark.parametrize("scaled", [False, True])
def test_shares_are_those_of_a_regression_and_of_pca_on_held_out_rows(scaled):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(203, 5)) * [1, 10, 100, 1, 1] + 3
    Y = np.column_stack([np.tanh(X[:, 1]), X[:, 2] + rng.normal(size=203)])
    scale = X.std(axis=0) if scaled else None
    found = captured(of_columns(X, scale), X, Y)
    assert (found.rows, found.held_out, found.components) == (153, 50, 2)
    Z, test = X / (scale if scaled else 1), np.arange(203) % 4 == 3
    A = np.column_stack([np.ones(len(Y)), Y])
    B = np.linalg.pinv(A[~test]) @ Z[~test]
    answers = Z[~test].mean(axis=0), A[test] @ B, by_svd(Z[~test], Z[test], 2)
    expected = [np.mean((Z[test] - each) ** 2, axis=0) for each in answers]
    np.testing.assert_allclose([found.variance, found.by_scores, found.by_pca], expected, rtol=1e-9)
    total = found.variance.sum()
    assert found.shares == (
        pytest.approx(1 - found.by_scores.sum() / total),
        pytest.approx(1 - found.by_pca.sum() / total),
    )
    ours, pca = found.of_columns({"first two": slice(0, 2)})["first two"]
    assert ours == pytest.approx(1 - found.by_scores[:2].sum() / found.variance[:2].sum())
    assert pca == pytest.approx(max(1 - found.by_pca[:2].sum() / found.variance[:2].sum(), 0))


def test_columns_are_sorted_by_their_share_and_constant_ones_left_out():
    found = Captured(8, 8, 1, np.array([2.0, 0.0, 4.0, 1.0]), np.array([1.0, 0.0, 1.0, 3.0]), np.zeros(4))
    places = {name: slice(j, j + 1) for j, name in enumerate("abcd")}
    assert list(found.of_columns(places).items()) == [("c", (0.75, 1.0)), ("a", (0.5, 1.0)), ("d", (0.0, 1.0))]


def test_nothing_is_known_from_few_rows_or_of_rows_that_are_not_vectors_or_overflow():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    features = of_columns(X)
    assert captured(features, X, Y) is not None
    assert captured(features, X[:31], Y[:31]) is None  # seven are held out
    assert captured(features, X[:0], Y[:0]) is None
    assert captured(features, X, rng.normal(size=(40, 6))) is not None
    assert captured(features, X, rng.normal(size=(40, 7))) is None  # 30 other rows, and 35 are needed
    assert captured(replace(features, kernel=kernels.Spectrum(2)), X, Y) is None
    given = GivenKernels(kernels.Precomputed(), np.zeros(3), precision="float64")
    assert captured(given, X, Y) is None
    bad = np.where(np.arange(40)[:, None] == 7, 1e150, X)
    assert captured(features, bad, Y) is captured(features, X, bad[:, :2]) is None
    assert captured(of_columns(X, dtype=np.float32), X * 1e60, Y) is None
    assert captured(features, np.ones((40, 3)), Y) is None


def test_what_scores_capture_takes_less_than_three_copies_of_the_rows():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(2000, 300)).astype(np.float32), rng.normal(size=(2000, 2))
    features = of_columns(X, dtype=np.float32)
    assert traced_peak(lambda: captured(features, X, Y)) < 2.75 * 8 * X.size
