"""Every method and landmark rule with its options, and fits of digits with them."""

import numpy as np
import pytest

from bigkpca import landmarks, methods
from bigkpca.numerics.methods import METHODS
from tests.helpers.fits import fit

OPTIONS = {"components": 6, "size": 60, "seed": 3}
OWN_ROWS = np.random.default_rng(5).integers(0, 17, (40, 64)) + 0.5
# What a fit may be asked for besides OPTIONS, by name.
CASES = {
    "nystroem": {"method": "nystroem"},
    "thesis": {"method": methods.Nystroem("thesis", rank=20)},
    "columns": {"method": "columns"},
    "exact": {"method": "exact"},
    **{f"rff {form}": {"method": methods.RandomFeatures(form)} for form in ("orthogonal", "iid", "qmc", "phase")},
    **{
        f"rff-pca {correction}": {"method": methods.PrincipalFeatures(correction)}
        for correction in ("pointwise", "alpha", "sampled-alpha", "none")
    },
    "rff-pca phase": {"method": methods.PrincipalFeatures(form="phase"), "n_directions": 12},
    "rff-pca qmc": {"method": methods.PrincipalFeatures(form="qmc")},
    "tensor sketch": {"method": "rff", "kernel": "polynomial", "degree": 2},
    **{rule: {"landmarks": rule} for rule in landmarks.RULES},
    "basic-patterns threshold": {"landmarks": landmarks.BasicPatterns(threshold=0.5)},
    "rpcholesky all": {"landmarks": landmarks.RPCholesky(over="all")},
    "rpcholesky all polynomial": {"landmarks": landmarks.RPCholesky(tol=0.05, over="all"), "kernel": "polynomial"},
    "own rows": {"landmarks": OWN_ROWS, "size": "auto"},
    "row numbers": {"landmarks": [11, 253, 7, *range(100, 140)], "size": "auto"},
    "standardize": {"standardize": True},
    "standardize rff-pca": {"standardize": True, "method": "rff-pca"},
    "randomized rff": {"method": "rff", "solver": "randomized"},
    "randomized rff-pca": {"method": "rff-pca", "solver": "randomized"},
}
every_case = pytest.mark.parametrize("case", CASES)
# The float64 digits of `X`, one fit for each method with its default options.
every_method = pytest.mark.parametrize("method", METHODS)


def fitted(X, engine=None, **options):
    return fit(X, engine, **OPTIONS | options)


def errors(found, exact):
    return np.abs(found / exact - 1)
