"""How far new rows have drifted from those of the fit, by comparing distributions of scores and residuals.

Source: `docs/numerics.md`, section 20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import brief
from bigkpca.numerics.features import Shape
from bigkpca.numerics.measures import leverage

REFERENCE_ROWS = 2048  # of a fit, at most: chance then explains a distance of 0.05
CONFIDENCE = 0.999  # of a figure, over all quantities together
_EDGES = 64  # of each quantity: bins of 1/63 of the rows, by which a distance may be too small
_OWN = 0.5  # leverage above which a row has most of a component to itself (Huber 1981)


@dataclass(frozen=True)
class Drift:
    """The difference between new rows and the reference rows of a model.

    Attributes
    ----------
    figure : float
        The larger of `residual` and `score`, in [0, 1]: at least this share of the new rows would have to be replaced
        for their distribution to equal that of the reference, with a confidence of 99.9 %. 0 if chance explains
        everything.
    residual, score : float
        Distance of the residuals, and the largest distance of the scores of any component, less what chance explains.
    component : int
        The component with the largest distance, counted from 1.
    outside : int
        New rows whose residual is above that of every reference row. By chance `rows` / (`reference_rows` + 1) of them.
    rows, reference_rows : int
        Number of new rows, and of reference rows.
    """

    figure: float
    residual: float
    score: float
    component: int
    outside: int
    rows: int
    reference_rows: int


@dataclass(frozen=True)
class Counts:
    """Numbers of new rows between the edges of a reference; the counts of blocks add up, exactly and in any order.

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
class Reference:
    """The distribution of scores and residuals over rows on which a model was fitted.

    A fitted row is closer to the model than a new row of the same kind. So each reference row represents an interval,
    from its value in the model to its value in a model fitted without it, and has two shares at every edge.

    Bins are counted exactly: sketches of quantiles that need no edges (Karnin, Lang and Liberty 2016; t-digests) give
    different results for different orders of rows or blocks. Raises SpecError if these are not distributions. Source:
    `docs/numerics.md`, section 20.

    Attributes
    ----------
    rows : int
        Number q of reference rows.
    edges : (r + 1, m) array
        Values of the scores of each component and, last, of the residual: ascending, from the smallest to the largest.
    lower, upper : (r + 1, m) array
        The share of reference rows whose interval ends, and begins, at or below each edge.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fitted, new = rng.normal(size=(2, 4000, 1))
    >>> residual = np.ones(4000)
    >>> reference = reference_of(fitted, residual, (fitted**2).sum(axis=0), 4000)
    >>> halves = [reference.count(new[half], residual[half]) for half in (slice(2000), slice(2000, None))]
    >>> reference.drift(halves[0] + halves[1]).figure
    0.0
    >>> round(reference.drift(reference.count(new + 1, residual)).figure, 2)  # the distributions are 0.38 apart
    0.33
    """

    shapes: ClassVar[dict[str, Shape]] = dict.fromkeys(("edges", "lower", "upper"), ("r+1", "m"))
    rows: int
    edges: Array
    lower: Array
    upper: Array

    __repr__ = brief

    def __post_init__(self) -> None:
        if self.edges.shape[0] < 2 or not self.edges.shape == self.lower.shape == self.upper.shape:
            raise SpecError(f"a reference with edges {self.edges.shape} and shares {self.lower.shape}")
        if not self.rows >= 1:
            raise SpecError(f"a reference of {self.rows} rows")
        ascending = all((each[:, :-1] <= each[:, 1:]).all() for each in (self.edges, self.lower, self.upper))
        shares = (self.lower >= 0).all() and (self.lower <= self.upper).all() and (self.upper <= 1).all()
        if not (ascending and shares and np.isfinite(self.edges).all()):
            raise SpecError("a reference whose edges or shares do not ascend, or whose shares are not within 0 and 1")

    def count(self, scores: Array, residuals: Array) -> Counts:
        """Count rows with scores Y (b, r) and residuals (b,) into the bins between the edges."""
        values = (*scores.T, residuals)
        if len(values) != len(self.edges):
            raise SpecError(f"{scores.shape[1]} scores per row, but the reference has {len(self.edges) - 1}")
        most = self.edges.shape[1] + 1
        places = (np.searchsorted(edges, each) for edges, each in zip(self.edges, values, strict=True))
        return Counts(np.array([np.bincount(place, minlength=most) for place in places], np.int64))

    def chance(self, rows: int) -> float:
        """The largest distance that `rows` new rows from the same distribution have by chance, with 99.9 % confidence.

            c = √(ln(4 (r + 1) / 0.001) / 2 m) + √(ln(4 (r + 1) / 0.001) / 2 q)

        for m new and q reference rows, by the inequality of Dvoretzky, Kiefer and Wolfowitz (1956) with Massart's
        constant (1990), for both samples and all r + 1 quantities.
        """
        logarithm = np.log(4 * len(self.edges) / (1 - CONFIDENCE))
        return float(np.sqrt(logarithm / (2 * rows)) + np.sqrt(logarithm / (2 * self.rows)))

    def distances(self, counts: Counts) -> Array:
        """D (r + 1,): the largest difference between the shares of new and of reference rows at an edge.

            D = max over edges of  max(F - upper, lower - F, 0),   F the share of new rows up to the edge,

        at most the Kolmogorov-Smirnov distance to the reference rows.
        """
        F = np.cumsum(counts.bins[:, :-1], axis=1) / counts.rows
        return np.maximum(np.maximum(F - self.upper, self.lower - F).max(axis=1), 0.0)

    def drift(self, counts: Counts) -> Drift:
        """The drift of the rows that were counted."""
        *scores, residual = np.zeros(len(self.edges))
        best = 0
        if counts.rows:
            D = self.distances(counts)
            *scores, residual = np.maximum(D - self.chance(counts.rows), 0.0).tolist()
            best = int(D[:-1].argmax())
        score, outside = float(scores[best]), int(counts.bins[-1, -1])
        return Drift(max(residual, score), float(residual), score, best + 1, outside, counts.rows, self.rows)


def reference_of(
    scores: Array,
    residuals: Array,
    eigenvalues: Array,
    count: float,
    errors: Array | float = 0.0,
    held_out: tuple[Array, Array] | None = None,
    weights: Array | None = None,
) -> Reference | None:
    """The reference made from fitted rows; None if numbers overflow.

    Source: Allen (1974), *Technometrics* 16; `docs/numerics.md`, section 20.

    Parameters
    ----------
    scores : (q, r) array
        Y of the reference rows.
    residuals : (q,) array
        e = |φ(x) - φ^(x)|² of each.
    eigenvalues : (r,) array
        lambda of the model.
    count : float
        Number n of rows that were fitted or, if they have weights, the sum of these.
    errors : (q, r + 1) array or float
        How far rounding may move each score and, last, the residual. Intervals are wider by this on both sides.
    held_out : (q, r) array and (q,) array, optional
        Scores and residuals in a model of the other rows. Intervals contain them.
    weights : (q,) array, optional
        Weights of the rows, each 1 by default.

    Returns
    -------
    Reference or None
        With these intervals:

            residual  from e to e' = min(e / (1 - h)², (e + |y|²) / (1 - w/n)²),   h = w / n + w Σ_j y_j² / lambda_j,
            score     from y_j to y_j max(1 - w e' / lambda_j, 0),

        and, for rows with h > 1/2, to the second term of the minimum, and to 0. This is valid if eigenvalues are far
        from each other. Otherwise components rotate when a row is left out, and only a model of other rows shows how
        far.
    """
    Y, e = scores.T.astype(np.float64), residuals.astype(np.float64)
    q = len(e)
    wider = np.broadcast_to(errors, (q, len(Y) + 1)).T
    places = np.linspace(0, 2 * q - 1, _EDGES).round().astype(np.intp)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        w = np.ones(q) if weights is None else weights
        h = w / count + w * leverage(scores, eigenvalues)
        factor = np.where(h > _OWN, 0.0, 1 - h)  # 0: nothing is known about the row left out
        rest = np.where(w < count, count - w, count)
        most = (e + np.einsum("ji,ji->i", Y, Y)) * (count / rest) ** 2  # from the mean of the others
        left_out = np.where(factor > 0, np.minimum(e / factor**2, most), most)
        gone = np.where(factor > 0, left_out, np.inf)
        shrunk = (y * np.maximum(1 - w * gone / value, 0.0) for y, value in zip(Y, eigenvalues, strict=True))
        values = [np.stack(ends) for ends in zip((*Y, e), (*shrunk, left_out), strict=True)]
        if held_out is not None:
            # The components of the other model, with the signs that make its scores agree with these.
            agree = np.where(np.einsum("ij,ij->j", scores, held_out[0]) < 0, -1.0, 1.0)
            others = (*(held_out[0] * agree).T, held_out[1])
            values = [np.vstack([ends, other]) for ends, other in zip(values, others, strict=True)]
        begins = [np.sort(each.min(axis=0) - error) for each, error in zip(values, wider, strict=True)]
        ends = [np.sort(each.max(axis=0) + error) for each, error in zip(values, wider, strict=True)]
    edges = np.array([np.sort(np.concatenate(both))[places] for both in zip(begins, ends, strict=True)])
    lower, upper = (
        np.array([np.searchsorted(each, at, side="right") / q for each, at in zip(bounds, edges, strict=True)])
        for bounds in (ends, begins)
    )
    return Reference(q, edges, lower, upper) if np.isfinite(edges).all() else None
