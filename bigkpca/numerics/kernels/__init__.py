"""Kernels as values, with an algebra of sums, products and positive multiples; their names, and how to store them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigkpca.numerics.kernels.algebra import Kernel, Product, Scaled, Sum
from bigkpca.numerics.kernels.base import Distance, Draws, Evaluate, EvaluatePull, squared_norms
from bigkpca.numerics.kernels.function import Function
from bigkpca.numerics.kernels.gaussian import Gaussian
from bigkpca.numerics.kernels.inner_product import Cosine, Linear, Polynomial, Sigmoid
from bigkpca.numerics.kernels.laplacian import Laplacian
from bigkpca.numerics.kernels.matern import Matern
from bigkpca.numerics.kernels.precomputed import Precomputed
from bigkpca.numerics.kernels.rational_quadratic import RationalQuadratic
from bigkpca.numerics.registry import Registry

__all__ = [
    "KERNELS",
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

KERNELS: Registry[Kernel] = Registry(
    "kernel",
    (Gaussian, Laplacian, Matern, RationalQuadratic, Linear, Polynomial, Sigmoid, Cosine, Precomputed),
    aliases={"rbf": "gaussian", "poly": "polynomial"},  # as scikit-learn calls them
    told=["rbf", "poly"],
)
kernel_class = KERNELS.kind


def from_dict(values: Mapping[str, Any]) -> Kernel:
    """The kernel that `to_dict` described."""
    fields = {key: value for key, value in values.items() if key != "name"}
    name = values["name"]
    if name == Scaled.name:
        return Scaled(from_dict(fields["kernel"]), fields["factor"])
    for pair in (Sum, Product):
        if name == pair.name:
            return pair(from_dict(fields["left"]), from_dict(fields["right"]))
    return KERNELS.from_dict(values)
