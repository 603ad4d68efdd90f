"""Leading eigenpairs from the action alone: against dense ones, and what a pass leaves behind in any split."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.solvers import OVERSAMPLING, PASSES, block_action, leading_eigenpairs, starting_block
from tests.helpers.oracles import matrix_with


def powers(D, decay=0.9, rank=None):
    """(a positive semidefinite matrix of eigenvalues decay^j up to this rank, its eigenvalues)."""
    values = decay ** np.arange(D) * (np.arange(D) < (D if rank is None else rank))
    return matrix_with(values), values


def counted(A):
    """(apply, widths of the blocks that it was given)."""
    widths = []

    def apply(Q):
        widths.append(Q.shape[1])
        assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-10)
        return A @ Q

    return apply, widths


def found_by(apply, D, count, seed=0, **options):
    """The leading eigenpairs from a random start, a little wider than asked for."""
    start = starting_block(D, min(D, count + OVERSAMPLING), np.random.default_rng(seed))
    return leading_eigenpairs(apply, start, count, **options)


@pytest.mark.parametrize(
    ("D", "count", "rank"),
    [(1, 1, 1), (5, 5, 5), (12, 2, 12), (12, 8, 12), (40, 30, 40), *((100, 20, rank) for rank in (0, 1, 7, 25))],
)
def test_blocks_that_fill_the_space_or_the_range_give_the_dense_eigenpairs(D, count, rank):
    A, values = powers(D, rank=rank)
    apply, widths = counted(A)
    found = found_by(apply, D, count)
    assert_allclose(found.values, values[:count], rtol=1e-9, atol=1e-12)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(count), atol=1e-9)
    assert_allclose(A @ found.vectors, found.vectors * found.values, atol=1e-9 if rank == D else 1e-10)
    if rank == 0:
        assert_array_equal(found.residuals, np.full(count, np.inf))
        assert len(widths) == 1


def test_the_operator_is_applied_once_for_each_pass_until_nothing_is_left_to_see():
    A, _ = powers(200)
    for passes in (1, 4, 6):
        apply, widths = counted(A)
        assert found_by(apply, 200, 20, most=passes).products == passes
        assert widths == [20 + OVERSAMPLING] * passes
    apply, widths = counted(A)
    found_by(apply, 200, 10)
    assert len(widths) == PASSES
    apply, widths = counted(np.diag(0.3 ** np.arange(40.0)))  # which falls fast
    found_by(apply, 40, 4)
    assert len(widths) == 3


def test_values_are_lower_bounds_that_grow_with_each_product_and_converge_after_new_starts():
    A, values = powers(400, decay=0.99)
    apply, widths = counted(A)
    heard = []
    found = found_by(apply, 400, 6, most=20, tol=1e-3, on_iteration=lambda ritz: heard.append((ritz, len(widths))))
    assert PASSES + 1 < found.products < 20
    assert widths == [6 + OVERSAMPLING] * found.products
    assert [(ritz.products, made) for ritz, made in heard] == [(i, i) for i in range(1, found.products + 1)]
    assert heard[-1][0] is found
    steps = np.array([ritz.values for ritz, _ in heard])
    assert (steps <= values[:6] * (1 + 1e-12)).all()
    assert (np.diff(steps, axis=0) >= -1e-10).all()
    sizes = [ritz.residuals.max() for ritz, _ in heard]
    assert 1e-3 >= sizes[-1] < sizes[PASSES] < sizes[0]
    assert_allclose(found.values, values[:6], rtol=1e-5)
    assert_allclose(found.vectors.T @ found.vectors, np.eye(6), atol=1e-10)
    assert_allclose(A @ found.vectors, found.vectors * found.values, atol=1e-3)


def test_products_stop_at_the_tolerance_and_residuals_are_the_true_ones():
    A, _ = powers(300)
    steps = []
    for tol in (1.0, 1e-1, 1e-3):
        apply, widths = counted(A)
        found = found_by(apply, 300, 8, most=30, tol=tol)
        left = np.linalg.norm(A @ found.vectors - found.vectors * found.values, axis=0)
        assert_allclose(found.residuals, left / found.values, rtol=1e-5)
        assert found.residuals.max() <= tol
        assert found.products == len(widths)
        if found.products > 1:  # one less was not enough
            less = found_by(apply, 300, 8, most=found.products - 1, tol=tol)
            assert less.products == found.products - 1
            assert less.residuals.max() > tol
        steps.append(found.products)
    assert 1 <= steps[0] <= steps[1] < steps[2] < 30
    diagonal = 0.995 ** np.arange(120.0)  # so flat that more products are needed than blocks of 24 fit into R^120
    start = starting_block(120, 24, np.random.default_rng(0))
    found = leading_eigenpairs(lambda Q: diagonal[:, None] * Q, start, 4, most=40, tol=1e-6)
    assert 5 < found.products < 40
    assert_allclose(found.values, diagonal[:4], rtol=1e-9)
    start = np.linalg.eigh(A)[1][:, ::-1][:, :8]
    assert leading_eigenpairs(counted(A)[0], 3 * start, 5, most=9, tol=1e-10).products == 1


def action_of(V, v0, Q, cuts=()):
    """Of one block that comes in tiles."""
    return block_action([(tile.copy(), np.ones(len(tile))) for tile in np.split(V, cuts)], v0, Q)


@pytest.mark.parametrize("shift", ["none", "near the mean", "far"])
def test_an_action_is_the_scatter_times_the_block_and_those_of_any_split_add_up(shift):
    rng = np.random.default_rng(0)
    V, Q = rng.normal(size=(40, 6)) + 5, np.linalg.qr(rng.normal(size=(6, 3)))[0]
    v0 = {"none": np.zeros(6), "near the mean": V.mean(axis=0) + 0.1, "far": np.full(6, -1000.0)}[shift]
    action = action_of(V, v0, Q, [3, 3, 17])
    about_mean = (V - V.mean(axis=0)).T @ (V - V.mean(axis=0))
    rtol = 1e-11 if shift != "far" else 1e-7
    assert_allclose(action.applied(Q, v0, True), about_mean @ Q, atol=rtol * about_mean.max())
    assert_allclose(action.applied(Q, v0, False), V.T @ V @ Q, rtol=rtol, atol=rtol * (V.T @ V).max())
    assert_allclose(action.mean(v0), V.mean(axis=0), rtol=1e-11)
    assert_allclose(action.squares_about_zero(v0), (V**2).sum(), rtol=rtol)
    assert_allclose(action.squares, ((V - v0) ** 2).sum(), rtol=1e-12)
    assert (action.count, action.trace) == (40, 40.0)
    whole = action_of(V, v0, Q)
    for cuts in ([20], [1, 2, 39], [0, 13, 13, 40]):  # some of the parts are empty
        total, *parts = (action_of(part, v0, Q, [2]) for part in np.split(V, cuts))
        for part in parts:
            total = total + part
        assert (total.count, total.trace) == (whole.count, whole.trace)
        assert_allclose(total.total, whole.total, rtol=1e-12, atol=1e-12)
        assert_allclose(total.products, whole.products, rtol=1e-10, atol=1e-9)
        assert_allclose(total.squares, whole.squares, rtol=1e-12)


def test_a_shift_keeps_the_action_of_single_precision_rows():
    rng = np.random.default_rng(0)
    V32, Q = (rng.normal(size=(40, 6)) + 1005).astype(np.float32), np.linalg.qr(rng.normal(size=(6, 3)))[0]
    v0 = V32[0].astype(np.float64)  # single precision holds it
    exact = V32.astype(np.float64)
    exact -= exact.mean(axis=0)
    found = action_of(V32, v0, Q).applied(Q, v0, True)
    assert_allclose(found, exact.T @ exact @ Q, atol=1e-5 * (exact.T @ exact).max())
