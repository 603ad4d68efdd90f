"""The error of a model on any rows, from exact kernels between sampled ones. Source: `docs/numerics.md`, section 15."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import ShowsSummary, Summary
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.linear_pca import Captured


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error, from m sampled rows; value ± 1.96 standard_error is a 95 % interval."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ± {self.standard_error:.1g}"


@dataclass(frozen=True, repr=False)
class Evaluation(ShowsSummary):
    """Estimated errors of a model on n rows, from m of them: 0 for an exact model of these rows, apart from rounding.

    E = K - K^, φ centred as in the model.

    Attributes
    ----------
    rows, sampled : int
        n and m.
    explained : Estimate
        The share of Σ |φ(x_i) - mean|² that the scores hold: Σ |y_i|² over it.
    unexplained : Estimate
        The share that the features miss, |tr(E)| over it.
    kernel : Estimate
        |HEH|_F / |HKH|_F, over pairs of different rows.
    captured : Captured or None
        The share of the columns that the scores explain, beside linear PCA; None if the rows are too few, and for
        kernels that do not compare quantities.
    """

    rows: int
    sampled: int
    explained: Estimate
    unexplained: Estimate
    kernel: Estimate
    captured: Captured | None = None

    def summary(self) -> Summary:
        """The estimates with their standard errors."""
        facts = {
            "explained": str(self.explained),
            "unexplained": str(self.unexplained),
            "error of the kernel": str(self.kernel),
        }
        if self.captured is not None:
            facts["columns explained"] = "{:.1%}, by linear PCA {:.1%}".format(*self.captured.shares)
        return Summary(f"Evaluation on {self.rows:,} rows, from {self.sampled:,} of them", facts, {})


def evaluation(
    features: FeatureMap, solution: Solution, P: Array | None, X: Array, rows: int, *, center: bool
) -> Evaluation:
    """The errors on `rows` rows, from a random sample X (m, d) of them, in the units of the data, in float64; K^ = (V
    P)(V P)' for the features V of rows, or V V' if P is None. Memory: 4 m² + m D numbers."""
    exact = features.in_precision(np.dtype(np.float64))
    ((V, diagonal),) = exact.tiles([X], len(X))
    Z = V if P is None else V @ P
    K = features.kernel.gram(exact.shifted(X))
    K, E, missed = K.copy(), K - Z @ Z.T, np.abs(diagonal - np.einsum("ij,ij->i", Z, Z))
    whole = diagonal.astype(np.float64)
    if center:
        whole = whole - 2 * K.mean(axis=0) + K.mean()
        for A in (K, E):
            A -= A.mean(axis=0)
            A -= A.mean(axis=1)[:, None]
    left = 1 - len(X) / rows
    unit = np.ldexp(1.0, -int(np.frexp(np.abs(K).max(initial=0.0))[1]))  # a power of 2, with which squares fit float64
    for A in (K, E):
        A *= unit
        np.fill_diagonal(A, 0)
    scores = (V - solution.mean) @ solution.components
    squares, wrong = np.einsum("ij,ij->i", K, K), np.einsum("ij,ij->i", E, E)
    of_squares = _ratio(wrong, squares, 4 * left)  # 4 = 2², since each pair belongs to two rows
    root = float(np.sqrt(of_squares.value))
    return Evaluation(
        rows,
        len(X),
        _ratio(np.einsum("ij,ij->i", scores, scores), whole, left),
        _ratio(missed, whole, left),
        Estimate(root, of_squares.standard_error / (2 * root) if root else 0.0),
    )


def _ratio(numerators: Array, denominators: Array, left: float) -> Estimate:
    """Σ a / Σ b over sampled rows with its standard error, to first order; `left` is the share of rows that were not
    sampled."""
    total = float(denominators.sum())
    if total <= 0:  # the kernel is so narrow that no variance remains: the error is everything, or zero
        return Estimate(float((numerators > 0).any()), 0.0)
    value = float(numerators.sum()) / total
    return Estimate(value, float(np.sqrt(left * np.sum((numerators - value * denominators) ** 2))) / total)
