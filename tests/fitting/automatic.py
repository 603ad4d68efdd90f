"""Fits whose sizes and components the package chooses, and what it told of its choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.helpers.fits import fit

OPTIONS: dict[str, Any] = {"components": 5, "seed": 3}


def fitted(X: Any, progress: Any = None, **options: Any) -> Any:
    return fit(X, progress=progress, **OPTIONS | options)


def chosen(model: Any) -> dict[str, Any]:
    return {choice["option"]: choice["value"] for choice in model.provenance["choices"]}


def assert_same_bits(one: Any, other: Any) -> None:
    for part in ("eigenvalues", "components", "mean"):
        np.testing.assert_array_equal(getattr(one.solution, part), getattr(other.solution, part))
    for name, values in one.features.arrays().items():
        np.testing.assert_array_equal(values, other.features.arrays()[name])
    assert one.certificate.numbers() == other.certificate.numbers()
