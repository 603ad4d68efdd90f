"""Options and memory that all methods with random sines and cosines share."""

from __future__ import annotations

from typing import ClassVar, Literal

from bigkpca.errors import SpecError
from bigkpca.numerics.features.frequencies import Coupling
from bigkpca.numerics.methods.base import Method

Form = Literal["orthogonal", "iid", "qmc", "phase"]


class Trigonometric:
    """Base of methods with random sines and cosines; their form decides frequencies and pairs."""

    landmarks: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    principal: ClassVar[bool] = False
    uniform: ClassVar[bool] = False
    form: Form

    @property
    def pairs(self) -> bool:
        return self.form != "phase"

    def map_bytes(self, columns: int, size: int, itemsize: int) -> int:
        return (size // 2 if self.pairs else size) * columns * itemsize

    def working_bytes(self, rows: int, columns: int, size: int) -> int:
        return 8 * (size * columns + 1024 * (columns + 1024))

    @property
    def coupling(self) -> Coupling:
        """How frequencies are drawn."""
        return "iid" if self.form == "phase" else self.form


def check_pairs(method: Method, size: int | None) -> None:
    """Raise SpecError where features come in pairs and their number is odd."""
    if method.pairs and size is not None and size % 2:
        raise SpecError(f"size={size}: sines and cosines come in pairs, so the number of random features must be even")
