"""The basis of the span of landmarks: from Cholesky's factor or from eigenvectors, the same span."""

from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import DataError
from bigkpca.numerics import linalg, solvers
from bigkpca.numerics import span as span_module
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.span import PARTS, basis_of, eigenvector_basis, nested, of_basis, span_of
from tests.helpers.oracles import matrix_with
from tests.numerics.fits import moments_at, rows

KERNEL = Gaussian(1.5)


def well_conditioned(l=30, n=120):  # noqa: E741
    X = rows(3, n, 4)
    moments, W, _ = moments_at(KERNEL, X, X[:l])
    return moments, W


def test_every_part_of_the_landmarks_leads_in_the_nested_order():
    for l in (1, 2, 7, 8, 9, 64, 75):  # noqa: E741
        order = nested(l)
        assert_array_equal(np.sort(order), np.arange(l))
        for step in PARTS:
            part = np.arange(l)[::step]
            assert_array_equal(np.sort(order[: len(part)]), part)


@pytest.mark.parametrize("l", [1, 75])
def test_both_bases_are_orthonormal_and_span_the_same(l):  # noqa: E741
    moments, W = well_conditioned(l)
    one, other = basis_of(W, 1e-12), eigenvector_basis(W, 1e-12)
    assert one.triangular
    assert not other.triangular
    for basis in (one, other):
        assert_allclose(basis.P.T @ W @ basis.P, np.eye(l), atol=1e-9)
        assert_allclose(basis.inverse, np.diag(np.linalg.inv(W)), rtol=1e-8)
        congruence = basis.P.T @ moments.scatter @ basis.P
        assert_allclose(basis.congruence(moments.scatter), congruence, atol=1e-9)
        assert_allclose(basis.quadratic_forms(moments.scatter), np.diag(congruence), atol=1e-9)
    b = np.random.default_rng(0).normal(size=(l, 2))
    assert_allclose(one.solve(b), np.linalg.solve(W, b), rtol=1e-7)
    assert_allclose(one.solve(b), other.solve(b), rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projections_are_products_with_the_basis(dtype, monkeypatch):
    monkeypatch.setattr(span_module, "_TILE_COLUMNS", 16)
    W = well_conditioned(75)[1]
    V = np.random.default_rng(0).normal(size=(9, 75)).astype(dtype)
    whole = basis_of(W, 1e-12)
    for basis in (whole, whole.keep(np.array([0, 3, 4, 20, 70])), whole.keep(np.arange(0)), eigenvector_basis(W, 0.1)):
        found = basis.projection(np.dtype(dtype))(V)
        assert found.dtype == dtype
        assert_allclose(found, V @ basis.P, atol=(1e-4 if dtype is np.float32 else 1e-12) * np.abs(whole.P).max())


@pytest.mark.parametrize("q", [1, 20, 75])
def test_eigenvectors_follow_given_directions_and_complete_the_span(q):
    moments, W = well_conditioned(75)
    first = basis_of(W, 1e-12)
    mixed = eigenvector_basis(W, 1e-12, first.P[:, :q])
    assert_array_equal(mixed.P[:, :q], first.P[:, :q])
    assert (mixed.leading, mixed.triangular, mixed.indefinite) == (q, False, False)
    assert_allclose(mixed.P.T @ W @ mixed.P, np.eye(75), atol=1e-8)
    assert_allclose(mixed.inverse, np.diag(np.linalg.inv(W)), rtol=1e-7)
    assert_allclose(of_basis(mixed, moments).trace_error, of_basis(first, moments).trace_error, rtol=1e-7)


@pytest.mark.parametrize("step", PARTS)
def test_a_part_of_the_landmarks_is_the_span_of_these_alone(step):
    moments, W = well_conditioned(60)
    direct = span_of(W[::step, ::step], moments.part(slice(None, None, step)), 1e-12)
    for span in (span_of(W, moments, 1e-12), of_basis(eigenvector_basis(W, 1e-12), moments)):
        part = span.every(step, 1e-12)
        assert not part.basis.P[np.arange(60) % step > 0].any()
        assert_allclose(part.trace_error, direct.trace_error, rtol=1e-8)
        assert_allclose(part.variance(True), direct.variance(True), rtol=1e-8)
        found = solvers.nystroem(part, 2, center=True, tolerance=1e-12)
        wanted = solvers.nystroem(direct, 2, center=True, tolerance=1e-12)
        assert_allclose(found.eigenvalues, wanted.eigenvalues, rtol=1e-8)
        assert_allclose(np.abs(found.components[::step]), np.abs(wanted.components), atol=1e-6)


def test_a_part_without_directions_spans_nothing():
    moments, W = well_conditioned(16)
    span = span_of(W, moments, 1e-12).keep(np.arange(4, 16))
    with pytest.raises(DataError, match="every 8th landmark spans nothing"):
        span.every(8, 1e-12)
    assert span.every(2, 1e-12).basis.P.shape == (16, 4)


def test_columns_that_are_kept_span_a_part():
    moments, W = well_conditioned()
    span = span_of(W, moments, 1e-12)
    fewer = span.keep(np.array([0, 3, 4, 20]))
    P = span.basis.P[:, [0, 3, 4, 20]]
    assert_array_equal(fewer.basis.P, P)
    assert_allclose(fewer.coordinates.scatter, P.T @ moments.scatter @ P, atol=1e-9)
    assert_allclose(fewer.basis.congruence(moments.scatter), P.T @ moments.scatter @ P, atol=1e-9)
    left = moments.trace - float(np.trace(P.T @ moments.about_zero @ P))
    assert_allclose(fewer.trace_error, left, rtol=1e-9)


@pytest.mark.parametrize("share", [1e-7, 1e-6, 0.4e-5, 0.9e-5, 1.1e-5, 1e-4])
def test_the_bound_from_the_factor_decides_like_a_second_factorisation(share, monkeypatch):
    for W in (matrix_with(np.geomspace(1e-5, 1, 40)), matrix_with(np.r_[1e-5, np.ones(39)]), well_conditioned(40)[1]):
        least = share * np.linalg.eigvalsh(W)[0] / 1e-5 / np.abs(W).sum(axis=0).max()
        quick = basis_of(W, 0.5, least=least)
        assert quick.triangular is (share < 1e-5)
        with monkeypatch.context() as patch:
            patch.setattr(linalg, "squared_norm_at_most", lambda P, enough: np.inf)
            slow = basis_of(W, 0.5, least=least)
        assert_array_equal(quick.P, slow.P)


@pytest.mark.parametrize("scale", [1e-300, 1e-310, 1e-320, 1e300])
def test_a_matrix_near_the_ends_of_float64_has_a_basis_without_warnings(scale):
    assert basis_of(scale * np.eye(3), 1e-12).P.shape == (3, 3)


def test_a_well_conditioned_matrix_is_factored_once():
    W = matrix_with(np.geomspace(1e-4, 1, 40))
    with mock.patch.object(linalg, "cholesky", side_effect=linalg.cholesky) as factored:
        assert basis_of(W, 1e-9).triangular
    assert factored.call_count == 1


@pytest.mark.parametrize(("least", "triangular"), [(0.9e-5, True), (1.1e-5, False)])
def test_cholesky_is_the_basis_down_to_the_tolerance(least, triangular):
    """Relative to the largest row sum, which is at least the largest eigenvalue."""
    W = matrix_with(np.geomspace(1e-5, 1, 40))
    W /= np.abs(W).sum(axis=0).max()
    share = least * np.linalg.eigvalsh(W)[0] / 1e-5
    assert basis_of(W, share).triangular is triangular
    assert basis_of(W, 0.5, least=share).triangular is triangular
    # No tolerance allows a factor that rounding spoils.
    assert not basis_of(matrix_with(np.geomspace(1e-11, 1, 40)), 0.0).triangular


def test_without_a_positive_eigenvalue_nothing_is_spanned():
    for W in (np.zeros((3, 3)), -np.eye(2)):
        with pytest.raises(DataError, match="no positive eigenvalue"):
            basis_of(W, 1e-12)
