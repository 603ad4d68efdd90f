"""What to fit: the options that a user sets, and what they mean for given rows."""

from __future__ import annotations

from bigkpca.spec.fields import VARIED, FitSpec
from bigkpca.spec.resolved import (
    DENSE_MOST_FEATURES,
    EXACT_MOST_ROWS,
    RANDOM_FEATURES,
    SIZE_RULE,
    ResolvedFit,
    resolve,
)

__all__ = [
    "DENSE_MOST_FEATURES",
    "EXACT_MOST_ROWS",
    "RANDOM_FEATURES",
    "SIZE_RULE",
    "VARIED",
    "FitSpec",
    "ResolvedFit",
    "resolve",
]
