"""Models of every kind of features and kernels, on 300 rows of digits."""

import warnings
from functools import cache

import numpy as np
from sklearn.datasets import load_digits

from bigkpca import KernelPCA, kernels, methods

X = load_digits().data[:300]
NEW = load_digits().data[400:460] + 0.25
CASES = {
    "gaussian": {},
    "float32": {"dtype": "float32"},
    "standardized": {"standardize": True},
    "column weights": {"standardize": True, "column_weights": np.arange(64) % 5 / 2},
    "not centred": {"center": False},
    "laplacian": {"kernel": "laplacian"},
    "matern 1/2": {"kernel": kernels.Matern(30.0, nu=0.5)},
    "matern 3/2": {"kernel": "matern"},
    "matern 5/2": {"kernel": kernels.Matern(30.0, nu=2.5)},
    "rational quadratic": {"kernel": kernels.RationalQuadratic(30.0, alpha=0.7)},
    "linear": {"kernel": "linear"},
    "polynomial": {"kernel": "polynomial", "gamma": 1e-3},
    "sigmoid": {"kernel": "sigmoid", "gamma": 1e-5, "coef0": 0.1},
    "cosine": {"kernel": "cosine"},
    "combined": {"kernel": 2 * kernels.Gaussian(40.0) * kernels.Linear() + kernels.Cosine()},
    "columns": {"method": "columns"},
    "exact": {"method": "exact", "size": "auto"},
    "rff": {"method": "rff"},
    "rff with phases": {"method": methods.RandomFeatures(form="phase")},
    "rff-pca": {"method": "rff-pca"},
    "rff-pca, one factor": {"method": methods.PrincipalFeatures(correction="alpha")},
}


@cache
def fitted(name):
    """The model of a case, which no test changes."""
    options = {"n_components": 5, "random_state": 0, "size": 100, "preimage": "ridge"} | CASES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of kernels that are not positive
        return KernelPCA(**options).fit(X)


def largest_difference(found, expected):
    """The largest difference between scores, relative to the largest of each component."""
    return float((np.abs(found - expected).max(axis=0) / np.abs(expected).max(axis=0)).max())
