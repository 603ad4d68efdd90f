"""Kernels, pre-images and small models that the tests of pre-images share."""

from dataclasses import replace

import numpy as np

from bigkpca.numerics.features import FourierRows, KernelRows, PrincipalFourierRows, tensor_sketch
from bigkpca.numerics.kernels import (
    Cosine,
    Function,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem, PrincipalFeatures, RandomFeatures
from bigkpca.numerics.moments import Rounding, shifted_sums
from bigkpca.numerics.preimages import Denoising, Distances, Fitted, FixedPoint, Ridge, reconstructing
from tests.numerics.fits import span_of

GAUSSIAN = Gaussian(1.5)
NYSTROEM = Nystroem()
WITH_PULL = [
    GAUSSIAN,
    RationalQuadratic(1.5),
    RationalQuadratic(1.5, alpha=2.5),
    Matern(1.5),
    Matern(2.0, nu=2.5),
    Matern(2.0, nu=3.2),
    Linear(),
    Polynomial(0.3),
    Polynomial(0.3, degree=2, coef0=0.0),
    GAUSSIAN + Matern(2.0),
    GAUSSIAN * RationalQuadratic(2.0),
    3.0 * GAUSSIAN,
    Linear() + 0.5 * Polynomial(0.3),
    Linear() * Polynomial(0.3),
]
WITHOUT_PULL = [
    Laplacian(2.0),
    Matern(2.0, nu=0.5),
    Matern(2.0, nu=1.0),
    Cosine(),
    Sigmoid(0.1),
    GAUSSIAN + Linear(),
    GAUSSIAN * Laplacian(2.0),
    2.0 * Laplacian(2.0),
    Function(lambda X, Y: X @ Y.T),
]
BY_LANDMARKS = [Nystroem(), Nystroem("thesis"), ColumnSampling(), Exact()]
WAYS = [FixedPoint(), Distances(neighbours=6), Ridge(size=12), Denoising(noise=0.1, size=12)]


def rows(n=60, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def solved(features, X, r, method, center=True):
    """A model's parts, as one pass over X makes them."""
    ((V, diagonal),) = features.tiles([X], len(X))
    about = V.mean(axis=0, dtype=np.float64)
    moments = shifted_sums([(V.copy(), diagonal)], about, Rounding.unknown(len(about)), None).moments
    tolerance = 1e-12 if features.dtype == np.float64 else 1e-7
    span = span_of(features.gram(), moments, tolerance, positive=features.kernel.positive) if method.landmarks else None
    solution = method.solve(moments, features, r, center, tolerance, span)
    return Fitted(features, solution, None if method == Exact() else moments, method)


def fitted(
    kernel=GAUSSIAN, r=5, method=NYSTROEM, *, X=None, size=20, center=True, offset=None, scale=None, dtype=float
):
    X = rows() if X is None else X
    offset = np.zeros(X.shape[1]) if offset is None else offset
    columns = KernelRows(kernel, offset, X[:1].astype(dtype), scale=scale)
    S = columns.shifted(X if method == Exact() else X[:: max(1, len(X) // size)])
    return solved(replace(columns, landmarks=S), X, r, method, center)


def random_fitted(kind, r=5, X=None):
    X = rows() if X is None else X
    d, zero = X.shape[1], np.zeros(X.shape[1])
    W = np.random.default_rng(1).normal(size=(40, d)) / GAUSSIAN.sigma
    if kind == "sketch":
        rng = np.random.default_rng(1)
        features = tensor_sketch(Polynomial(0.3), 64, zero, None, rng, np.dtype(float))
        return solved(features, X, r, RandomFeatures())
    if kind.startswith("principal"):
        axes = np.linalg.qr(np.random.default_rng(2).normal(size=(d, d - 1)))[0]
        factor = 0.8 if kind == "principal-alpha" else None
        features = PrincipalFourierRows(GAUSSIAN, zero, W[:, : d - 1], axes, None, factor)
        return solved(features, X, r, PrincipalFeatures("alpha" if factor else "pointwise"))
    phases = np.random.default_rng(2).uniform(0, 2 * np.pi, 40) if kind == "phase" else None
    return solved(FourierRows(GAUSSIAN, zero, W, phases), X, r, RandomFeatures("phase" if kind == "phase" else "iid"))


RANDOM = ["pairs", "phase", "principal", "principal-alpha", "sketch"]


def decoder(way, model, X=None):
    """The decoder that a way makes from all of X, of which it may take a part."""
    return way.decoder(model, rows() if X is None else X)


def back(way, model, Y, start=None, X=None):
    """Pre-images in the units of the data, from a decoder that is made anew."""
    return reconstructing(decoder(way, model, X), model.features, model.solution, max(len(Y), 1))(Y, start)


def pca(X, Q, r, center=True):
    """The reconstruction of Q from r principal components of X."""
    mean = X.mean(axis=0) if center else np.zeros(X.shape[1])
    V = np.linalg.svd(X - mean, full_matrices=False)[2][:r].T
    return mean + (Q - mean) @ V @ V.T


def naive_objective(kernel, S, gamma, z):
    values = sum(g * kernel(z[None], s[None]).item() for g, s in zip(gamma, S, strict=True))
    return values - kernel.diagonal(z[None]).item() / 2


def slope(f, z, h=1e-5):
    return np.array([(f(z + h * e) - f(z - h * e)) / (2 * h) for e in np.eye(len(z))])


def naive_regression(F, X, penalty):
    """w with intercept by numpy's least squares, the penalty as more rows."""
    f, x = F - F.mean(axis=0), X - X.mean(axis=0)
    root = np.linalg.cholesky(penalty).T
    return np.linalg.lstsq(np.vstack([f, root]), np.vstack([x, np.zeros((len(root), X.shape[1]))]), rcond=None)[0]
