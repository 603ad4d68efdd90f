"""Rows that took no part in a fit, and what they say about others: limits that ordinary rows rarely exceed, and how far
the distribution of new rows has drifted. Source: `docs/numerics.md`, sections 20 and 23."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import at_most, brief
from bigkpca.numerics.features import Shape

STATISTICS = ("residual", "distance", "combined")
COMBINED = STATISTICS.index("combined")
REASONS = ("", *STATISTICS[:COMBINED])  # of flags 0, 1 and 2
CALIBRATION_ROWS = 2000  # of jobs and detectors: limits for shares from 0.05 %, and drift from 0.05 on
_RANGE = 0.95  # confidence of the range of a share
_MOST_EXACT = 100_000  # rows
_TAIL, _LEAST_TAIL = 0.05, 10  # the share of the rows whose mean excess goes on beyond the largest, and their number
_BETWEEN = 0.49  # of the step of p: limits are half a step above the next one
_OF_BOTH = 2  # the least number of rows that a share stands for: one may have the largest residual, one distance
_MOVED = 4  # standard errors by which chance moves no mean
_DRIFTED = 0.999  # confidence of a figure of drift, over all quantities together
_EDGES = 64  # of each quantity: bins of 1/63 of the rows, by which a distance may be too small
_UNITS = 64  # roundoffs of |φ(x)|² by which residuals may be off


def usual_errors(known: Array, restored: Array) -> Array:
    """Root mean squares (d,) of the differences between calibration rows (c, d) and their pre-images: those of other
    rows, divided by these, show what is unusual by column."""
    errors = np.sqrt(np.mean((known.astype(np.float64) - restored) ** 2, axis=0))
    least = np.finfo(restored.dtype).eps * (np.abs(restored).max(axis=0) + 1)  # a constant column is restored exactly
    return np.maximum(errors, least)


def _on_the_way(known: Array, new: Array) -> Array:
    """How far new values are on their way from one of the known values (c,), ascending, or 0, to the next one: in
    [0, 1], and 0 beyond all of them."""
    place = np.searchsorted(known, new)
    before, after = np.append(0.0, known)[place], np.append(known, np.inf)[place]
    return np.clip(np.divide(new - before, after - before, out=np.zeros(len(new)), where=after > before), 0, 1)


@dataclass(frozen=True)
class Limit:
    """What a detector compares the combined statistic of rows with."""

    value: float
    alpha: float  # the largest share of rows of the same distribution above it
    contamination: float | None = None  # the share of unusual rows among the fitted ones, which it flags
    left_out: int = 0  # rows that were left out of the fit as contamination


@dataclass(frozen=True)
class Drift:
    """The difference between new rows and the calibration rows of a model.

    figure is the larger of residual and score, in [0, 1]: with a confidence of 99.9 %, at least this share of the new
    rows would have to be replaced for their distribution to equal that of the calibration rows.
    """

    figure: float
    residual: float  # distance of the residuals, less what chance explains
    score: float  # the largest distance of the scores of any component, less what chance explains
    component: int  # that has this distance, counted from 1
    outside: int  # new rows whose residual is above all others; by chance rows / (calibration_rows + 1)
    rows: int
    calibration_rows: int


class Edges(NamedTuple):
    """Values (r + 1, m), ascending, of the scores of each component and, last, of the residual, between which new rows
    are counted; and the shares of calibration rows that are below each by more than rounding, and not above by more."""

    values: Array
    lower: Array
    upper: Array


@dataclass(frozen=True)
class Calibration:
    """Rows that took no part in a fit, by which it is judged how unusual other rows are, and how far they have drifted.

    If a new row and the c calibration rows are drawn independently from one distribution, the rank of the new one among
    all c + 1 is uniform, apart from ties. So the p-value

        p = (1 + number of calibration rows with at least this value) / (c + 1)

    is at most α with a probability of at most α, for the residual, the distance, and the rarer of the two. Source:
    Vovk, Gammerman and Shafer (2005), *Algorithmic Learning in a Random World*; `docs/numerics.md`, section 23.

    Attributes
    ----------
    rows : (c, d) array
        The calibration rows, in the units and dtype of the data.
    precisions : (r,) array
        Inverse mean squares of the scores of each component over the fitted rows.
    scores : (c, r) array
        Their scores, in the dtype of block work.
    residuals : (c,) array
        What the components leave out of each.
    limit : Limit or None
        That of a detector, if one was fitted to the rows.
    """

    shapes: ClassVar[dict[str, Shape]] = {
        "rows": ("c", "d"),
        "precisions": ("r",),
        "scores": ("c", "r"),
        "residuals": ("c",),
    }
    rows: Array
    precisions: Array
    scores: Array
    residuals: Array
    limit: Limit | None = None

    __repr__ = brief

    @cached_property
    def rounding(self) -> Array:
        """How far rounding may move the scores of each component and, last, the residual, (r + 1,)."""
        Y, e, eps = self.scores.astype(np.float64), self.residuals.astype(np.float64), np.finfo(self.scores.dtype).eps
        found = np.sqrt(eps) * np.append(np.abs(Y).max(axis=0), np.abs(e).max())
        found[-1] += _UNITS * eps * float(np.max(e + np.einsum("ij,ij->i", Y, Y)))
        return found

    @cached_property
    def edges(self) -> Edges:
        ordered = np.sort(np.vstack([self.scores.T, self.residuals]).astype(np.float64), axis=1)
        values = ordered[:, np.linspace(0, self.count - 1, min(self.count, _EDGES)).round().astype(np.intp)]
        values[-1, -1] += self.rounding[-1]  # the largest residual

        def shares(at: Array) -> Array:
            counts = [np.searchsorted(own, each, side="right") for own, each in zip(ordered, at, strict=True)]
            return np.array(counts) / self.count

        return Edges(values, shares(values - self.rounding[:, None]), shares(values + self.rounding[:, None]))

    @cached_property
    def values(self) -> Array:
        """Residuals and distances of the calibration rows, each ascending, (2, c), raised by more than rounding errors,
        so that an equal row does not exceed them."""
        return np.sort(self._raised, axis=1)

    @cached_property
    def _raised(self) -> Array:
        T2 = self._squared_distances(self.scores) * (1 + np.sqrt(np.finfo(self.scores.dtype).eps))
        return np.array([self.residuals + self.rounding[-1], T2])

    def _squared_distances(self, scores: Array) -> Array:
        """T² = Σ_j p_j y_j², for precisions p (r,), of rows with these scores Y (n, r), (n,)."""
        return np.asarray(scores.astype(np.float64) ** 2 @ self.precisions)

    @cached_property
    def _rarer(self) -> Array:
        """For a new row, of which a calibration rows have at least the residual or at least the distance: of how many
        the rarer of the two is as rare, (3, c + 1), where the first, the second, or both are the rarer one.

        These ranks are those among all c + 1 rows: a calibration row below the new one has one more row above it.
        """
        q, t = (self.count - np.searchsorted(own, each) for own, each in zip(self.values, self._raised, strict=True))
        levels, rarer = np.arange(self.count + 1), (np.minimum(q, t - 1), np.minimum(q - 1, t), np.minimum(q, t))
        return np.array([np.searchsorted(np.sort(each), levels, side="right") for each in rarer])

    @property
    def count(self) -> int:
        return len(self.rows)

    def statistics(self, scores: Array, residuals: Array) -> Array:
        """How unusual rows with these scores Y (n, r) and residuals (n,) are, (3, n):

            residual   Q  = |φ(x) - φ^(x)|², what the components leave out of the row,
            distance   T² = Σ_j p_j y_j², the squared distance from the mean in standard deviations of the scores,
            combined   how rare the rarer of the two is: see `rarities`.

        Source: Hotelling (1931), *Ann. Math. Stat.* 2; Jackson and Mudholkar (1979), *Technometrics* 21;
        `docs/numerics.md`, section 23.
        """
        both = np.array([residuals.astype(np.float64), self._squared_distances(scores)])
        return np.vstack([both, self.rarities(both)[COMBINED]])

    def rarities(self, values: Array) -> Array:
        """-log p of rows with these residuals and distances (2, n), and of the rarer of the two, (3, n): interpolated
        between two calibration rows, by less than half of the step of p, and beyond all of them larger by the excess
        over the mean one of the largest 5 %."""
        beyond, between = [], []
        for own, new in zip(self.values, values, strict=True):
            tail = own[-max(int(_TAIL * self.count), min(_LEAST_TAIL, self.count)) :]
            excess = max(float(np.mean(tail - tail[0])), np.finfo(float).eps * abs(own[-1]), np.finfo(float).tiny)
            beyond.append(np.maximum(new - own[-1], 0) / excess)
            between.append(_BETWEEN * _on_the_way(own, new))
        q, t = self._ranks(values)
        between.append(np.where(q < t, between[0], np.where(t < q, between[1], np.maximum(*between))))
        p = self.p_values(values) - np.array(between) / (self.count + 1)
        return np.asarray(-np.log(p) + np.array([*beyond, np.maximum(*beyond)]))

    def p_values(self, values: Array) -> Array:
        """p of rows with these residuals and distances (2, n), and of the rarer of the two, (3, n)."""
        q, t = self._ranks(values)
        rarer = self._rarer[np.where(q < t, 0, np.where(t < q, 1, 2)), np.minimum(q, t)]
        return (1 + np.array([q, t, rarer])) / (self.count + 1)

    def _ranks(self, values: Array) -> list[Array]:
        """How many calibration rows have at least these residuals, and these distances."""
        return [self.count - np.searchsorted(own, new) for own, new in zip(self.values, values, strict=True)]

    def exceeding(self, alpha: float, name: str = "alpha") -> int:
        """The largest number m of calibration rows above a limit that at most a share `alpha` of rows of the same
        distribution exceeds. Raises SpecError, which gives alpha this name, unless 2 / (c + 1) <= alpha < 1."""
        least = _OF_BOTH / (self.count + 1)
        if not least <= alpha < 1:
            raise SpecError(
                f"{name}={alpha:g}: with {self.count:,} calibration rows, it must be at least {at_most(least, 2):g} "
                "and below 1; for a smaller one, fit with more calibration rows, which are at most half of all rows"
            )
        return min(int(np.floor(alpha * (self.count + 1) * (1 + 1e-12))), self.count) - 1

    def limits(self, alpha: float) -> Array:
        """The values (3,) of the statistics that a row of the same distribution exceeds with a probability of at most
        `alpha`."""
        m = self.exceeding(alpha)
        return np.append(self.values[:, self.count - 1 - m], -np.log((m + 1.5) / (self.count + 1)))

    def flags(self, values: Array, limit: float) -> Array:
        """Why rows with these statistics (3, n) are unusual, (n,), uint8, numbers of `REASONS`: 0 if their combined
        statistic is at most the limit, and otherwise 1 or 2 for the residual or the distance, whichever is rarer."""
        reasons = 1 + self.rarities(values[:COMBINED])[:COMBINED].argmax(axis=0)
        return np.where(values[COMBINED] > limit, reasons, 0).astype(np.uint8)

    def range(self, alpha: float, rows: int | None = None, confidence: float = _RANGE) -> tuple[float, float]:
        """The range of the share of new rows of the same distribution above the limit for `alpha`, with a probability
        of 95 % over the calibration rows and the new ones; of infinitely many new rows unless their number is given.

        The probability of exceeding the (m + 1)-th largest of c values has the Beta(m + 1, c - m) distribution if there
        are no ties, and is smaller with ties, for the residual and the distance, and about so for the rarer of the two;
        the number of `rows` above the limit is beta-binomial (above 100,000 rows, a Beta distribution with the same
        mean and variance is close).
        """
        a: float = self.exceeding(alpha) + 1
        b, tail = self.count - a + 1, (1 - confidence) / 2
        if rows is None or rows > _MOST_EXACT:
            if rows is not None:  # a Beta distribution with the mean and variance of the share
                narrower = (rows - 1) / (a + b + rows)
                a, b = narrower * a, narrower * b
            return float(scipy.special.betaincinv(a, b, tail)), float(scipy.special.betaincinv(a, b, 1 - tail))
        k = np.arange(rows + 1)
        ways = scipy.special.gammaln(rows + 1) - scipy.special.gammaln(k + 1) - scipy.special.gammaln(rows - k + 1)
        below = np.cumsum(np.exp(ways + scipy.special.betaln(k + a, rows - k + b) - scipy.special.betaln(a, b)))
        low, high = np.searchsorted(below, [tail, 1 - tail])
        return float(low / rows), float(min(high, rows) / rows)

    def counted(self, scores: Array, residuals: Array) -> Array:
        """The numbers (r + 1, m + 1) of rows with scores Y (b, r) and residuals (b,) up to the first edge, between two
        edges, and above the last, of each quantity. Those of blocks add up, exactly and in any order."""
        edges = self.edges.values
        most = edges.shape[1] + 1
        places = (np.searchsorted(own, each) for own, each in zip(edges, (*scores.T, residuals), strict=True))
        return np.array([np.bincount(place, minlength=most) for place in places], np.int64)

    def chance(self, rows: int) -> float:
        """The largest distance that m `rows` from the same distribution have by chance, with 99.9 % confidence:
        √(ln(4 (r + 1) / 0.001) / 2 m) + √(ln(4 (r + 1) / 0.001) / 2 c) for c calibration rows, by the inequality of
        Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990), for both samples and all r + 1 quantities."""
        logarithm = np.log(4 * (len(self.precisions) + 1) / (1 - _DRIFTED))
        return float(np.sqrt(logarithm / (2 * rows)) + np.sqrt(logarithm / (2 * self.count)))

    def distances(self, counts: Array) -> Array:
        """D (r + 1,): the largest difference between the shares of new and of calibration rows up to an edge, beyond
        rounding: at most their Kolmogorov-Smirnov distance."""
        F = np.cumsum(counts[:, :-1], axis=1) / counts[0].sum()
        return np.maximum(np.maximum(F - self.edges.upper, self.edges.lower - F).max(axis=1), 0.0)

    def drift(self, counts: Array) -> Drift:
        """The drift of the rows that were `counted`."""
        rows, outside = int(counts[0].sum()), int(counts[-1, -1])
        D = self.distances(counts) if rows else np.zeros(len(counts))
        best = int(D[:-1].argmax())
        score, residual = np.maximum(D[[best, -1]] - (self.chance(rows) if rows else 0.0), 0.0).tolist()
        return Drift(max(residual, score), residual, score, best + 1, outside, rows, self.count)

    def moved(self, means: Array, rows: int, variables: Mapping[str, slice]) -> list[str]:
        """The variables whose means over new `rows`, of columns (d,), differ from those of the calibration rows by more
        than chance, the largest difference in standard deviations first."""
        squares = (means - self.rows.mean(axis=0, dtype=np.float64)) ** 2
        variances = self.rows.var(axis=0, dtype=np.float64)
        chance = _MOVED**2 * (1 / rows + 1 / self.count)
        with np.errstate(divide="ignore", invalid="ignore"):
            far = {name: squares[own].sum() / variances[own].sum() for name, own in variables.items()}
        return sorted((name for name in far if far[name] > chance), key=lambda name: -far[name])
