"""Pre-images, and small models, that the tests of pre-images and expansions share."""

from dataclasses import replace

import numpy as np

from bigkpca.numerics.features import FourierRows, KernelRows, PrincipalFourierRows, tensor_sketch
from bigkpca.numerics.kernels import Gaussian, Polynomial
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import Exact, Nystroem, PrincipalFeatures, RandomFeatures
from bigkpca.numerics.preimages import Denoising, Distances, Fitted, FixedPoint, Ridge, reconstructing
from tests.numerics.fits import moments_of, span_of

GAUSSIAN = Gaussian(1.5)
NYSTROEM = Nystroem()
WAYS = [FixedPoint(), Distances(neighbours=6), Ridge(size=12), Denoising(noise=0.1, size=12)]


def rows(n=60, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def solved(features, X, r, method, center=True):
    """A model's parts, as one pass over X makes them."""
    (moments, _), tolerance = moments_of(features, X), rank_tolerance(features.dtype)
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


RANDOM = ["pairs", "phase", "principal", "principal-alpha", "sketch"]


def random_fitted(kind, r=5, X=None):
    X = rows() if X is None else X
    d, zero = X.shape[1], np.zeros(X.shape[1])
    W = np.random.default_rng(1).normal(size=(40, d)) / GAUSSIAN.sigma
    rng = np.random.default_rng(2)
    if kind == "sketch":
        features = tensor_sketch(Polynomial(0.3), 64, zero, None, np.random.default_rng(1), np.dtype(float))
        return solved(features, X, r, RandomFeatures())
    if kind.startswith("principal"):
        axes, factor = np.linalg.qr(rng.normal(size=(d, d - 1)))[0], 0.8 if kind == "principal-alpha" else None
        features = PrincipalFourierRows(GAUSSIAN, zero, W[:, : d - 1], axes, None, factor)
        return solved(features, X, r, PrincipalFeatures("alpha" if factor else "pointwise"))
    phases = rng.uniform(0, 2 * np.pi, 40) if kind == "phase" else None
    return solved(FourierRows(GAUSSIAN, zero, W, phases), X, r, RandomFeatures("phase" if kind == "phase" else "iid"))


def decoder(way, model, X=None):
    """The decoder that a way makes from all of X, of which it may take a part."""
    return way.decoder(model, rows() if X is None else X)


def back(way, model, Y, start=None, X=None):
    """Pre-images in the units of the data, from a decoder that is made anew."""
    return reconstructing(decoder(way, model, X), model.features, model.solution, max(len(Y), 1))(Y, start)
