"""Landmarks and random features of a fit, and options that do not fit together."""

import numpy as np
import pytest

from bigkpca import KernelPCA, landmarks, methods
from bigkpca.errors import DataError, SpecError
from tests.fitting.cases import OWN_ROWS, fitted


def test_rpcholesky_stops_at_its_tolerance_with_fewer_landmarks(X):
    for over in ("sample", "all"):
        loose, tight = (
            fitted(X, sigma=60.0, size=250, landmarks=landmarks.RPCholesky(tol=tol, over=over)) for tol in (0.1, 0.02)
        )
        assert loose.features.size < tight.features.size < 250
        assert loose.solution.unexplained < 0.11
        assert tight.solution.unexplained < 0.022


def test_landmarks_of_rules_other_than_kmeans_are_rows(few):
    known = {row.tobytes() for row in few}
    for rule in ("uniform", "rpcholesky", "leverage", "basic-patterns", landmarks.RPCholesky(over="all")):
        found = KernelPCA(3, landmarks=rule, size=50, random_state=0).fit(few).landmarks_
        assert len(found) == len(np.unique(found, axis=0)) == 50, rule
        assert all(row.tobytes() in known for row in np.round(found)), rule


def test_single_cosines_and_tensor_sketches_may_be_odd_in_number(few):
    for options in (
        {"method": methods.RandomFeatures("phase")},
        {"method": methods.PrincipalFeatures(form="phase")},
        {"method": "rff", "kernel": "polynomial"},
    ):
        assert fitted(few, size=61, **options).features.size == 61


def test_what_does_not_fit_the_rows_is_refused(X):
    for options, message in (
        ({"landmarks": np.arange(15.0).reshape(5, 3)}, "landmarks have 3 columns, the array has 64"),
        ({"landmarks": [1, 300]}, "landmark 300 is not a row of the array, which has 300 rows, counted from 0"),
        ({"landmarks": np.array([2**63], np.uint64)}, "landmark 9223372036854775808 is not a row of the array, which"),
        ({"landmarks": [1, 2, 3], "size": 5}, "size=5, but 3 landmarks are given: leave size out"),
        ({"kernel": lambda A, B: A @ B.T, "landmarks": "kmeans"}, "landmarks='kmeans' takes averages .*'uniform'"),
        ({"size": 0}, "size=0: at least one landmark or random feature is needed"),
        ({"method": "rff", "size": 61}, "size=61: sines and cosines come in pairs.*must be even"),
        ({"method": "rff-pca", "n_directions": 65}, "n_directions=65, but the array has only 64 columns"),
        ({"method": "rff", "landmarks": OWN_ROWS}, "'rff' draws random features and has no landmarks: leave landmarks"),
        ({"method": "columns", "landmarks": [1, 2]}, r"^ColumnSampling\(\) takes uniform landmarks only, not 'row-n"),
        ({"method": "exact", "landmarks": OWN_ROWS}, "^method='exact' takes every row for a landmark: leave landmarks"),
        ({"method": "rff", "kernel": "cosine"}, "the cosine kernel has no spectral density .*method='nystroem' works"),
    ):
        with pytest.raises(SpecError, match=f"(?s){message}"):
            KernelPCA(**{"n_components": 5, **options}).fit(X)


def test_landmarks_that_are_not_finite_are_an_error_of_the_data(X):
    with pytest.raises(DataError, match="array of landmarks: row 0, column 0 is NaN"):
        KernelPCA(5, landmarks=np.full((1, 64), np.nan)).fit(X)


def test_a_kernel_that_rpcholesky_cannot_take_is_told(X):
    for over in ("sample", "all"):
        options = {"kernel": "sigmoid", "gamma": 3e-4, "coef0": -1.0, "landmarks": landmarks.RPCholesky(over=over)}
        with pytest.raises(SpecError, match=r"rpcholesky needs a positive semidefinite kernel, but k\(x, x\) = -0\.\d"):
            fitted(X, **options)
