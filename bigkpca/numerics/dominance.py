"""One column that makes nearly all of the distances between rows, so that the others hardly matter to a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array

DOMINANT = 0.9  # share of the mean squared distance
_MOST_VALUES = 4_000_000
_NORMAL = 2.563  # from the 10th to the 90th percentile of a normal distribution, in standard deviations


@dataclass(frozen=True)
class DominantColumns:
    """A column, or the columns of 0 and 1 of a column of categories, and their share of the mean squared distance."""

    columns: slice
    share: float


def dominant_columns(X: Array, one_hot: Iterable[slice] = ()) -> DominantColumns | None:
    """The column that makes more than 90 % of the mean squared distance between rows X (m, d), shifted and scaled.

    The share of a column is its variance over the sum of all variances; a column of categories, `one_hot`, counts as
    one. None if no column has such a share, if no other one varies, or if a column owes its share to a few far rows,
    such as a sentinel for missing values: distances between most rows do not depend on these.
    """
    X = X[: max(2, _MOST_VALUES // X.shape[1])].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        variances, blocks = X.var(axis=0), list(one_hot)
        shares = variances.copy()
        for block in blocks:
            shares[block] = 0.0
            shares[block.start] = variances[block].sum()
        best = int(shares.argmax())
        others = np.delete(shares, best).sum()  # not a difference, which rounding makes 0 beside a huge variance
        if not (others > 0 and shares[best] > DOMINANT * (shares[best] + others)):
            return None
        found = next((block for block in blocks if block.start == best), None)
        if found is None:
            inner = float(np.subtract(*np.percentile(X[:, best], (90, 10)))) / _NORMAL
            if inner**2 <= DOMINANT * (inner**2 + others):
                return None
    return DominantColumns(found or slice(best, best + 1), float(shares[best] / (shares[best] + others)))
