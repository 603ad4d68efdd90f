"""What a fit's own sums prove, and what they suggest, about its error: no further pass over the data.

Proven numbers are the trace error and the bounds; the learning curve, the stability and the leave-one-out residual are
estimates. A method that cannot say something says None.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics import solvers
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.methods import Method, Nystroem
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.solvers import Solution

# Least stability, or largest residual, of a component to be called so. At 0.99 a close neighbour can still have a share
# that halving does not change, and intervals of an evaluation then miss the eigenvalue.
SOLID, FAIR = 0.995, 0.9
SMALL, MODERATE = 0.01, 0.1
_ROUNDING = 10  # bounds are widened by so many rank tolerances of the largest eigenvalue
_SPARE = 10  # components of the half model beyond r, so that its r-th is not cut off from a neighbour
_CURVE = (8, 4, 2)  # shares of the landmarks at which the learning curve is taken, beside all


@dataclass(frozen=True)
class Certificate:
    """How wrong a fit can be. E = K - K^, T is tr(Kc), or tr(K) when not centred; r components.

    trace_error: tr(E) >= 0, exact. relative_trace_error: tr(E) over an upper bound of T.
    eigenvalue_lower, eigenvalue_upper (r,): proven bounds of lambda_j(Kc).
    explained_variance_ratio_lower, explained_variance_ratio_upper (r,): proven bounds of lambda_j / T.
    learning_curve (k, 2): number of landmarks, relative trace error of that share of them.
    stability (r,): cosine of each component with its nearest one of Nyström's model of half the landmarks; for random
        features that between models of both halves.
    leave_one_out_residual: mean of k(s, s) - |z(s)|² of uniform landmarks, each left out in turn: estimates that of
        a new row.
    kernel_error: |H(K - K^)H|_F / |Kc|_F of random features, from pairs of sampled rows.
    residuals (r,): |Kc u_j - lambda_j u_j| / lambda_j, where products with the exact Gram matrix were made: some
        eigenvalue of Kc lies within this share of lambda_j of it.
    trust (r,): "solid" where stability >= 0.995 or the residual <= 0.01, "fair" where >= 0.9 or <= 0.1, else
        "doubtful".
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

    @property
    def trust(self) -> tuple[str, ...] | None:
        """One word for each component, None where there is no stability to judge by."""
        if self.residuals is not None:
            solid, fair = self.residuals <= SMALL, self.residuals <= MODERATE
        elif self.stability is not None:
            solid, fair = self.stability >= SOLID, self.stability >= FAIR
        else:
            return None
        return tuple(np.select([solid, fair], ["solid", "fair"], "doubtful").tolist())

    def arrays(self) -> dict[str, Array]:
        """The arrays that a file must hold."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def numbers(self) -> dict[str, Any]:
        """The numbers that a file must hold besides."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.type == "float | None"}


def trustworthy(trust: tuple[str, ...]) -> int:
    """How many leading components come before the first doubtful one."""
    return next((number for number, word in enumerate(trust) if word == "doubtful"), len(trust))


def before_largest_gap(eigenvalues: Array) -> tuple[int, float]:
    """(r, lambda_r / lambda_(r+1)) where that ratio is largest (Ahn and Horenstein 2013); (1, 1) for one value."""
    if len(eigenvalues) < 2:
        return 1, 1.0
    ratios = eigenvalues[:-1] / eigenvalues[1:]
    return int(ratios.argmax()) + 1, float(ratios.max())


def of_landmarks(
    method: Method,
    moments: Moments,
    features: KernelRows,
    solution: Solution,
    *,
    center: bool,
    tolerance: float,
    uniform: bool,
) -> Certificate:
    """The certificate of a method of landmarks, from the moments and W alone.

    E is positive semidefinite, so that for the Nyström eigenvalues Lam_j

        Lam_j <= lambda_j <= min over i <= j of Lam_i + tr(E) / (j - i + 1),   tr(HK^H) <= T <= tr(HK^H) + tr(E):

    lambda_j <= Lam_i + eigenvalue j - i + 1 of HEH (Weyl), and p times the p-th eigenvalue of HEH is at most its trace.
    Source: `docs/numerics.md`, section 14.
    """
    W, r = features.gram(), solution.components.shape[1]
    plain = method == Nystroem()
    span = None if plain and not uniform else solvers.span_of(W, tolerance)
    bound = solution
    # The others' own eigenvalues are no bounds, and their halves share their errors; but the same sums hold Nyström's.
    if span and not plain:
        bound = solvers.nystroem_within(span, moments, W, r, center=center, tolerance=tolerance)
    assert bound.unexplained is not None
    error, total = max(bound.unexplained * moments.trace, 0.0), bound.total_variance
    slack = _ROUNDING * tolerance * bound.eigenvalues[0]
    # A method may report more components than Nyström has: of those, zero is the lower bound.
    nystroem = np.pad(bound.eigenvalues, (0, r - len(bound.eigenvalues)))
    low, high = np.maximum(nystroem - slack, 0), _upper(nystroem, error) + slack
    return Certificate(
        trace_error=error,
        relative_trace_error=error / total,
        eigenvalue_lower=low,
        eigenvalue_upper=high,
        explained_variance_ratio_lower=low / total,
        explained_variance_ratio_upper=np.minimum(high / total, 1),
        learning_curve=np.vstack([_learning_curve(moments, W, center, tolerance), [len(W), error / total]]),
        stability=_stability(Nystroem(), moments, features, solution, center, tolerance),
        # The residual of each landmark given all others is 1 / (W⁻¹)_ii (Schur complements).
        leave_one_out_residual=float(np.mean(1 / span.inverse_diagonal(tolerance))) if span and uniform else None,
    )


def of_products(solution: Solution, residuals: Array) -> Certificate:
    """The certificate of eigenpairs from products with Kc: they are lower bounds, and their residuals are known."""
    return Certificate(
        eigenvalue_lower=solution.eigenvalues,
        explained_variance_ratio_lower=solution.explained_variance_ratio,
        residuals=residuals,
    )


def _upper(nystroem: Array, error: float) -> Array:
    """Upper bounds of lambda_1, ..., lambda_r from the Nyström eigenvalues (r,) and tr(E)."""
    i, j = np.indices((len(nystroem), len(nystroem)))
    bounds = np.where(i <= j, nystroem[:, None] + error / np.maximum(j - i + 1, 1), np.inf)
    return np.asarray(bounds.min(axis=0))


def of_gram(solution: Solution) -> Certificate:
    """The certificate of the whole Gram matrix: there is no error, and nothing to bound."""
    ratio, ones = solution.explained_variance_ratio, np.ones(len(solution.eigenvalues))
    return Certificate(0.0, 0.0, solution.eigenvalues, solution.eigenvalues, ratio, ratio, stability=ones)


def of_random_features(
    method: Method, moments: Moments, features: FeatureMap, solution: Solution, *, center: bool, tolerance: float
) -> Certificate:
    """What can be said of random features, whose error has either sign: the stability of components, an estimate.

    Z Z' is the mean of those of both halves, so to first order each component lies halfway between theirs, and as far
    from the truth as from either: cos 2θ = 2 cos² θ - 1 is the cosine between models that share no features.
    """
    cosines = _stability(method, moments, features, solution, center, tolerance)
    return Certificate(stability=None if cosines is None else np.maximum(2 * cosines**2 - 1, 0))


def _learning_curve(moments: Moments, W: Array, center: bool, tolerance: float) -> Array:
    """(number, relative trace error) of every 8th, 4th and 2nd landmark, (3, 2): models of their own."""
    points = []
    for step in _CURVE:
        part = moments.part(slice(None, None, step))
        span = solvers.span_of(W[::step, ::step], tolerance)
        error = max(span.trace_error(part), 0.0)
        points.append((len(part.mean), error / span.variance(part, center)))
    return np.array(points)


def _stability(
    method: Method, moments: Moments, features: FeatureMap, solution: Solution, center: bool, tolerance: float
) -> Array | None:
    """|cosine| of each component with its nearest of a method's model of every other feature, over the fitted rows.

    u = V A with coefficients A of the features: U_a'U_b = A_a' (scatter of features a with features b) A_b.
    """
    parted = features.half()
    if parted is None or len(parted[1]) < 2:
        return None
    fewer, numbers = parted
    r = solution.components.shape[1]
    half = method.solve(moments.part(numbers), fewer, min(len(numbers), r + _SPARE), center, tolerance)
    second, _ = solvers.about_the_mean(moments, center)
    A, B = half.components, solution.components
    squares = np.outer(np.einsum("ij,ij->j", A, second[numbers][:, numbers] @ A), np.einsum("ij,ij->j", B, second @ B))
    products = np.abs(A.T @ second[numbers] @ B)
    # Components at the level of rounding may have no length: nothing can be said for them.
    cosines = np.divide(products, np.sqrt(np.maximum(squares, 0)), out=np.zeros_like(products), where=squares > 0)
    return np.minimum(cosines.max(axis=0), 1)
