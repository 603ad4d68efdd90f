"""Kernels of counts and shares: Tanimoto for fingerprints, chi-squared for histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics.kernels.base import Evaluate, SimpleKernel, require_positive, squared_norms
from bigkpca.numerics.kernels.inner_product import Linear


@dataclass(frozen=True)
class Tanimoto(SimpleKernel):
    """k(x, y) = <x, y> / (|x|² + |y|² - <x, y>); a zero row has kernel 0 with everything, itself included.

    For rows of 0 and 1 it is the number of ones in common over the number in either (Jaccard). Positive semidefinite:
    1 / (a + b - c) is the integral of exp(-ta) exp(-tb) exp(tc) over t > 0, and exp(t <x, y>) is a kernel for each t.
    Source: Ralaivola, Swamidass, Saigo and Baldi (2005), *Neural Netw.* 18.
    """

    name: ClassVar[str] = "tanimoto"

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        inner, norms = Linear().against(Y, most_rows), squared_norms(Y)
        work, least = np.empty((most_rows, len(Y)), Y.dtype), np.finfo(Y.dtype).tiny

        def evaluate(X: Array, out: Array) -> None:
            inner(X, out)
            union = work[: len(X)]
            np.add(squared_norms(X)[:, None], norms, out=union)
            union -= out
            np.maximum(union, least, out=union)  # of two zero rows: 0 / least = 0
            out /= union

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.asarray(X.any(axis=1), np.float64)


@dataclass(frozen=True)
class ChiSquared(SimpleKernel):
    """k(x, y) = exp(-gamma Σ (x_j - y_j)² / (x_j + y_j)), of rows without negative numbers; 0 / 0 counts as 0.

    As scikit-learn's `chi2_kernel`. Positive semidefinite: Σ (x - y)² / (x + y) is Σ x + Σ y less four times Σ x y /
    (x + y), which is a kernel, as the integral of x exp(-tx) y exp(-ty) over t > 0. The default gamma suits shares,
    whose distance is at most 2. Raises SpecError for a gamma that is not positive, and DataError for negative numbers.
    Source: Zhang, Marszalek, Lazebnik and Schmid (2007), *IJCV* 73.
    """

    name: ClassVar[str] = "chi-squared"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, gamma=self.gamma)

    def against(self, Y: Array, most_rows: int) -> Evaluate:
        _check_no_negative(Y)
        works, least = np.empty((2, most_rows, len(Y)), Y.dtype), np.finfo(Y.dtype).tiny

        def evaluate(X: Array, out: Array) -> None:
            _check_no_negative(X)
            apart, both = works[:, : len(X)]
            out[:] = 0
            for x, y in zip(X.T, Y.T, strict=True):
                np.subtract(x[:, None], y, out=apart)
                np.add(x[:, None], y, out=both)
                np.maximum(both, least, out=both)
                apart *= apart
                apart /= both
                out += apart
            out *= -self.gamma
            np.exp(out, out=out)

        return evaluate

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


def _check_no_negative(X: Array) -> None:
    if X.size and X.min() < 0:
        raise DataError(
            f"the chi-squared kernel compares counts or shares, which are not negative, but the rows have {X.min():g}: "
            "choose another kernel, or leave out standardize and columns with negative numbers"
        )
