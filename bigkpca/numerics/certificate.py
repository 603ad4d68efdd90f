"""The certificate of a fit: how far its eigenvalues and components may be from those of the exact Gram matrix.

For landmarks of a positive semidefinite kernel E = K - K^ is positive semidefinite, so that

    Lam_j <= lambda_j <= Lam_j + |E|,   tr(HK^H) <= T <= tr(HK^H) + tr(E):

lower bounds of eigenvalues and the share of the variance that is missed are proven, from sums over all rows; |E| is
bounded with 95 % confidence, from rows that were drawn in the pass. Estimates and the cosines of components come from
the same rows, for every method: `fitting/certify.py` computes them by `numerics/judge.py`. Source: `docs/numerics.md`,
section 14.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import ShowsSummary, Summary, at_least, at_most, counted, plus_minus, share_at_most

CONFIDENCE = 0.95

SOLID, FAIR = 0.995, 0.95  # least cosine with the exact component
SMALL, MODERATE = 0.01, 0.1  # largest rounding of an eigenvalue, or residual, of solid and fair components
MISSED = 1 / 3  # of an eigenvalue: what a solid component, or a fair one without a bound, may miss

_NEARLY_ALL, _MOST = 0.95, 0.5  # of what components hold: the solid and fair part of accurate ones, and of a part


@dataclass(frozen=True, repr=False)
class Certificate(ShowsSummary):
    """Bounds and estimates of the error of a fit. E = K - K^; T is tr(Kc), or tr(K) when not centred; r components.

    Attributes
    ----------
    lower : (r,) array
        Proven lower bounds of lambda_j(Kc) for landmarks of a positive semidefinite kernel; 0 where nothing is proven.
    upper : (r,) array
        Upper bounds of lambda_j(Kc), for all j at once, with 95 % confidence; infinite where there is none.
    estimate, standard_error : (r,) array
        Estimates of lambda_j(Kc) from the drawn rows; NaN where an eigenvalue may be that of a direction that is
        missed.
    cosine : (r,) array
        Estimated cosine of the angle between each component and the exact one; NaN if no row was drawn.
    rounding : (r,) array
        The largest rounding error of each eigenvalue, as a share of it.
    residuals : (r,) array
        |Kc u_j - lambda_j u_j| / lambda_j from products with the exact Gram matrix; NaN without products.
    missed : (r,) array
        The largest eigenvalue of E as a share of each eigenvalue: a bound for landmarks of a positive semidefinite
        kernel, otherwise an estimate; infinite if it is not known.
    unexplained : float
        Proven bound of tr(HEH) / T; 1 if nothing is proven.
    confidence : float
        The probability that `upper` and `missed` are bounds: 0.95, or 0 if they are not.
    """

    lower: Array
    upper: Array
    estimate: Array
    standard_error: Array
    cosine: Array
    rounding: Array
    residuals: Array
    missed: Array
    unexplained: float
    confidence: float
    # A further field is stored with the model; it needs a default, without which stored models could not be loaded.

    @classmethod
    def of(cls, r: int, **known: Any) -> Certificate:
        """A certificate of r components that states only what is known."""
        nan = np.full(r, np.nan)
        nothing: dict[str, Any] = dict.fromkeys(("estimate", "standard_error", "cosine", "residuals"), nan)
        nothing |= {"lower": np.zeros(r), "rounding": np.zeros(r)}
        nothing |= dict.fromkeys(("upper", "missed"), np.full(r, np.inf))
        return cls(**(nothing | {"unexplained": 1.0, "confidence": 0.0} | known))

    @property
    def trust(self) -> tuple[str, ...]:
        """Trust in each component.

        "solid": the cosine with the exact component is at least 0.995, at most 1/3 of the eigenvalue is missed, and
        rounding is at most 0.01 of it. "fair": the cosine is at least 0.95, at most the whole eigenvalue is missed (1/3
        if `missed` is not a bound), and rounding is at most 0.1. From products, a residual of at most 0.01 is solid, of
        0.1 fair. All others are "doubtful".
        """
        share = self.missed
        with np.errstate(invalid="ignore"):
            known = ~np.isnan(self.residuals)
            solid = np.where(known, self.residuals <= SMALL, self.cosine >= SOLID)
            fair = np.where(known, self.residuals <= MODERATE, self.cosine >= FAIR)
        solid &= (known | (share <= MISSED)) & (self.rounding <= SMALL)
        fair &= (known | (share <= (1 if self.confidence else MISSED))) & (self.rounding <= MODERATE)
        return tuple(np.select([solid, fair], ["solid", "fair"], "doubtful").tolist())

    @property
    def error(self) -> float:
        """The error that is compared with a tolerance: the unexplained share, if it is proven, otherwise the largest
        eigenvalue of E as a share of the first eigenvalue."""
        return self.unexplained if self.proven else float(self.missed[0])

    @property
    def of_products(self) -> bool:
        """Whether components come from products with the exact Gram matrix."""
        return not np.isnan(self.residuals).all()

    @property
    def proven(self) -> bool:
        """Whether lower bounds are proven."""
        return bool(self.lower.any())

    def shares(self, total: float) -> Certificate:
        """The same with bounds and estimates of lambda_j / T, for the total variance of the model, which bounds T from
        above."""
        least = total * (1 - self.unexplained)
        upper = np.minimum(self.upper / least, 1) if least > 0 else np.ones(len(self.upper))
        return replace(self, lower=self.lower / total, upper=upper, estimate=np.minimum(self.estimate / total, upper))

    def summary(self) -> Summary:
        """The bounds and estimates of the whole model, and of each component."""
        facts = {"trust": counted(self.trust)}
        if self.unexplained < 1:
            facts["unexplained"] = f"{share_at_most(self.unexplained)} of the variance at most (proven)"
        columns: dict[str, Any] = {
            "proven at least": [*map(at_least, self.lower)] if self.proven else None,
            f"at most, {CONFIDENCE:.0%}": [*map(at_most, self.upper)] if np.isfinite(self.upper).all() else None,
            "estimate": self.estimates,
            "missed": self.missed,
            "rounding": self.rounding,
            "cosine": None if np.isnan(self.cosine).all() else self.cosine,
            "residual": self.residuals if self.of_products else None,
            "trust": self.trust,
        }
        return Summary("Certificate", facts, columns)

    @property
    def estimates(self) -> tuple[str, ...] | None:
        """Estimated eigenvalues with their standard errors, as text, (r,); None if none is known."""
        if np.isnan(self.estimate).all():
            return None
        return tuple(map(plus_minus, self.estimate, self.standard_error))


def accuracy(trust: tuple[str, ...], shares: Array) -> tuple[str, float]:
    """How accurate components with these shares (r,) of the variance are, in words, and the part of it that is solid or
    fair: small doubtful components at the end of a spectrum matter little."""
    trusted, held = np.array([word != "doubtful" for word in trust]), float(shares.sum())
    part = float(shares[trusted].sum()) / held if held else 0.0
    return "inaccurate" if part < _MOST else "accurate in part" if part < _NEARLY_ALL else "accurate", part
