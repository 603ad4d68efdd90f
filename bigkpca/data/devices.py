"""Devices that compute in place of the processor: names, checks, arrays on them, and tasks whose tiles fit there.

A name is that of a device in torch, such as "cuda", "cuda:1" or "xpu", or begins with the library, as "cupy:cuda:1" or
"torch:cpu"; "cpu" is NumPy on the processor. Libraries are imported only where a device is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from textwrap import shorten
from threading import BoundedSemaphore, Lock, local
from typing import Any, TypeVar

import numpy as np

from bigkpca.errors import Array, DeviceMemoryError, DeviceMemoryWarning, SpecError, warn
from bigkpca.numerics.array_api import in_numpy, on_host, sent

T = TypeVar("T")

CPU = "cpu"
AT_ONCE = 4  # threads of a process that compute on devices at the same time, each with tiles of its own there
TALLER = 8  # times the rows of a tile on the processor, since starting a computation on a device takes long
_IN_PIP = {"cupy": "cupy-cuda12x"}  # libraries with another name there
_ONLY = {"cupy": "cuda:0", "array_api_strict": "cpu"}  # devices of libraries that are named without one
_NAME = re.compile(r"(?:(torch|cupy|array_api_strict)(?::|$))?(cpu|(?:cuda|xpu|mps)(?::\d+)?)?")


@dataclass(frozen=True)
class Device:
    """A device of a library, such as "cuda:1" of "torch"; all but "cpu" have a number."""

    library: str
    name: str

    @classmethod
    def named(cls, name: str) -> Device | None:
        """The device of this name; None for "cpu". Raises SpecError for a name of no device; whether it is there, only
        `check` shows."""
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
        """Raise SpecError unless the library is installed here and has the device, with float64 and with products that
        are as exact as float32."""
        if find_spec(self.library) is None:
            raise SpecError(
                f"device={str(self)!r} needs {self.library}, which is not installed: pip install "
                f"{_IN_PIP.get(self.library, self.library)}"
            )
        number = np.nextafter(np.float32(1), np.float32(2))  # with all bits of float32
        try:
            if self._kind == "mps":
                raise TypeError("it has no float64")
            if self.library == "torch" and self.name != CPU and str(self) not in available():
                raise LookupError(f"torch {_module('torch').__version__} does not find it")
            self.place(np.zeros(1))
            with self.current():
                products = on_host(self.place(np.full((256, 256), number)) @ self.place(np.eye(256, dtype=np.float32)))
        except Exception as error:
            there = ", ".join(map(repr, available()))
            raise SpecError(
                f"device={str(self)!r} cannot be used ({_first_line(error)}); available here: {there}"
            ) from error
        lowered = self.library == "torch" and _module("torch").get_float32_matmul_precision() != "highest"
        if lowered or not (products == number).all():
            raise SpecError(
                f"device={str(self)!r} multiplies float32 with fewer bits (TF32), for which the bounds of the error do "
                "not hold: call torch.set_float32_matmul_precision('highest'), and unset NVIDIA_TF32_OVERRIDE and "
                "CUPY_TF32"
            )

    def place(self, X: Array) -> Any:
        """A copy of a NumPy array on the device."""
        if self.library == "array_api_strict":
            return sent(X, _module(self.library), None)
        device = self.name if self.library == "torch" else _module("cupy").cuda.Device(self._number)
        return sent(X, _module(f"array_api_compat.{self.library}"), device)

    @property
    def _kind(self) -> str:
        return self.name.partition(":")[0]

    @property
    def _number(self) -> int:
        return int(self.name.partition(":")[2] or 0)

    def current(self) -> AbstractContextManager[Any]:
        """While entered, CuPy computes on this device in this thread; torch computes where arrays are."""
        return _module("cupy").cuda.Device(self._number) if self.library == "cupy" else nullcontext()

    def finish(self) -> None:
        """Wait until arrays that other threads or streams compute on the device are there."""
        if self.library == "cupy":
            _module("cupy").cuda.Device(self._number).synchronize()
        elif self.library == "torch" and hasattr(self._accelerator, "synchronize") and self.name != CPU:
            self._accelerator.synchronize(self.name)

    @property
    def _accelerator(self) -> Any:
        """The part of torch for this kind of device, e.g. torch.cuda."""
        return getattr(_module("torch"), self._kind)

    def free_bytes(self) -> int | None:
        """Memory of the device that this process can take; None if it is the host's, or the library does not tell."""
        if self.library == "cupy":
            with self.current():
                free = int(_module("cupy").cuda.runtime.memGetInfo()[0])
                return free + int(_module("cupy").get_default_memory_pool().free_bytes())
        if self.library == "torch" and hasattr(self._accelerator, "mem_get_info"):
            kept = self._accelerator.memory_reserved(self.name) - self._accelerator.memory_allocated(self.name)
            return int(self._accelerator.mem_get_info(self.name)[0]) + kept
        return None

    def release(self) -> None:
        """Give back the memory that the library keeps for later arrays."""
        if self.library == "cupy":
            with self.current():
                _module("cupy").get_default_memory_pool().free_all_blocks()
        elif self.library == "torch" and hasattr(self._accelerator, "empty_cache"):
            self._accelerator.empty_cache()

    def check_room(self, needed: int) -> None:
        """Raise DeviceMemoryError if fewer bytes are free on the device."""
        free = self.free_bytes()
        if free is not None and needed > free:
            raise DeviceMemoryError(
                f"this needs {needed / 1e6:.0f} MB on device={str(self)!r}, but only {free / 1e6:.0f} MB are free "
                f"there: {_ADVICE}"
            )

    def computing(self, function: Callable[[], T]) -> T:
        """function() of a task that computes on this device, with few others at a time. If memory runs out, once more
        and alone, with `tile_factor` halved, also for all later tasks of this process, and with a warning. Raises
        DeviceMemoryError if that is not enough."""
        try:
            with _at_work:
                return self._tried(function)
        except _Full as full:
            self._halve(f"the memory of device={str(self)!r} is full ({full})")
        try:
            with _alone():
                return self._tried(function)
        except _Full as full:
            raise DeviceMemoryError(
                f"the memory of device={str(self)!r} is full ({full}), even with tiles of half the rows: {_ADVICE}"
            ) from None

    def _tried(self, function: Callable[[], T]) -> T:
        _this_task.factor = TALLER // 2 if self in _halved else TALLER
        try:
            with self.current():
                return function()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            text = _first_line(error)
        finally:
            del _this_task.factor
        self.release()  # only here, when the error no longer refers to arrays
        raise _Full(text)

    def _halve(self, full: str) -> None:
        """Halve the tiles of later tasks, with one warning, which clients of a worker also receive."""
        with _lock:
            if self in _halved:
                return
            _halved.add(self)
        tell: Any = warn
        if "distributed" in sys.modules:
            from distributed import get_worker
            from distributed import warn as tell_clients

            with suppress(ValueError):  # elsewhere than on a worker
                get_worker()
                tell = tell_clients
        tell(f"{full}: from now on, tiles have half as many rows, and results can differ slightly", DeviceMemoryWarning)


_ADVICE = "use fewer landmarks or another device, or stop other programs that use this one"
_at_work, _lock, _this_task = BoundedSemaphore(AT_ONCE), Lock(), local()
_waiting = Lock()  # held by the task that is, or is about to be, alone
_halved: set[Device] = set()  # devices whose memory was too small for tiles of all rows in this process


class _Full(Exception):
    """The memory of a device is full."""


@contextmanager
def _alone() -> Iterator[None]:
    """While entered, no other task computes on a device."""
    with _waiting:
        for _ in range(AT_ONCE):
            _at_work.acquire()
        try:
            yield
        finally:
            for _ in range(AT_ONCE):
                _at_work.release()


def tile_factor() -> int:
    """How many times the rows of a tile on the processor a tile on the device has, the same throughout a task."""
    return getattr(_this_task, "factor", TALLER)


def _module(name: str) -> Any:
    return import_module(name)


def _first_line(error: Exception) -> str:
    return shorten((str(error).strip().splitlines() or [type(error).__name__])[0], 120, placeholder=" ...")


def available() -> list[str]:
    """Names of the devices of installed libraries here, "cpu" first."""
    found = [CPU]
    if find_spec("torch") is not None:
        torch = _module("torch")
        for kind in ("cuda", "xpu"):  # mps has no float64
            part = getattr(torch, kind, None)
            count = part.device_count() if part is not None and part.is_available() else 0
            found += [kind, *(f"{kind}:{i}" for i in range(1, count))][:count]
    if find_spec("cupy") is not None and _module("cupy").cuda.is_available():
        found += [f"cupy:cuda:{i}" for i in range(_module("cupy").cuda.runtime.getDeviceCount())]
    return found


def device_of(X: Any) -> Device | None:
    """The device on which an array of another library is; None for NumPy's, and for torch's in host memory."""
    library = type(X).__module__.partition(".")[0]
    if in_numpy(X) or (library == "torch" and X.device.type == CPU):
        return None
    name = f"cuda:{X.device.id}" if library == "cupy" else str(X.device) if library == "torch" else CPU
    return Device(library, name)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of a device is full."""
    full = ("out of memory", "ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED")  # in errors of CUDA and of its libraries
    return type(error).__name__ == "OutOfMemoryError" or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in full)
    )
