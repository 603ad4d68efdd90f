"""The Gram matrix: products with a block of vectors, tile by tile, and exact kernel PCA from it in memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from bigkpca.errors import Array, check_overflow
from bigkpca.numerics import solvers
from bigkpca.numerics.eigenpairs import (
    Solution,
    at_least_its_parts,
    check_some_positive,
    kept_components,
    negative_share,
    orthogonal_to_ones,
)
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map, eigh_descending, is_positive, rounding_of_eigenvalues, signs


def add_strip(
    out: Array, kernel: Kernel, B: Array, rows: slice, X: Array, later: Iterable[tuple[slice, Array]], tile_rows: int
) -> None:
    """Add to out (n, c) the contributions to K B of the tiles K_II and K_IJ of rows I and all later rows J.

    K_II B_I and Σ K_IJ B_J go to rows I, K_IJ'B_I to rows J. X (b, d) are the rows I, numbered `rows`; `later` yields
    (numbers, rows) of the others in order. B (n, c) has the dtype of X; tiles have at most `tile_rows` rows, and are
    added up in float64.
    """
    evaluate = kernel.against(X, tile_rows)
    work = np.empty((tile_rows, len(X)), X.dtype)
    for numbers, Y in chain([(rows, X)], later):
        for start in range(0, len(Y), tile_rows):
            piece = Y[start : start + tile_rows]
            K = work[: len(piece)]
            evaluate(piece, K)
            where = slice(numbers.start + start, numbers.start + start + len(piece))
            out[rows] += K.T @ B[where]
            if numbers != rows:
                out[where] += K @ B[rows]


def add_tile(out: Array, B: Array, rows: slice, columns: slice, K: Array, *, mirrored: bool) -> None:
    """Add to out (n, c) the contribution to K B of the tile K at rows I and columns J of a symmetric matrix.

    K B_J goes to rows I. With `mirrored`, the part to the right of the square on the diagonal, i.e. columns from
    rows.stop on, stands for its mirror image too, and K'B_I goes to rows J. B (n, c) has the dtype of K.
    """
    out[rows] += K @ B[columns]
    if mirrored and columns.stop > rows.stop:
        first = max(columns.start, rows.stop)
        out[first : columns.stop] += K[:, first - columns.start :].T @ B[rows]


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
    few = most is not None and solvers.are_few(most, len(K))
    shift = rounding_of_eigenvalues(len(K), 0.0, entry, 0.0) if noise is None else noise
    if most is not None and not positive and (few or noise is not None):
        positive = is_positive(K, shift, in_order)
    found = solvers.leading(K, most, entry, in_order) if most is not None and few and positive else None
    values, U = found or eigh_descending(K, most if positive else None)
    check_some_positive(values[0], values[-1], shift)
    variance = at_least_its_parts(variance, values)
    r = kept_components(values, components, variance, trace, tolerance)
    A = orthogonal_to_ones(U[:, :r], center) / np.sqrt(values[:r]) * signs(U[:, :r])
    return Solution(mean, A, values[:r].copy(), variance, negative_share(values))
