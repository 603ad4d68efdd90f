"""Sensitivity of a model to fewer landmarks or features: estimates from the sums of its own pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigkpca.errors import Array, DataError
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.methods import Method
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import PARTS, Span, part_size

_SPARE = 10  # components of the half model beyond r, so that the r-th is not separated from a neighbour
_SAME = 0.02  # of an eigenvalue: eigenvectors of values so near turn into each other at a touch


class Halved(NamedTuple):
    """A model compared with one of half its landmarks or features.

    cosines (r,): |cosine| of each component with its nearest one of the half. behind (k,): eigenvalues of the half
    behind its r-th.
    """

    cosines: Array
    behind: Array


def gaps(values: Array, halved: Halved | None) -> Array:
    """Distance of each of the eigenvalues (r,) to the nearest other that is not within 2 % of it, as a share of it.

    Those behind the r-th are of the model of half the landmarks or features. Infinite where there is no other.
    """
    every = values if halved is None else np.append(values, halved.behind)
    apart = np.abs(every - values[:, None])
    found: Array = np.where(apart > _SAME * values[:, None], apart, np.inf).min(axis=1) / values
    return found


def residuals_of(span: Span, solution: Solution, center: bool) -> Array:
    """|K^ u_j - lambda_j u_j| / lambda_j (r,) of unit score vectors u_j, with Nyström's K^ = C W⁺ C'.

    The largest of those whose eigenvalues may be the same. For u = C a and c = W⁺ C'u = W⁺ M a, M the scatter,
    |C c - lambda u|² = c'M c - 2 lambda c'M a + lambda² a'M a.
    """
    second, _ = solvers.about_the_mean(span.moments, center)
    A, values = solution.components, solution.eigenvalues
    MA = second @ A
    c = span.basis.solve(MA)
    lengths = np.einsum("ij,ij->j", A, MA)
    left = np.einsum("ij,ij->j", c, second @ c) - 2 * values * np.einsum("ij,ij->j", c, MA) + values**2 * lengths
    found = np.sqrt(np.maximum(left, 0) / np.maximum(lengths, 1e-300)) / values
    found = np.nan_to_num(found, nan=1e300, posinf=1e300)  # squares of huge kernels may overflow
    # The order of components whose eigenvalues may be the same is not known.
    off = np.minimum(found, 1) * values
    near = np.abs(values[:, None] - values) <= off[:, None] + off
    return np.where(near, found, 0).max(axis=1)


def agreement_of(moments: Moments, nystroem: Solution, solution: Solution, center: bool) -> Array:
    """Cosine of each component with Nyström's components of its rank, and of eigenvalues within 2 % of that, (r,)."""
    squares, found = nystroem.eigenvalues, np.zeros(len(solution.eigenvalues))
    cosines = _cosines(moments, nystroem.components, solution.components, center)
    for j in range(min(len(squares), len(found))):
        same = np.abs(squares - squares[j]) <= _SAME * squares[j]
        found[j] = min(float(np.linalg.norm(cosines[same, j])), 1.0)
    return found


def _cosines(moments: Moments, A: Array, B: Array, center: bool) -> Array:
    """Cosines of the scores V A with V B of all fitted rows, (columns of A, columns of B); 0 for scores of length 0.

    Components at the level of rounding may have no length.
    """
    second, _ = solvers.about_the_mean(moments, center)
    squares = np.outer(np.einsum("ij,ij->j", A, second @ A), np.einsum("ij,ij->j", B, second @ B))
    products = np.abs(A.T @ second @ B)
    found: Array = np.divide(products, np.sqrt(np.maximum(squares, 0)), out=np.zeros_like(products), where=squares > 0)
    return found


def learning_curve(span: Span, center: bool, tolerance: float, own: float) -> Array:
    """(number, relative trace error) of models of every 8th, 4th and 2nd landmark, and of all, whose error is `own`.

    (4, 2), or fewer rows where a part of the landmarks spans nothing.
    """
    points, l = [], len(span.basis.W)  # noqa: E741
    for step in PARTS:
        try:
            part = span.every(step, tolerance)
        except DataError:
            continue
        variance = part.variance(center)
        if variance > 0:
            points.append((part_size(l, step), min(max(part.trace_error / variance, 0.0), 1.0)))
    return np.array([*points, (l, own)])


def stability_of_landmarks(
    span: Span, solution: Solution, center: bool, tolerance: float, in_order: Map = map
) -> Halved | None:
    """The model beside Nyström with every other landmark; None without one.

    Cosines are over the fitted rows: for u = V A with coefficients A of the features, U_a'U_b = A_a' scatter A_b.
    """
    count, r = part_size(len(span.basis.W), 2), solution.components.shape[1]
    if count < 2:
        return None
    try:
        half = span.every(2, tolerance)
        few = solvers.nystroem(half, min(count, r + _SPARE), center=center, tolerance=tolerance, in_order=in_order)
    except DataError:  # half of the landmarks may span nothing that varies
        return None
    return _halved(span.moments, few.components, few.eigenvalues, solution, center)


def stability_of_features(
    method: Method, moments: Moments, features: FeatureMap, solution: Solution, center: bool, tolerance: float
) -> Halved | None:
    """The model beside that of the same method with every other random feature; None without one."""
    parted = features.half()
    if parted is None or len(parted[1]) < 2:
        return None
    fewer, numbers = parted
    r = solution.components.shape[1]
    try:
        half = method.solve(moments.part(numbers), fewer, min(len(numbers), r + _SPARE), center, tolerance)
    except DataError:  # half of the features may not vary
        return None
    A = np.zeros((len(moments.mean), half.components.shape[1]))
    A[numbers] = half.components
    return _halved(moments, A, half.eigenvalues, solution, center)


def _halved(moments: Moments, A: Array, values: Array, solution: Solution, center: bool) -> Halved:
    """The model beside components A with these eigenvalues."""
    cosines = np.minimum(_cosines(moments, A, solution.components, center).max(axis=0), 1)
    return Halved(cosines, values[len(cosines) :])
