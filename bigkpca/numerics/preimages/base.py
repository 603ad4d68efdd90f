"""What a pre-image is: rows x whose φ(x) is near the φ^ of given scores, and what is known of each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.eigenpairs import Projection, Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import Method
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.preimages.regression import Regression


@dataclass(frozen=True)
class Fitted:
    """What pre-images may know of a model: its feature map and solution, its moments (None where it keeps its rows, or
    where the randomized solver left none), and its method."""

    features: FeatureMap
    solution: Solution
    moments: Moments | None
    method: Method

    @property
    def tolerance(self) -> float:
        """Below which share of the largest an eigenvalue is noise."""
        return rank_tolerance(self.features.dtype)

    @property
    def centred(self) -> bool:
        """Whether scores are centred; where the mean is zero, both are the same."""
        return bool(self.solution.mean.any())

    def scores(self, X: Array, most_rows: int = 1024) -> Array:
        """Scores (m, r), float64, of rows X (m, d) in memory, in the units of the data."""
        tiles = (X[start : start + most_rows] for start in range(0, len(X), most_rows))
        project = Projection(self.solution.mean.astype(self.features.dtype), self.solution.components)
        scores = [project(V) for V, _ in self.features.tiles(tiles, min(most_rows, len(X)))]
        return np.concatenate(scores).astype(np.float64)


@dataclass(frozen=True)
class Preimages:
    """Rows (b, d), and for each: whether its iteration converged, after how many steps, and whether it is far.

    A far row has scores of nothing near the data, or a start without a kernel value with anything: the row is the mean.
    Maps that do not iterate take no steps and always converge.
    """

    rows: Array
    converged: Array  # (b,), bool
    iterations: Array  # (b,), int
    far: Array  # (b,), bool

    @classmethod
    def direct(cls, rows: Array) -> Self:
        """Of a map that does not iterate."""
        b = len(rows)
        return cls(rows, np.ones(b, bool), np.zeros(b, np.intp), np.zeros(b, bool))


def joined(parts: Iterable[Preimages]) -> Preimages:
    """Pre-images of one part after the other."""
    found = list(parts)
    return Preimages(*(np.concatenate([getattr(part, each.name) for part in found]) for each in fields(Preimages)))


# (scores Y (b, r), rows (b, d) to start from, or None) -> pre-images; all rows shifted and scaled, float64.
Decode = Callable[[Array, Array | None], Preimages]


@dataclass(frozen=True)
class Decoder(ABC):
    """From scores back to rows: plain arrays and numbers, which a model file holds."""

    name: ClassVar[str]

    @abstractmethod
    def decoding(self, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
        """Prepare the map for tiles of at most `most_rows` scores; the returned function owns its work space."""

    def arrays(self) -> dict[str, Array]:
        """The arrays that a file must hold."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}

    def parameters(self) -> dict[str, Any]:
        """The numbers that a file must hold besides, JSON-ready, the name among them."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        plain = {name: value for name, value in values.items() if not isinstance(value, np.ndarray | None)}
        return {"name": self.name, **{name: np.asarray(value).item() for name, value in plain.items()}}

    @classmethod
    def from_parts(cls, parameters: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The decoder whose `parameters()` and `arrays()` these are; other arrays are passed over."""
        given = {**parameters, **arrays}
        return cls(**{part.name: given[part.name] for part in fields(cls) if part.name in given})

    @property
    def reference_rows(self) -> Array | None:
        """Rows (m, d) of the data that the decoder keeps, shifted and scaled; None where it keeps none."""
        return None


def reconstructing(decoder: Decoder, features: FeatureMap, solution: Solution, most_rows: int) -> Decode:
    """`decoding` in the units of the data, for starts and pre-images alike; pre-images in the dtype of block work."""
    decode = decoder.decoding(features, solution, most_rows)

    def reconstruct(Y: Array, start: Array | None) -> Preimages:
        found = decode(Y.astype(np.float64), None if start is None else features.shifted(start))
        rows = found.rows if features.scale is None else found.rows * features.scale
        return replace(found, rows=(rows + features.offset).astype(features.dtype))

    return reconstruct


def check_width(shape: tuple[int, ...], components: int, where: str) -> None:
    """Raise SpecError unless scores of this shape are as wide as a model has components."""
    if len(shape) != 2 or shape[1] != components:
        raise SpecError(
            f"{where}: scores of shape {shape}, but the model has {components} components: give it scores (n, "
            f"{components}) that it made itself"
        )


class Preimage(Protocol):
    """A way back from scores to rows, with its options."""

    name: ClassVar[str]
    trained: ClassVar[bool]  # whether its decoder comes from one more pass over the data
    needs_rows: ClassVar[bool]  # whether it must be given sampled rows even where there are landmarks

    def check(self, kernel: Kernel, method: Method) -> None:
        """Raise SpecError unless this kernel and method will do, naming what does."""


class Training(Protocol):
    """What a pass over the data needs to know; a frozen value."""

    def block(self, X_tiles: Iterable[Array], first_row: int, most_rows: int) -> Regression:
        """Sums of one block, one tile X (b, d) in the units of the data at a time; the sums of blocks add up.

        `first_row` is the number of its first row among all rows, which noise depends on.
        """

    def decoder(self, sums: Regression) -> Decoder:
        """The decoder that the sums of all blocks make."""


class Trained(Preimage, Protocol):
    """A way back whose decoder comes from one more pass."""

    @property
    def size(self) -> int:
        """Features of scores that it is linear in, at most: its sums hold size x (size + d) numbers."""

    def training(self, fitted: Fitted, rows: Array, count: int, seed: np.random.SeedSequence) -> Training:
        """What the pass needs, from sampled rows (m, d) in the units of the data; `count` rows will pass."""


class Untrained(Preimage, Protocol):
    """A way back that needs no pass."""

    def decoder(self, fitted: Fitted, rows: Array | None = None) -> Decoder:
        """The decoder of a model. `rows` (m, d) are sampled rows in the units of the data.

        Raises SpecError where they are needed and missing.
        """


def sampled(rows: Array | None, what: str) -> Array:
    """The rows, or SpecError where there are none."""
    if rows is None:
        raise SpecError(f"{what} need sampled rows of the data, and this model was fitted without: fit it again")
    return rows
