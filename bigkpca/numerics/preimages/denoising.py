""" "denoising": kernel ridge regression from the scores of noisy rows to the clean rows, in one streamed pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Fitted
from bigkpca.numerics.preimages.noise import Noise
from bigkpca.numerics.preimages.regression import training_bytes
from bigkpca.numerics.preimages.ridge import KernelTraining, kernel_training

_ROWS_PER_KERNEL = 10
_MOST_COPIES = 8


@dataclass(frozen=True)
class Denoising:
    """Kernel ridge regression from the scores of noisy rows to the clean rows: removes noise of a given size.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise, in the units of the data: normal, independent in every column. Must be given.
    ridge : float
        Penalty, as in `Ridge`; scores of noisy rows vary more and need less.
    size : int
        Number of kernels on scores, at least 2.

    Raises
    ------
    SpecError
        Where an option is out of range; from `check`, where the noise is not given.

    Notes
    -----
    One pass; noise is generated on the fly. Where rows are few, each gets up to 8 copies with different noise, so that
    there are 10 noisy rows for each kernel. A map that is linear in the scores needs several times the components for
    the same error.

    References
    ----------
    `docs/numerics.md`, section 18.

    Examples
    --------
    >>> Denoising(noise=0.5)
    Denoising(noise=0.5, ridge=0.1, size=1000)
    """

    name: ClassVar[str] = "denoising"
    trained: ClassVar[bool] = True
    needs_rows: ClassVar[bool] = True
    noise: float | None = None
    ridge: float = 0.1
    size: int = 1000

    def __post_init__(self) -> None:
        if self.noise is not None and not (np.isfinite(self.noise) and self.noise > 0):
            raise SpecError(f"{self}: noise is a positive standard deviation in the units of the data")
        if not (np.isfinite(self.ridge) and self.ridge >= 0) or self.size < 2:
            raise SpecError(f"{self}: ridge is a number that is not negative, size at least 2")

    def check(self, kernel: Kernel, method: Method) -> None:
        """Accept every kernel and method. Raise SpecError where the noise is not given."""
        if self.noise is None:
            raise SpecError("pre-images by 'denoising' need the standard deviation of the noise: give noise=...")

    def training_bytes(self, rows: int, columns: int) -> tuple[int, int]:
        sums, tile = training_bytes(self.size, rows, columns)
        return sums, tile + 8 * rows * columns  # of rows with noise

    def training(self, fitted: Fitted, rows: Array, count: int, seed: np.random.SeedSequence) -> KernelTraining:
        self.check(fitted.features.kernel, fitted.method)
        assert self.noise is not None  # as checked
        wanted = _ROWS_PER_KERNEL * min(self.size, len(rows))
        noise = Noise(self.noise, seed.generate_state(2, np.uint64), min(-(-wanted // count), _MOST_COPIES))
        return kernel_training(fitted, noise, rows, self.size, self.ridge, seed)
