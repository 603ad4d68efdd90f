"""Exact kernel PCA from a Gram matrix that is held."""

from __future__ import annotations

import numpy as np

from bigkpca.errors import Array, check_overflow
from bigkpca.numerics import lanczos
from bigkpca.numerics.eigenpairs import (
    Solution,
    at_least_its_parts,
    check_some_positive,
    kept_components,
    negative_share,
    orthogonal_to_ones,
)
from bigkpca.numerics.linalg import Map, eigh_descending, is_positive, rounding_of_eigenvalues, signs


def gram(
    K: Array,
    components: int | float | None,
    *,
    center: bool,
    tolerance: float,
    positive: bool,
    noise: float | None = None,
    in_order: Map = map,
) -> Solution:
    """Exact kernel PCA from the full Gram matrix K (n, n), float64, exactly symmetric, which is overwritten.

        Kc = H K H = U Λ U',  components = U Λ^(-1/2),  eigenvalues = Λ,  mean = K 1 / n;

    a new row scores (k(x, X) - mean) @ components. When `components` is a number and Kc is positive semidefinite, only
    the leading part of the spectrum is computed: by Lanczos where it is few of many, else by LAPACK. `positive` says
    that the kernel is known to be so; else Cholesky tells, up to `noise`, where that is given or there are many rows.
    `in_order` may be a parallel map. Raises DataError when kernels overflow, no eigenvalue is positive, or no direction
    varies.
    """
    entry = float(max(K.max(), -K.min()))
    check_overflow(np.array(entry), "the Gram matrix")
    trace, mean = float(np.trace(K)), np.zeros(len(K))
    for _ in range(2 * center):  # twice, since rows that are nearly alike leave means whose errors are alike, too
        part = K.mean(axis=0)
        K -= part
        K -= (part - part.mean())[:, None]
        mean += part
    variance = float(np.trace(K))
    most = components if isinstance(components, int) else None
    few = most is not None and lanczos.are_few(most, len(K))
    shift = rounding_of_eigenvalues(len(K), 0.0, entry, 0.0) if noise is None else noise
    if most is not None and not positive and (few or noise is not None):
        positive = is_positive(K, shift, in_order)
    found = lanczos.leading(K, most, entry, in_order) if most is not None and few and positive else None
    values, U = found or eigh_descending(K, most if positive else None)
    check_some_positive(values[0], values[-1], shift)
    variance = at_least_its_parts(variance, values)
    r = kept_components(values, components, variance, trace, tolerance)
    A = orthogonal_to_ones(U[:, :r], center) / np.sqrt(values[:r]) * signs(U[:, :r])
    return Solution(mean, A, values[:r].copy(), variance, negative_share(values))
