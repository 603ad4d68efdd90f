"""The interface of a method, and what methods with landmarks share."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from bigkpca.errors import Array, unknown_name
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import Span


class Method(Protocol):
    """A feature map's solver: from the moments of features to components and eigenvalues.

    Attributes
    ----------
    name : str
        What options and files call the method.
    landmarks : bool
        Whether features are kernels with landmarks; otherwise they are random.
    exact : bool
        Whether every row is a landmark.
    principal : bool
        Whether features are those of principal axes, which take one more pass.
    """

    name: ClassVar[str]
    landmarks: ClassVar[bool]
    exact: ClassVar[bool]
    principal: ClassVar[bool]

    @property
    def uniform(self) -> bool:
        """Whether the formulas hold for uniformly drawn landmarks alone."""

    @property
    def pairs(self) -> bool:
        """Whether features are pairs of a sine and a cosine."""

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        """Bytes of the landmarks or frequencies of `size` features."""

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        """Bytes that drawing frequencies needs beside a sample of `rows` rows; 0 for methods with landmarks."""

    def check(self, kernel: Kernel, size: int | None) -> None:
        """Raise SpecError unless the method works with this kernel, and with `size` features (None: not known)."""

    def solve(
        self,
        moments: Moments,
        features: Any,
        components: int | float | None,
        center: bool,
        tolerance: float,
        span: Span | None = None,
        in_order: Map = map,
    ) -> Solution:
        """Compute mean, components and eigenvalues.

        Parameters
        ----------
        moments : Moments
            Of the features of all rows.
        features : FeatureMap
            The map.
        components : int, float or None
            A number of components, a share of the variance in (0, 1), or None for the numerical rank.
        center : bool
            Whether kernel PCA is centred in feature space.
        tolerance : float
            Rank tolerance, relative to the largest eigenvalue.
        span : Span, optional
            That of the landmarks, where it was computed before.
        in_order : callable
            Like `map`; it may run tiles of small matrices in parallel.

        Returns
        -------
        Solution
            All float64.

        Raises
        ------
        DataError
            Where no direction varies.
        """

    def factor(self, moments: Moments | None, features: Any, tolerance: float) -> Array | None:
        """P (D, m) with K ≈ (V P)(V P)' for feature rows V (n, D); None where V itself is that factor."""


class OfLandmarks:
    """Base of methods whose features are kernels with landmarks."""

    landmarks: ClassVar[bool] = True
    exact: ClassVar[bool] = False
    principal: ClassVar[bool] = False
    pairs: ClassVar[bool] = False

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        return size * columns * itemsize

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        return 0


def check_choice(method: object, key: str, value: str, known: tuple[str, ...]) -> None:
    """Raise SpecError unless `value` is a known choice for the option `key`."""
    if value not in known:
        raise unknown_name(f"{key} of {type(method).__name__}", str(value), known)
