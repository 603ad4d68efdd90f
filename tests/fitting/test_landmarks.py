"""Landmarks and random features of a fit, and options that do not fit together."""

import numpy as np
import pytest

from bigkpca import KernelPCA, kernels, landmarks, methods
from bigkpca.errors import DataError, SpecError
from bigkpca.spec import FitSpec
from tests.fitting.cases import OWN_ROWS, fitted


def test_rpcholesky_stops_at_its_tolerance_with_fewer_landmarks(X):
    for over in ("sample", "all"):
        loose, tight = (
            fitted(X, sigma=60.0, size=300, landmarks=landmarks.RPCholesky(tol=tol, over=over)) for tol in (0.1, 0.02)
        )
        assert loose.features.size < tight.features.size < 300
        assert loose.solution.unexplained < 0.11  # type: ignore[operator]
        assert tight.solution.unexplained < 0.022  # type: ignore[operator]


def test_landmarks_of_rules_other_than_kmeans_are_rows(X):
    known = {row.tobytes() for row in X}
    for rule in ("uniform", "rpcholesky", "leverage", "basic-patterns", landmarks.RPCholesky(over="all")):
        found = KernelPCA(3, landmarks=rule, size=50, random_state=0).fit(X).landmarks_
        assert found is not None
        assert len(found) == len(np.unique(found, axis=0)) == 50
        assert all(row.tobytes() in known for row in np.round(found))


# -- refused -------------------------------------------------------------------------------------------------


def function(A, B):
    return kernels.Gaussian(20.0)(A, B)


NO_SPECTRUM = (
    r"the {} kernel has no spectral density .*method='nystroem' works with every kernel, 'columns' and 'exact'"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": np.arange(15.0).reshape(5, 3)}, "landmarks have 3 columns, the array has 64"),
        ({"landmarks": np.empty((0, 64))}, r"landmarks of shape \(0, 64\): give rows like those of the data"),
        ({"landmarks": np.zeros((2, 3, 4))}, r"landmarks of shape \(2, 3, 4\): give rows like those of the data"),
        ({"landmarks": [1, 600]}, "landmark 600 is not a row of the array, which has 600 rows, counted from 0"),
        ({"landmarks": np.array([2**63], np.uint64)}, "landmark 9223372036854775808 is not a row of the array, which"),
        ({"landmarks": [1, -2]}, "landmark -2: row numbers are counted from 0"),
        ({"landmarks": [1.0, 2.0]}, "row numbers for landmarks must be integers, not float64"),
        ({"landmarks": []}, r"landmarks of shape \(0,\): give at least one row"),
        ({"landmarks": [[1.0], [2.0, 3.0]]}, r"landmarks: rows of different lengths; give a table \(l, d\)"),
        ({"landmarks": [1, 2, 3], "size": 5}, "size=5, but 3 landmarks are given: leave size out"),
        ({"kernel": function, "landmarks": "kmeans"}, "landmarks='kmeans' takes averages of rows.*'uniform'"),
        ({"size": 0}, "size=0: at least one landmark or random feature is needed"),
        ({"method": "rff", "size": 0}, "size=0: at least one landmark or random feature is needed"),
        ({"method": "rff", "size": 61}, "size=61: sines and cosines come in pairs.*must be even"),
        ({"method": "rff-pca", "size": 61}, "size=61: sines and cosines come in pairs.*must be even"),
        ({"method": methods.PrincipalFeatures(form="qmc"), "size": 61}, "size=61: sines and cosines come in pairs"),
        ({"method": "rff-pca", "n_directions": 65}, "n_directions=65, but the array has only 64 columns"),
        ({"method": "rff", "kernel": "poly", "degree": 1}, "a tensor sketch is for polynomial kernels of degree 2"),
        (
            {"method": "rff", "kernel": "poly", "coef0": -1.0},
            "negative constant makes the polynomial kernel indefinite",
        ),
        ({"method": "rff", "landmarks": "uniform"}, "'rff' draws random features and has no landmarks: leave landm"),
        ({"method": "rff", "landmarks": OWN_ROWS}, "'rff' draws random features and has no landmarks: leave landmarks"),
        (
            {"method": "columns", "landmarks": "kmeans"},
            r"^ColumnSampling\(\) takes uniform landmarks only, not 'kmeans'",
        ),
        (
            {"method": methods.Nystroem("thesis", rank=5), "landmarks": "leverage"},
            r"^Nystroem\(form='thesis', rank=5\) takes uniform landmarks only, not 'leverage'.*use method='nystroem'",
        ),
        ({"method": "columns", "landmarks": [1, 2]}, r"^ColumnSampling\(\) takes uniform landmarks only, not 'row-nu"),
        *[
            ({"method": "exact", "landmarks": given}, "^method='exact' takes every row for a landmark: leave landmar")
            for given in ("uniform", "kmeans", landmarks.Uniform(), [1, 2, 3], OWN_ROWS)
        ],
        *[({"method": "rff", "kernel": name}, NO_SPECTRUM.format(name)) for name in ("linear", "cosine", "sigmoid")],
        ({"method": "rff", "kernel": function}, NO_SPECTRUM.format("function")),
        ({"method": "rff", "kernel": 1 * kernels.Gaussian(1.0) + kernels.Linear()}, NO_SPECTRUM.format("sum")),
        ({"method": "rff-pca", "kernel": "laplacian"}, "'rff-pca' needs the gaussian kernel, not 'laplacian'"),
        ({"solver": "randomized"}, "solver='randomized' is for random features, not for method='nystroem'"),
        (
            {"solver": "randomized", "method": "rff", "n_components": None},
            "the randomized solver, used above 8192 random features or when asked for, needs a number of components, "
            "not None: give one",
        ),
        ({"method": "rfff"}, "unknown method 'rfff': did you mean 'rff'"),
    ],
)
def test_what_does_not_fit_is_refused(options, message, X):
    with pytest.raises(SpecError, match=f"(?s){message}"):
        KernelPCA(**{"n_components": 5, **options}).fit(X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.full((1, 64), np.nan), "array of landmarks: row 0, column 0 is NaN"),
        (np.full((1, 64), -np.inf), "array of landmarks: row 0, column 0 is infinity"),
        (np.array([["a"] * 64]), "array of landmarks holds <U1 values: rows must be real numbers"),
    ],
    ids=["NaN", "infinity", "text"],
)
def test_landmarks_that_are_not_numbers_are_an_error_of_the_data(given, message, X):
    with pytest.raises(DataError, match=message):
        FitSpec.checked(landmarks=given)
    with pytest.raises(DataError, match=message):
        KernelPCA(5, landmarks=given).fit(X)


@pytest.mark.parametrize("method", [methods.RandomFeatures("phase"), methods.PrincipalFeatures(form="phase")], ids=str)
def test_single_cosines_may_be_odd_in_number(method, X):
    assert fitted(X, method=method, size=61).features.size == 61


def test_a_tensor_sketch_may_have_any_number_of_features(X):
    assert fitted(X, method="rff", kernel="polynomial", size=61).features.size == 61


@pytest.mark.parametrize("over", ["sample", "all"])
def test_a_kernel_that_rpcholesky_cannot_take_is_told(over, X):
    options = {"kernel": "sigmoid", "gamma": 3e-4, "coef0": -1.0, "landmarks": landmarks.RPCholesky(over=over)}
    with pytest.raises(SpecError, match=r"rpcholesky needs a positive semidefinite kernel, but k\(x, x\) = -0\.\d+"):
        fitted(X, **options)
