"""Devices: their names, what is there, memory that runs out once or twice. Missing libraries are imitated."""

import sys
import weakref
from contextlib import nullcontext
from threading import Barrier, Event, Thread
from types import ModuleType, SimpleNamespace

import array_api_strict
import numpy as np
import pytest

from bigkpca.data import devices
from bigkpca.data.devices import AT_ONCE, TALLER, Device, available, device_of, is_out_of_memory, tile_factor
from bigkpca.errors import DeviceMemoryError, DeviceMemoryWarning, SpecError

STRICT = Device("array_api_strict", "cpu")


@pytest.fixture(autouse=True)
def _new_process(monkeypatch):
    """As at the start of a process."""
    monkeypatch.setattr(devices, "_halved", set())


@pytest.fixture
def without_libraries(monkeypatch):
    """Only the libraries that a test imitates: a function that installs one."""
    for name in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, name, None)
    installed = {"array_api_strict"}
    monkeypatch.setattr(devices, "find_spec", lambda name: name if name in installed else None)

    def install(name, **contents):
        installed.add(name)
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)

    return install


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
    for name in (
        "",
        "CUDA",
        "cuda 1",
        "cuda:",
        "jax:cuda",
        "torch",
        "torch:",
        "cuda:1:2",
        ":1",
        "cpu:1",
        "torch:cpu:0",
    ):
        with pytest.raises(SpecError, match=f"device='{name}' is not the name of a device: use 'cuda' or 'cuda:1'"):
            Device.named(name)


def test_a_device_of_a_library_that_is_not_installed_or_that_is_not_there(without_libraries, monkeypatch):
    for name, command in {"cuda": "torch", "cupy": "cupy-cuda12x"}.items():
        with pytest.raises(SpecError, match=f"which is not installed: pip install {command}$"):
            Device.named(name).check()

    def place(self, X):
        raise RuntimeError(f"no {self} here\nand much more")

    cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)
    monkeypatch.setattr(Device, "place", place)
    without_libraries("torch", cuda=cuda, xpu=SimpleNamespace(is_available=lambda: False), __version__="3.1")
    for name, reason in {
        "cuda:1": "no cuda:1 here",
        "cuda:7": "torch 3.1 does not find it",
        "xpu": "torch 3.1 does not find it",
        "mps": "it has no float64",
    }.items():
        message = rf"device='{name}' cannot be used \({reason}\); available here: 'cpu', 'cuda', 'cuda:1'$"
        with pytest.raises(SpecError, match=message):
            Device.named(name).check()


def test_what_is_there(without_libraries):
    assert available() == ["cpu"]
    runtime = SimpleNamespace(getDeviceCount=lambda: 2)
    without_libraries("cupy", cuda=SimpleNamespace(is_available=lambda: False, runtime=runtime))
    assert available() == ["cpu"]
    without_libraries("cupy", cuda=SimpleNamespace(is_available=lambda: True, runtime=runtime))
    assert available() == ["cpu", "cupy:cuda:0", "cupy:cuda:1"]
    no_cuda = SimpleNamespace(is_available=lambda: False)
    without_libraries("torch", cuda=no_cuda, xpu=SimpleNamespace(is_available=lambda: True, device_count=lambda: 1))
    assert available() == ["cpu", "xpu", "cupy:cuda:0", "cupy:cuda:1"]


def test_products_with_fewer_bits_are_refused(monkeypatch):
    place = Device.place

    def shortened(self, X):
        """Numbers as TF32 rounds them: to ten bits after the first."""
        return place(self, X if X.dtype == np.float64 else np.ldexp(np.round(np.ldexp(X, 10)), -10))

    STRICT.check()
    monkeypatch.setattr(Device, "place", shortened)
    with pytest.raises(SpecError, match=r"float32 with fewer bits \(TF32\).*set_float32_matmul_precision\('highest'\)"):
        STRICT.check()


def test_arrays_are_copied_and_tell_their_device():
    X = np.arange(6.0).reshape(2, 3)
    X.flags.writeable = False
    placed = STRICT.place(X)
    assert (np.asarray(placed) == X).all()
    assert not np.shares_memory(np.asarray(placed), X)
    assert device_of(placed) == STRICT
    assert device_of(X) is None
    for library, name, expected in (
        ("torch", "cpu", None),
        ("torch", "cuda:1", "cuda:1"),
        ("cupy", "1", "cupy:cuda:1"),
    ):
        kind = type("Imitation", (), {"__module__": f"{library}.part", "device": Where(name)})
        found = device_of(kind())
        assert (found and str(found)) == expected


class Where:
    """A device as torch and CuPy show it."""

    def __init__(self, name):
        self.name, self.type = name, name.partition(":")[0]

    def __str__(self):
        return f"<CUDA Device {self.name}>" if self.name.isdecimal() else self.name

    @property
    def id(self):
        return int(self.name)


def test_memory_that_is_free(without_libraries):
    released = []
    cuda = SimpleNamespace(
        mem_get_info=lambda device: (1000, 9000),
        memory_reserved=lambda device: 70,
        memory_allocated=lambda device: 50,
        empty_cache=lambda: released.append("torch"),
    )
    without_libraries("torch", cuda=cuda, cpu=SimpleNamespace())
    pool = SimpleNamespace(free_bytes=lambda: 30, free_all_blocks=lambda: released.append("cupy"))
    cupy_cuda = SimpleNamespace(
        Device=lambda number: nullcontext(), runtime=SimpleNamespace(memGetInfo=lambda: (500, 9000))
    )
    without_libraries("cupy", cuda=cupy_cuda, get_default_memory_pool=lambda: pool)
    for name, free in {"cuda:1": 1020, "cupy": 530, "torch:cpu": None, "array_api_strict": None}.items():
        device = Device.named(name)
        device.release()
        assert device.free_bytes() == free
        device.check_room(free or 10**15)
    assert released == ["torch", "cupy"]
    with pytest.raises(
        DeviceMemoryError, match=r"3 MB on device='cuda:1', but only 0 MB are free there: use fewer landmarks"
    ):
        Device.named("cuda:1").check_room(3 * 10**6)


class OutOfMemoryError(RuntimeError):
    """As torch and CuPy call it."""


def test_errors_of_full_memory():
    full = (OutOfMemoryError(), RuntimeError("CUDA error: out of memory"), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"))
    assert all(map(is_out_of_memory, full))
    assert not any(map(is_out_of_memory, (MemoryError(), RuntimeError("shapes differ"), ValueError("out of memory"))))


class Tile:
    """Something that takes memory."""


def test_memory_that_is_full_once_halves_tiles_with_a_warning_and_twice_ends_the_run(monkeypatch):
    factors, alive = [], []
    monkeypatch.setattr(Device, "release", lambda self: alive.append([tile() for tile in tiles]))
    tiles = []

    def needing(most):
        def compute():
            factors.append(tile_factor())
            tile = Tile()
            tiles.append(weakref.ref(tile))
            if tile_factor() > most:
                raise OutOfMemoryError("2 GB were requested\nat length")
            return "done"

        return compute

    assert STRICT.computing(needing(TALLER)) == "done"
    message = (
        r"device='array_api_strict:cpu' is full \(2 GB were requested\): from now on, tiles have half as many rows"
    )
    with pytest.warns(DeviceMemoryWarning, match=message) as told:
        assert STRICT.computing(needing(TALLER // 2)) == "done"
    assert len(told) == 1
    assert alive == [[None, None]]  # nothing that failed was left when memory was given back
    assert STRICT.computing(needing(TALLER // 2)) == "done"
    with pytest.raises(
        DeviceMemoryError, match=r"\(2 GB were requested\), even with tiles of half .*: use fewer landmarks"
    ):
        STRICT.computing(needing(TALLER // 4))
    half = TALLER // 2
    assert factors == [TALLER, TALLER, half, half, half, half]
    assert tile_factor() == TALLER


def test_other_errors_are_raised_as_they_are():
    def fail():
        raise ValueError("other")

    with pytest.raises(ValueError, match="other"):
        STRICT.computing(fail)


def in_threads(count, function):
    threads = [Thread(target=function, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DeviceMemoryWarning")
def test_all_tiles_of_a_task_have_the_same_rows_although_another_task_halves_them(monkeypatch):
    begun, halved, found = Event(), Event(), []
    halve = Device._halve
    monkeypatch.setattr(Device, "_halve", lambda self, full: (halve(self, full), halved.set()))

    def task(number):
        def early():
            begun.set()
            before = tile_factor()
            assert halved.wait(60)
            found.append((before, tile_factor()))

        def late():
            assert begun.wait(60)
            if tile_factor() == TALLER:
                raise OutOfMemoryError
            assert found  # the other task has ended

        STRICT.computing(late if number else early)

    in_threads(2, task)
    assert found == [(TALLER, TALLER)]
    assert STRICT.computing(tile_factor) == TALLER // 2


def test_tasks_that_run_out_of_memory_at_the_same_time_warn_once():
    together = Barrier(2)

    def task(number):
        def compute():
            if tile_factor() == TALLER:
                together.wait(60)
                raise OutOfMemoryError

        STRICT.computing(compute)

    with pytest.warns(DeviceMemoryWarning) as told:
        in_threads(2, task)
    assert len(told) == 1


def test_few_tasks_compute_on_a_device_at_a_time():
    at_work, go_on = Barrier(AT_ONCE + 1), Event()

    def compute():
        at_work.wait(60)
        assert go_on.wait(60)

    def task(number):
        if number:
            STRICT.computing(compute)
        else:
            at_work.wait(60)
            free.append(devices._at_work.acquire(blocking=False))
            go_on.set()

    free = []
    in_threads(AT_ONCE + 1, task)
    assert free == [False]
    assert STRICT.computing(lambda: "done") == "done"


def test_computation_on_strict_arrays_stays_there():
    found = STRICT.computing(lambda: STRICT.place(np.ones(3)) * 2)
    assert isinstance(found, type(array_api_strict.asarray(1)))
