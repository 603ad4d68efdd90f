"""Methods of kernel PCA: each is a feature map with the solver that goes with it.

A method is a frozen dataclass; a name stands for the method with default options.

Examples
--------
>>> from bigkpca import methods
>>> methods.named("nystrom")
Nystroem(form='orthogonal', rank=None)
>>> methods.from_dict(methods.to_dict(methods.RandomFeatures(form="qmc")))
RandomFeatures(form='qmc')
"""

from __future__ import annotations

from bigkpca.numerics.methods.base import Method
from bigkpca.numerics.methods.columns import ColumnSampling
from bigkpca.numerics.methods.exact import Exact
from bigkpca.numerics.methods.nystroem import Nystroem
from bigkpca.numerics.methods.principal_features import Correction, PrincipalFeatures
from bigkpca.numerics.methods.random_features import RandomFeatures
from bigkpca.numerics.methods.trigonometric import Form
from bigkpca.numerics.registry import Registry

__all__ = [
    "METHODS",
    "ColumnSampling",
    "Correction",
    "Exact",
    "Form",
    "Method",
    "Nystroem",
    "PrincipalFeatures",
    "RandomFeatures",
    "from_dict",
    "named",
    "to_dict",
]

METHODS: Registry[Method] = Registry(
    "method",
    (Nystroem, ColumnSampling, RandomFeatures, PrincipalFeatures, Exact),
    needs=["map_bytes", "working_bytes", "check", "solve", "factor"],
    aliases={"nystrom": "nystroem", "nyström": "nystroem"},
)
named, to_dict, from_dict = METHODS.named, METHODS.to_dict, METHODS.from_dict
