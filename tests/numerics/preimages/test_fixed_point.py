"""Where the fixed point goes, begins and gives up, and the gradient that it follows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import (
    Cosine,
    Function,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
)
from bigkpca.numerics.methods import Exact, Nystroem
from bigkpca.numerics.preimages import FixedPoint, expansion
from bigkpca.numerics.preimages.fixed_point import begin, climb, objective
from tests.helpers import oracles
from tests.numerics.preimages.models import GAUSSIAN, back, fitted, random_fitted, rows

X = rows(6, seed=4)


@pytest.fixture(scope="module")
def model():
    return fitted(r=8)


def naive_step(gamma, S, z, x, tau):
    """One step of Mika's iteration, with an anchor at x."""
    top, bottom = [tau * a for a in x], tau
    for g, s in zip(gamma, S, strict=True):
        w = g * oracles.gaussian(z, s, GAUSSIAN.sigma)
        bottom += w
        top = [t + w * a for t, a in zip(top, s, strict=True)]
    return [t / bottom for t in top]


def test_the_first_step_is_mikas(model):
    gamma = expansion(model).weights(model.scores(X))
    once = back(FixedPoint(iterations=1), model, model.scores(X), X)
    expected = [naive_step(g, model.features.landmarks, x, x, 0) for g, x in zip(gamma, X, strict=True)]
    assert_allclose(once.rows, expected, atol=1e-10)
    assert_array_equal(once.iterations, 1)
    assert not once.converged.any()


def test_where_it_ends_is_a_fixed_point_that_an_anchor_holds_at_its_start(model):
    gamma, S = expansion(model).weights(model.scores(X)), model.features.landmarks
    lengths = []
    for anchor in (0.0, 0.2, 50.0):
        found = back(FixedPoint(anchor=anchor, tol=1e-10, iterations=500), model, model.scores(X), X)
        assert found.converged.all()
        expected = [naive_step(g, S, z, x, anchor) for g, z, x in zip(gamma, found.rows, X, strict=True)]
        assert_allclose(found.rows, expected, atol=1e-8)
        lengths.append(np.linalg.norm(found.rows - X, axis=1).max())
    assert lengths[0] > lengths[1] > 10 * lengths[2]


def test_without_a_start_it_begins_at_the_linear_map(model):
    S, Y = model.features.landmarks, model.scores(X)
    known, of_Y = (np.hstack([scores, np.ones((len(scores), 1))]) for scores in (model.scores(S), Y))
    linear = of_Y @ np.linalg.lstsq(known, S)[0]
    assert_allclose(back(FixedPoint(), model, Y).rows, back(FixedPoint(), model, Y, linear).rows, atol=1e-9)


def test_the_thesis_form_is_the_update_of_the_thesis(model):
    exact = fitted(method=Exact(), r=8)
    Y = exact.scores(X)
    gamma = Y @ exact.solution.components.T
    gamma -= gamma.sum(axis=1, keepdims=True) / len(rows())
    Z = X
    for _ in range(3):
        Z = np.array([naive_step(g, rows(), z, z, 0) for g, z in zip(gamma, Z, strict=True)])
    got = back(FixedPoint(mean_term=False, iterations=3), exact, Y, X)
    assert_allclose(got.rows, Z, rtol=1e-6)
    assert_array_equal(got.iterations, 3)
    given = expansion(model)  # where the mean has other weights
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


def test_rows_converge_each_on_its_own(model):
    Y, way = model.scores(X), FixedPoint(tol=1e-6, iterations=2)
    there = back(FixedPoint(tol=1e-9), model, Y, X).rows
    mixed = np.where(np.arange(6)[:, None] % 2, there, X)
    got = back(way, model, Y, mixed)
    assert_array_equal(got.converged, [False, True] * 3)
    assert_array_equal(got.iterations, [2, 1] * 3)
    alone = [back(way, model, Y[i : i + 1], mixed[i : i + 1]).rows[0] for i in range(6)]
    assert_allclose(got.rows, alone, atol=1e-12)


def test_a_start_that_is_pushed_away_moves_to_the_landmark_that_explains_most():
    assert len(objective(KernelRows(GAUSSIAN, np.zeros(3), rows(2000)), 1).candidates) <= 512  # not all are tried
    S = np.array([[0.0], [4.0], [9.0]])
    features = KernelRows(Gaussian(1.0), np.zeros(1), S)
    goal, gamma = objective(features, 3), np.array([[1.0, -0.5, 0.1]] * 3)
    starts = np.array([[4.1], [0.3], [1e3]])  # pushed away, pulled, and without a kernel value with anything
    norms = np.array([np.sqrt(gamma[0] @ features.gram() @ gamma[0])] * 3)
    for known, expected, expected_far in ((True, [0.0, 0.3, 1e3], [False, False, True]), (False, [0.0, 0.3, 0.0], 0)):
        Z, far = begin(goal, starts, gamma, norms, known=known)
        assert_array_equal(Z[:, 0], expected)
        assert_array_equal(far, expected_far)
    _, far = begin(goal, starts, -np.ones((3, 3)), np.ones(3), known=False)
    assert far.all()  # no landmark explains such scores
    S = np.array([[1.0, 0.0], [3.0, 1.0]])
    features = KernelRows(Polynomial(1.0, degree=2, coef0=0.0), np.zeros(2), S)
    Z, far = begin(objective(features, 1), np.zeros((1, 2)), np.array([[1.0, 0.0]]), np.ones(1), known=False)
    assert_array_equal(Z, S[:1])  # where F = 1 - 1/2, and at the other, which is longer, 9 - 100/2
    assert not far.any()


def test_a_point_far_from_the_data_is_the_mean_and_says_so(model):
    Q, mean = rows(4, seed=4), model.features.landmarks.mean(axis=0)
    Q[1] += 500.0
    Q[3] -= 500.0
    got = back(FixedPoint(), model, model.scores(Q), Q)
    assert_array_equal(got.far, [False, True, False, True])
    assert_array_equal(got.converged, ~got.far)
    assert_array_equal(got.iterations[got.far], 0)
    assert_allclose(got.rows[got.far], np.tile(mean, (2, 1)), rtol=1e-12)
    waves = random_fitted("principal", X=rows(100))  # whose features vanish away from the axes
    assert_allclose(back(FixedPoint(), waves, waves.scores(Q[1:2]), Q[1:2], rows(100)).rows[0], rows(100).mean(axis=0))
    got = back(FixedPoint(mean_term=False), model, np.zeros((2, 8)))  # φ^ is the mean, whose weights it drops
    assert got.far.all()
    assert not got.converged.any()
    assert_allclose(got.rows, np.tile(mean, (2, 1)), rtol=1e-12)


def slopes(f, Z, gamma, h=1e-5):
    """The gradients of f(z, gamma) at each row."""
    steps = h * np.eye(Z.shape[1])
    pairs = zip(Z, gamma, strict=True)
    return [[(f(z + step, g) - f(z - step, g)) / (2 * h) for step in steps] for z, g in pairs]


@pytest.mark.parametrize(
    "kernel",
    [
        GAUSSIAN,
        RationalQuadratic(1.5, alpha=2.5),
        Matern(2.0, nu=3.2),
        Polynomial(0.3, degree=2, coef0=0.0),
        Linear(),
    ],
    ids=str,
)
def test_the_gradient_over_landmarks_is_that_of_a_naive_objective(kernel):
    S, Z, gamma = rows(7), rows(4, seed=1), np.random.default_rng(2).normal(size=(4, 7))

    def naive(z, g):
        values = sum(weight * kernel(z[None], s[None]).item() for weight, s in zip(g, S, strict=True))
        return values - kernel.diagonal(z[None]).item() / 2

    at = objective(KernelRows(kernel, np.zeros(3), S), 4).at(Z, gamma)
    constant = 0 if kernel.towards == "product" else kernel.diagonal(Z) / 2
    assert_allclose(at.value - constant, [naive(z, g) for z, g in zip(Z, gamma, strict=True)], atol=1e-12)
    assert_allclose(at.image - at.weight[:, None] * Z, slopes(naive, Z, gamma), rtol=1e-5, atol=1e-7)
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
    assert_allclose(at.image - at.weight[:, None] * Z, slopes(naive, Z, gamma), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "kernel",
    [
        *(Laplacian(2.0), Matern(2.0, nu=1.0), Cosine(), GAUSSIAN + Linear(), GAUSSIAN * Laplacian(2.0)),
        *(2.0 * GAUSSIAN, Function(lambda X, Y: X @ Y.T)),
    ],
    ids=lambda k: k.name,
)
def test_kernels_without_a_gradient_say_what_works(kernel):
    ways = "'mds', " if kernel.radial else ""  # which tells distances
    message = f"pre-images of the {kernel.name} kernel have no fixed point: use {ways}'ridge' or 'denoising'"
    with pytest.raises(SpecError, match=message):
        FixedPoint().check(kernel, Nystroem())
