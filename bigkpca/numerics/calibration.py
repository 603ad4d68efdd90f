"""Rows that took no part in a fit, and what they say about others: limits that ordinary rows rarely exceed, and how far
the distribution of new rows has drifted.

Source: `docs/numerics.md`, sections 20 and 23.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import betaincinv, betaln, gammaln

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import at_most, brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import Shape

STATISTICS = ("residual", "distance", "combined")
COMBINED = STATISTICS.index("combined")
REASONS = ("", *STATISTICS[:COMBINED])  # of flags 0, 1 and 2
CALIBRATION_ROWS = 2000  # of jobs and detectors: limits for shares from 0.05 %, and drift from 0.05 on
_RANGE = 0.95  # confidence of the range of a share
_MOST_EXACT = 100_000  # rows
_KNOTS = 64  # of tails
_TAIL, _LEAST_TAIL, _LEAST_EXCESS = (
    0.05,
    10,
    1e-9,
)  # the share of rows whose mean excess goes on beyond, and their number
_ROUNDING = 1e-6  # share of the variance: residuals below are rounding errors
_DRIFTED = 0.999  # confidence of a figure of drift, over all quantities together
_EDGES = 64  # of each quantity: bins of 1/63 of the rows, by which a distance may be too small
_UNITS = 64  # roundoffs of |φ(x)|² by which residuals may be off


def precisions_of(solution: Solution, weight: float) -> Array:
    """Inverse mean squares of the scores of each component over fitted rows with this sum of weights, (r,)."""
    return weight / solution.eigenvalues


def only_rounding(solution: Solution) -> bool:
    """Whether the residuals of fitted rows are only rounding."""
    return bool(solution.total_variance - solution.eigenvalues.sum() <= _ROUNDING * solution.total_variance)


def distances(precisions: Array, scores: Array) -> Array:
    """T² = Σ_j p_j y_j² of rows with these scores Y (n, r), (n,), for precisions p (r,): the squared distance from the
    mean, in standard deviations of the scores (Hotelling 1931, *Ann. Math. Stat.* 2)."""
    return np.asarray(scores.astype(np.float64) ** 2 @ precisions)


@dataclass(frozen=True)
class Tails:
    """How rare residuals and distances as large as these are: u = -log of the share of rows that have such ones.

    Between knots u is linear, and beyond the largest known value it goes on with its mean excess. levels (k,) are u at
    the values knots (2, k), of the residual Q and of the distance T², both ascending.
    """

    levels: Array
    knots: Array

    __repr__ = brief

    @classmethod
    def of(cls, quantities: Array, shares: Array) -> Tails:
        """Those of quantities (2, m) of rows that stand for these shares (m,) of all."""
        m, knots = len(shares), []
        levels = np.linspace(0, np.log(m + 1), _KNOTS)
        for values in quantities:
            order = np.argsort(values)
            ordered, w = values[order], shares[order] / shares.sum()
            beyond = np.cumsum(w[::-1])[::-1]  # the share of rows that have at least this
            at = m - np.searchsorted(beyond[::-1], np.exp(-levels)) - 1
            own, tail = ordered[np.clip(at, 0, m - 1)], min(np.searchsorted(-beyond, -_TAIL), max(m - _LEAST_TAIL, 0))
            excess = w[tail:] @ (ordered[tail:] - ordered[tail]) / w[tail:].sum()
            knots.append(np.append(own, own[-1] + max(excess, _LEAST_EXCESS * abs(own[-1]), np.finfo(float).tiny)))
        return cls(np.append(levels, levels[-1] + 1), np.array(knots))

    def __call__(self, quantities: Array) -> Array:
        """u of quantities (2, n), (2, n)."""
        found = []
        for values, own in zip(quantities, self.knots, strict=True):
            u, beyond = np.interp(values, own, self.levels), values > own[-1]
            u[beyond] = self.levels[-1] + (values[beyond] - own[-1]) / (own[-1] - own[-2])
            found.append(u)
        return np.array(found)


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
class Drift:
    """The difference between new rows and the calibration rows of a model.

    Attributes
    ----------
    figure : float
        The larger of `residual` and `score`, in [0, 1]: at least this share of the new rows would have to be replaced
        for their distribution to equal that of the calibration rows, with a confidence of 99.9 %. 0 if chance explains
        everything.
    residual, score : float
        Distance of the residuals, and the largest distance of the scores of any component, less what chance explains.
    component : int
        The component with the largest distance, counted from 1.
    outside : int
        New rows whose residual is above that of every calibration row. By chance `rows` / (`calibration_rows` + 1) of
        them.
    rows, calibration_rows : int
        Number of new rows, and of calibration rows.
    """

    figure: float
    residual: float
    score: float
    component: int
    outside: int
    rows: int
    calibration_rows: int


@dataclass(frozen=True)
class Counts:
    """Numbers of new rows between the edges of a calibration; the counts of blocks add up, exactly and in any order.

    Attributes
    ----------
    bins : (r + 1, m + 1) array of int64
        For each quantity the number of rows up to the first edge, between two edges, and above the last.
    """

    bins: Array

    __repr__ = brief

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.bins + other.bins)

    @property
    def rows(self) -> int:
        """Number of rows that were counted."""
        return int(self.bins[0].sum())


@dataclass(frozen=True)
class Edges:
    """Values between which rows are counted, and the shares of calibration rows up to each.

    values : (r + 1, m), ascending, of the scores of each component and, last, of the residual. lower, upper : (r + 1,
    m), the shares of the rows that are below by more, and not above by more, than rounding.
    """

    values: Array
    lower: Array
    upper: Array

    __repr__ = brief

    @classmethod
    def of(cls, quantities: Array, rounding: Array) -> Edges:
        """Those of quantities (r + 1, c), each of which rounding (r + 1,) may move by this."""
        ordered, count = np.sort(quantities, axis=1), quantities.shape[1]
        edges = ordered[:, np.linspace(0, count - 1, min(count, _EDGES)).round().astype(np.intp)]
        edges[-1, -1] += rounding[-1]  # the largest residual

        def shares(at: Array) -> Array:
            counts = [np.searchsorted(own, each, side="right") for own, each in zip(ordered, at, strict=True)]
            return np.array(counts) / count

        return cls(edges, shares(edges - rounding[:, None]), shares(edges + rounding[:, None]))


@dataclass(frozen=True)
class Calibration:
    """Rows that took no part in a fit, by which it is judged how unusual other rows are, and how far they have drifted.

    If a new row and the c calibration rows are exchangeable, as rows drawn independently from one distribution are, the
    rank of the new one among all c + 1 is uniform, apart from ties. So the p-value

        p = (1 + number of calibration rows with at least this value) / (c + 1)

    is at most α with a probability of at most α. Source: Vovk, Gammerman and Shafer (2005), *Algorithmic Learning in a
    Random World*; `docs/numerics.md`, section 23.

    Attributes
    ----------
    rows : (c, d) array
        The calibration rows, in the units and dtype of the data.
    precisions : (r,) array
        Of the scores: see `precisions_of`.
    scores : (c, r) array
        Their scores, in the dtype of block work.
    residuals : (c,) array
        What the components leave out of each.
    levels, knots : (k,) and (2, k) array
        The `Tails` of residuals and distances of fitted rows.
    limit : Limit or None
        That of a detector, if one was fitted to the rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> own, new = rng.normal(size=(2, 4000, 1))
    >>> residual = np.ones(4000)
    >>> tails = Tails.of(np.array([residual, own[:, 0] ** 2]), np.ones(4000))
    >>> calibration = Calibration(own, np.ones(1), own, residual, tails.levels, tails.knots)
    >>> halves = [calibration.counted(new[half], residual[half]) for half in (slice(2000), slice(2000, None))]
    >>> calibration.drift(halves[0] + halves[1]).figure
    0.0
    >>> round(calibration.drift(calibration.counted(new + 1, residual)).figure, 2)  # the distributions are 0.38 apart
    0.31
    """

    shapes: ClassVar[dict[str, Shape]] = {
        "rows": ("c", "d"),
        "precisions": ("r",),
        "scores": ("c", "r"),
        "residuals": ("c",),
        "levels": ("k",),
        "knots": (2, "k"),
    }
    rows: Array
    precisions: Array
    scores: Array
    residuals: Array
    levels: Array
    knots: Array
    limit: Limit | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        shapes = (len(self.rows), len(self.precisions)), (len(self.rows),)
        if (self.scores.shape, self.residuals.shape) != shapes or not len(self.rows):
            raise SpecError(f"a calibration of {len(self.rows)} rows with scores {self.scores.shape}")

    @cached_property
    def values(self) -> Array:
        """Each of the `statistics` of the calibration rows, ascending, (3, c), and raised by more than rounding errors:
        a row that equals a calibration row does not exceed its value, whichever rows are computed together."""
        found = np.sort(self.statistics(self.scores, self.residuals), axis=1)
        return found * (1 + np.sqrt(np.finfo(self.scores.dtype).eps))

    @cached_property
    def edges(self) -> Edges:
        """The edges between which new rows are counted."""
        Y, e, eps = self.scores.T.astype(np.float64), self.residuals.astype(np.float64), np.finfo(self.scores.dtype).eps
        quantities = np.vstack([Y, e])
        rounding = np.sqrt(eps) * np.abs(quantities).max(axis=1)
        rounding[-1] += _UNITS * eps * float(np.max(e + np.einsum("ij,ij->j", Y, Y)))
        return Edges.of(quantities, rounding)

    @property
    def count(self) -> int:
        """The number c of calibration rows."""
        return len(self.rows)

    def statistics(self, scores: Array, residuals: Array) -> Array:
        """How unusual rows with these scores Y (n, r) and residuals (n,) are, (3, n):

            residual   Q  = |φ(x) - φ^(x)|², what the components leave out of the row,
            distance   T², see `distances`,
            combined   the larger of u(Q) and u(T²), see `Tails`.

        Source: Jackson and Mudholkar (1979), *Technometrics* 21; `docs/numerics.md`, section 23.
        """
        both = np.array([residuals.astype(np.float64), distances(self.precisions, scores)])
        return np.vstack([both, self.parts(both).max(axis=0)])

    def parts(self, values: Array) -> Array:
        """u (2, n) of the residual and of the distance, from the statistics (3, n), of which `combined` is the
        larger."""
        return Tails(self.levels, self.knots)(values[:COMBINED])

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

    def flags(self, values: Array, limit: float) -> Array:
        """Why rows with these statistics (3, n) are unusual, (n,), uint8: 0 if their combined statistic is at most the
        limit, and otherwise 1 or 2 for the residual or the distance, whichever is rarer (`REASONS`)."""
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

    def counted(self, scores: Array, residuals: Array) -> Counts:
        """The numbers of rows with scores Y (b, r) and residuals (b,) between the edges."""
        edges = self.edges.values
        if scores.shape[1] != len(edges) - 1:
            raise SpecError(f"{scores.shape[1]} scores per row, but the calibration has {len(edges) - 1}")
        most = edges.shape[1] + 1
        places = (np.searchsorted(own, each) for own, each in zip(edges, (*scores.T, residuals), strict=True))
        return Counts(np.array([np.bincount(place, minlength=most) for place in places], np.int64))

    def chance(self, rows: int) -> float:
        """The largest distance that `rows` new rows from the same distribution have by chance, with 99.9 % confidence.

            √(ln(4 (r + 1) / 0.001) / 2 m) + √(ln(4 (r + 1) / 0.001) / 2 c)

        for m new and c calibration rows, by the inequality of Dvoretzky, Kiefer and Wolfowitz (1956) with Massart's
        constant (1990), for both samples and all r + 1 quantities.
        """
        logarithm = np.log(4 * (len(self.precisions) + 1) / (1 - _DRIFTED))
        return float(np.sqrt(logarithm / (2 * rows)) + np.sqrt(logarithm / (2 * self.count)))

    def distances(self, counts: Counts) -> Array:
        """D (r + 1,): the largest difference between the shares of new and of calibration rows up to an edge, beyond
        rounding: at most their Kolmogorov-Smirnov distance."""
        F = np.cumsum(counts.bins[:, :-1], axis=1) / counts.rows
        return np.maximum(np.maximum(F - self.edges.upper, self.edges.lower - F).max(axis=1), 0.0)

    def drift(self, counts: Counts) -> Drift:
        """The drift of the rows that were counted."""
        *scores, residual = np.zeros(len(self.precisions) + 1)
        best = 0
        if counts.rows:
            D = self.distances(counts)
            *scores, residual = np.maximum(D - self.chance(counts.rows), 0.0).tolist()
            best = int(D[:-1].argmax())
        score, outside = float(scores[best]), int(counts.bins[-1, -1])
        return Drift(max(residual, score), float(residual), score, best + 1, outside, counts.rows, self.count)
