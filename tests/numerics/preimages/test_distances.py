"""Pre-images from distances in feature space, against Kwok and Tsang."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import Cosine, Gaussian, Laplacian, Linear, Matern, Polynomial, RationalQuadratic
from bigkpca.numerics.methods import Nystroem, PrincipalFeatures
from bigkpca.numerics.preimages import Distances, expansion
from tests.helpers import oracles
from tests.numerics.preimages.models import GAUSSIAN, back, fitted, rows


def kwok_and_tsang(gamma, square, S, R, sigma, q):
    """Their formulas with loops and an SVD."""
    inner = np.array([sum(g * oracles.gaussian(x, s, sigma) for g, s in zip(gamma, S, strict=True)) for x in R])
    d2 = -2 * sigma**2 * np.log(np.clip((1 - square + 2 * inner) / 2, 1e-12, 1))
    near = np.argsort(d2)[:q]
    N = R[near].T  # (d, q), as they write it
    mean = N.mean(axis=1, keepdims=True)
    U, L, Vt = np.linalg.svd(N - mean, full_matrices=False)
    kept = L / L[0] > 1e-2
    Z = L[kept, None] * Vt[kept]
    d02 = (Z**2).sum(axis=0)
    return mean[:, 0] + U[:, kept] @ (-0.5 / L[kept, None] * Vt[kept] @ (d2[near] - d02)[:, None])[:, 0]


@pytest.mark.parametrize("q", [3, 8])
def test_distances_follow_kwok_and_tsang(q):
    model, X = fitted(r=8), rows(6, seed=4)
    Y = model.scores(X)
    given, R = expansion(model), rows()
    expected = [
        kwok_and_tsang(g, s, model.features.landmarks, R, 1.5, q)
        for g, s in zip(given.weights(Y), given.squares(Y), strict=True)
    ]
    assert_allclose(back(Distances(neighbours=q), model, Y, None, R).rows, expected, atol=1e-3)


@pytest.mark.parametrize("kernel", [2.0 * GAUSSIAN, RationalQuadratic(1.5), Matern(2.0, nu=0.5)], ids=str)
def test_other_radial_kernels_tell_distances_too(kernel):
    X = rows(400)
    model = fitted(kernel, r=60, X=X, size=100)
    got = back(Distances(neighbours=10), model, model.scores(X[:50]), None, X)
    assert ((got.rows - X[:50]) ** 2).mean() < 0.1


def test_rows_on_a_curve_come_back_to_it():
    """Neighbours on a circle are narrow across it, where small errors of distances would place rows far away."""
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    model = fitted(Gaussian(0.3), r=8, X=X, size=100)
    got = back(Distances(), model, model.scores(X), None, X)
    assert np.sqrt(((got.rows - X) ** 2).sum(axis=1).mean()) < 0.05


def test_there_are_no_more_neighbours_than_rows():
    model = fitted()
    assert np.isfinite(back(Distances(neighbours=30), model, model.scores(rows()), None, rows()[:4]).rows).all()


def test_kernels_and_methods_that_tell_no_distance_are_named():
    for kernel in (Laplacian(1.0), Linear(), Polynomial(1.0), Cosine()):
        with pytest.raises(SpecError, match=f"not {kernel.name}: use 'ridge' or 'denoising'"):
            Distances().check(kernel, Nystroem())
    Distances().check(GAUSSIAN, PrincipalFeatures())
    message = r"PrincipalFeatures\(.* one factor for all rows, .* use correction='pointwise', or 'fixed-point', 'ridge'"
    with pytest.raises(SpecError, match=message):
        Distances().check(GAUSSIAN, PrincipalFeatures("none"))
