"""Which rows stand for all: rules that choose l landmarks from a sample of rows, and landmarks of the caller's own.

A rule is a small frozen value; a string names its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigkpca.errors import Array
from bigkpca.numerics.landmarks.base import LandmarkRule
from bigkpca.numerics.landmarks.basic_patterns import BasicPatterns
from bigkpca.numerics.landmarks.kmeans import KMeans
from bigkpca.numerics.landmarks.leverage import Leverage
from bigkpca.numerics.landmarks.own import Own, RowNumbers, Rows, distinct
from bigkpca.numerics.landmarks.rpcholesky import RPCholesky
from bigkpca.numerics.landmarks.uniform import Uniform
from bigkpca.numerics.registry import Registry

__all__ = [
    "RULES",
    "BasicPatterns",
    "KMeans",
    "LandmarkRule",
    "Leverage",
    "RPCholesky",
    "RowNumbers",
    "Rows",
    "Uniform",
    "distinct",
    "from_dict",
    "named",
    "to_dict",
]

RULES: Registry[LandmarkRule] = Registry(
    "landmark rule",
    (KMeans, Uniform, RPCholesky, Leverage, BasicPatterns),
    aliases={"k-means": "kmeans"},
    told=["auto"],
    needs=["most_rows", "working_bytes", "choose"],
)
named = RULES.named


def to_dict(rule: LandmarkRule | Own) -> dict[str, Any]:
    """The rule as JSON-ready values. Rows of the caller's are told by their digest: a model holds them anyway."""
    return rule.to_dict() if isinstance(rule, Own) else RULES.to_dict(rule)


def from_dict(values: Mapping[str, Any], own: Array) -> LandmarkRule | Own:
    """The rule that `to_dict` described; `own` are the landmarks of the fitted model, for a caller's own rows."""
    for kind in (Rows, RowNumbers):
        if values["name"] == kind.name:
            return kind.from_dict(values, own)
    return RULES.from_dict(values)
