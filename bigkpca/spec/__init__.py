"""What to fit: the options that a user sets (`fit_spec`), and their meaning for given rows (`resolved`)."""

from __future__ import annotations

from bigkpca.spec.fit_spec import VARIED, FitOptions, FitSpec, MethodOptions, ProblemOptions
from bigkpca.spec.resolved import (
    DENSE_MOST_FEATURES,
    EXACT_MOST_ROWS,
    RANDOM_FEATURES,
    SIZE_RULE,
    ResolvedFit,
    randomized,
    resolve,
    resolve_shape,
)

__all__ = [
    "DENSE_MOST_FEATURES",
    "EXACT_MOST_ROWS",
    "RANDOM_FEATURES",
    "SIZE_RULE",
    "VARIED",
    "FitOptions",
    "FitSpec",
    "MethodOptions",
    "ProblemOptions",
    "ResolvedFit",
    "randomized",
    "resolve",
    "resolve_shape",
]
