"""Devices: their names, what is there, memory that runs out. Missing libraries are imitated."""

import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from unittest.mock import Mock

import numpy as np
import pytest

from bigkpca.data import devices
from bigkpca.data.devices import AT_ONCE, Device, device_of, is_out_of_memory
from bigkpca.errors import MemoryLimitError, SpecError
from tests.data.cases import refused

STRICT = Device("array_api_strict", "cpu")


def test_names_of_devices():
    assert Device.named("cpu") is None
    for name, library, device, shown in [
        ("cuda", "torch", "cuda:0", "cuda"),
        ("cuda:1", "torch", "cuda:1", "cuda:1"),
        ("cuda:0", "torch", "cuda:0", "cuda"),
        ("torch:xpu", "torch", "xpu:0", "xpu"),
        ("torch:cpu", "torch", "cpu", "torch:cpu"),
        ("cupy", "cupy", "cuda:0", "cupy:cuda:0"),
        ("cupy:cuda:1", "cupy", "cuda:1", "cupy:cuda:1"),
        ("array_api_strict", "array_api_strict", "cpu", "array_api_strict:cpu"),
    ]:
        found = Device.named(name)
        assert (found.library, found.name, str(found)) == (library, device, shown)
        assert Device.named(str(found)) == found
    wrong = "", "cuda 1", "CUDA", "cuda:", "jax:cuda", "torch", "torch:", "cuda:1:2", ":1", "cpu:1", "torch:cpu:0"
    message = "is not the name of a device: use 'cuda' or 'cuda:1'"
    refused(Device.named, *((name, SpecError, f"device='{name}' {message}") for name in wrong))


def test_a_device_of_a_library_that_is_not_installed_or_that_is_not_there(monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    for name, command in {"cuda": "torch", "cupy": "cupy-cuda12x"}.items():
        refused(Device.named(name).check, (SpecError, f"which is not installed: pip install {command}$"))
    monkeypatch.setattr(Device, "place", Mock(side_effect=RuntimeError("no cuda:1 here\nand much more")))
    monkeypatch.setattr(devices, "find_spec", lambda name: name)
    refused(Device.named("cuda:1").check, (SpecError, r"device='cuda:1' cannot be used: no cuda:1 here$"))


def test_products_with_fewer_bits_are_refused(monkeypatch):
    place = Device.place

    def shortened(self, X):
        """Numbers as TF32 rounds them: to ten bits after the first."""
        return place(self, X if X.dtype == np.float64 else np.ldexp(np.round(np.ldexp(X, 10)), -10))

    STRICT.check()
    monkeypatch.setattr(Device, "place", shortened)
    message = r"float32 with fewer bits \(TF32\).*set_float32_matmul_precision\('highest'\)"
    refused(STRICT.check, (SpecError, message))


def test_arrays_are_copied_and_tell_their_device():
    X = np.arange(6.0).reshape(2, 3)
    X.flags.writeable = False
    placed = STRICT.place(X)
    assert (np.asarray(placed) == X).all()
    assert not np.shares_memory(np.asarray(placed), X)
    assert device_of(placed) == STRICT
    assert device_of(X) is None
    devices_of = ("torch", "cpu", None), ("torch", "cuda:1", "cuda:1"), ("cupy", "1", "cupy:cuda:1")
    for library, name, expected in devices_of:
        kind = type("Imitation", (), {"__module__": f"{library}.part", "device": Where(name)})
        found = device_of(kind())
        assert (found and str(found)) == expected


class Where(str):
    """A device as torch and CuPy show it."""

    type = property(lambda self: self.partition(":")[0])
    id = property(int)


class OutOfMemoryError(RuntimeError):
    """As torch and CuPy call it."""


def test_memory_that_is_full_ends_the_run_and_nothing_holds_what_was_there():
    cuda = "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"
    for error in (OutOfMemoryError(), *map(RuntimeError, cuda)):
        assert is_out_of_memory(error)
    for error in (MemoryError(), RuntimeError("shapes differ"), ValueError("out of memory")):
        assert not is_out_of_memory(error)
    tiles = []

    def full():
        tile = np.zeros(9)
        tiles.append(weakref.ref(tile))
        raise OutOfMemoryError("2 GB were requested\nat length")

    message = r"device='array_api_strict:cpu' is full \(2 GB were requested\): use fewer landmarks or another device"
    with pytest.raises(MemoryLimitError, match=message) as raised:
        STRICT.computing(full)
    assert raised.value.exit_code == 4
    assert [tile() for tile in tiles] == [None]


def test_few_tasks_compute_on_a_device_at_a_time():
    at_work, go_on = Barrier(AT_ONCE + 1), Event()

    def compute():
        at_work.wait(60)
        assert go_on.wait(60)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        tasks = [pool.submit(STRICT.computing, compute) for _ in range(AT_ONCE)]
        at_work.wait(60)
        free = devices._at_work.acquire(blocking=False)
        go_on.set()
        assert [task.result(60) for task in tasks] == [None] * AT_ONCE
    assert not free
    assert STRICT.computing(lambda: "done") == "done"
