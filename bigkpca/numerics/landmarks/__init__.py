"""Landmarks: rules that choose them from a sample of rows, and landmarks that the caller gives.

A rule is a frozen dataclass; a name stands for the rule with default options.

Examples
--------
>>> from bigkpca import landmarks
>>> landmarks.named("k-means")
KMeans(iterations=6)
>>> rule = landmarks.RPCholesky(tol=0.01)
>>> landmarks.to_dict(rule)
{'name': 'rpcholesky', 'tol': 0.01, 'over': 'sample', 'least_accepted': 0.2}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.landmarks.base import LandmarkRule
from bigkpca.numerics.landmarks.basic_patterns import BasicPatterns
from bigkpca.numerics.landmarks.kmeans import KMeans
from bigkpca.numerics.landmarks.own import Own, OwnRows, RowNumbers, distinct
from bigkpca.numerics.landmarks.sampling import Leverage, RPCholesky, Uniform
from bigkpca.numerics.registry import Registry, name_in

__all__ = [
    "RULES",
    "BasicPatterns",
    "KMeans",
    "LandmarkRule",
    "Leverage",
    "OwnRows",
    "RPCholesky",
    "RowNumbers",
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
    also_known=["auto"],
    needs=["most_rows", "working_bytes", "choose"],
)
named = RULES.named


def to_dict(rule: LandmarkRule | Own) -> dict[str, Any]:
    """Describe a rule, or given landmarks, as JSON-ready values.

    Parameters
    ----------
    rule : LandmarkRule or Own
        A rule, or landmarks that the caller gave.

    Returns
    -------
    dict
        "name", and the options; of given rows the digest, since the model holds the rows.

    Examples
    --------
    >>> to_dict(Uniform())
    {'name': 'uniform'}
    """
    return rule.to_dict() if isinstance(rule, Own) else RULES.to_dict(rule)


def from_dict(values: Mapping[str, Any], own: Array | None) -> LandmarkRule | Own:
    """The rule, or the given landmarks, that `to_dict` described.

    Parameters
    ----------
    values : mapping
        "name", and the options.
    own : (l, d) array or None
        The landmarks of the fitted model, in the units of the data, which replace rows that the caller gave.

    Returns
    -------
    LandmarkRule or Own
        Equal to the one described.

    Raises
    ------
    SpecError
        Where the name is unknown.
    """
    name = name_in(values, "landmark rule")
    for kind in (OwnRows, RowNumbers):
        if name == kind.name:
            return kind.from_dict(values, np.empty((0, 0)) if own is None else own)
    return RULES.from_dict(values)
