""" "fixed-point": the fixed-point iteration of Mika et al. (1999), with the mean of the data and with guarded steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, Shape
from bigkpca.numerics.kernels import Kernel, Polynomial, squared_norms
from bigkpca.numerics.kernels.base import no_gradient
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Decode, Decoder, Fitted, Preimages
from bigkpca.numerics.preimages.expansion import Expansion, expansion
from bigkpca.numerics.preimages.fixed_point_start import begin, candidates_of
from bigkpca.numerics.preimages.fixed_point_steps import climb
from bigkpca.numerics.preimages.linear import LinearDecoder, linear_decoder
from bigkpca.numerics.preimages.objective import Objective, objective


@dataclass(frozen=True)
class FixedPoint:
    """z = Σ gamma_i p(z, s_i) s_i / Σ gamma_i p(z, s_i), iterated: the row whose φ(z) is nearest to φ^.

    For kernels with a gradient weight p. The iteration starts at the row itself where that is known (denoising),
    otherwise at the pre-image of the linear map. Steps are shortened so that |φ(z) - φ^| never grows.

    Parameters
    ----------
    mean_term : bool
        False: the thesis's update, which drops the mean in feature space and has no guards; for replication.
    anchor : float
        Holds rows near their start x: for the Gaussian,
        z = (Σ gamma_i k(z, s_i) s_i + anchor x) / (Σ gamma_i k(z, s_i) + anchor). Not negative.
    iterations : int
        The largest number of steps.
    tol : float
        Length of the step at which to stop, in lengths of the kernel.

    Raises
    ------
    SpecError
        Where an option is out of range; from `check`, where the kernel or the method does not fit.

    Notes
    -----
    No pass. A step takes two products with the landmarks, 2 b l d multiplications for b rows; 4 to 8 steps on USPS.

    References
    ----------
    Mika et al. (1999), *NIPS*; Kwok and Tsang (2004); Abrahamsen and Hansen (2011) for the anchor; `docs/numerics.md`,
    section 18.

    Examples
    --------
    >>> FixedPoint(anchor=0.1).iterations
    100
    """

    name: ClassVar[str] = "fixed-point"
    trained: ClassVar[bool] = False
    needs_rows: ClassVar[bool] = False
    mean_term: bool = True
    anchor: float = 0.0
    iterations: int = 100
    tol: float = 1e-4

    def __post_init__(self) -> None:
        if not (np.isfinite(self.anchor) and self.anchor >= 0):
            raise SpecError(f"{self}: the anchor is a number that is not negative")
        if self.anchor and not self.mean_term:
            raise SpecError(f"{self}: the thesis's update (mean_term=False) has no anchor; leave one of them out")
        if self.iterations < 1 or not self.tol > 0:
            raise SpecError(f"{self}: at least one iteration, and a positive tol")

    def check(self, kernel: Kernel, method: Method) -> None:
        if not method.landmarks and isinstance(kernel, Polynomial):
            raise SpecError(
                "pre-images of a tensor sketch have no fixed point: use 'ridge', 'denoising' or 'linear', or landmarks "
                "(method='nystroem')"
            )
        if not method.landmarks and not method.pairs:
            raise SpecError(
                "pre-images by 'fixed-point' need pairs of a sine and a cosine, whose length is the same for all rows: "
                "with form='phase', use 'mds', 'ridge', 'denoising' or 'linear'"
            )
        if kernel.towards is None:
            raise no_gradient(kernel)

    def decoder(self, fitted: Fitted, rows: Array | None = None) -> FixedPointDecoder:
        self.check(fitted.features.kernel, fitted.method)
        given = expansion(fitted)
        used = given if self.mean_term else given.without_mean()
        start = linear_decoder(fitted, rows)
        return FixedPointDecoder(
            origin=used.origin,
            map=None if used.map is fitted.solution.components else used.map,
            linear=used.linear,
            quadratic=used.quadratic,
            mean_score=start.mean_score,
            mean_row=start.mean_row,
            weights=start.weights,
            constant=used.constant,
            mean_term=self.mean_term,
            anchor=self.anchor,
            iterations=self.iterations,
            tol=self.tol,
        )


@dataclass(frozen=True)
class FixedPointDecoder(Decoder):
    """Decoder of `FixedPoint`: the expansion of φ^, and the linear map to start from.

    map is None where it is the components of the model.
    """

    name: ClassVar[str] = "fixed-point"
    shapes: ClassVar[Mapping[str, Shape]] = {
        "origin": ("D",),
        "linear": ("r",),
        "mean_score": ("r",),
        "mean_row": ("d",),
        "weights": ("r", "d"),
        "map": ("D", "r"),
        "quadratic": ("r", "r"),
    }
    origin: Array  # (D,)
    linear: Array  # (r,)
    mean_score: Array  # (r,)
    mean_row: Array  # (d,)
    weights: Array  # (r, d)
    constant: float
    mean_term: bool
    anchor: float
    iterations: int
    tol: float
    map: Array | None = None  # (D, r)
    quadratic: Array | None = None  # (r, r)

    __repr__ = brief

    def __post_init__(self) -> None:
        FixedPoint(self.mean_term, self.anchor, self.iterations, self.tol)  # which checks them

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        goal = objective(features, most_rows)
        given = self._expansion(solution)
        start_of = LinearDecoder(self.mean_score, self.mean_row, self.weights)
        candidates = candidates_of(features)
        # With one factor for all rows, features do not depend on what lies off the axes; only the linear map does.
        blind = features.blind_off_axes

        def decode(Y: Array, start: Array | None) -> Preimages:
            gamma = given.weights(Y)
            known = start is not None and not blind
            Z = start.astype(np.float64) if start is not None and known else start_of(Y)
            if not self.mean_term:
                return self._as_in_the_thesis(goal, Z, gamma)
            norms = np.sqrt(np.maximum(given.squares(Y), 0))
            Z, far = begin(goal, Z, gamma, norms, candidates, known=known)
            hold = self.anchor * goal.own
            found = climb(goal, Z[~far], gamma[~far], hold=hold, tol=self.tol, most=self.iterations)
            return _beside(found, self.mean_row, far)

        return decode

    def expansion(self, solution: Solution) -> Expansion | None:
        return self._expansion(solution) if self.mean_term else None

    def _expansion(self, solution: Solution) -> Expansion:
        """The expansion that is used, in the thesis's form without the mean."""
        G = solution.components if self.map is None else self.map
        return Expansion(self.origin, G, self.constant, self.linear, self.quadratic)

    def _as_in_the_thesis(self, goal: Objective, Z: Array, gamma: Array) -> Preimages:
        """Steps to image / weight without guards; a row that becomes NaN or infinite is the mean, and far."""
        with np.errstate(all="ignore"):
            for _ in range(self.iterations):
                at, before = goal.at(Z, gamma), Z
                Z = at.image / at.weight[:, None]
            converged = squared_norms(Z - before) <= (self.tol * goal.length) ** 2  # never where it is NaN
        far = np.logical_not(np.isfinite(Z).all(axis=1))
        Z[far] = self.mean_row
        return Preimages(Z, converged, np.full(len(Z), self.iterations), far)


def _beside(found: Preimages, mean_row: Array, far: Array) -> Preimages:
    """The pre-images of all rows: those found, and the mean for rows that are far."""
    b = len(far)
    rows, converged, iterations = np.tile(mean_row, (b, 1)), np.zeros(b, bool), np.zeros(b, np.intp)
    rows[~far], converged[~far], iterations[~far] = found.rows, found.converged, found.iterations
    return Preimages(rows, converged, iterations, far)
