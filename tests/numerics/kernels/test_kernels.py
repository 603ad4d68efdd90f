"""Every kernel against a double loop over its formula, and the laws that kernels obey; `test_kinds` has others."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics.pairwise import chi2_kernel

from bigkpca import KernelPCA
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics import kernels
from bigkpca.numerics.features import draw_frequencies
from bigkpca.numerics.kernels import (
    ChiSquared,
    Cosine,
    Function,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Scaled,
    Sigmoid,
    Spectrum,
    Tanimoto,
)
from tests.helpers import oracles
from tests.helpers.oracles import inverse_quadratic
from tests.numerics.fits import seeds
from tests.numerics.kernels.cases import ALL, COMBINED, SIMPLE, every_kernel, rows


@every_kernel
@given(seed=seeds, n=st.integers(0, 6), m=st.integers(1, 5), d=st.integers(1, 5), double=st.booleans())
def test_the_matrix_equals_a_double_loop(kernel, formula, seed, n, m, d, double):
    dtype, rtol, atol = (np.float64, 1e-11, 1e-13) if double else (np.float32, 1e-4, 1e-5)
    X, Y = rows(seed, n, d, dtype), rows(seed + 1, m, d, dtype)
    K = kernel(X, Y)
    assert K.dtype == dtype
    assert_allclose(K, oracles.matrix(formula, X, Y), rtol=rtol, atol=atol)


@every_kernel
def test_the_diagonal_and_the_gram_matrix_are_exact_and_in_double_precision(kernel, formula):
    for X in (rows(0, 9, 4), rows(0, 9, 4, np.float32), (10 * rows(0, 9, 4)).round().astype(np.int16)):
        X.flags.writeable = False
        diagonal, K = kernel.diagonal(X.astype(np.float64)), kernel.gram(X)
        assert diagonal.dtype == K.dtype == np.float64
        assert_allclose(diagonal, [formula(x, x) for x in X.tolist()], rtol=1e-12)
        assert_array_equal(K, K.T)
        assert_array_equal(K.diagonal(), diagonal)
        assert_allclose(K, oracles.matrix(formula, X, X), rtol=1e-9, atol=1e-12)
        assert_allclose(kernel.diagonal(X), diagonal, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "expected"), [("u1", "f4"), ("i2", "f4"), ("i8", "f8"), ("f2", "f4"), ("?", "f4")])
def test_whole_numbers_are_worked_on_as_floats(dtype, expected):
    X = np.array([[1, 0, 1], [0, 1, 1]], dtype)
    for name, (kernel, formula) in ALL.items():
        K = kernel(X, X)
        assert K.dtype == np.dtype(expected), name
        assert_allclose(K, oracles.matrix(formula, X.astype(float), X.astype(float)), rtol=1e-5, err_msg=name)


def test_a_kernel_goes_through_json_and_back():
    assert Matern(2, 0.5).to_dict() == {"name": "matern", "sigma": 2, "nu": 0.5}  # what a file holds
    of_numpy_numbers = [Gaussian(np.float32(1.5)), Polynomial(1.0, np.int64(2)), Matern(1.0, np.float64(2))]
    for kernel in [*(kernel for kernel, _ in (SIMPLE | COMBINED).values()), *of_numpy_numbers]:
        assert kernels.from_dict(json.loads(json.dumps(kernel.to_dict()))) == kernel
    with pytest.raises(SpecError, match="unknown kernel 'function'"):
        kernels.from_dict(Function(inverse_quadratic).to_dict())


OTHER_SHAPE = r"returned shape \(4,\) for 4 rows against 2; it must return \(4, 2\)"


@pytest.mark.parametrize(
    ("kernel", "arguments", "message"),
    [
        *((Gaussian, [sigma], f"Gaussian: sigma must be a positive number, not {sigma}") for sigma in (0, -1.0)),
        (Matern, [1.0, 100.1], "nu=100.1 is above 100, where it is the Gaussian to 0.3 %"),
        (Matern, [1.0, np.inf], "Matern: nu must be a positive number, not inf"),
        (RationalQuadratic, [np.nan], "RationalQuadratic: sigma must be a positive number, not nan"),
        (RationalQuadratic, [1.0, -1.0], "RationalQuadratic: alpha must be a positive number, not -1.0"),
        (Polynomial, [0.0], "Polynomial: gamma must be a positive number"),
        *((Polynomial, [1, p], f"Polynomial: degree must be a whole number .*, not {p}") for p in (0, 2.5, 10_001)),
        (Polynomial, [1.0, 2, -1.0], "Polynomial: coef0 must not be negative .* -1.0"),
        (Polynomial, [1.0, 2, np.nan], "Polynomial: coef0 must not be negative"),
        (Sigmoid, [-1.0], "Sigmoid: gamma must be a positive number"),
        (Sigmoid, [1.0, np.nan], "Sigmoid: coef0 must be finite, not nan"),
        (Gaussian(1).__mul__, [0], "Scaled: factor must be a positive number, not 0.0"),
        (ChiSquared, [0.0], "ChiSquared: gamma must be a positive number"),
        (Spectrum, [0], "Spectrum: k must be a positive whole number, not 0"),
        (Function(lambda X, Y: X.sum(axis=1)), [np.ones((4, 3)), np.ones((2, 3))], OTHER_SHAPE),
    ],
)
def test_parameters_out_of_range_and_values_of_another_shape_are_named(kernel, arguments, message):
    with pytest.raises(SpecError, match=message):
        kernel(*arguments)


CODES, VECTORS = Function(inverse_quadratic), Function(inverse_quadratic, vectors=True, psd=True)
EVERYTHING = "positive savable on_vectors stationary spectral"
PROPERTIES = [  # of all of which a combination has those that its parts have
    *((kernel, EVERYTHING) for kernel in (Gaussian(1), Laplacian(1), Matern(1), RationalQuadratic(1))),
    (2 * (Gaussian(1) * Matern(1)), EVERYTHING),
    (Gaussian(1) + Laplacian(1), "positive savable on_vectors stationary"),  # of a sum, no features are drawn
    *((kernel, "positive savable on_vectors") for kernel in (Linear(), Polynomial(1), Cosine())),
    *((kernel, "positive savable on_vectors") for kernel in (Gaussian(1) * Linear(), Linear() + Gaussian(1))),
    *((kernel, "savable on_vectors") for kernel in (Sigmoid(1), 2 * Sigmoid(1))),
    *((combine(Gaussian(1), Sigmoid(1)), "savable on_vectors") for combine in (np.add, np.multiply)),
    *((kernel, "") for kernel in (CODES, 2 * CODES, CODES + Gaussian(1), Gaussian(1) + CODES, CODES * Linear())),
    *((kernel, "positive on_vectors") for kernel in (VECTORS, 2 * VECTORS * Gaussian(1))),
]


@pytest.mark.parametrize(("kernel", "properties"), PROPERTIES)
def test_a_kernel_has_these_properties_and_no_others(kernel, properties):
    assert [name for name in EVERYTHING.split() if getattr(kernel, name)] == properties.split()
    if not kernel.spectral:
        with pytest.raises(SpecError, match=r"kernel has no spectral density .* method='nystroem'"):
            draw_frequencies(kernel, "iid", 5, 3, np.random.default_rng(0))


def test_combinations_are_values_that_know_whether_centring_takes_a_shift_away():
    shifted = (Linear(), 2 * Linear() + Gaussian(1.0), Linear() * Gaussian(1.0), Polynomial(1.0))
    assert [kernel.allows_shift(True) for kernel in shifted] == [True, True, False, False]
    assert not Linear().allows_shift(False)
    assert 3 * Gaussian(1) == Gaussian(1) * 3 == Scaled(Gaussian(1), 3.0)
    with pytest.raises(TypeError):
        Gaussian(1) + 1


def test_the_cosine_forgets_the_length_of_rows_and_is_zero_for_a_zero_row():
    X = np.array([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0], [0.0, 0.0]])
    expected = [[1, 0.96, -1, 0], [0.96, 1, -0.96, 0], [-1, -0.96, 1, 0], [0, 0, 0, 0]]
    for size in (1e-300, 1e-30, 1.0, 1e30, 1e300):
        assert_allclose(Cosine()(X * size, X), expected, rtol=1e-14)
    assert_array_equal(Cosine().diagonal(X), [1, 1, 1, 0])
    assert_array_equal(Tanimoto().gram(X)[3], 0)


def test_chi_squared_is_that_of_scikit_learn_and_refuses_negative_numbers():
    X = np.random.default_rng(0).dirichlet(np.full(12, 0.4), 40)
    X[:2, 3] = 0
    for gamma in (0.3, 1.0, 4.0):
        expected = chi2_kernel(X, X[::3], gamma=gamma)
        assert_allclose(ChiSquared(gamma)(X, X[::3]), expected, rtol=1e-12)
        assert_allclose(ChiSquared(gamma)(X.astype("f4"), X[::3].astype("f4")), expected, rtol=1e-4)
    with pytest.raises(DataError, match=r"counts or shares, which are not negative, but the rows have -2"):
        KernelPCA(2, kernel="chi-squared", size=10).fit(np.array([[1.0, -2.0], [0.0, 3.0], [4.0, 1.0]]))
