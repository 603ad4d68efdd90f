"""Proven bounds of the eigenvalues of Kc, from the Nyström eigenvalues Lam_j and the trace error.

For a positive semidefinite kernel E = K - K^ is positive semidefinite, so that

    Lam_j <= lambda_j <= min over i <= j of Lam_i + tr(E) / (j - i + 1),   tr(HK^H) <= T <= tr(HK^H) + tr(E),
    lambda_j <= Lam_j + the largest eigenvalue of E:

lambda_j <= Lam_i + eigenvalue j - i + 1 of HEH (Weyl), and p times the p-th eigenvalue of HEH is at most its trace.
Source: `docs/numerics.md`, section 14.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array, RoundingError
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.linalg import ALGEBRA
from bigkpca.numerics.span import Span


@dataclass(frozen=True)
class Proven:
    """Proven bounds of the eigenvalues lambda_j of Kc, widened by rounding.

    trace: tr(E). coarse: its rounding. error: the sum of both. total: T, of which `explained` is proven. most (r,):
    Nyström eigenvalues plus their rounding. slack (r,): how far Lam_j may exceed lambda_j by rounding. low, high (r,):
    bounds of lambda_j. shares (r,): upper bounds of lambda_j / T.
    """

    trace: float
    coarse: float
    error: float
    total: float
    explained: float
    slack: Array
    most: Array
    low: Array
    high: Array
    shares: Array

    @property
    def relative_error(self) -> float | None:
        """error / (explained + error); None where no variance is left to compare with."""
        return self.error / (self.explained + self.error) if self.explained + self.error > 0 else None

    def shares_given(self, likely: float) -> Array:
        """Upper bounds of lambda_j / T (r,), given that no eigenvalue of E exceeds `likely`.

        lambda_j = Lam_j + e and T >= explained + e for some e of at most `likely`.
        """
        return (self.most + likely) / (self.explained + likely)


def proven(span: Span, nystroem: Solution, r: int, rounding: Array, trace_rounding: float, *, checked: bool) -> Proven:
    """The bounds of r eigenvalues from Nyström's solution, its rounding and that of tr(E).

    Raises RoundingError where tr(E) is negative beyond rounding, if it is to be `checked`.
    """
    moments, left, total = span.moments, span.trace_error, nystroem.total_variance
    slack = np.full(
        len(nystroem.eigenvalues), ALGEBRA * (float(nystroem.eigenvalues[0]) + moments.trace / moments.count)
    )
    slack += rounding
    coarse = ALGEBRA * moments.trace + trace_rounding
    if checked:
        _check_trace_error(left, coarse, moments.trace)
    trace, error = max(left, 0.0), max(left, 0.0) + coarse
    # Other methods may report more components than Nyström has: of those, zero is the lower bound.
    missing = r - len(nystroem.eigenvalues)
    values, slack = np.pad(nystroem.eigenvalues, (0, missing)), np.pad(slack, (0, missing), mode="edge")
    # Sorted again: an eigenvalue with a large rounding error may have moved past others with small ones.
    most = np.sort(values + slack)[::-1]
    lower = np.maximum(values - slack, 0)
    low, high = np.sort(lower)[::-1], _upper(most, error)
    # Behind an eigenvalue that is mostly rounding, all others stand one place too far.
    slack = np.where(low < lower, values - low, slack)
    explained = max(total - error, float(low.sum()))
    shares = _upper_shares(most, error, explained)
    return Proven(trace, coarse, error, total, explained, slack, most, low, high, shares)


def _check_trace_error(left: float, rounding: float, trace: float) -> None:
    """Raise RoundingError where the landmarks explain more than tr(K), beyond rounding."""
    if left < -rounding:
        raise RoundingError(
            f"the landmarks explain {1 - left / trace:.9g} of Σ k(x, x), more than all of it: rounding, or a kernel "
            "that is not positive semidefinite. Fit with dtype float64, remove or standardise columns of very "
            "different size, or leave psd=True out of a kernel function"
        )


def _upper(nystroem: Array, error: float) -> Array:
    """Upper bounds of lambda_1, ..., lambda_r from the Nyström eigenvalues (r,) and tr(E) = `error`."""
    i, j = np.indices((len(nystroem), len(nystroem)))
    bounds = np.where(i <= j, nystroem[:, None] + error / np.maximum(j - i + 1, 1), np.inf)
    return np.asarray(bounds.min(axis=0))


def _upper_shares(nystroem: Array, error: float, explained: float) -> Array:
    """Upper bounds of lambda_j / T, where T = explained + h with h = tr(HEH) anywhere in [0, error]:

        min over i <= j of  max over h of  (Lam_i + h / (j - i + 1)) / (explained + h),

    each of which is monotone in h, so that its maximum is at an end.
    """
    if not explained > 0:
        return np.ones(len(nystroem))
    i, j = np.indices((len(nystroem), len(nystroem)))
    values = np.broadcast_to(nystroem[:, None], i.shape)
    ends = np.maximum(values / explained, (values + error / np.maximum(j - i + 1, 1)) / (explained + error))
    return np.minimum(np.where(i <= j, ends, np.inf).min(axis=0), 1)
