"""What scores stand for as weights of landmarks or features, and the residuals that they leave."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.numerics.kernels import Linear
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem
from bigkpca.numerics.preimages import expansion, residuals
from tests.numerics.preimages.models import GAUSSIAN, fitted, rows


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
