"""Ways back where the answer is known: principal component analysis, the landmarks themselves, random features."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import Gaussian, Linear, Matern, RationalQuadratic
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem
from bigkpca.numerics.preimages import Distances, FixedPoint, Ridge
from tests.numerics.preimages.models import RANDOM, WAYS, back, decoder, fitted, random_fitted, rows

X = rows(80, 5) * [5, 3, 2, 1, 0.5] + [3, -2, 9, 0, 1]
Q = X[:9] + 0.3


def pca(r, center=True):
    """The reconstruction of Q from r principal components of X."""
    mean = X.mean(axis=0) if center else np.zeros(X.shape[1])
    V = np.linalg.svd(X - mean, full_matrices=False)[2][:r].T
    return mean + (Q - mean) @ V @ V.T


@pytest.mark.parametrize(
    ("method", "r", "center"),
    [
        (Exact(), 2, True),
        (Exact(), 2, False),
        (Nystroem(), 3, True),
        (ColumnSampling(), 5, True),  # whose scores are others, but of all components span the same
    ],
    ids=str,
)
def test_the_linear_kernel_gives_pca_back_with_its_mean(method, r, center):
    model = fitted(Linear(), r, method, X=X, size=40, center=center)
    for start in (None, Q):
        got = back(FixedPoint(), model, model.scores(Q), start, X).rows
        assert_allclose(got, pca(r, center), atol=1e-8)


@pytest.mark.parametrize("kernel", [Gaussian(300.0), RationalQuadratic(300.0), Matern(300.0, nu=2.5)], ids=str)
def test_a_very_wide_kernel_gives_pca_back(kernel):
    model = fitted(kernel, 3, Exact(), X=X, offset=X.mean(axis=0))
    for start in (None, Q):
        got = back(FixedPoint(), model, model.scores(Q), start, X)
        assert np.linalg.norm(got.rows - pca(3)) < 5e-3 * np.linalg.norm(pca(3))
        assert got.converged.all()


def test_all_components_give_the_landmarks_back():
    model = fitted(r=None, size=12)
    S = model.features.landmarks
    for way in (FixedPoint(), Ridge(ridge=0.0, size=60), Distances(neighbours=8)):
        assert_allclose(back(way, model, model.scores(S)).rows, S, atol=0.2 if way.name == "mds" else 5e-3)


@pytest.mark.parametrize("kind", RANDOM)
def test_random_features_have_pre_images_too(kind):
    X = rows(400)
    model = random_fitted(kind, r=12, X=X)
    lacking = {"phase": ["fixed-point"], "sketch": ["fixed-point", "mds"], "principal-alpha": ["mds"]}
    lost = 1 / 3 if kind.startswith("principal") else 0  # one of three columns' worth lies off the axes
    for way in WAYS:
        if way.name in lacking.get(kind, []):
            with pytest.raises(SpecError, match=r"use .*'ridge' or 'denoising'"):
                way.check(model.features.kernel, model.method)
            continue
        got = back(way, model, model.scores(X[:50]), None, X)
        assert ((got.rows - X[:50]) ** 2).mean() < (lost + 0.15) * X.var()
        assert not got.far.any()


def test_one_factor_for_all_rows_leaves_what_is_off_the_axes_to_the_linear_map():
    X = rows(400)
    model = random_fitted("principal-alpha", r=12, X=X)
    Y, axes = model.scores(X[:5]), model.features.axes
    got, made = back(FixedPoint(), model, Y, X[:5] + 9.0, X).rows, decoder(FixedPoint(), model, X)
    linear = made.mean_row + (Y - made.mean_score) @ made.weights
    off = np.eye(3) - axes @ axes.T
    assert_allclose(got @ off, linear @ off, atol=1e-10)
