"""The interface of a method, and what methods with landmarks share."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from bigkpca.errors import Array, unknown_name
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.solvers import Span


class Method(Protocol):
    """From moments of its features to a solution."""

    name: ClassVar[str]
    landmarks: ClassVar[bool]  # whether features are kernel rows, else random

    @property
    def uniform(self) -> bool:
        """Whether its formulas hold for landmarks drawn uniformly alone."""

    @property
    def pairs(self) -> bool:
        """Whether features are pairs of a sine and a cosine."""

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        """Bytes of the landmarks or frequencies of `size` features."""

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        """Bytes that drawing frequencies holds beside a sample of so many rows; 0 where a rule chooses landmarks."""

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Raise SpecError unless this kernel, and this many landmarks or features, will do."""

    def solve(
        self,
        moments: Moments,
        features: Any,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
    ) -> Solution:
        """Mean, components and eigenvalues; `span` is that of the landmarks, where it is known already.

        Raises DataError when no direction varies."""

    def factor(self, moments: Moments | None, features: Any, tolerance: float) -> Array | None:
        """P (D, m) with K ≈ (V P)(V P)' for feature rows V (n, D); None where V itself is that factor."""


class OfLandmarks:
    """Methods whose features are kernels with landmarks."""

    landmarks: ClassVar[bool] = True
    pairs: ClassVar[bool] = False

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        return size * columns * itemsize

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        return 0


def check_choice(method: object, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise unknown_name(f"{key} of {type(method).__name__}", str(value), known)
