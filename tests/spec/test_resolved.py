"""What a spec means for the rows at hand: kernel, landmarks, precision, solver."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.data.rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.numerics import kernels, landmarks, methods
from bigkpca.spec import FitSpec, resolve


def test_the_kernel_of_a_spec_for_five_columns_and_median_seven():
    for options, kernel in [
        ({"sigma": 3.0}, kernels.Gaussian(3.0)),
        ({"gamma": 0.125}, kernels.Gaussian(2.0)),
        ({}, kernels.Gaussian(7.0)),
        ({"kernel": "laplacian"}, kernels.Laplacian(7.0)),
        ({"kernel": "laplacian", "gamma": 0.5}, kernels.Laplacian(2.0)),
        ({"kernel": "polynomial"}, kernels.Polynomial(0.2, 3, 1.0)),
        ({"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.0}, kernels.Polynomial(0.3, 2, 0.0)),
        ({"kernel": "sigmoid", "coef0": -1.0}, kernels.Sigmoid(0.2, -1.0)),
        ({"kernel": kernels.Gaussian(9.0)}, kernels.Gaussian(9.0)),
        ({"kernel": np.dot}, kernels.Function(np.dot)),
        # What options of a kernel leave open comes from the options of the fit.
        ({"kernel": "matern:nu=2.5"}, kernels.Matern(7.0, nu=2.5)),
        ({"kernel": "matern:nu=2.5", "sigma": 4}, kernels.Matern(4.0, nu=2.5)),
        ({"kernel": "rational-quadratic:sigma=2"}, kernels.RationalQuadratic(2.0)),
        ({"kernel": "poly:degree=2", "coef0": 0.5}, kernels.Polynomial(0.2, degree=2, coef0=0.5)),
    ]:
        assert FitSpec.checked(**options).kernel_value(5, 7.0) == kernel, options
    assert_allclose(FitSpec.checked(gamma=0.02).kernel_value(5, None).gamma, 0.02)


def test_what_the_kernel_asks_of_the_sample():
    for options, stationary, distance in [
        ({}, True, "sqeuclidean"),
        ({"sigma": 2.0}, True, None),
        ({"kernel": "laplacian"}, True, "cityblock"),
        ({"kernel": "matern:nu=2.5"}, True, "sqeuclidean"),
        ({"kernel": "rational-quadratic:sigma=2"}, True, None),
        ({"kernel": "linear"}, False, None),
        ({"kernel": kernels.Gaussian(1.0)}, True, None),
        ({"kernel": kernels.Gaussian(1.0) + kernels.Linear()}, False, None),
        ({"kernel": np.dot}, False, None),
    ]:
        spec = FitSpec.checked(**options)
        assert (spec.stationary, spec.needs_median) == (stationary, distance is not None), options
        if distance:
            assert spec.distance == distance
    for kernel in ("linear", kernels.Gaussian(2.0), "rational-quadratic:sigma=2"):
        with pytest.raises(SpecError, match=r"the kernel .* has no length sigma to choose"):
            _ = FitSpec.checked(kernel=kernel).distance


def rows_of(n, d, dtype="f4"):
    return ArrayRows(np.broadcast_to(np.zeros(1, dtype), (n, d)))


RULES = [
    ({}, landmarks.KMeans()),
    ({"kernel": "poly"}, landmarks.RPCholesky()),
    ({"kernel": np.dot}, landmarks.RPCholesky()),
    ({"kernel": "poly", "landmarks": "kmeans"}, landmarks.KMeans()),
    ({"landmarks": landmarks.KMeans(9)}, landmarks.KMeans(9)),
    ({"landmarks": "basic_patterns"}, landmarks.BasicPatterns()),
    ({"method": "columns"}, landmarks.Uniform()),
    ({"method": methods.Nystroem("thesis")}, landmarks.Uniform()),
    ({"kernel": "sigmoid"}, landmarks.Uniform()),
]
SIZES = [
    ({}, 10**6, 1000),
    ({"n_components": 5}, 10**6, 500),
    ({"n_components": 200}, 10**6, 2000),
    ({"n_components": 3000}, 10**6, 3000),
    ({"n_components": 0.9}, 10**6, 1000),
    ({}, 70, 70),
    ({"size": 64}, 10, 10),
    ({"method": "exact", "size": 64}, 777, 777),
    ({"method": "rff"}, 10**6, 2048),
    ({"method": "rff-pca", "size": 64}, 10, 64),
    ({"landmarks": [7, 3, 5]}, 10**6, 3),
]
DTYPES = [("u1", None, "f4"), ("f4", None, "f4"), ("f8", None, "f8"), ("g", None, "f8"), ("f8", "float32", "f4")]


def test_rules_of_landmarks_numbers_of_features_and_dtypes_of_block_work():
    for options, rule in RULES:
        assert resolve(FitSpec.checked(**options), rows_of(900, 3)).rule == rule, options
    for options, n, count in SIZES:
        assert resolve(FitSpec.checked(**options), rows_of(n, 10)).size == count, (options, n)
    for data, asked, block in DTYPES:
        assert resolve(FitSpec.checked(dtype=asked), rows_of(9, 2, data)).dtype == np.dtype(block), (data, asked)


def test_eigenpairs_come_from_a_sketch_above_8192_random_features():
    for options, D, randomized in [
        ({"method": "rff"}, 8192, False),
        ({"method": "rff"}, 8194, True),
        ({"method": "rff", "solver": "dense"}, 8194, False),
        ({"method": "rff", "solver": "randomized"}, 10, True),
        ({"method": "rff", "n_components": None}, 8192, False),
    ]:
        assert resolve(FitSpec.checked(**options), rows_of(90, 2)).randomized(D) == randomized, (options, D)
    for components, solver, D in [(None, "auto", 8194), (0.9, "randomized", 100)]:
        fit = resolve(FitSpec.checked(method="rff", n_components=components, solver=solver), rows_of(90, 2))
        with pytest.raises(SpecError, match=f"randomized solver.* needs a number of components, not {components}: gi"):
            fit.randomized(D)
