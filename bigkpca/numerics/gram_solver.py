"""Exact kernel PCA from a Gram matrix in memory."""

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
from bigkpca.numerics.linalg import Map, eigh_descending, rounding_of_eigenvalues, signs
from bigkpca.numerics.triangular import is_positive


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

        Kc = H K H = U Λ U',  components = U Λ^(-1/2),  eigenvalues = Λ,  mean = K 1 / n.

    A new row has the scores (k(x, X) - mean) @ components. For a number of `components` and positive semidefinite Kc,
    only the leading part of the spectrum is computed: by Lanczos where components are few, else by LAPACK. `positive`
    says that the kernel is positive semidefinite; otherwise Cholesky checks it, up to `noise`, where that is given or n
    is large. `in_order` may be a parallel map. Raises DataError where kernels overflow, or no eigenvalue is positive.
    """
    entry = float(max(K.max(), -K.min()))
    check_overflow(np.array(entry), "the Gram matrix")
    trace, mean = float(np.trace(K)), np.zeros(len(K))
    for _ in range(2 * center):  # twice: the means of nearly equal rows have nearly equal rounding errors
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
