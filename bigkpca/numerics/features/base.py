"""The interface of feature maps: from tiles of rows to tiles of features.

A map prepares its work space once for a stream of tiles and reuses it, so that a pass allocates nothing per tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.display import brief
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map

Fill = Callable[[Array, Array], None]  # (X (b, d), V (b, D)) -> None; writes v(x_i) into row i of V
Evaluation = Callable[[Array], tuple[Array, Array]]  # X (b, d) -> V (b, D), k(x_i, x_i) (b,)
Watch = Callable[[Array, Array], None]  # X (b, d), and the same rows shifted and scaled -> None
Shape = tuple[str | int, ...]  # of an array: d, D and r stand for those of the model, other letters for any one number


def shifted_rows(X: Array, offset: Array, scale: Array | None, out: Array) -> None:
    """out = (X - offset) / scale, computed in the precision of X and then rounded to the dtype of out.

    Data far from the origin (longitudes, time stamps) would otherwise lose their variation to rounding.
    """
    precision = np.result_type(X.dtype, out.dtype)
    if scale is None:
        np.subtract(X, offset.astype(precision), out=out, dtype=precision, casting="same_kind")
    else:
        # Divided before rounding as well, so that columns in tiny or huge units neither under- nor overflow.
        np.divide(np.subtract(X, offset.astype(precision), dtype=precision), scale, out=out, casting="same_kind")


@dataclass(frozen=True)
class FeatureMap(ABC):
    """v(x) in R^D of rows x in R^d. Every row first becomes (x - offset) / scale.

    offset (d,), float64, is zero unless the kernel allows a shift or rows are standardised; scale (d,), float64, is
    None unless rows are standardised.
    """

    name: ClassVar[str]
    shapes: ClassVar[Mapping[str, Shape]] = {"offset": ("d",), "scale": ("d",)}  # what arrays from a file must have
    precomputed: ClassVar[bool] = False  # whether rows are kernels with the fitted rows
    kernel: Kernel
    offset: Array
    scale: Array | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def size(self) -> int:
        """D, the length of v(x)."""

    @classmethod
    def takes(cls, kernel: Kernel) -> bool:
        """Whether there are such features of this kernel."""
        return True

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The dtype of block work."""

    @abstractmethod
    def filling(self, most_rows: int) -> Fill:
        """Prepare v for tiles of at most `most_rows` shifted rows; the returned function owns its work space."""

    @property
    def columns(self) -> int:
        """d, the number of input columns."""
        return len(self.offset)

    def as_columns(self) -> Columns:
        """The map to the rows themselves, shifted and scaled as for this map."""
        return Columns(self.kernel, self.offset, self.dtype, scale=self.scale)

    def half(self) -> tuple[FeatureMap, Array] | None:
        """A map of every other feature, up to scale, and their numbers; None where features cannot be separated."""
        return None

    def shifted(self, X: Array) -> Array:
        """(X - offset) / scale in the dtype of block work, (b, d)."""
        out = np.empty(X.shape, self.dtype)
        shifted_rows(X, self.offset, self.scale, out)
        return out

    def unshifted(self, X: Array) -> Array:
        """X scale + offset in float64, (b, d): the inverse of `shifted`, in the units of the data."""
        X = X.astype(np.float64)
        return (X if self.scale is None else X * self.scale) + self.offset

    def in_precision(self, dtype: np.dtype[Any]) -> Self:
        """The same map with block work in that dtype, to which landmarks or frequencies are converted."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name not in ("offset", "scale")}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        real: dict[str, Any] = {name: value.astype(dtype) for name, value in arrays.items() if value.dtype.kind == "f"}
        return replace(self, **real)

    def tiles(
        self, X_tiles: Iterable[Array], most_rows: int, watch: Watch | None = None
    ) -> Iterator[tuple[Array, Array]]:
        """Features and diagonal (V (b, D), k(x_i, x_i) (b,)) of each tile X (b, d).

        V is a work space that the next tile overwrites; the caller may overwrite it, too.
        """
        return map(self.evaluation(most_rows, watch), X_tiles)

    def evaluation(self, most_rows: int, watch: Watch | None = None) -> Evaluation:
        """Prepare `tiles` of at most `most_rows` rows; the returned function owns its work space."""
        fill = self.filling(most_rows)
        rows = np.empty((most_rows, self.columns), self.dtype)
        values = np.empty((most_rows, self.size), self.dtype)

        def evaluate(X: Array) -> tuple[Array, Array]:
            tile, V = rows[: len(X)], values[: len(X)]
            shifted_rows(X, self.offset, self.scale, tile)
            if watch is not None:
                watch(X, tile)
            fill(tile, V)
            return V, self.kernel.diagonal(tile)

        return evaluate

    def arrays(self) -> dict[str, Array]:
        """The fields that are arrays, by name."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def parameters(self) -> dict[str, Any]:
        """The other fields but the kernel, JSON-ready, with the name of the map."""
        values = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "kernel"}
        plain = {name: value for name, value in values.items() if not isinstance(value, np.ndarray | None)}
        return {"name": self.name, **plain}

    def gram(self, in_order: Map = map) -> Array | None:
        """W = k(S, S) of the landmarks S, (l, l), float64; None for features without landmarks. Raises SpecError for
        precomputed kernels."""
        return None

    def landmarks_in_user_units(self) -> Array | None:
        """The landmarks (l, d) in the units of the data, float64; None for features without landmarks."""
        return None

    def unexplained(self, squares: float, count: int) -> float:
        """Mean diagonal of K - VV', which adds to every eigenvalue; from `squares`, Σ |v(x_i)|² over `count` rows."""
        return 0.0

    @property
    def blind_off_axes(self) -> bool:
        """Whether features do not depend on the part of a row that is orthogonal to the principal axes."""
        return False

    @property
    def directions(self) -> int | None:
        """d*, the number of principal axes that the features are of; None for features of all columns."""
        return None


class Itself(FeatureMap):
    """v(x) = x, shifted and scaled."""

    @property
    def size(self) -> int:
        return self.columns

    def filling(self, most_rows: int) -> Fill:
        def fill(X: Array, V: Array) -> None:
            V[:] = X

        return fill


@dataclass(frozen=True)
class Columns(Itself):
    """v(x) = x, shifted and scaled: its moments are the means and the covariance of the columns."""

    name: ClassVar[str] = "columns"
    block_dtype: np.dtype[Any]

    __repr__ = brief

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.block_dtype
