"""k-means centres as landmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.linalg import in_parts, product
from bigkpca.numerics.solvers import OVERSAMPLING, leading_eigenpairs, starting_block

_TILE_ROWS = 512
_MOST_ROWS = 20_000
_AXES = 64  # principal axes on which rows are compared with centres
_AXES_ROWS = 2048  # rows from which the axes are computed


@dataclass(frozen=True)
class KMeans:
    """k-means centres of the sample; about as good as twice as many uniform rows.

    Lloyd's iterations start from l distinct rows of the sample, which has at most 20,000 rows, or l: more of either
    hardly help. If rows have many columns, the nearest centre is found on 64 principal axes. Centres are means of whole
    rows, or of their projections on the leading principal axes, which take one pass over the data, if few axes are
    enough for as good a fit: kernels then cost a fraction.

    The results have the same bits for any number of threads, unlike those of scikit-learn. Raises SpecError if
    iterations is negative; from `choose`, if averages of rows are not meaningful rows. Source: Zhang, Tsang and Kwok
    (2008), *ICML*; `docs/numerics.md`, section 4.

    Parameters
    ----------
    iterations : int
        Iterations of Lloyd's algorithm; 0 gives uniform rows.
    subspace : bool
        Whether centres may lie in the leading principal subspace of the rows.
    """

    name: ClassVar[str] = "kmeans"
    iterations: int = 3
    subspace: bool = True

    def __post_init__(self) -> None:
        if self.iterations < 0:
            raise SpecError(f"{self}: iterations must not be negative")

    def most_rows(self, size: int) -> int:
        return max(_MOST_ROWS, size)

    def working_bytes(self, rows: int, columns: int, size: int, itemsize: int) -> int:
        on_axes = itemsize * _AXES * rows if columns > _AXES else 0
        axes = (itemsize * _AXES_ROWS + 4 * 8 * (_AXES + OVERSAMPLING)) * columns if columns > _AXES else 0
        means = (3 * itemsize + 2 * 8) * size * columns  # in float64 when divided by counts
        return on_axes + max(axes, means) + 3 * 8 * rows + 2 * itemsize * _TILE_ROWS * size

    def choose(self, sample: Array, kernel: Kernel, size: int, rng: np.random.Generator) -> Array:
        if not kernel.on_vectors:
            raise SpecError(
                "landmarks='kmeans' uses averages of rows, for which a kernel function may not be defined: use "
                "'rpcholesky', 'uniform' or 'basic-patterns', or declare kernels.Function(f, vectors=True)"
            )
        m = len(sample)
        start = rng.choice(m, min(size, m), replace=False)
        if not self.iterations or m <= size:
            return sample[start]
        return self._centres(sample, _on_principal_axes(sample, rng), start)

    def choose_in_subspace(self, coordinates: Array, leading: int, size: int, rng: np.random.Generator) -> Array:
        """Centres of rows with these coordinates (m, p) on principal axes, (l, p), compared on the `leading` ones."""
        start = rng.choice(len(coordinates), min(size, len(coordinates)), replace=False)
        return self._centres(coordinates, np.ascontiguousarray(coordinates[:, :leading]), start)

    def _centres(self, rows: Array, compared: Array, start: Array) -> Array:
        """Means of the rows (m, d) nearest to each centre, where nearness is that of what is compared, (m, q)."""
        centres = compared[start]
        for _ in range(self.iterations):
            nearest = _nearest(compared, centres)
            centres = _means(compared, nearest, centres)
        return centres if compared is rows else _means(rows, nearest, rows[start])


def _on_principal_axes(rows: Array, rng: np.random.Generator) -> Array:
    """Coordinates of rows (m, d) on their leading principal axes, (m, 64); the rows themselves if d <= 64.

    Distances to centres then cost d / 64 times less, and the other axes would add mostly noise.
    """
    d = rows.shape[1]
    if d <= _AXES:
        return rows
    some = rows[rng.choice(len(rows), min(_AXES_ROWS, len(rows)), replace=False)]
    with np.errstate(over="ignore", invalid="ignore"):
        some -= some.mean(axis=0)
        known = np.isfinite(np.vdot(some, some))
    if not known:  # squares of far values overflow
        return rows
    start = starting_block(d, min(d, _AXES + OVERSAMPLING), rng)

    def scatter(Q: Array) -> Array:
        return (some.T @ (some @ Q.astype(some.dtype))).astype(np.float64)

    axes = leading_eigenpairs(scatter, start, _AXES, most=2).vectors.astype(rows.dtype)
    return product(rows, axes, _TILE_ROWS)


def _nearest(rows: Array, centres: Array) -> Array:
    """The number of the nearest centre of each row, (m,): that with the largest (x, -1)'(c, |c|² / 2)."""
    with np.errstate(over="ignore", invalid="ignore"):
        right = np.vstack([centres.T, 0.5 * squared_norms(centres)])

    def of_tile(start: int) -> Array:
        tile = rows[start : start + _TILE_ROWS]
        left = np.column_stack([tile, np.full(len(tile), -1, tile.dtype)])
        with np.errstate(over="ignore", invalid="ignore"):  # rows that overflow may go to any centre
            return (left @ right).argmax(axis=1)

    return np.concatenate(in_parts(of_tile, range(0, len(rows), _TILE_ROWS)))


def _means(rows: Array, nearest: Array, centres: Array) -> Array:
    """Means of the rows nearest to each centre; a centre without rows, or whose sum overflows, stays."""
    counts = np.bincount(nearest, minlength=len(centres))
    members = scipy.sparse.csr_array(
        (np.ones(len(rows), rows.dtype), nearest, np.arange(len(rows) + 1)), shape=(len(rows), len(centres))
    )
    means = (members.T @ rows) / np.maximum(counts, 1)[:, None]
    known = (counts > 0) & np.isfinite(means).all(axis=1)
    return np.where(known[:, None], means, centres).astype(rows.dtype)
