"""Every kernel against a double loop over its formula, and the laws that kernels obey."""

import json
from functools import partial
from math import comb, factorial

import numpy as np
import pytest
from hypothesis import given, settings
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
    Scaled,
    Sigmoid,
)
from tests.helpers import oracles
from tests.helpers.oracles import inverse_quadratic

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=20, deadline=None)


def naive_inverse_quadratic(x, y):
    return 1 / (1 + sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


SIMPLE = {
    "gaussian": (Gaussian(1.3), partial(oracles.gaussian, sigma=1.3)),
    "laplacian": (Laplacian(2.0), partial(oracles.laplacian, sigma=2.0)),
    "matern of nu 1.5": (Matern(1.3), partial(oracles.matern, sigma=1.3, nu=1.5)),
    "matern of nu 2.5": (Matern(1.3, 2.5), partial(oracles.matern, sigma=1.3, nu=2.5)),
    "matern of nu 2.2": (Matern(1.3, 2.2), partial(oracles.matern, sigma=1.3, nu=2.2)),
    "rational-quadratic": (RationalQuadratic(1.3, 0.7), partial(oracles.rational_quadratic, sigma=1.3, alpha=0.7)),
    "linear": (Linear(), oracles.linear),
    "polynomial": (Polynomial(0.4, 3, 0.7), partial(oracles.polynomial, gamma=0.4, degree=3, coef0=0.7)),
    "polynomial of degree 1": (Polynomial(0.4, 1, 0.0), partial(oracles.polynomial, gamma=0.4, degree=1, coef0=0.0)),
    "sigmoid": (Sigmoid(0.3, -0.2), partial(oracles.sigmoid, gamma=0.3, coef0=-0.2)),
    "cosine": (Cosine(), oracles.cosine),
}
COMBINED = {
    "sum": (Gaussian(1.3) + Linear(), lambda x, y: oracles.gaussian(x, y, 1.3) + oracles.linear(x, y)),
    "product": (Laplacian(2) * Cosine(), lambda x, y: oracles.laplacian(x, y, 2) * oracles.cosine(x, y)),
    "scaled": (2.5 * Gaussian(1.3), lambda x, y: 2.5 * oracles.gaussian(x, y, 1.3)),
    "nested": (
        (Linear() * 0.5 + Sigmoid(0.3)) * (3 * Gaussian(2.0)),
        lambda x, y: (0.5 * oracles.linear(x, y) + oracles.sigmoid(x, y, 0.3, 1)) * 3 * oracles.gaussian(x, y, 2),
    ),
}
OWN = {"function": (Function(inverse_quadratic), naive_inverse_quadratic)}
ALL = SIMPLE | COMBINED | OWN

every_kernel = pytest.mark.parametrize(("kernel", "formula"), ALL.values(), ids=ALL.keys())
every_simple_kernel = pytest.mark.parametrize("kernel", [k for k, _ in SIMPLE.values()], ids=SIMPLE.keys())
every_named_kernel = pytest.mark.parametrize(
    "kernel", [k for k, _ in (SIMPLE | COMBINED).values()], ids=(SIMPLE | COMBINED).keys()
)


def rows(seed, n, d, dtype=np.float64):
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)
    X.flags.writeable = False  # no kernel may write into its arguments
    return X


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


@few
@given(seed=seeds, size=st.floats(-15, 15), dtype=st.sampled_from([np.float32, np.float64]))
def test_gaussian_values_lie_between_zero_and_one_whatever_the_size_of_the_rows(seed, size, dtype):
    X = (rows(seed, 6, 3) * 10**size).astype(dtype)
    K = Gaussian(1.0)(X, X)
    assert np.isfinite(K).all()
    assert K.min() >= 0
    assert K.max() <= 1


def test_a_gaussian_is_exact_to_rounding_at_distance_zero():
    X = rows(0, 50, 8, np.float32)
    assert_allclose(Gaussian(2.0)(X, X).diagonal(), 1, atol=1e-5)
    assert_array_equal(Gaussian(2.0).diagonal(X), np.ones(50))


@pytest.mark.parametrize("kernel", [Gaussian(1e-30), Laplacian(1e-30), Gaussian(1e30), Laplacian(1e30)], ids=str)
def test_single_precision_stands_any_unit_of_the_rows(kernel):
    unit = type(kernel)(1.0)
    X = rows(0, 6, 3)
    K = kernel((X * kernel.sigma).astype(np.float32), (X * kernel.sigma).astype(np.float32))
    assert_allclose(K, unit(X, X), atol=1e-5)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_the_cosine_forgets_the_length_of_rows(size):
    X = np.array([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0]])
    assert_allclose(Cosine()(X * size, X), [[1, 0.96, -1], [0.96, 1, -0.96], [-1, -0.96, 1]], rtol=1e-14)


def test_the_cosine_of_a_zero_row_is_zero_with_everything():
    X = np.array([[0.0, 0.0], [1.0, 2.0]])
    assert_allclose(Cosine()(X, X), [[0, 0], [0, 1]], atol=1e-15)
    assert_array_equal(Cosine().diagonal(X), [0, 1])


def test_sums_products_and_scalings_are_taken_entry_by_entry():
    X, Y = rows(1, 6, 3), rows(2, 5, 3)
    a, b, c = Gaussian(1.3), Linear(), Sigmoid(0.3)
    assert_allclose((a + b)(X, Y), a(X, Y) + b(X, Y), rtol=1e-14)
    assert_allclose((a * b)(X, Y), a(X, Y) * b(X, Y), rtol=1e-14)
    assert_allclose(((a + b) * c)(X, Y), (a * c + b * c)(X, Y), rtol=1e-12)
    assert_allclose((a + (b + c))(X, Y), ((a + b) + c)(X, Y), rtol=1e-12)
    assert 3 * a == a * 3 == Scaled(a, 3.0)
    assert a + b != b + a  # as values; as functions they agree
    assert_allclose((a + b)(X, Y), (b + a)(X, Y), rtol=1e-14)


def test_a_square_of_a_gaussian_is_a_narrower_gaussian():
    X = rows(1, 6, 3)
    assert_allclose((Gaussian(2) * Gaussian(2))(X, X), Gaussian(2**0.5)(X, X), rtol=1e-12)
    assert_allclose((Linear() * Linear())(X, X), Polynomial(1, 2, 0)(X, X), rtol=1e-12)


def test_a_combination_is_stationary_and_savable_when_all_its_parts_are():
    radial, inner, own = Gaussian(1), Linear(), Function(inverse_quadratic)
    assert (radial + Laplacian(1)).stationary
    assert (2 * radial).stationary
    assert not (radial + inner).stationary
    assert not (inner * radial).stationary
    assert not (2 * inner).stationary
    assert (radial + inner).savable
    assert not own.savable
    assert not (radial + own).savable
    assert not (own * radial).savable
    assert not (2 * own).savable


def test_gamma_is_the_inverse_width_of_scikit_learn():
    assert_allclose(Gaussian(3.0).gamma, 1 / 18)
    assert_allclose(Laplacian(4.0).gamma, 0.25)


@every_named_kernel
def test_a_kernel_goes_through_json_and_back(kernel):
    assert kernels.from_dict(json.loads(json.dumps(kernel.to_dict()))) == kernel


def test_a_function_leaves_only_its_name_and_cannot_be_read_back():
    description = Function(inverse_quadratic).to_dict()
    assert description == {"name": "function"}
    with pytest.raises(SpecError, match="unknown kernel 'function'"):
        kernels.from_dict(description)


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


def test_a_function_that_returns_another_shape_is_named_with_both_shapes():
    X, Y = rows(1, 4, 3), rows(2, 2, 3)
    per_row = Function(lambda X, Y: X.sum(axis=1))
    with pytest.raises(SpecError, match=r"returned shape \(4,\) for 4 rows against 2; it must return \(4, 2\)"):
        per_row(X, Y)


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


def test_only_kernels_are_added():
    with pytest.raises(TypeError):
        Gaussian(1.0) + 1


@pytest.mark.parametrize("nu", [0.5, 0.8])
@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_rough_matern_kernels_equal_a_double_loop(nu, dtype, atol):
    # Their slope at zero is infinite or not zero, so that rounding shows for rows that nearly coincide: not here.
    X, Y = (10 * np.arange(8.0)[:, None] + rows(1, 8, 3)).astype(dtype), rows(2, 5, 3, dtype)
    expected = oracles.matrix(partial(oracles.matern, sigma=9.0, nu=nu), X, Y)
    assert_allclose(Matern(9.0, nu)(X, Y), expected, atol=atol)


@pytest.mark.parametrize("sigma", [0.7, 3.0])
def test_closed_forms_of_matern_kernels(sigma):
    X, Y = rows(1, 9, 4), rows(2, 5, 4)
    r = np.linalg.norm(X[:, None] - Y[None], axis=2) / sigma
    assert_allclose(Matern(sigma, 0.5)(X, Y), np.exp(-r), rtol=1e-12)
    assert_allclose(Matern(sigma, 1.5)(X, Y), (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r), rtol=1e-12)
    assert_allclose(Matern(sigma, 2.5)(X, Y), (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r), rtol=1e-12)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_the_closed_forms_and_the_bessel_function_agree(nu):
    X, Y = rows(1, 9, 4), rows(2, 5, 4)
    assert_allclose(Matern(1.3, nu)(X, Y), Matern(1.3, nu * (1 + 1e-12))(X, Y), rtol=1e-9)


@pytest.mark.parametrize("kernel", [Matern(1.5, 30.0), RationalQuadratic(1.5, 1e4)], ids=str)
def test_smooth_limits_are_gaussian(kernel):
    X = rows(1, 9, 4)
    assert_allclose(kernel(X, X), Gaussian(1.5)(X, X), atol=0.01)
    assert np.abs(type(kernel)(1.5, 2.2)(X, X) - Gaussian(1.5)(X, X)).max() > 0.02


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("nu", [40.0, 100.0])
def test_very_smooth_matern_kernels_fall_from_one_to_zero(nu, dtype):
    r = np.concatenate([[0], np.logspace(-9, 1, 200)]).astype(dtype)
    values = Matern(1.0, nu)(np.zeros((1, 1), dtype), r[:, None])[0]
    assert values[0] == 1
    assert ((values >= 0) & (values <= 1)).all()
    assert (np.diff(values) <= 1e-6).all()
    assert_allclose(values, Gaussian(1.0)(np.zeros((1, 1)), r[:, None].astype(float))[0], atol=0.3 / nu)


def test_matern_kernels_smoother_than_bessel_functions_can_be_computed_are_refused():
    with pytest.raises(SpecError, match=r"nu=100.1 is above 100, where it is the Gaussian to 0.3 %"):
        Matern(1.0, 100.1)


def test_matern_kernels_of_half_a_whole_number_more_are_a_polynomial_times_an_exponential():
    p, r = 40, np.logspace(-2, 1, 50)
    s = np.sqrt(2 * p + 1) * r
    weights = [factorial(p) * comb(p, i) * factorial(p + i) / factorial(2 * p) / factorial(p) for i in range(p + 1)]
    expected = np.exp(-s) * sum(weight * (2 * s) ** (p - i) for i, weight in enumerate(weights))
    assert_allclose(Matern(1.0, p + 0.5)(np.zeros((1, 1)), r[:, None])[0], expected, rtol=1e-9)


@pytest.mark.parametrize(("nu", "dtype", "atol"), [(0.5, np.float64, 1e-7), (0.5, np.float32, 3e-3)])
def test_rounding_at_distance_zero_costs_a_rough_kernel_half_the_digits_and_its_gram_matrix_none(nu, dtype, atol):
    X = rows(0, 50, 8, dtype)
    kernel = Matern(2.0, nu)
    assert_allclose(kernel(X, X).diagonal(), 1, atol=atol)
    assert_array_equal(kernel.gram(X).diagonal(), np.ones(50))


@pytest.mark.parametrize(
    "kernel",
    [Matern(1.0, 0.5), Matern(1.0, 1.5), Matern(1.0, 2.5), Matern(1.0, 0.8), RationalQuadratic(1.0, 0.5)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_radial_kernels_lie_between_zero_and_one_to_rounding_whatever_the_size_of_the_rows(kernel, dtype):
    for size in range(-15, 16, 3):
        K = kernel((rows(0, 6, 3) * 10.0**size).astype(dtype), (rows(1, 5, 3) * 10.0**size).astype(dtype))
        assert K.min() >= 0
        assert K.max() <= 1 + 10 * np.finfo(dtype).eps


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


def test_products_have_a_density_when_both_factors_do_and_sums_have_none():
    assert (Gaussian(1) * Laplacian(1)).spectral
    assert (2 * (Gaussian(1) * Matern(1))).spectral
    assert not (Gaussian(1) * Linear()).spectral
    assert not (Linear() * Gaussian(1)).spectral
    assert not (Gaussian(1) + Gaussian(2)).spectral
    assert not (2 * Linear()).spectral


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


@pytest.mark.parametrize("nu", [0.3, 0.5, 0.8, 1.0, 1.5, 2.5, 3.7])
@pytest.mark.parametrize("far", [np.float32(3e19), np.float64(1e160)])
@pytest.mark.filterwarnings("ignore:overflow")
def test_matern_kernels_of_far_rows_are_zero(nu, far):
    X = np.array([[0.0], [1e3], [1e9], [1e18], [far]], far.dtype)
    K = Matern(1.0, nu)(X, X)
    assert_array_equal(K, np.eye(5))


def test_far_rows_leave_no_trace_in_the_tiles_after_them():
    Y, X = np.array([[0.0], [1.0]], np.float32), np.array([[0.5], [0.25], [2.0]], np.float32)
    evaluate, far, near = Gaussian(1.0).against(Y, 3), np.full((3, 2), np.nan, np.float32), np.empty((3, 2), np.float32)
    evaluate(np.float32([[3e19], [0.5], [-3e38]]), far)
    assert_array_equal(far, [[0, 0], Gaussian(1.0)(X, Y)[0], [0, 0]])
    evaluate(X, near)
    assert_array_equal(near, Gaussian(1.0)(X, Y))
