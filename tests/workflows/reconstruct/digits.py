"""Fits of digits with ways back from scores to rows."""

from bigkpca import preimages
from tests.helpers.fits import fit

N, CHUNK = 500, 100
OPTIONS = {"n_components": 8, "size": 60, "random_state": 3, "block_rows": CHUNK}
ARRAYS = ("x", "converged", "iterations", "far")
RIDGE, DENOISING = preimages.Ridge(size=50), preimages.Denoising(noise=2.0, size=50)


def fitted(X, **options):
    return fit(X, **OPTIONS | options)


def rows_of(model, X):
    """Pre-images of the scores of X, in one tile."""
    (Y,) = model.project([X], len(X))
    return model.reconstructing(len(X))(Y, None).rows


def error_of(model, X):
    """Of pre-images, as a share of the variance of X."""
    return float(((rows_of(model, X) - X) ** 2).sum() / ((X - X.mean(axis=0)) ** 2).sum())
