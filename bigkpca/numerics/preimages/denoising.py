"""From the scores of noised rows to the clean rows, learned in one streamed pass; the noise is made on the fly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.methods import Method
from bigkpca.numerics.preimages.base import Fitted
from bigkpca.numerics.preimages.noise import Noise
from bigkpca.numerics.preimages.ridge import KernelTraining, kernel_training

_ROWS_PER_KERNEL = 10
_MOST_COPIES = 8


@dataclass(frozen=True)
class Denoising:
    """Kernel ridge regression from the scores of noised rows to the clean rows: undoes noise of a given size.

    noise is its standard deviation in the units of the data, added to each row on the fly, normal and independent in
    every column. ridge and size are those of `Ridge`; the scores of noised rows vary more, and want less of a penalty.
    Rows that are few are noised several times over, so that there are 10 noised rows to each of `size` kernels, at
    most 8 times. A map that is linear in the scores needs several times the components for the same error. One pass.
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
        """Every kernel and every method will do, but the noise must be given."""
        if self.noise is None:
            raise SpecError("pre-images by 'denoising' need the standard deviation of the noise: give noise=...")

    def training(self, fitted: Fitted, rows: Array, count: int, seed: np.random.SeedSequence) -> KernelTraining:
        self.check(fitted.features.kernel, fitted.method)
        assert self.noise is not None  # as checked
        wanted = _ROWS_PER_KERNEL * min(self.size, len(rows))
        noise = Noise(self.noise, seed.generate_state(2, np.uint64), min(-(-wanted // count), _MOST_COPIES))
        return kernel_training(fitted, noise, rows, self.size, self.ridge, seed)
