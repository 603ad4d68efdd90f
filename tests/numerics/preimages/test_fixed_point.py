"""Where the fixed point goes, where it begins, and where it gives up."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import (
    Gaussian,
    Polynomial,
)
from bigkpca.numerics.methods import Exact, Nystroem
from bigkpca.numerics.preimages import (
    FixedPoint,
    expansion,
)
from bigkpca.numerics.preimages import Linear as LinearMap
from bigkpca.numerics.preimages.fixed_point_start import begin, candidates_of
from bigkpca.numerics.preimages.fixed_point_steps import climb
from bigkpca.numerics.preimages.objective import objective
from tests.helpers import oracles
from tests.numerics.preimages.models import (
    GAUSSIAN,
    WITH_PULL,
    back,
    fitted,
    naive_objective,
    random_fitted,
    rows,
    slope,
)


def naive_step(gamma, S, z, sigma, x, tau):
    """One step of Mika's iteration, with an anchor at x."""
    top, bottom = [tau * a for a in x], tau
    for g, s in zip(gamma, S, strict=True):
        w = g * oracles.gaussian(z, s, sigma)
        bottom += w
        top = [t + w * a for t, a in zip(top, s, strict=True)]
    return [t / bottom for t in top]


def test_the_first_step_is_mikas():
    model, X = fitted(r=8), rows(6, seed=4)
    gamma = expansion(model).weights(model.scores(X))
    once = back(FixedPoint(iterations=1), model, model.scores(X), X)
    expected = [naive_step(g, model.features.landmarks, x, 1.5, x, 0) for g, x in zip(gamma, X, strict=True)]
    assert_allclose(once.rows, expected, atol=1e-10)
    assert_array_equal(once.iterations, 1)
    assert not once.converged.any()


@pytest.mark.parametrize("anchor", [0.0, 0.2])
def test_where_it_ends_is_a_fixed_point(anchor):
    model, X = fitted(r=8), rows(6, seed=4)
    gamma = expansion(model).weights(model.scores(X))
    found = back(FixedPoint(anchor=anchor, tol=1e-10, iterations=500), model, model.scores(X), X)
    assert found.converged.all()
    landmarks = model.features.landmarks
    expected = [naive_step(g, landmarks, z, 1.5, x, anchor) for g, z, x in zip(gamma, found.rows, X, strict=True)]
    assert_allclose(found.rows, expected, atol=1e-8)


@pytest.mark.parametrize("kernel", WITH_PULL, ids=str)
def test_the_gradient_is_gone_where_it_ends_for_every_kernel_with_a_pull(kernel):
    model, X = fitted(kernel, r=6), rows(6, seed=4)
    gamma = expansion(model).weights(model.scores(X))
    found = back(FixedPoint(tol=1e-7, iterations=1000), model, model.scores(X), X)
    assert found.converged.all()
    left = [
        slope(lambda z, g=g: naive_objective(kernel, model.features.landmarks, g, z), z)
        for z, g in zip(found.rows, gamma, strict=True)
    ]
    scale = kernel.own_gradient_weight(X).mean()
    assert_allclose(left, 0, atol=2e-6 * scale)


def test_an_anchor_holds_a_row_at_its_start():
    model, X = fitted(r=3), rows(6, seed=4)
    ways = [back(FixedPoint(anchor=a), model, model.scores(X), X).rows - X for a in (0.0, 0.5, 50.0)]
    lengths = [np.linalg.norm(way, axis=1).max() for way in ways]
    assert lengths[0] > lengths[1] > 10 * lengths[2]


def test_without_a_start_it_begins_at_the_linear_map():
    model, X = fitted(r=8), rows(6, seed=4)
    Y = model.scores(X)
    linear = back(LinearMap(), model, Y).rows
    assert_allclose(back(FixedPoint(), model, Y).rows, back(FixedPoint(), model, Y, linear).rows, atol=1e-9)


def test_the_thesis_form_is_the_update_of_the_thesis():
    model, X = fitted(method=Exact(), r=8), rows(6, seed=4)
    Y = model.scores(X)
    gamma = Y @ model.solution.components.T
    gamma -= gamma.sum(axis=1, keepdims=True) / len(rows())
    Z = X
    for _ in range(3):
        Z = np.array([naive_step(g, rows(), z, 1.5, z, 0) for g, z in zip(gamma, Z, strict=True)])
    got = back(FixedPoint(mean_term=False, iterations=3), model, Y, X)
    assert_allclose(got.rows, Z, rtol=1e-6)
    assert_array_equal(got.iterations, 3)


def test_the_thesis_form_subtracts_the_mean_once_more():
    model = fitted(method=Nystroem(), r=8)
    given, Y = expansion(model), model.scores(rows(6, seed=4))
    gamma = Y @ model.solution.components.T
    expected = gamma - gamma.sum(axis=1, keepdims=True) * given.origin
    assert_allclose(given.without_mean().weights(Y), expected, atol=1e-12)


def test_a_row_that_leaves_the_numbers_in_the_thesis_form_is_the_mean():
    model = fitted(r=3)
    got = back(FixedPoint(mean_term=False), model, np.zeros((2, 3)))  # φ^ is the mean, whose weights it drops
    assert got.far.all()
    assert not got.converged.any()
    assert_allclose(got.rows, np.tile(model.features.landmarks.mean(axis=0), (2, 1)), rtol=1e-12)


@pytest.mark.parametrize("hold", [0.0, 0.1])
def test_no_step_makes_it_worse(hold):
    S, Z = rows(9), rows(20, seed=1) * 2
    gamma = np.random.default_rng(2).normal(size=(20, 9)) + 0.5
    goal = objective(KernelRows(GAUSSIAN, np.zeros(3), S), 20)
    sound = goal.at(Z, gamma).weight > 0
    Z, gamma = Z[sound], gamma[sound]

    def value(R):
        return goal.at(R, gamma).value - hold / 2 * ((R - Z) ** 2).sum(axis=1)

    values = [value(climb(goal, Z, gamma, hold=hold, tol=1e-8, most=most).rows) for most in range(1, 15)]
    assert (np.diff(values, axis=0) >= -1e-13).all()
    assert (values[-1] > value(Z)).all()


def test_rows_converge_each_on_its_own():
    model, X = fitted(r=8), rows(6, seed=4)
    Y = model.scores(X)
    there = back(FixedPoint(tol=1e-9), model, Y, X).rows
    mixed = np.where(np.arange(6)[:, None] % 2, there, X)
    got = back(FixedPoint(tol=1e-6, iterations=2), model, Y, mixed)
    assert_array_equal(got.converged, [False, True] * 3)
    assert_array_equal(got.iterations, [2, 1] * 3)
    alone = [back(FixedPoint(tol=1e-6, iterations=2), model, Y[i : i + 1], mixed[i : i + 1]).rows[0] for i in range(6)]
    assert_allclose(got.rows, alone, atol=1e-12)


def test_a_start_that_is_pushed_away_moves_to_the_landmark_that_explains_most():
    S = np.array([[0.0], [4.0], [9.0]])
    features = KernelRows(Gaussian(1.0), np.zeros(1), S)
    goal, gamma = objective(features, 3), np.array([[1.0, -0.5, 0.1]] * 3)
    starts = np.array([[4.1], [0.3], [1e3]])  # pushed away, pulled, and without a kernel value with anything
    norms = np.array([np.sqrt(gamma[0] @ features.gram() @ gamma[0])] * 3)
    Z, far = begin(goal, starts, gamma, norms, candidates_of(features), known=True)
    assert_array_equal(Z, [[0.0], [0.3], [1e3]])
    assert_array_equal(far, [False, False, True])
    Z, far = begin(goal, starts, gamma, norms, candidates_of(features), known=False)
    assert_array_equal(Z, [[0.0], [0.3], [0.0]])
    assert_array_equal(far, [False, False, False])


def test_the_landmark_that_explains_most_of_a_polynomial_is_not_the_longest():
    S = np.array([[1.0, 0.0], [3.0, 1.0]])
    features = KernelRows(Polynomial(1.0, degree=2, coef0=0.0), np.zeros(2), S)
    candidates = candidates_of(features)
    gamma = np.array([[1.0, 0.0]])
    Z, far = begin(objective(features, 1), np.zeros((1, 2)), gamma, np.ones(1), candidates, known=False)
    assert_array_equal(Z, S[:1])  # where F = 1 - 1/2, and at the other 9 - 100/2
    assert not far.any()


def test_scores_that_no_landmark_explains_are_far():
    S = np.array([[0.0], [4.0]])
    features = KernelRows(Gaussian(1.0), np.zeros(1), S)
    _, far = begin(objective(features, 1), S[:1], -np.ones((1, 2)), np.ones(1), candidates_of(features), known=False)
    assert far.all()


def test_a_point_far_from_the_data_is_the_mean_and_says_so():
    model, X = fitted(r=8), rows(4, seed=4)
    X[1] += 500.0
    X[3] -= 500.0
    got = back(FixedPoint(), model, model.scores(X), X)
    assert_array_equal(got.far, [False, True, False, True])
    assert_array_equal(got.converged, [True, False, True, False])
    assert_array_equal(got.iterations[got.far], 0)
    assert_allclose(got.rows[got.far], np.tile(model.features.landmarks.mean(axis=0), (2, 1)), rtol=1e-12)


def test_a_point_far_from_all_waves_is_the_mean_and_says_so():
    X = rows(400)
    model = random_fitted("principal", X=X)  # whose features vanish away from the axes
    far = X[:2] + 40.0
    got = back(FixedPoint(), model, model.scores(far), far, X=X)
    assert got.far.all()
    assert_allclose(got.rows, np.tile(X.mean(axis=0), (2, 1)), atol=1e-12)


def test_many_landmarks_are_not_all_tried():
    S = rows(2000)
    assert len(candidates_of(KernelRows(GAUSSIAN, np.zeros(3), S)).rows) <= 512
    assert len(candidates_of(random_fitted("pairs").features).rows) == 0
