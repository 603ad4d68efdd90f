"""Every method and landmark rule with its options, and fits of digits with them."""

from dataclasses import fields

import numpy as np
import pytest

from bigkpca import landmarks, methods
from bigkpca.numerics.methods import METHODS
from tests.helpers.fits import fit

OPTIONS = {"n_components": 6, "size": 60, "random_state": 3}
OWN_ROWS = np.random.default_rng(5).integers(0, 17, (40, 64)) + 0.5
# What a fit may be asked for besides OPTIONS, by name.
CASES = {
    "nystroem": {"method": "nystroem"},
    "thesis": {"method": methods.Nystroem("thesis", rank=20)},
    "columns": {"method": "columns"},
    "exact": {"method": "exact"},
    **{f"rff {form}": {"method": methods.RandomFeatures(form)} for form in ("orthogonal", "iid", "phase")},
    **{
        f"rff-pca {correction}": {"method": methods.PrincipalFeatures(correction)}
        for correction in ("pointwise", "alpha", "sampled-alpha", "none")
    },
    "rff-pca phase": {"method": methods.PrincipalFeatures(form="phase"), "n_directions": 12},
    "tensor sketch": {"method": "rff", "kernel": "polynomial", "degree": 2},
    **{rule: {"landmarks": rule} for rule in landmarks.RULES},
    "basic-patterns threshold": {"landmarks": landmarks.BasicPatterns(threshold=0.5)},
    "own rows": {"landmarks": OWN_ROWS, "size": "auto"},
    "row numbers": {"landmarks": [11, 133, 7, *range(60, 100)], "size": "auto"},
    "standardize": {"standardize": True},
    "standardize rff-pca": {"standardize": True, "method": "rff-pca"},
    "column weights": {"column_weights": np.arange(64) % 5 / 2},
    "column weights rff-pca": {"column_weights": np.arange(64) % 5 / 2, "standardize": True, "method": "rff-pca"},
    "randomized rff": {"method": "rff", "solver": "randomized"},
    "randomized rff-pca": {"method": "rff-pca", "solver": "randomized"},
}
# One case for each rule and class of features in the quick tests, all in the full ones.
QUICK = {
    *("nystroem", "thesis", "columns", "exact", "rff phase", "rff-pca pointwise", "tensor sketch"),
    *("basic-patterns", "rpcholesky", "own rows", "row numbers"),
    *("standardize rff-pca", "randomized rff"),
}
every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in QUICK else pytest.mark.full) for case in CASES]
)
# The float64 digits of `X`, one fit for each method with its default options.
every_method = pytest.mark.parametrize("method", METHODS)
# What gives the same bits as one thread.
other_engines = pytest.mark.parametrize(
    "engine", ["threads", pytest.param("processes", marks=pytest.mark.full)], indirect=True
)
not_uniform = pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")


def fitted(X, engine=None, **options):
    return fit(X, engine, **OPTIONS | options)


def chosen(model):
    return {choice["option"]: choice["value"] for choice in model.provenance["choices"]}


def assert_same_bits(one, other):
    for part in ("eigenvalues", "components", "mean"):
        np.testing.assert_array_equal(getattr(one.solution, part), getattr(other.solution, part))
    for name, values in one.features.arrays().items():
        np.testing.assert_array_equal(values, other.features.arrays()[name])
    for part in fields(one.certificate):
        np.testing.assert_array_equal(getattr(one.certificate, part.name), getattr(other.certificate, part.name))
