"""Where the fixed point goes, begins and gives up, and the gradient that it follows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian, Matern, Polynomial
from bigkpca.numerics.methods import Exact, Nystroem
from bigkpca.numerics.preimages import FixedPoint, expansion
from bigkpca.numerics.preimages.fixed_point import begin, climb, objective
from tests.helpers import oracles
from tests.numerics.preimages.models import (
    GAUSSIAN,
    WITH_PULL,
    WITHOUT_PULL,
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


def test_where_it_ends_is_a_fixed_point_that_an_anchor_holds_at_its_start():
    model, X = fitted(r=8), rows(6, seed=4)
    gamma, S = expansion(model).weights(model.scores(X)), model.features.landmarks
    lengths = []
    for anchor in (0.0, 0.2, 50.0):
        found = back(FixedPoint(anchor=anchor, tol=1e-10, iterations=500), model, model.scores(X), X)
        assert found.converged.all()
        expected = [naive_step(g, S, z, 1.5, x, anchor) for g, z, x in zip(gamma, found.rows, X, strict=True)]
        assert_allclose(found.rows, expected, atol=1e-8)
        lengths.append(np.linalg.norm(found.rows - X, axis=1).max())
    assert lengths[0] > lengths[1] > 10 * lengths[2]


def test_without_a_start_it_begins_at_the_linear_map():
    model, X = fitted(r=8), rows(6, seed=4)
    Y = model.scores(X)
    S = model.features.landmarks
    known, of_Y = (np.hstack([scores, np.ones((len(scores), 1))]) for scores in (model.scores(S), Y))
    linear = of_Y @ np.linalg.lstsq(known, S)[0]
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
    given = expansion(fitted(method=Nystroem(), r=8))  # where the mean has other weights
    gamma = given.weights(Y) - given.weights(0 * Y)
    expected = gamma - gamma.sum(axis=1, keepdims=True) * given.origin
    assert_allclose(given.without_mean().weights(Y), expected, atol=1e-12)


def test_no_step_makes_it_worse():
    S, Z = rows(9), rows(20, seed=1) * 2
    gamma = np.random.default_rng(2).normal(size=(20, 9)) + 0.5
    goal = objective(KernelRows(GAUSSIAN, np.zeros(3), S), 20)
    sound = goal.at(Z, gamma).weight > 0
    Z, gamma = Z[sound], gamma[sound]
    for hold in (0.0, 0.1):
        steps = [Z, *(climb(goal, Z, gamma, hold=hold, tol=1e-8, most=most).rows for most in range(1, 15))]
        values = [goal.at(R, gamma).value - hold / 2 * ((R - Z) ** 2).sum(axis=1) for R in steps]
        assert (np.diff(values, axis=0) >= -1e-13).all()
        assert (values[-1] > values[0]).all()


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
    assert len(objective(KernelRows(GAUSSIAN, np.zeros(3), rows(2000)), 1).candidates) <= 512  # not all are tried
    S = np.array([[0.0], [4.0], [9.0]])
    features = KernelRows(Gaussian(1.0), np.zeros(1), S)
    goal, gamma = objective(features, 3), np.array([[1.0, -0.5, 0.1]] * 3)
    starts = np.array([[4.1], [0.3], [1e3]])  # pushed away, pulled, and without a kernel value with anything
    norms = np.array([np.sqrt(gamma[0] @ features.gram() @ gamma[0])] * 3)
    Z, far = begin(goal, starts, gamma, norms, known=True)
    assert_array_equal(Z, [[0.0], [0.3], [1e3]])
    assert_array_equal(far, [False, False, True])
    Z, far = begin(goal, starts, gamma, norms, known=False)
    assert_array_equal(Z, [[0.0], [0.3], [0.0]])
    assert_array_equal(far, [False, False, False])
    _, far = begin(goal, starts, -np.ones((3, 3)), np.ones(3), known=False)
    assert far.all()  # no landmark explains such scores
    S = np.array([[1.0, 0.0], [3.0, 1.0]])
    features = KernelRows(Polynomial(1.0, degree=2, coef0=0.0), np.zeros(2), S)
    Z, far = begin(objective(features, 1), np.zeros((1, 2)), np.array([[1.0, 0.0]]), np.ones(1), known=False)
    assert_array_equal(Z, S[:1])  # where F = 1 - 1/2, and at the other, which is longer, 9 - 100/2
    assert not far.any()


def test_a_point_far_from_the_data_is_the_mean_and_says_so():
    model, X = fitted(r=8), rows(4, seed=4)
    X[1] += 500.0
    X[3] -= 500.0
    got = back(FixedPoint(), model, model.scores(X), X)
    assert_array_equal(got.far, [False, True, False, True])
    assert_array_equal(got.converged, [True, False, True, False])
    assert_array_equal(got.iterations[got.far], 0)
    assert_allclose(got.rows[got.far], np.tile(model.features.landmarks.mean(axis=0), (2, 1)), rtol=1e-12)
    waves = random_fitted("principal", X=rows(100))  # whose features vanish away from the axes
    assert_allclose(back(FixedPoint(), waves, waves.scores(X[1:2]), X[1:2], rows(100)).rows[0], rows(100).mean(axis=0))
    got = back(FixedPoint(mean_term=False), model, np.zeros((2, 8)))  # φ^ is the mean, whose weights it drops
    assert got.far.all()
    assert not got.converged.any()
    assert_allclose(got.rows, np.tile(model.features.landmarks.mean(axis=0), (2, 1)), rtol=1e-12)


@pytest.mark.parametrize("kernel", WITH_PULL, ids=str)
def test_the_gradient_over_landmarks_is_that_of_a_naive_objective(kernel):
    S, Z, gamma = rows(7), rows(4, seed=1), np.random.default_rng(2).normal(size=(4, 7))
    at = objective(KernelRows(kernel, np.zeros(3), S), 4).at(Z, gamma)
    constant = 0 if kernel.towards == "product" else kernel.diagonal(Z) / 2
    naive = [naive_objective(kernel, S, g, z) for g, z in zip(gamma, Z, strict=True)]
    assert_allclose(at.value - constant, naive, atol=1e-12)
    expected = [slope(lambda z, g=g: naive_objective(kernel, S, g, z), z) for g, z in zip(gamma, Z, strict=True)]
    assert_allclose(at.image - at.weight[:, None] * Z, expected, rtol=1e-5, atol=1e-7)
    K, weights = np.empty((2, 4, 4))  # the pull of a row at itself is the limit of pulls near it
    kernel.gradient_weights(Z + 1e-6, 4)(Z, K, weights)
    assert_allclose(weights.diagonal(), kernel.own_gradient_weight(Z), rtol=1e-4)


@pytest.mark.parametrize("kind", ["pairs", "principal", "principal-alpha"])
def test_the_gradient_over_waves_is_that_of_the_features(kind):
    features = random_fitted(kind).features
    Z, gamma = rows(4, seed=1), np.random.default_rng(2).normal(size=(4, features.size))

    def naive(z, g):
        ((V, _),) = features.tiles([z[None]], 1)
        return float(V[0] @ g)

    at = objective(features, 4).at(Z, gamma)
    assert_allclose(at.value, [naive(z, g) for z, g in zip(Z, gamma, strict=True)], rtol=1e-10)
    expected = [slope(lambda z, g=g: naive(z, g), z) for z, g in zip(Z, gamma, strict=True)]
    assert_allclose(at.image - at.weight[:, None] * Z, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", WITHOUT_PULL, ids=lambda k: k.name)
def test_kernels_without_a_pull_say_what_works(kernel):
    ways = "'mds', " if isinstance(kernel, Matern) else ""  # which tells distances
    message = f"pre-images of the {kernel.name} kernel have no fixed point: use {ways}'ridge' or 'denoising'"
    with pytest.raises(SpecError, match=message):
        FixedPoint().check(kernel, Nystroem())
