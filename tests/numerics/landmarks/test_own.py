"""Landmarks of the caller's own: rows and their numbers, which recur or cannot be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import KernelPCA as Peer

from bigkpca import KernelPCA
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.landmarks import OwnRows, RowNumbers
from bigkpca.spec import FitSpec
from tests.helpers import oracles


@pytest.mark.parametrize(
    ("kind", "values", "error", "message"),
    [
        (OwnRows, [["a", "b"]], DataError, "the array of landmarks holds .* values: rows must be real numbers"),
        (OwnRows, [1.0, 1.0], SpecError, r"landmarks of shape \(2,\): pass rows like those of the data, \(l, d\)"),
        (OwnRows, np.ones((3, 0)), SpecError, r"landmarks of shape \(3, 0\): pass rows"),
        (OwnRows, [[1.0, np.inf]], DataError, "the array of landmarks: row 0, column 1 is infinity"),
        (RowNumbers, [True, False], SpecError, "row numbers of landmarks must be integers, not bool; rows are"),
        (RowNumbers, [[0, 1]], SpecError, r"shape \(1, 2\): pass at least one row \(l, d\), or row number \(l,\)"),
        (RowNumbers, np.array([], int), SpecError, r"landmarks of shape \(0,\): pass at least one row"),
        (RowNumbers, [3, -1], SpecError, "landmark -1: row numbers are counted from 0"),
    ],
    ids=str,
)
def test_what_cannot_be_landmarks_is_named(kind, values, error, message):
    with pytest.raises(error, match=message):
        kind(np.array(values))


@pytest.mark.parametrize(("given", "dtype"), [("rows", "f8"), ("numbers", "f4"), ("numbers that recur", "f8")])
def test_landmarks_that_recur_count_once_and_all_rows_are_exact_kernel_pca(given, dtype, tmp_path):
    X = np.random.default_rng(0).integers(0, 3, (120, 4)).astype(dtype)  # of 81 possible rows
    own = {"rows": X, "numbers": np.arange(120), "numbers that recur": np.append(np.arange(120), [3, 3, 7])}[given]
    ours = KernelPCA(5, landmarks=own, size=len(own), sigma=1.5, dtype="float64", random_state=0).fit(X)
    theirs = Peer(5, kernel="rbf", gamma=0.5 / 1.5**2).fit(X.astype(np.float64))
    assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    for rows in (X, X[:7] + 0.5):
        expected = theirs.transform(rows.astype(np.float64))
        assert_allclose(oracles.with_signs_of(ours.transform(rows), expected), expected, atol=1e-7)
    _, first = np.unique(X, axis=0, return_index=True)
    assert_allclose(ours.landmarks_, X[np.sort(first)], atol=1e-12)
    reason = f"of {len(own)} given rows; {len(own) - len(first)} of them repeat others"
    assert ours.model_.provenance["choices"] == [{"option": "landmarks", "value": len(first), "reason": reason}]
    ours.save(tmp_path / "model.zarr")
    again = KernelPCA.load(tmp_path / "model.zarr")
    assert_array_equal(again.transform(X), ours.transform(X))
    assert FitSpec.of(again.model_) == FitSpec.of(ours.model_)
    assert FitSpec.of(again.model_).to_dict() == ours.model_.provenance["spec"]
    assert again.partial_fit(X[:50]).landmarks_.shape == (len(first), 4)


def test_landmarks_that_are_the_same_once_they_are_rounded_count_once():
    own = np.repeat(np.random.default_rng(0).normal(size=(30, 3)).astype("f4").astype("f8"), 2, axis=0)
    own[::2] += 1e-12
    ours = KernelPCA(3, landmarks=own, sigma=1.5, dtype="float32").fit(np.random.default_rng(1).normal(size=(200, 3)))
    assert 30 <= len(ours.landmarks_) < 50
    reason = f"of 60 given rows; {60 - len(ours.landmarks_)} of them repeat others"
    assert ours.model_.provenance["choices"][0]["reason"] == reason
