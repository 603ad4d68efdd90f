"""What to fit: the fields that a user sets, and what they mean for the rows at hand."""

from __future__ import annotations

from bigkpca.spec.fields import VARIED, FitSpec
from bigkpca.spec.resolved import DENSE_MOST_FEATURES, EXACT_MOST_ROWS, ResolvedFit, resolve

__all__ = ["DENSE_MOST_FEATURES", "EXACT_MOST_ROWS", "VARIED", "FitSpec", "ResolvedFit", "resolve"]
