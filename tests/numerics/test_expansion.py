"""What scores stand for as weights of landmarks or features, and the residuals that they leave."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.numerics.kernels import Linear
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem
from bigkpca.numerics.preimages import expansion, residuals
from tests.helpers import oracles
from tests.numerics.preimages.models import GAUSSIAN, RANDOM, fitted, random_fitted, rows


@pytest.mark.parametrize("center", [True, False])
def test_of_all_rows_weights_are_those_of_kwok_and_tsang(center):
    X, r = rows(), 4
    K = oracles.matrix(lambda x, y: oracles.gaussian(x, y, 1.5), X, X)
    values, scores = oracles.gram_kpca(K, r, center)
    alpha = scores / values
    model = fitted(method=Exact(), r=r, center=center)
    Y = model.scores(X[:7])
    gamma = Y @ oracles.with_signs_of(alpha, model.solution.components).T
    expected = [[g + (1 - sum(row)) / len(X) if center else g for g in row] for row in gamma]
    assert_allclose(expansion(model).weights(Y), expected, atol=1e-10)


@pytest.mark.parametrize("center", [True, False])
def test_landmarks_reconstruct_the_projection_in_their_span(center):
    model = fitted(center=center)
    P = np.linalg.inv(np.linalg.cholesky(model.features.gram())).T  # z(x) = P'k_S(x), <z, z> = k^
    Z = GAUSSIAN(rows(), model.features.landmarks) @ P
    mean = Z.mean(axis=0) if center else np.zeros(Z.shape[1])
    V = np.linalg.svd(Z - mean, full_matrices=False)[2][:5].T
    Q = GAUSSIAN(rows(9, seed=4), model.features.landmarks) @ P
    projected = mean + (Q - mean) @ V @ V.T
    Y = model.scores(rows(9, seed=4))
    assert_allclose(expansion(model).weights(Y), projected @ P.T, atol=1e-6)
    assert_allclose(expansion(model).squares(Y), (projected**2).sum(axis=1), rtol=1e-8)


@pytest.mark.parametrize(("method", "center"), [(Nystroem("thesis"), True), (ColumnSampling(), False)])
def test_scores_of_other_landmark_methods_stand_for_their_least_squares(method, center):
    model = fitted(method=method, center=center)
    P = np.linalg.inv(np.linalg.cholesky(model.features.gram())).T
    Z, Y = GAUSSIAN(rows(), model.features.landmarks) @ P, model.scores(rows())
    one = np.ones((len(Y), 1)) if center else np.ones((len(Y), 0))
    map_of = np.linalg.lstsq(np.hstack([Y, one]), Z, rcond=None)[0]
    Q = model.scores(rows(9, seed=4))
    expected = np.hstack([Q, one[:9]]) @ map_of @ P.T
    assert_allclose(expansion(model).weights(Q), expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", RANDOM)
def test_of_random_features_the_weights_are_the_reconstruction_itself(kind):
    model = random_fitted(kind)
    X = rows(9, seed=4)
    ((V, _),) = model.features.tiles([X], 9)
    mean, A = model.solution.mean, model.solution.components
    projected = mean + (V - mean) @ A @ A.T
    assert_allclose(expansion(model).weights(model.scores(X)), projected, atol=1e-12)
    assert_allclose(expansion(model).squares(model.scores(X)), (projected**2).sum(axis=1), rtol=1e-10)


def residuals_of(model, X):
    ((V, _),) = model.features.tiles([X], len(X))
    return residuals(expansion(model), model.solution, V, model.features.kernel.diagonal(model.features.shifted(X)))


@pytest.mark.parametrize("method", [Nystroem(), Nystroem("thesis"), ColumnSampling(), Exact()], ids=str)
@pytest.mark.parametrize("center", [True, False])
def test_residuals_are_distances_in_feature_space(method, center):
    model, Q = fitted(method=method, center=center), rows(8, seed=4)
    given, Y = expansion(model), model.scores(Q)
    G, W, C = given.weights(Y), model.features.gram(), GAUSSIAN(Q, model.features.landmarks)
    assert_allclose(given.squares(Y), [g @ W @ g for g in G], rtol=1e-8)
    expected = [1 - 2 * g @ c + g @ W @ g for g, c in zip(G, C, strict=True)]
    assert_allclose(residuals_of(model, Q), np.maximum(expected, 0), rtol=1e-8, atol=1e-10)
    if not center and method in (Nystroem(), Exact()):
        assert_allclose(residuals_of(model, Q), 1 - (Y**2).sum(axis=1), rtol=1e-8)


def test_residuals_are_never_negative():
    X = rows() + 1e4  # so that what is left of <x, x> after all components is rounding
    left = residuals_of(fitted(Linear(), r=3, X=X), X)
    assert (left == 0).any()
    assert left.min() >= 0
    assert left.max() < 1e-9 * (X**2).sum(axis=1).max()
