"""How unusual rows are, and limits that rows of the same distribution rarely exceed.

Source: `docs/numerics.md`, section 23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import betaincinv, betaln, gammaln

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import at_most, brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import Shape

STATISTICS = ("residual", "distance", "combined")
COMBINED = STATISTICS.index("combined")
REASONS = ("", *STATISTICS[:COMBINED])  # of flags 0, 1 and 2
CALIBRATION_ROWS = 2000  # of a detector: limits for shares from 0.05 %, and within a fifth of 5 %
_RANGE = 0.95  # confidence of the range of a share
_MOST_EXACT = 100_000  # rows
_ROUNDING = 1e-6  # share of the variance: residuals below are rounding errors


def precisions_of(solution: Solution, weight: float) -> Array:
    """Inverse mean squares over fitted rows with this sum of weights, (r + 1,): of the scores of each component and,
    last, of what all of them leave out, or 0 if that is only rounding."""
    values = solution.eigenvalues
    left = solution.total_variance - float(values.sum())
    return weight / np.append(values, left if left > _ROUNDING * solution.total_variance else np.inf)


def statistics(precisions: Array, scores: Array, residuals: Array) -> Array:
    """How unusual rows with these scores Y (n, r) and residuals (n,) are, (3, n), for precisions p (r + 1,):

        residual   Q  = |φ(x) - φ^(x)|²,   what the components leave out of the row,
        distance   T² = Σ_j p_j y_j²,      its squared distance from the mean, in standard deviations of the scores,
        combined   p_(r+1) Q + T² / r,     of which each part has the mean 1 over the fitted rows.

    Source: Hotelling (1931), *Ann. Math. Stat.* 2; Jackson and Mudholkar (1979), *Technometrics* 21; Yue and Qin
    (2001), *Ind. Eng. Chem. Res.* 40.
    """
    Q = residuals.astype(np.float64)
    T2 = scores.astype(np.float64) ** 2 @ precisions[:-1]
    return np.array([Q, T2, precisions[-1] * Q + T2 / scores.shape[1]])


def usual_errors(known: Array, restored: Array) -> Array:
    """Root mean squares (d,) of the differences between calibration rows (c, d) and their pre-images.

    The difference between another row and its pre-image, divided by these, shows what is unusual about it by column: it
    is about 1 for ordinary rows.
    """
    errors = np.sqrt(np.mean((known.astype(np.float64) - restored) ** 2, axis=0))
    least = np.finfo(restored.dtype).eps * (np.abs(restored).max(axis=0) + 1)  # a constant column is restored exactly
    return np.maximum(errors, least)


@dataclass(frozen=True)
class Limit:
    """What a detector compares the combined statistic of rows with: the limit for `alpha` or, if the fitted rows
    contain a share of unusual ones, their `contamination`, one that flags this share of them.

    `left_out` of the rows were left out of the fit as contamination.
    """

    value: float
    alpha: float
    contamination: float | None = None
    left_out: int = 0


@dataclass(frozen=True)
class Calibration:
    """Rows that took no part in a fit, by which it is judged how unusual other rows are.

    If a new row and the c calibration rows are exchangeable, as rows drawn independently from one distribution are, the
    rank of the new one among all c + 1 is uniform, apart from ties. So the p-value

        p = (1 + number of calibration rows with at least this value) / (c + 1)

    is at most α with a probability of at most α. Source: Vovk, Gammerman and Shafer (2005), *Algorithmic Learning in a
    Random World*; `docs/numerics.md`, section 23.

    Attributes
    ----------
    rows : (c, d) array
        The calibration rows, in the units and dtype of the data.
    precisions : (r + 1,) array
        Of scores and residuals: see `precisions_of`.
    values : (3, c) array
        Each of the `statistics` of the calibration rows, ascending, and raised by more than rounding errors: a row that
        equals a calibration row does not exceed its value, whichever rows are computed together.
    limit : Limit or None
        That of a detector, if one was fitted to the rows.
    """

    shapes: ClassVar[dict[str, Shape]] = {"rows": ("c", "d"), "precisions": ("r+1",), "values": ("s", "c")}
    rows: Array
    precisions: Array
    values: Array
    limit: Limit | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.values.shape != (len(STATISTICS), len(self.rows)) or not len(self.rows):
            raise SpecError(f"a calibration of {len(self.rows)} rows with values {self.values.shape}")
        if not (self.values[:, :-1] <= self.values[:, 1:]).all():
            raise SpecError("a calibration whose values do not ascend")

    @classmethod
    def of(cls, X: Array, precisions: Array, values: Array, dtype: np.dtype[Any]) -> Calibration:
        """The calibration of rows X (c, d) with these statistics (3, c), computed in a dtype."""
        return cls(X, precisions, np.sort(values, axis=1) * (1 + np.sqrt(np.finfo(dtype).eps)))

    @property
    def count(self) -> int:
        """The number c of calibration rows."""
        return len(self.rows)

    def statistics(self, scores: Array, residuals: Array) -> Array:
        """The statistics (3, n) of rows with these scores (n, r) and residuals (n,)."""
        return statistics(self.precisions, scores, residuals)

    def exceeding(self, alpha: float, name: str = "alpha") -> int:
        """The largest number m of calibration rows above a limit that at most a share `alpha` of rows of the same
        distribution exceeds. Raises SpecError, which gives alpha this name, unless 1 / (c + 1) <= alpha < 1."""
        least = 1 / (self.count + 1)
        if not least <= alpha < 1:
            raise SpecError(
                f"{name}={alpha:g}: with {self.count:,} calibration rows, it must be at least {at_most(least, 2):g} "
                "and below 1; for a smaller one, fit with more calibration rows, which are at most half of all rows"
            )
        return min(int(np.floor(alpha * (self.count + 1) * (1 + 1e-12))), self.count) - 1

    def limits(self, alpha: float) -> Array:
        """The values (3,) of the statistics that a row of the same distribution exceeds with a probability of at most
        `alpha`."""
        return self.values[:, self.count - 1 - self.exceeding(alpha)]

    def p_values(self, values: Array) -> Array:
        """p of the statistics (3, n) of new rows, (3, n)."""
        below = [np.searchsorted(own, new) for own, new in zip(self.values, values, strict=True)]
        return (1 + self.count - np.array(below)) / (self.count + 1)

    def parts(self, values: Array) -> Array:
        """The two parts (2, n) of the combined statistic, from the statistics (3, n)."""
        Q, _, both = values
        own = self.precisions[-1] * Q
        return np.array([own, both - own])

    def flags(self, values: Array, limit: float) -> Array:
        """Why rows with these statistics (3, n) are unusual, (n,), uint8: 0 if their combined statistic is at most the
        limit, and otherwise 1 or 2 if most of it is the residual or the distance (`REASONS`)."""
        return np.where(values[COMBINED] > limit, 1 + self.parts(values).argmax(axis=0), 0).astype(np.uint8)

    def range(self, alpha: float, rows: int | None = None, confidence: float = _RANGE) -> tuple[float, float]:
        """The range of the share of new rows of the same distribution above the limit for `alpha`, with a probability
        of 95 % over the calibration rows and the new ones; of infinitely many new rows unless their number is given.

        The probability of exceeding the (m + 1)-th largest of c values has the Beta(m + 1, c - m) distribution if there
        are no ties, and is smaller with ties; the number of `rows` above the limit is beta-binomial (above 100,000
        rows, a Beta distribution with the same mean and variance is close).
        """
        a: float = self.exceeding(alpha) + 1
        b, tail = self.count - a + 1, (1 - confidence) / 2
        if rows is None or rows > _MOST_EXACT:
            if rows is not None:  # a Beta distribution with the mean and variance of the share
                narrower = (rows - 1) / (a + b + rows)
                a, b = narrower * a, narrower * b
            return float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1 - tail))
        k = np.arange(rows + 1)
        ways = gammaln(rows + 1) - gammaln(k + 1) - gammaln(rows - k + 1)
        below = np.cumsum(np.exp(ways + betaln(k + a, rows - k + b) - betaln(a, b)))
        low, high = np.searchsorted(below, [tail, 1 - tail])
        return float(low / rows), float(min(high, rows) / rows)
