"""Ways back from scores to rows, and fits of digits with them."""

import numpy as np

from bigkpca import preimages
from tests.helpers.fits import fit

N, CHUNK = 500, 100
OPTIONS = {"n_components": 8, "size": 60, "random_state": 3, "block_rows": CHUNK}
ARRAYS = ("x", "converged", "iterations", "far")
WAYS = {
    "auto": {},
    "fixed-point": {"preimage": "fixed-point"},
    "anchored": {"preimage": preimages.FixedPoint(anchor=0.05, iterations=7)},
    "thesis": {"preimage": preimages.FixedPoint(mean_term=False)},
    "mds": {"preimage": preimages.Distances(neighbours=8, rows=100)},
    "linear": {"preimage": "linear"},
    "ridge": {"preimage": preimages.Ridge(size=50)},
    "denoising": {"preimage": preimages.Denoising(noise=2.0, size=50)},
    "denoising of the fit's noise": {"preimage": preimages.Denoising(size=50), "noise": 3.0},
}


def fitted(X, **options):
    return fit(X, **OPTIONS | options)


def rows_of(model, X):
    """Pre-images of the scores of X, in one tile."""
    (Y,) = model.project([X], len(X))
    return model.reconstructing(len(X))(Y, None).rows


def error_of(model, X):
    """Of pre-images, as a share of the variance of X."""
    rows = rows_of(model, X)
    assert rows.shape == X.shape
    assert np.isfinite(rows).all()
    return float(((rows - X) ** 2).sum() / ((X - X.mean(axis=0)) ** 2).sum())


def wide_rows(path, n, d):
    """Of ten strong directions, as data are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, d)) + rng.normal(size=(n, d))
    np.save(path, X.astype(np.float32))
    return path
