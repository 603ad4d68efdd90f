""" "mds": pre-images from distances to reference rows, without iteration (Kwok and Tsang 2004)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.expansion import Expansion, Fitted, expansion
from bigkpca.numerics.features import FeatureMap, Shape
from bigkpca.numerics.kernels import Kernel, squared_norms
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Decode, Decoder, Preimage, Preimages, sampled

_LEAST_RATIO = 1e-12  # least ratio of k(x, y) to k(x, x) from which distances are computed
_LEAST_SPREAD = 1e-4  # of the largest squared width of the neighbours; smaller widths are noise
_TILE_ROWS = 1024
_PIECE_VALUES = 2**20  # kernel values held at a time


@dataclass(frozen=True)
class Distances(Preimage):
    """The row whose distances to the nearest reference rows come closest to those of φ^.

    For kernels that are decreasing functions of |x - y|, so that kernel values determine distances. Needs no pass and
    no iteration. Raises SpecError if an option is out of range, or the kernel or the method is unsuitable. Source: Kwok
    and Tsang (2004), *IEEE Trans. Neural Netw.* 15; `docs/numerics.md`, section 18.

    Parameters
    ----------
    neighbours : int
        Reference rows used for each pre-image, at least 2.
    rows : int
        The largest number of reference rows, sampled from the data; the model keeps them.
    """

    name: ClassVar[str] = "mds"
    neighbours: int = 30
    rows: int = 10_000

    def __post_init__(self) -> None:
        if self.neighbours < 2 or self.rows < self.neighbours:
            raise SpecError(f"{self}: at least 2 neighbours are needed, and at least as many rows")

    def check(self, kernel: Kernel, method: Any) -> None:
        if not kernel.radial:
            raise SpecError(
                f"pre-images by 'mds' need a kernel that is a decreasing function of |x - y|, not {kernel.name}: use "
                "'ridge' or 'denoising'"
            )
        if method.principal and method.correction != "pointwise":
            raise SpecError(
                f"pre-images by 'mds' need distances, and {method} has one factor for all rows, which ignores what "
                "lies off the principal axes: use correction='pointwise', or 'fixed-point', 'ridge' or 'denoising'"
            )

    def most_rows(self, method: Method) -> int:
        return self.rows

    def decoder(self, fitted: Fitted, rows: Array) -> DistancesDecoder:
        features = fitted.features
        self.check(features.kernel, fitted.method)
        found = sampled(rows, self.rows, "pre-images by 'mds'")
        given = expansion(fitted)
        tiles = (found[start : start + _TILE_ROWS] for start in range(0, len(found), _TILE_ROWS))
        parts = [(V @ given.origin, V @ given.map) for V, _ in features.tiles(tiles, min(_TILE_ROWS, len(found)))]
        origin, inner = (np.concatenate(each) for each in zip(*parts, strict=True))
        return DistancesDecoder(
            features.shifted(found), origin, inner, given.linear, given.constant, self.neighbours, given.quadratic
        )


@dataclass(frozen=True, repr=False)
class DistancesDecoder(Decoder):
    """Decoder of `Distances`: reference rows (m, d), shifted, with <φ^, φ(row)> = origin + map y of each.

    linear, constant and quadratic give |φ^|², as in `Expansion`.
    """

    name: ClassVar[str] = "mds"
    shapes: ClassVar[Mapping[str, Shape]] = {
        "rows": ("m", "d"),
        "origin": ("m",),
        "map": ("m", "r"),
        "linear": ("r",),
        "quadratic": ("r", "r"),
    }
    rows: Array
    origin: Array
    map: Array
    linear: Array
    constant: float
    neighbours: int
    quadratic: Array | None = None

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise SpecError(f"pre-images by 'mds' need at least 1 neighbour, not {self.neighbours}")

    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        given = Expansion(self.origin, self.map, self.constant, self.linear, self.quadratic)
        level = float(features.kernel.diagonal(np.zeros((1, features.columns)))[0])
        centred = self.rows - self.rows.mean(axis=0, dtype=np.float64)
        # |x - y|² from k(x, y) / k(x, x) by linear interpolation in -log k, exact for Gaussians, of distances from 1e-4
        # to 100 times a typical one.
        spread = float(np.sqrt(squared_norms(centred).mean()))
        distances = np.concatenate([[0], spread * np.geomspace(1e-4, 1e2, 8192)])
        values = features.kernel(distances[:, None], np.zeros((1, 1)))[:, 0]
        known = values > _LEAST_RATIO / 2 * values[0]
        logarithms, squares = -np.log(values[known] / values[0]), distances[known] ** 2
        q, height = min(self.neighbours, len(self.rows)), max(1, _PIECE_VALUES // len(self.rows))

        def of_piece(Y: Array) -> Array:
            inner = given.weights(Y)
            near = np.argpartition(-inner, q - 1, axis=1)[:, :q]
            # The kernel value of a row that is as far from the reference row as φ^ is.
            ratios = (1 + (2 * np.take_along_axis(inner, near, axis=1) - given.squares(Y)[:, None]) / level) / 2
            of_near = np.interp(-np.log(np.clip(ratios, _LEAST_RATIO, 1)), logarithms, squares)
            return _placed(self.rows[near].astype(np.float64), of_near)

        def decode(Y: Array, start: Array | None) -> Preimages:
            rows = np.empty((len(Y), features.columns))
            for first in range(0, len(Y), height):
                rows[first : first + height] = of_piece(Y[first : first + height])
            return Preimages.direct(rows)

        return decode


def _placed(N: Array, squares: Array) -> Array:
    """The rows (b, d) among neighbours N (b, q, d) whose squared distances to these best match `squares` (b, q).

    With N centred, N N' = Q L Q', x = centroid + N'Q c, c = L⁻¹ Q'(d0² - d²) / 2, d0 the distances of the neighbours to
    their centroid. c stays between the least and the largest entry of each column of Q, so x is not farther out than
    the neighbours in any direction: where they are narrow, a small L amplifies the errors of distances.
    """
    centroid = N.mean(axis=1, keepdims=True)
    N = N - centroid
    gram = N @ N.transpose(0, 2, 1)
    L, Q = np.linalg.eigh(gram)
    least = _LEAST_SPREAD * np.maximum(L[:, -1:], np.finfo(float).tiny)
    inverse = np.where(least < L, 1 / np.maximum(L, least), 0)
    halves = (np.diagonal(gram, axis1=1, axis2=2) - squares)[:, :, None] / 2
    c = np.clip(inverse * (Q.transpose(0, 2, 1) @ halves)[:, :, 0], Q.min(axis=1), Q.max(axis=1))
    coefficients = Q @ c[:, :, None]
    return (centroid + coefficients.transpose(0, 2, 1) @ N)[:, 0]
