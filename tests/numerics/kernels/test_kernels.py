"""Every kernel against a double loop over its formula, and the laws that kernels obey."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics import kernels
from bigkpca.numerics.features.frequencies import draw_frequencies
from bigkpca.numerics.kernels import (
    Cosine,
    Function,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from tests.helpers import oracles
from tests.helpers.oracles import inverse_quadratic
from tests.numerics.kernels.cases import (
    ALL,
    COMBINED,
    OWN,
    SIMPLE,
    every_kernel,
    every_named_kernel,
    every_simple_kernel,
    few,
    rows,
    seeds,
)


@every_kernel
@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(np.float64, 1e-11, 1e-13), (np.float32, 1e-4, 1e-5)])
@few
@given(seed=seeds, n=st.integers(0, 9), m=st.integers(1, 7), d=st.integers(1, 6))
def test_the_matrix_equals_a_double_loop(kernel, formula, dtype, rtol, atol, seed, n, m, d):
    X, Y = rows(seed, n, d, dtype), rows(seed + 1, m, d, dtype)
    K = kernel(X, Y)
    assert K.dtype == dtype
    assert_allclose(K, oracles.matrix(formula, X, Y), rtol=rtol, atol=atol)


@every_kernel
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_the_diagonal_is_that_of_the_matrix(kernel, formula, dtype, rtol):
    X = rows(5, 8, 4, dtype)
    diagonal = kernel.diagonal(X)
    assert diagonal.dtype == np.float64
    assert diagonal.shape == (8,)
    assert_allclose(diagonal, [formula(x, x) for x in X.tolist()], rtol=rtol)
    assert_allclose(diagonal, kernel(X, X).diagonal(), rtol=100 * rtol)


@every_kernel
def test_kernels_are_symmetric(kernel, formula):
    X, Y = rows(1, 6, 3), rows(2, 4, 3)
    assert_allclose(kernel(X, Y), kernel(Y, X).T, rtol=1e-12)


@every_kernel
@pytest.mark.parametrize(("dtype", "expected"), [("u1", "f4"), ("i2", "f4"), ("i8", "f8"), ("f2", "f4"), ("?", "f4")])
def test_whole_numbers_are_worked_on_as_floats(kernel, formula, dtype, expected):
    X = np.array([[1, 0, 1], [0, 1, 1]], dtype)
    K = kernel(X, X)
    assert K.dtype == np.dtype(expected)
    assert_allclose(K, oracles.matrix(formula, X.astype(float), X.astype(float)), rtol=1e-5)


@few
@given(seed=seeds, n=st.integers(2, 20), d=st.integers(1, 5))
def test_kernels_that_call_themselves_positive_are(seed, n, d):
    X = rows(seed, n, d)
    for kernel, _ in ALL.values():
        if kernel.positive:
            values = np.linalg.eigvalsh(kernel(X, X))
            assert values[0] >= -1e-12 * values[-1]


def test_kernels_of_which_nothing_is_known_are_not_called_positive():
    assert {name for name, (kernel, _) in SIMPLE.items() if not kernel.positive} == {"sigmoid"}
    assert not any(kernel.positive for kernel, _ in OWN.values())
    assert Function(np.dot, psd=True).positive
    for combine in (np.add, np.multiply):
        assert combine(Gaussian(1.0), Linear()).positive
        assert not combine(Gaussian(1.0), Sigmoid(1.0)).positive
    assert (2.0 * Linear()).positive
    assert not (2.0 * Sigmoid(1.0)).positive


@every_kernel
def test_tiles_may_be_smaller_than_the_most_and_do_not_leak_into_each_other(kernel, formula):
    X, Y = rows(7, 10, 3), rows(8, 5, 3)
    evaluate = kernel.against(Y, 10)
    first, second, again = np.empty((10, 5)), np.empty((3, 5)), np.empty((10, 5))
    evaluate(X, first)
    kept = first.copy()
    evaluate(X[4:7], second)
    evaluate(X, again)
    assert_allclose(second, first[4:7], rtol=1e-12)
    assert_array_equal(first, kept)
    assert_array_equal(again, first)


@every_kernel
def test_two_evaluators_share_nothing(kernel, formula):
    X, Y, Z = rows(7, 4, 3), rows(8, 5, 3), rows(9, 5, 3)
    one, other = kernel.against(Y, 4), kernel.against(Z, 4)
    expected, got = np.empty((4, 5)), np.empty((4, 5))
    one(X, expected)
    other(X, np.empty((4, 5)))
    one(X, got)
    assert_array_equal(got, expected)


@every_kernel
def test_exactly_the_stationary_kernels_do_not_see_a_shift(kernel, formula):
    X, Y = rows(3, 6, 3), rows(4, 5, 3)
    same = np.allclose(kernel(X + 3.7, Y + 3.7), kernel(X, Y), rtol=1e-10)
    assert same == (kernel.stationary or isinstance(kernel, Function))  # of a function nothing is known
    assert not (kernel.stationary and isinstance(kernel, Function))


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_scaling_rows_and_length_together_changes_nothing(factor, dtype, rtol):
    X, Y = rows(3, 6, 3), rows(4, 5, 3)
    pairs = {
        Gaussian(1.3): Gaussian(1.3 * factor),
        Laplacian(1.3): Laplacian(1.3 * factor),
        Matern(1.3, 2.5): Matern(1.3 * factor, 2.5),
        RationalQuadratic(1.3, 0.7): RationalQuadratic(1.3 * factor, 0.7),
        Polynomial(0.4): Polynomial(0.4 / factor**2),
        Sigmoid(0.4): Sigmoid(0.4 / factor**2),
        Cosine(): Cosine(),
    }
    for kernel, scaled in pairs.items():
        expected = kernel(X.astype(dtype), Y.astype(dtype))
        got = scaled((X * factor).astype(dtype), (Y * factor).astype(dtype))
        assert_allclose(got, expected, rtol=rtol, atol=rtol, err_msg=kernel.name)


def test_gamma_is_the_inverse_width_of_scikit_learn():
    assert_allclose(Gaussian(3.0).gamma, 1 / 18)
    assert_allclose(Laplacian(4.0).gamma, 0.25)


@every_named_kernel
def test_a_kernel_goes_through_json_and_back(kernel):
    assert kernels.from_dict(json.loads(json.dumps(kernel.to_dict()))) == kernel


@every_simple_kernel
def test_every_name_finds_its_class(kernel):
    assert kernels.kernel_class(kernel.name) is type(kernel)
    assert kernels.kernel_class(kernel.name.upper()) is type(kernel)


def test_the_aliases_of_scikit_learn_are_known():
    assert kernels.kernel_class("rbf") is Gaussian
    assert kernels.kernel_class("Poly") is Polynomial


@pytest.mark.parametrize(
    ("name", "nearest"), [("gausian", "gaussian"), ("laplace", "laplacian"), ("rfb", "rbf"), ("Cosin", "cosine")]
)
def test_an_unknown_name_comes_with_the_nearest(name, nearest):
    with pytest.raises(SpecError, match=f"unknown kernel '{name}': did you mean '{nearest}'"):
        kernels.kernel_class(name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(0), "Gaussian: sigma must be a positive number, not 0"),
        (lambda: Gaussian(-1.0), "Gaussian: sigma must be a positive number, not -1.0"),
        (lambda: Gaussian(np.nan), "Gaussian: sigma must be a positive number, not nan"),
        (lambda: Gaussian(np.inf), "Gaussian: sigma must be a positive number, not inf"),
        (lambda: Laplacian(0.0), "Laplacian: sigma must be a positive number"),
        (lambda: Matern(0.0), "Matern: sigma must be a positive number, not 0.0"),
        (lambda: Matern(1.0, 0.0), "Matern: nu must be a positive number, not 0.0"),
        (lambda: Matern(1.0, np.inf), "Matern: nu must be a positive number, not inf"),
        (lambda: RationalQuadratic(np.nan), "RationalQuadratic: sigma must be a positive number, not nan"),
        (lambda: RationalQuadratic(1.0, -1.0), "RationalQuadratic: alpha must be a positive number, not -1.0"),
        (lambda: Polynomial(0.0), "Polynomial: gamma must be a positive number"),
        (lambda: Polynomial(1.0, 0), "Polynomial: degree must be a positive integer, not 0"),
        (lambda: Polynomial(1.0, 2.5), "Polynomial: degree must be a positive integer, not 2.5"),
        (lambda: Polynomial(1.0, 2, -1.0), "Polynomial: coef0 must not be negative .* -1.0"),
        (lambda: Polynomial(1.0, 2, np.nan), "Polynomial: coef0 must not be negative"),
        (lambda: Sigmoid(-1.0), "Sigmoid: gamma must be a positive number"),
        (lambda: Gaussian(1) * 0, "Scaled: factor must be a positive number, not 0.0"),
        (lambda: -2 * Gaussian(1), "Scaled: factor must be a positive number, not -2.0"),
    ],
)
def test_parameters_out_of_range_are_named(make, message):
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize("degree", [float("inf"), float("nan")])
def test_infinite_degree_is_a_spec_error(degree):
    with pytest.raises(SpecError, match="degree must be a positive integer"):
        Polynomial(1.0, degree)


def test_sigmoid_refuses_a_coef0_that_is_not_finite():
    with pytest.raises(SpecError, match="coef0"):
        Sigmoid(1.0, float("nan"))


@pytest.mark.parametrize(
    "kernel", [Gaussian(np.float32(1.5)), Polynomial(1.0, np.int64(2)), Matern(1.0, np.float64(2))], ids=str
)
def test_numpy_numbers_are_json_ready(kernel):
    assert kernels.from_dict(json.loads(json.dumps(kernel.to_dict()))) == kernel


@every_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_gram_matrices_are_symmetric_in_double_precision_with_the_exact_diagonal(kernel, formula, dtype):
    X = (10 * rows(0, 9, 4)).round().astype(dtype) if dtype == np.int16 else rows(0, 9, 4, dtype)
    X.flags.writeable = False
    K = kernel.gram(X)
    assert K.dtype == np.float64
    assert_array_equal(K, K.T)
    assert_array_equal(K.diagonal(), kernel.diagonal(X.astype(np.float64)))
    assert_allclose(K, oracles.matrix(formula, X, X), rtol=1e-9, atol=1e-12)


def test_exactly_the_kernels_with_a_spectral_density_say_so():
    spectral = {name for name, (kernel, _) in ALL.items() if kernel.spectral}
    stationary = {name for name, (kernel, _) in SIMPLE.items() if kernel.stationary}
    assert spectral == {*stationary, "scaled"}
    assert len(stationary) == 6
    rng = np.random.default_rng(0)
    for kernel, _ in ALL.values():
        if kernel.spectral:
            assert draw_frequencies(kernel, "iid", 5, 3, rng).shape == (5, 3)
        else:
            with pytest.raises(SpecError, match=f"the {kernel.name} kernel has no spectral density"):
                draw_frequencies(kernel, "iid", 5, 3, rng)


def test_averages_make_sense_for_all_kernels_but_functions_that_do_not_say_so():
    codes, vectors = Function(inverse_quadratic), Function(inverse_quadratic, vectors=True)
    assert all(kernel.on_vectors for kernel, _ in (SIMPLE | COMBINED).values())
    assert not codes.on_vectors
    assert vectors.on_vectors
    assert (2 * vectors * Gaussian(1)).on_vectors
    for combined in (2 * codes, codes + Gaussian(1), Gaussian(1) + codes, codes * Linear(), Linear() * codes):
        assert not combined.on_vectors


def test_names_and_fields_are_what_a_file_holds():
    assert Matern(2, 0.5).to_dict() == {"name": "matern", "sigma": 2, "nu": 0.5}
    assert RationalQuadratic(2.0, 3.0).to_dict() == {"name": "rational-quadratic", "sigma": 2.0, "alpha": 3.0}
    assert kernels.kernel_class("Rational-Quadratic") is RationalQuadratic
    with pytest.raises(SpecError, match="unknown kernel 'mattern': did you mean 'matern'"):
        kernels.kernel_class("mattern")
