"""Kernels as values, which can be added, multiplied and scaled; a name represents a kernel in options and files.

Kernels are frozen dataclasses. Called with rows X (b, d) and Y (l, d), they return the matrix k(x_i, y_j), (b, l).

Examples
--------
>>> import numpy as np
>>> from bigkpca import kernels
>>> X = np.array([[0.0], [1.0]])
>>> kernels.Gaussian(1.0)(X, X).round(4)
array([[1.    , 0.6065],
       [0.6065, 1.    ]])
>>> kernel = 0.5 * kernels.Gaussian(1.0) + kernels.Linear() * kernels.Linear()
>>> kernel(X, X).round(4)
array([[0.5   , 0.3033],
       [0.3033, 1.5   ]])
>>> kernels.from_dict(kernel.to_dict()) == kernel
True
>>> kernels.kernel_class("rbf")
<class 'bigkpca.numerics.kernels.stationary.Gaussian'>
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bigkpca.numerics.array_api import Distance
from bigkpca.numerics.kernels.base import (
    Evaluate,
    EvaluateWithWeights,
    FrequencyDraws,
    Function,
    Kernel,
    Precomputed,
    Product,
    Scaled,
    Sum,
    squared_norms,
)
from bigkpca.numerics.kernels.counts import ChiSquared, Spectrum, Tanimoto
from bigkpca.numerics.kernels.inner_product import Cosine, Linear, Polynomial, Sigmoid
from bigkpca.numerics.kernels.stationary import Gaussian, Laplacian, Matern, RationalQuadratic
from bigkpca.numerics.registry import Registry, check_plain, name_in

__all__ = [
    "KERNELS",
    "ChiSquared",
    "Cosine",
    "Distance",
    "Evaluate",
    "EvaluateWithWeights",
    "FrequencyDraws",
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
    "Spectrum",
    "Sum",
    "Tanimoto",
    "from_dict",
    "kernel_class",
    "named",
    "own_options",
    "parameter_names",
    "squared_norms",
]

KERNELS: Registry[Kernel] = Registry(
    "kernel",
    (
        Gaussian,
        Laplacian,
        Matern,
        RationalQuadratic,
        Linear,
        Polynomial,
        Sigmoid,
        Cosine,
        Tanimoto,
        ChiSquared,
        Spectrum,
        Precomputed,
    ),
    aliases={"rbf": "gaussian", "poly": "polynomial"},  # scikit-learn's names
)


def kernel_class(text: str) -> type[Kernel]:
    """The class of a kernel from its name, with or without options. Raises SpecError like `named`."""
    return KERNELS.read(text)[0]


def named(text: str) -> str:
    """The name of a kernel as stored in files, with its options: named("Spectrum: k=4") is "spectrum:k=4".

    The options of a fit set the other parameters. Raises SpecError if the name or an option is unknown, suggesting the
    nearest known one, or if a value is not valid.
    """
    kind, options = KERNELS.read(text)
    typed = ",".join(f"{key}={str(value).lower()}" for key, value in options.items())
    return f"{kind.name}:{typed}" if typed else kind.name


def own_options(text: str) -> dict[str, Any]:
    """The parameters in the name of a kernel: own_options("matern:nu=2.5") is {"nu": 2.5}. Raises SpecError like
    `named`."""
    return KERNELS.read(text)[1]


def parameter_names(text: str) -> set[str]:
    """The parameters of a kernel that are not in its name: options of the fit set them. Raises SpecError like
    `named`."""
    kind: Any
    kind, own = KERNELS.read(text)
    return {field.name for field in fields(kind)} - own.keys()


def from_dict(values: Mapping[str, Any]) -> Kernel:
    """The kernel that `to_dict` described by "name" and parameters; for combined kernels, the parts are such mappings.

    Raises SpecError if a name is unknown, or a parameter is unknown, missing, or out of range.
    """
    combined: Any = {kind.name: kind for kind in (Scaled, Sum, Product)}.get(name_in(values, "kernel"))
    if combined is None:
        return KERNELS.from_dict(values)
    parts: dict[str, Any] = {
        key: from_dict(value) if key != "factor" else value for key, value in values.items() if key != "name"
    }
    check_plain(combined, parts, f"the kernel {combined.name!r}")
    made: Kernel = combined(**parts)
    return made
