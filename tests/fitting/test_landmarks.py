"""Landmarks of a fit, and those that do not fit its rows."""

import numpy as np
import pytest

from bigkpca import KernelPCA, landmarks
from bigkpca.errors import SpecError
from tests.fitting.cases import fitted


def test_rpcholesky_stops_at_its_tolerance_with_fewer_rows_as_landmarks(X):
    sigmoid = {"kernel": "sigmoid", "gamma": 3e-4, "coef0": -1.0}
    with pytest.raises(SpecError, match=r"rpcholesky needs a positive semidefinite kernel, but k\(x, x\) = -0\.\d"):
        fitted(X, landmarks="rpcholesky", **sigmoid)
    loose, tight = (fitted(X, sigma=60.0, size=250, landmarks=landmarks.RPCholesky(tol=tol)) for tol in (0.1, 0.02))
    assert loose.features.size < tight.features.size < 250
    assert loose.solution.unexplained < 0.11
    assert tight.solution.unexplained < 0.022
    assert (np.abs(X[:, None] - tight.features.landmarks_in_user_units()).max(axis=2).min(axis=0) < 1e-9).all()


def test_what_does_not_fit_the_rows_is_refused(X):
    for options, message in (
        ({"landmarks": np.arange(15.0).reshape(5, 3)}, "landmarks have 3 columns, the array has 64"),
        ({"landmarks": [1, 300]}, "landmark 300 is not a row of the array, which has 300 rows, counted from 0"),
        ({"landmarks": np.array([2**63], np.uint64)}, "landmark 9223372036854775808 is not a row of the array, which"),
        ({"method": "rff-pca", "n_directions": 65}, "n_directions=65, but the array has only 64 columns"),
    ):
        with pytest.raises(SpecError, match=f"(?s){message}"):
            KernelPCA(**{"n_components": 5, **options}).fit(X)
