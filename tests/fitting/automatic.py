"""Fits whose sizes and components the package chooses, and what it told of its choices."""

import numpy as np

from tests.helpers.fits import fit

OPTIONS = {"components": 5, "seed": 3}


def fitted(X, progress=None, **options):
    return fit(X, progress=progress, **OPTIONS | options)


def chosen(model):
    return {choice["option"]: choice["value"] for choice in model.provenance["choices"]}


def assert_same_bits(one, other):
    for part in ("eigenvalues", "components", "mean"):
        np.testing.assert_array_equal(getattr(one.solution, part), getattr(other.solution, part))
    for name, values in one.features.arrays().items():
        np.testing.assert_array_equal(values, other.features.arrays()[name])
    assert one.certificate.numbers() == other.certificate.numbers()
