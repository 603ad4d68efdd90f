"""Devices that compute in place of the processor: names, checks, arrays on them, and the memory of tasks there.

A name is that of a device in torch, such as "cuda", "cuda:1" or "xpu", or begins with the library, as "cupy:cuda:1" or
"torch:cpu"; "cpu" is NumPy on the processor. Libraries are imported only where a device is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from textwrap import shorten
from threading import BoundedSemaphore
from typing import Any, TypeVar

import numpy as np

from bigkpca.errors import Array, MemoryLimitError, SpecError
from bigkpca.numerics.array_api import in_numpy, on_host, sent

T = TypeVar("T")

CPU = "cpu"
AT_ONCE = 4  # threads of a process that compute on devices at the same time, each with tiles of its own there
TALLER = 8  # times the rows of a tile on the processor, since starting a computation on a device takes long
_IN_PIP = {"cupy": "cupy-cuda12x"}  # libraries with another name there
_ONLY = {"cupy": "cuda:0", "array_api_strict": "cpu"}  # devices of libraries that are named without one
_NAME = re.compile(r"(?:(torch|cupy|array_api_strict)(?::|$))?(cpu|(?:cuda|xpu|mps)(?::\d+)?)?")
_FULL = ("out of memory", "ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED")  # in errors of CUDA and of its libraries
_ADVICE = "use fewer landmarks or another device, or stop other programs that use this one"
_at_work = BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True)
class Device:
    """A device of a library, such as "cuda:1" of "torch"; all but "cpu" have a number."""

    library: str
    name: str

    @classmethod
    def named(cls, name: str) -> Device | None:
        """The device of this name, whether it exists or not; None for "cpu". Raises SpecError for other names."""
        if name == CPU:
            return None
        found = _NAME.fullmatch(name)
        device = "" if found is None else found[2] or _ONLY.get(found[1], "")
        if found is None or not device:
            raise SpecError(
                f"device={name!r} is not the name of a device: use 'cuda' or 'cuda:1' (PyTorch), 'cupy:cuda:0' (CuPy), "
                "or 'cpu'"
            )
        return cls(found[1] or "torch", device if ":" in device or device == CPU else f"{device}:0")

    def __str__(self) -> str:
        if self.library != "torch" or self.name == CPU:
            return f"{self.library}:{self.name}"
        return self.name.removesuffix(":0")

    def check(self) -> None:
        """Raise SpecError unless the device is here, with float64 and with products as exact as float32."""
        if find_spec(self.library) is None:
            raise SpecError(
                f"device={str(self)!r} needs {self.library}, which is not installed: pip install "
                f"{_IN_PIP.get(self.library, self.library)}"
            )
        number = np.nextafter(np.float32(1), np.float32(2))  # with all bits of float32
        try:
            self.place(np.zeros(1))
            with self.current():
                products = on_host(self.place(np.full((256, 256), number)) @ self.place(np.eye(256, dtype=np.float32)))
        except Exception as error:  # each library raises its own types
            raise SpecError(f"device={str(self)!r} cannot be used: {_first_line(error)}") from error
        lowered = self.library == "torch" and import_module("torch").get_float32_matmul_precision() != "highest"
        if lowered or not (products == number).all():
            raise SpecError(
                f"device={str(self)!r} multiplies float32 with fewer bits (TF32), for which the bounds of the error do "
                "not hold: call torch.set_float32_matmul_precision('highest'), and unset NVIDIA_TF32_OVERRIDE and "
                "CUPY_TF32"
            )

    def place(self, X: Array) -> Any:
        """A copy of a NumPy array on the device."""
        if self.library == "array_api_strict":
            return sent(X, import_module(self.library), None)
        return sent(X, import_module(f"array_api_compat.{self.library}"), self._cupy or self.name)

    @property
    def _cupy(self) -> Any:
        """The device as an object of CuPy; None if it is one of another library."""
        return import_module("cupy").cuda.Device(int(self.name.partition(":")[2])) if self.library == "cupy" else None

    def current(self) -> AbstractContextManager[Any]:
        """While entered, CuPy computes on this device in this thread; torch computes where arrays are."""
        return nullcontext() if self._cupy is None else self._cupy

    def finish(self) -> None:
        """Wait until arrays that other threads or streams compute on the device are there."""
        if self._cupy is not None:
            self._cupy.synchronize()
        elif self.library == "torch" and self.name != CPU:
            getattr(import_module("torch"), self.name.partition(":")[0]).synchronize(self.name)  # e.g. torch.cuda

    def computing(self, function: Callable[[], T]) -> T:
        """function() of a task, beside few others. Raises MemoryLimitError if the memory of the device runs out."""
        try:
            with _at_work, self.current():
                return function()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            full = _first_line(error)
        # Here, where no error refers to arrays on the device any more.
        raise MemoryLimitError(f"the memory of device={str(self)!r} is full ({full}): {_ADVICE}")


def _first_line(error: Exception) -> str:
    return shorten((str(error).strip().splitlines() or [type(error).__name__])[0], 120, placeholder=" ...")


def device_of(X: Any) -> Device | None:
    """The device on which an array of another library is; None for NumPy's, and for torch's in host memory."""
    library = type(X).__module__.partition(".")[0]
    if in_numpy(X) or (library == "torch" and X.device.type == CPU):
        return None
    name = f"cuda:{X.device.id}" if library == "cupy" else str(X.device) if library == "torch" else CPU
    return Device(library, name)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that the memory of a device is full."""
    named = isinstance(error, RuntimeError) and any(text in str(error) for text in _FULL)
    return named or type(error).__name__ == "OutOfMemoryError"
