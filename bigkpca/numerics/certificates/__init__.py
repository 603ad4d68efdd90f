"""The certificate of a fit: proven bounds, estimates, and how far each component can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import ShowsSummary, Summary, at_least, at_most, counted, number, share_at_most

# Least stability, and largest residual, of "solid" and "fair" components. With a least stability of 0.99 a close
# neighbour can still have a share that halving does not show, and intervals of an evaluation miss the eigenvalue.
SOLID, FAIR = 0.995, 0.9
SMALL, MODERATE = 0.01, 0.1
MISSED = 1 / 3  # of an eigenvalue: landmarks may have missed at most this where its component is solid
NEAR = 1 / 4  # of what may be missed, a bound that is mostly several times what is: components nearer than this may mix


# Shapes of fields that are arrays; letters stand for sizes.
_VECTOR, _CURVE, _STRATA, _SAMPLE = ({"shape": shape} for shape in (("r",), ("k", 2), ("s", 6), ("q", "d")))


@dataclass(frozen=True, repr=False)
class Certificate(ShowsSummary):
    """Bounds and estimates of the error of a fit. E = K - K^; T is tr(Kc), or tr(K) when not centred; r components.

    The attributes down to `strata` are known for landmarks of a positive semidefinite kernel.

    Attributes
    ----------
    trace_error : float
        tr(E) >= 0, from the sums of the pass.
    relative_trace_error : float
        A proven bound of tr(HEH) / T: tr(E), widened by rounding, over the sum of itself and the explained variance.
    eigenvalue_lower, eigenvalue_upper : (r,) array
        Proven bounds of lambda_j(Kc).
    explained_variance_ratio_lower, explained_variance_ratio_upper : (r,) array
        Proven bounds of lambda_j / T.
    spectral_error_likely : float
        An upper bound of the largest eigenvalue of E, with the probability `confidence`.
    confidence : float
        The probability that all bounds that are called likely hold.
    eigenvalue_likely_upper, explained_variance_ratio_likely_upper : (r,) array
        The bounds of lambda_j and lambda_j / T that follow from it, for all j at once.
    strata : (k, 6) array
        The sampled rows behind these bounds, see `spectral.Stratum`.
    missed : (r,) array
        The largest eigenvalue that may be missing, as a share of eigenvalue j: spectral_error_likely, or an estimate of
        the norm of H E H for random features and indefinite kernels. For other methods with landmarks the residual
        |K^ u_j - lambda_j u_j| / lambda_j against Nyström's K^ is added, so that it bounds the residual of u_j.
    sample : (q, d) array
        The rows behind such an estimate, in the units of the data, kept for added rows.
    rounding : (r,) array
        The largest rounding error of each eigenvalue, as a share of it; where all rows are landmarks, of the scores.
    learning_curve : (k, 2) array
        Number of landmarks, and the relative trace error of that part of them.
    stability : (r,) array
        Cosine of each component with its nearest one of Nyström's model of half the landmarks; for random features
        between models of both halves.
    gap : (r,) array
        Distance of each eigenvalue to the nearest other that is not within 2 % of it, as a share of it; those behind
        the last are of the model of half the landmarks or features.
    leave_one_out_residual : float
        Mean of k(s, s) - |z(s)|² of uniform landmarks, each left out in turn: an estimate for a new row.
    kernel_error : float
        |H(K - K^)H|_F / |Kc|_F of random features, from pairs of sampled rows.
    residuals : (r,) array
        |Kc u_j - lambda_j u_j| / lambda_j from products with the exact Gram matrix: an eigenvalue of Kc lies within
        this share of lambda_j, but need not be the j-th.

    Notes
    -----
    None stands for what is not known. Source: `docs/numerics.md`, section 14.
    """

    trace_error: float | None = None
    relative_trace_error: float | None = None
    eigenvalue_lower: Array | None = field(default=None, metadata=_VECTOR)
    eigenvalue_upper: Array | None = field(default=None, metadata=_VECTOR)
    explained_variance_ratio_lower: Array | None = field(default=None, metadata=_VECTOR)
    explained_variance_ratio_upper: Array | None = field(default=None, metadata=_VECTOR)
    learning_curve: Array | None = field(default=None, metadata=_CURVE)
    stability: Array | None = field(default=None, metadata=_VECTOR)
    gap: Array | None = field(default=None, metadata=_VECTOR)
    leave_one_out_residual: float | None = None
    kernel_error: float | None = None
    residuals: Array | None = field(default=None, metadata=_VECTOR)
    spectral_error_likely: float | None = None
    eigenvalue_likely_upper: Array | None = field(default=None, metadata=_VECTOR)
    explained_variance_ratio_likely_upper: Array | None = field(default=None, metadata=_VECTOR)
    confidence: float | None = None
    missed: Array | None = field(default=None, metadata=_VECTOR)
    rounding: Array | None = field(default=None, metadata=_VECTOR)
    strata: Array | None = field(default=None, metadata=_STRATA)
    sample: Array | None = field(default=None, metadata=_SAMPLE)

    @property
    def trust(self) -> tuple[str, ...] | None:
        """Trust in each component: "solid", "fair" or "doubtful"; None where nothing is known about any.

        "solid": the missed share is at most 0.01; or it is at most 1/3, and the residual <= 0.01; or it is at most 1/3
        and four times the gap, and stability >= 0.995: what is missed may mix components that are near to each other.
        "fair": the missed share is at most 0.1; or it is at most 1, so that nothing larger than the component is
        missed, and stability >= 0.9; or the residual <= 0.1. Rounding must be at most 0.01 for "solid", 0.1 for "fair".
        Where the missed share is not known, a residual makes a component solid, stability only fair.
        """
        if self.residuals is not None:
            solid, fair = self.residuals <= SMALL, self.residuals <= MODERATE
        elif self.stability is not None:
            solid, fair = (self.stability >= SOLID) & (self.missed is not None), self.stability >= FAIR
            if self.missed is not None:
                solid &= NEAR * self.missed <= (np.inf if self.gap is None else self.gap)
                fair &= self.missed <= 1
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
        """The bounds and estimates of the whole model, and of each component."""
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
            "gap": self.gap,
            "residual": _each(at_most, self.residuals),
            "trust": self.trust,
        }
        known = any(values is not None for values in columns.values())
        return Summary("Certificate" if facts or known else "Certificate that says nothing", facts, columns)

    @classmethod
    def shapes(cls) -> dict[str, tuple[str | int, ...]]:
        """The shapes of the fields that are arrays, by name."""
        return {part.name: part.metadata["shape"] for part in fields(cls) if part.metadata}

    def arrays(self) -> dict[str, Array]:
        """The fields that are arrays and known, by name."""
        return {name: getattr(self, name) for name in self.shapes() if getattr(self, name) is not None}

    def numbers(self) -> dict[str, float | None]:
        """The fields that are numbers, by name."""
        return {part.name: getattr(self, part.name) for part in fields(self) if not part.metadata}


def _each(rounded: Callable[[float], float], bounds: Array | None) -> Array | None:
    """The bounds, each rounded to the safe side."""
    return None if bounds is None else np.array([rounded(bound) for bound in bounds])


def trustworthy(trust: tuple[str, ...]) -> int:
    """Number of leading components before the first doubtful one."""
    return next((number for number, word in enumerate(trust) if word == "doubtful"), len(trust))


def before_largest_gap(eigenvalues: Array) -> tuple[int, float]:
    """(r, lambda_r / lambda_(r+1)) at the largest ratio (Ahn and Horenstein 2013); (1, 1) for a single eigenvalue."""
    if len(eigenvalues) < 2:
        return 1, 1.0
    ratios = eigenvalues[:-1] / eigenvalues[1:]
    return int(ratios.argmax()) + 1, float(ratios.max())
