"""The interfaces of pre-images: methods, the decoders that they make, and what these return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.display import brief
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.expansion import Expansion, Fitted
from bigkpca.numerics.features import FeatureMap, Shape
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import arrays_of
from bigkpca.numerics.methods import Method
from bigkpca.numerics.registry import named_fields


@dataclass(frozen=True)
class Preimages:
    """Pre-images `rows` (b, d), and how they were found.

    converged (b,) is always true, and iterations (b,) is 0, for maps that do not iterate. far (b,) marks rows whose
    scores do not correspond to anything near the data, or whose start has no kernel value with any landmark; such a row
    is the mean of the data.
    """

    rows: Array
    converged: Array
    iterations: Array
    far: Array

    @classmethod
    def direct(cls, rows: Array) -> Self:
        """The pre-images of a map that does not iterate."""
        b = len(rows)
        return cls(rows, np.ones(b, bool), np.zeros(b, np.intp), np.zeros(b, bool))


def joined(parts: Iterable[Preimages]) -> Preimages:
    """Concatenate the pre-images of several batches."""
    found = list(parts)
    return Preimages(*(np.concatenate([getattr(part, each.name) for part in found]) for each in fields(Preimages)))


# (scores Y (b, r), rows (b, d) to start from, or None) -> pre-images; all rows shifted and scaled, float64.
Decode = Callable[[Array, Array | None], Preimages]


@dataclass(frozen=True)
class Decoder(ABC):
    """A map from scores to rows, as plain arrays and numbers that a model file can store."""

    name: ClassVar[str]
    shapes: ClassVar[Mapping[str, Shape]] = {}  # required shapes of arrays from a file

    @abstractmethod
    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        """Prepare the map for tiles of at most `most_rows` scores; the returned function owns its work space."""

    def working_bytes(self, features: FeatureMap, rows: int) -> int:
        """Bytes that decoding a tile of `rows` scores needs, all in float64; by default those of an iteration: kernels
        and gradient weights of the tile, a few copies of its rows, and a copy of the landmarks."""
        size, columns = features.size, features.columns
        return rows * 8 * (7 * size + 9 * columns) + 2 * 8 * size * columns

    def kept_rows(self, features: FeatureMap) -> Array:
        """The sampled rows that it was made from (m, d), in the units of the data, from which the decoder of another
        solution is made; none without a field `rows`."""
        rows = getattr(self, "rows", None)
        return np.empty((0, features.columns)) if rows is None else features.unshifted(rows)

    arrays = arrays_of
    __repr__ = brief

    def parameters(self) -> dict[str, Any]:
        """The fields that are not arrays, JSON-ready, with the name of the decoder."""
        return {key: value for key, value in named_fields(self).items() if value is not None}

    def expansion(self, solution: Solution) -> Expansion | None:
        """The Expansion of the model, if the decoder contains it; otherwise None."""
        return None


def reconstructing(decoder: Decoder, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
    """Wrap `decoding` for starts and pre-images in the units of the data; pre-images have the dtype of block work."""
    decode = decoder.decoding(features, solution, most_rows)

    def reconstruct(Y: Array, start: Array | None) -> Preimages:
        found = decode(Y.astype(np.float64), None if start is None else features.shifted(start))
        return replace(found, rows=features.unshifted(found.rows).astype(features.dtype))

    return reconstruct


def check_width(shape: tuple[int, ...], components: int, where: str) -> None:
    """Raise SpecError unless scores of this shape have as many columns as a model has components."""
    if len(shape) != 2 or shape[1] != components:
        raise SpecError(
            f"{where}: scores of shape {shape}, but the model has {components} components: pass scores (n, "
            f"{components}) made by this model"
        )


class Preimage(ABC):
    """A method that maps scores back to rows: a frozen dataclass of its options."""

    name: ClassVar[str]  # what options and files call the method

    def check(self, kernel: Kernel, method: Method) -> None:
        """Raise SpecError, naming methods that work, unless this one works with the kernel and the method; by default
        it works with all."""
        return

    def most_rows(self, method: Method) -> int:
        """The largest number of sampled rows that it uses for models of this method; by default none."""
        return 0

    def making_bytes(self, rows: int, columns: int, components: int) -> int:
        """Bytes of the work space in which it makes a decoder from so many sampled rows; by default none."""
        return 0

    @abstractmethod
    def decoder(self, fitted: Fitted, rows: Array) -> Decoder:
        """The decoder of a model. `rows` (m, d) are at most `most_rows` sampled rows, in the units of the data."""


def spread(rows: Array, count: int) -> Array:
    """At most `count` of the rows (m, d), evenly spread over them."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.intp))]


def sampled(rows: Array, most: int, what: str) -> Array:
    """At most `most` of the rows (m, d), evenly spread. Raises SpecError if there are none."""
    if not len(rows):
        raise SpecError(f"{what} need sampled rows of the data, but this model was fitted without them: fit it again")
    return spread(rows, most)


def least_squares(S: Array, C: Array, tolerance: float) -> Array:
    """S⁻¹ C (q, c) for a scatter S (q, q) of features, with a penalty if any, and their cross products C (q, c).

    `tolerance`, which is added to the diagonal of features of unit length, bounds the rounding of features that are
    equal.
    """
    diagonal = np.diag(S)
    lengths = np.sqrt(np.where(diagonal > 0, diagonal, 1))
    scaled = S / np.outer(lengths, lengths)
    scaled[np.diag_indices_from(scaled)] += tolerance
    right = C / lengths[:, None]
    try:  # `solve` would warn of a large condition, which `tolerance` bounds
        solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(scaled, check_finite=False), right, check_finite=False)
    except np.linalg.LinAlgError:  # indefinite by rounding: without the directions that are rounding only
        values, vectors = scipy.linalg.eigh(scaled, check_finite=False)
        solved = vectors @ ((vectors.T @ right) / np.where(values > tolerance, values, np.inf)[:, None])
    return np.asarray(solved / lengths[:, None])
