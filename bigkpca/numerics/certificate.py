"""How wrong a model can be, and how sure that is: what is proven, likely and estimated, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import Summary, Told, at_least, at_most, counted, number, share_at_most

# Least stability, or largest residual, of a component to be called so. At 0.99 a close neighbour can still have a share
# that halving does not change, and intervals of an evaluation then miss the eigenvalue.
SOLID, FAIR = 0.995, 0.9
SMALL, MODERATE = 0.01, 0.1
MISSED = 1 / 3  # of an eigenvalue, at most, may be what landmarks missed where its component is solid


@dataclass(frozen=True, repr=False)
class Certificate(Told):
    """How wrong a fit can be. E = K - K^, T is tr(Kc), or tr(K) when not centred; r components.

    Of landmarks and a positive semidefinite kernel:
    trace_error: tr(E) >= 0, from the sums of the pass. relative_trace_error: tr(E), widened by its rounding, as a share
        of itself and of what the landmarks explain: a proven bound of tr(HEH) / T, what they leave of the variance.
    eigenvalue_lower, eigenvalue_upper (r,): proven bounds of lambda_j(Kc).
    explained_variance_ratio_lower, explained_variance_ratio_upper (r,): proven bounds of lambda_j / T.
    spectral_error_likely: at least the largest eigenvalue of E, with the probability `confidence`; then, for all j at
        once, lambda_j <= eigenvalue_likely_upper (r,) and lambda_j / T <= explained_variance_ratio_likely_upper (r,).
    strata (k, 5): what the sampled rows behind it say, see `spectral.Stratum`.

    Of most methods:
    missed (r,): what may be missing, an eigenvalue, as a share of eigenvalue j: spectral_error_likely, or an estimate
        of the largest |eigenvalue| of H E H for random features and indefinite kernels. With the residual |K^ u_j -
        lambda_j u_j| / lambda_j against Nyström's K^, for other methods of landmarks, it bounds the residual of u_j.
    sample (q, d): the rows behind such an estimate, in the units of the data, kept for when more rows are added.
    rounding (r,): how far the rounding of block arithmetic may have moved each eigenvalue, as a share of it, or the
        scores of the fitted rows where all rows are landmarks.
    learning_curve (k, 2): number of landmarks, relative trace error of that share of them.
    stability (r,): cosine of each component with its nearest one of Nyström's model of half the landmarks; for random
        features that between models of both halves.
    leave_one_out_residual: mean of k(s, s) - |z(s)|² of uniform landmarks, each left out in turn: estimates that of
        a new row.
    kernel_error: |H(K - K^)H|_F / |Kc|_F of random features, from pairs of sampled rows.
    residuals (r,): |Kc u_j - lambda_j u_j| / lambda_j, where products with the exact Gram matrix were made: some
        eigenvalue of Kc lies within this share of lambda_j of it, which need not be the j-th.
    trust (r,): "solid", "fair" or "doubtful", see there.
    """

    trace_error: float | None = None
    relative_trace_error: float | None = None
    eigenvalue_lower: Array | None = None
    eigenvalue_upper: Array | None = None
    explained_variance_ratio_lower: Array | None = None
    explained_variance_ratio_upper: Array | None = None
    learning_curve: Array | None = None
    stability: Array | None = None
    leave_one_out_residual: float | None = None
    kernel_error: float | None = None
    residuals: Array | None = None
    spectral_error_likely: float | None = None
    eigenvalue_likely_upper: Array | None = None
    explained_variance_ratio_likely_upper: Array | None = None
    confidence: float | None = None
    missed: Array | None = None
    rounding: Array | None = None
    strata: Array | None = None
    sample: Array | None = None

    @property
    def trust(self) -> tuple[str, ...] | None:
        """One word for each component; None where nothing says how good it is.

        "solid": what may be missing is at most 0.01 of the eigenvalue; or it is at most a third of it, and stability
        >= 0.995, or the residual <= 0.01. "fair": it is at most 0.1, or stability >= 0.9, or the residual <= 0.1.
        Rounding is at most 0.01 for "solid", 0.1 for "fair". Else "doubtful". Where it is not known what may be
        missing, a residual makes a component solid, stability does not.
        """
        if self.residuals is not None:
            solid, fair = self.residuals <= SMALL, self.residuals <= MODERATE
        elif self.stability is not None:
            solid, fair = (self.stability >= SOLID) & (self.missed is not None), self.stability >= FAIR
        elif self.missed is not None:
            solid, fair = np.zeros((2, len(self.missed)), bool)
        else:
            return None
        if self.missed is not None:
            solid = (solid & (self.missed <= MISSED)) | (self.missed <= SMALL)
            fair = fair | (self.missed <= MODERATE)
        if self.rounding is not None:
            solid, fair = solid & (self.rounding <= SMALL), fair & (self.rounding <= MODERATE)
        return tuple(np.select([solid, fair], ["solid", "fair"], "doubtful").tolist())

    def summary(self) -> Summary:
        """What is proven, likely and estimated of the whole, and of each component."""
        facts, sure = {}, f"{self.confidence:.0%}" if self.confidence else ""
        if self.trust:
            facts["trust"] = counted(self.trust)
        if self.relative_trace_error is not None:
            facts["unexplained"] = f"{share_at_most(self.relative_trace_error)} of the variance at most (proven)"
        if self.spectral_error_likely is not None:
            facts["missed"] = (
                f"no component with an eigenvalue above {number(at_most(self.spectral_error_likely))} ({sure})"
            )
        if self.leave_one_out_residual is not None:
            facts["residual of a new row"] = f"{number(self.leave_one_out_residual)} (estimated)"
        if self.kernel_error is not None:
            facts["error of the kernel"] = f"{self.kernel_error:.2%} (estimated)"
        columns = {
            "proven at least": _each(at_least, self.eigenvalue_lower),
            "proven at most": _each(at_most, self.eigenvalue_upper),
            f"at most, {sure}": _each(at_most, self.eigenvalue_likely_upper),
            "missed": self.missed,
            "rounding": self.rounding,
            "stability": self.stability,
            "residual": _each(at_most, self.residuals),
            "trust": self.trust,
        }
        told = any(values is not None for values in columns.values())
        return Summary("Certificate" if facts or told else "Certificate that says nothing", facts, columns)

    def arrays(self) -> dict[str, Array]:
        """The arrays that a file must hold."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def numbers(self) -> dict[str, Any]:
        """The numbers that a file must hold besides."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.type == "float | None"}


def _each(rounded: Callable[[float], float], bounds: Array | None) -> Array | None:
    return None if bounds is None else np.array([rounded(bound) for bound in bounds])


def trustworthy(trust: tuple[str, ...]) -> int:
    """How many leading components come before the first doubtful one."""
    return next((number for number, word in enumerate(trust) if word == "doubtful"), len(trust))


def before_largest_gap(eigenvalues: Array) -> tuple[int, float]:
    """(r, lambda_r / lambda_(r+1)) where that ratio is largest (Ahn and Horenstein 2013); (1, 1) for one value."""
    if len(eigenvalues) < 2:
        return 1, 1.0
    ratios = eigenvalues[:-1] / eigenvalues[1:]
    return int(ratios.argmax()) + 1, float(ratios.max())
