"""Kernels as values, with an algebra of sums, products and positive multiples; their names, and how to store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigkpca.errors import unknown_name
from bigkpca.numerics.kernels.base import (
    Distance,
    Draws,
    Evaluate,
    EvaluatePull,
    Kernel,
    Product,
    Scaled,
    Sum,
    squared_norms,
)
from bigkpca.numerics.kernels.function import Function
from bigkpca.numerics.kernels.inner_product import Cosine, Linear, Polynomial, Sigmoid
from bigkpca.numerics.kernels.precomputed import Precomputed
from bigkpca.numerics.kernels.stationary import Gaussian, Laplacian, Matern, RationalQuadratic

__all__ = [
    "ALIASES",
    "Cosine",
    "Distance",
    "Draws",
    "Evaluate",
    "EvaluatePull",
    "Function",
    "Gaussian",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "Sigmoid",
    "Sum",
    "from_dict",
    "kernel_class",
    "squared_norms",
]

_LEAVES: dict[str, type[Kernel]] = {
    kernel.name: kernel
    for kernel in (Gaussian, Laplacian, Matern, RationalQuadratic, Linear, Polynomial, Sigmoid, Cosine, Precomputed)
}
ALIASES = {"rbf": "gaussian", "poly": "polynomial"}


def kernel_class(name: str) -> type[Kernel]:
    """The class of a kernel name ("gaussian", "rbf", ...); SpecError suggests the nearest known name."""
    key = ALIASES.get(name.lower(), name.lower())
    if key not in _LEAVES:
        raise unknown_name("kernel", name, [*_LEAVES, *ALIASES])
    return _LEAVES[key]


def from_dict(values: Mapping[str, Any]) -> Kernel:
    """The kernel that `to_dict` described."""
    fields = {key: value for key, value in values.items() if key != "name"}
    name = values["name"]
    if name == Scaled.name:
        return Scaled(from_dict(fields["kernel"]), fields["factor"])
    for pair in (Sum, Product):
        if name == pair.name:
            return pair(from_dict(fields["left"]), from_dict(fields["right"]))
    return kernel_class(name)(**fields)
