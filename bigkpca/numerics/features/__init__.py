"""Feature maps v(x): kernels with landmarks, random Fourier features, tensor sketches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bigkpca.errors import Array
from bigkpca.numerics.features.base import Columns, FeatureMap, Fill, Shape, shifted_rows
from bigkpca.numerics.features.landmarks import GivenKernels, KernelRows, has_landmarks
from bigkpca.numerics.features.random import (
    FourierRows,
    PrincipalFourierRows,
    TensorSketch,
    check_sketchable,
    tensor_sketch,
)
from bigkpca.numerics.kernels import Kernel

__all__ = [
    "MAPS",
    "Columns",
    "FeatureMap",
    "Fill",
    "FourierRows",
    "GivenKernels",
    "KernelRows",
    "PrincipalFourierRows",
    "Shape",
    "TensorSketch",
    "check_sketchable",
    "from_parts",
    "has_landmarks",
    "shifted_rows",
    "tensor_sketch",
]


MAPS: dict[str, type[FeatureMap]] = {
    each.name: each for each in (KernelRows, GivenKernels, FourierRows, PrincipalFourierRows, TensorSketch)
}


def from_parts(parameters: Mapping[str, Any], kernel: Kernel, arrays: Mapping[str, Array]) -> FeatureMap:
    """The feature map that `parameters()` and `arrays()` describe; other arrays are ignored."""
    cls = MAPS[parameters["name"]]
    names = {part.name for part in fields(cls)}
    plain = {name: value for name, value in parameters.items() if name in names}
    return cls(kernel=kernel, **plain, **{name: value for name, value in arrays.items() if name in names})
