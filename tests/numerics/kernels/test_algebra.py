"""Sums, products and scalings of kernels."""

import pytest
from numpy.testing import assert_allclose

from bigkpca.numerics.kernels import Function, Gaussian, Laplacian, Linear, Matern, Polynomial, Scaled, Sigmoid
from tests.helpers.oracles import inverse_quadratic
from tests.numerics.kernels.cases import rows


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


def test_only_kernels_are_added():
    with pytest.raises(TypeError):
        Gaussian(1.0) + 1


def test_products_have_a_density_when_both_factors_do_and_sums_have_none():
    assert (Gaussian(1) * Laplacian(1)).spectral
    assert (2 * (Gaussian(1) * Matern(1))).spectral
    assert not (Gaussian(1) * Linear()).spectral
    assert not (Linear() * Gaussian(1)).spectral
    assert not (Gaussian(1) + Gaussian(2)).spectral
    assert not (2 * Linear()).spectral
