"""Passes on a device: values that are moved once in each process, memory that is planned or runs out, and workers of
which some have no device. The device is array_api_strict, which computes in host memory."""

import pickle
import sys
import tracemalloc
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from dask.base import tokenize
from distributed import get_worker
from numpy.testing import assert_array_equal

from bigkpca.data import devices
from bigkpca.data.blocks import split
from bigkpca.data.devices import AT_ONCE, TALLER, Device
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DeviceMemoryError, SpecError
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine, sum_by_block, tile_height
from bigkpca.execution.plan import plan_fit, plan_transform, worker_bytes
from bigkpca.execution.tasks import Placed, Task, block_tasks, some_take
from bigkpca.execution.workers import _check_device
from bigkpca.fitting.memory_limits import check_fits
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.moments import Rounding, entries, most_of_strip, shifted_sums
from bigkpca.spec import FitSpec, resolve
from tests.execution.test_plan import model, rows
from tests.helpers.dask_processes import DaskProcesses

STRICT = Device("array_api_strict", "cpu")
X = np.random.default_rng(0).normal(size=(20_000, 3))


@dataclass(frozen=True)
class Weights:
    """Values of the columns, which can be placed."""

    values: Any

    def placed(self, place):
        return Weights(place(self.values))


OURS = Weights(np.array([1.0, 2.0, 4.0]))


def test_a_value_is_moved_once_in_a_process_and_sent_as_it_is_in_host_memory(monkeypatch):
    moved, place = [], Device.place
    monkeypatch.setattr(Device, "place", lambda self, X: moved.append(1) or place(self, X))
    placed = Placed(OURS, STRICT)
    assert not moved
    found, lock, all_ask = [], placed._lock, Barrier(20 if sys.version_info >= (3, 12) else 1)

    class OnceAllAsk:
        """The lock; before Python 3.12, cached_property lets only one thread ask for it."""

        def __enter__(self):
            all_ask.wait(60)
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    placed._lock = OnceAllAsk()
    threads = [Thread(target=lambda: found.append(placed.value)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(moved) == 1
    assert len(set(map(id, found))) == 1
    assert isinstance(found[0].values, type(array_api_strict.asarray(1)))
    buffers = []
    message = pickle.dumps(placed, protocol=5, buffer_callback=buffers.append)
    for sent in (pickle.loads(message, buffers=buffers), pickle.loads(pickle.dumps(placed, protocol=4))):
        assert "value" not in vars(sent)
        assert type(sent._host.value.values) is np.ndarray
        assert (sent.device, tokenize(sent)) == (STRICT, tokenize(placed))
        assert_array_equal(np.asarray(sent.value.values), OURS.values)
    assert len(moved) == 3


def test_the_identity_of_a_value_contains_its_device():
    many = np.zeros(10**5)
    one = many.copy()
    one[50_000] = 1
    given = [(value, device) for value in (many, one) for device in (STRICT, Device("torch", "cuda"))]
    tokens = {tokenize(Placed(Weights(value), device)) for value, device in given}
    tokens |= {tokenize(Weights(many)), tokenize(Weights(one))}
    assert len(tokens) == 6
    assert Engine().placed(OURS) is OURS


def weighted(rows, block, weights):
    """Sums of the rows of a block times weights, and whether they were on a device."""
    tile = rows.block(block.start, block.stop)
    if type(weights.values) is np.ndarray:
        return np.append(tile.T @ (tile @ weights.values), 0)
    strict = array_api_strict.asarray(tile)
    return np.append(np.asarray(strict.T @ (strict @ weights.values)), 1)


def summed(engine, value=OURS, function=weighted):
    return sum_by_block("adding", function, ArrayRows(X), (engine.placed(value),), 1024, engine)


def test_tasks_of_placed_values_compute_there():
    for threads in (1, 3):
        engine = Engine(threads=threads)
        there = engine.on_device(STRICT)
        assert (engine.devices, there.devices) == ([], ["array_api_strict:cpu"])
        assert summed(engine)[-1] == 0
        assert_array_equal(summed(there), np.append(summed(engine)[:-1], 20))
        assert there.on_device(None).devices == []
    for engine in (Engine(), there):
        assert some_take([Task(len, (engine.placed(OURS),), 1)], Placed) == bool(engine.devices)


def test_a_device_that_is_not_there_is_an_error_before_anything_is_read(monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="device='cuda' needs torch, which is not installed: pip install torch"):
        Engine(threads=1).on_device(Device("torch", "cuda"))


class OutOfMemoryError(RuntimeError):
    """As torch and CuPy call it."""


LANDMARKS = KernelRows(Gaussian(1.0), np.zeros(3), X[:5])


def test_tiles_are_taller_on_a_device():
    assert tile_height(LANDMARKS) == 2048
    assert tile_height(LANDMARKS.placed(STRICT.place)) == TALLER * 2048


def test_memory_that_is_full_ends_the_run(monkeypatch):
    def full(*_):
        raise OutOfMemoryError("full")

    message = r"the memory of device='array_api_strict:cpu' is full \(full\): use fewer landmarks"
    with pytest.raises(DeviceMemoryError, match=message):
        summed(Engine(threads=2).on_device(STRICT), function=full)
    engine = Engine(threads=1).on_device(STRICT)
    monkeypatch.setattr(Device, "place", full)  # when a value is moved
    with pytest.raises(DeviceMemoryError, match=message):
        summed(engine)


# Plans.


def test_a_plan_counts_the_arrays_of_each_thread_on_a_device():
    D, d, tile = 100, 50, TALLER * 2048
    plan = plan_fit(rows(10**6), FitSpec.checked(size=D, n_components=5), 2, STRICT)
    assert plan.block_rows > tile
    landmarks = [(D, d, 4)]
    tiles = [
        (tile, d, 4),  # as read
        (tile, d, 4),  # without the offset
        (tile, d, 4),  # divided by the scale
        (tile, d + 2, 4),  # shifted
        (tile, d + 2, 4),  # in units of sigma, with two more columns
        (tile, D, 4),  # features
        (tile, D, 4),  # a result before it is stored as features, or squares of features
    ]
    strip = most_of_strip(D)
    sums = [(entries(D), 1, 8), (strip, 1, 4), (strip, 1, 4), (strip, 1, 8)]
    one = sum(a * b * c for a, b, c in [*landmarks, *tiles, *sums])
    assert 2 * one + D * d * 4 <= plan.device_bytes - 2**28 <= 2 * (2 * one + D * d * 4)
    assert plan.device == "array_api_strict:cpu"
    assert "memory of array_api_strict:cpu" in repr(plan)


def test_a_block_on_a_device_needs_no_more_than_planned():
    n, d, D = 2048 * TALLER, 40, 100
    Y = np.random.default_rng(1).normal(size=(n, d)).astype(np.float32)
    features = KernelRows(Gaussian(5.0), np.zeros(d), Y[:D]).placed(STRICT.place)
    tracemalloc.start()
    shifted_sums(features.tiles([Y], n), np.zeros(D), Rounding.unknown(D))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    planned = (
        plan_fit(ArrayRows(Y), FitSpec.checked(size=D, n_components=5, block_rows=n), 1, STRICT).device_bytes - 2**28
    )
    assert planned / 4 < peak < planned


def test_without_a_device_plans_are_as_before_and_with_one_they_grow_with_threads_up_to_four():
    spec = FitSpec.checked(size=500, n_components=5)
    many = rows(10**6)
    before, there = plan_fit(many, spec, 4), [plan_fit(many, spec, threads, STRICT) for threads in (1, 2, 4, 5)]
    assert (before.device, before.device_bytes) == ("", 0)
    needed = [plan.device_bytes for plan in there]
    assert needed[0] < needed[1] < needed[2] == needed[3]
    wide = rows(10**6, 1000)  # of which tiles on a device take more memory here, too
    fit = resolve(spec, wide)
    assert worker_bytes(wide, fit, 4) < worker_bytes(wide, fit, 4, STRICT)
    for method in ("rff", "rff-pca", "exact"):
        few = rows(3000)
        assert (plan_fit(few, FitSpec.checked(method=method, n_components=5), 2, STRICT).device_bytes > 0) == (
            method != "exact"
        )
    exact = plan_fit(rows(10**5), FitSpec.checked(method="exact", n_components=100), 2, STRICT)
    assert exact.device_bytes > 2**28 + 5 * 8 * 10**5 * 110  # the block that is multiplied, and products of two threads
    scores = [plan_transform(many, model(size), None, 2, device=STRICT).device_bytes for size in (100, 1000)]
    assert (
        0 < scores[0] < scores[1] < plan_transform(many, model(1000), None, 2, judged=True, device=STRICT).device_bytes
    )


def test_what_does_not_fit_on_the_device_is_refused(monkeypatch):
    free = 2**28 + 10**8
    monkeypatch.setattr(Device, "free_bytes", lambda self: free)
    engine, many = Engine(threads=1).on_device(STRICT), rows(10**6)
    fit = resolve(FitSpec.checked(size=4000, n_components=5), many)
    with pytest.raises(
        DeviceMemoryError, match=r"this needs \d+ MB on device='array_api_strict:cpu', but only 368 MB are free"
    ):
        check_fits(many, fit, engine, None)
    check_fits(many, resolve(FitSpec.checked(size=100, n_components=5), many), engine, None)
    check_fits(many, fit, Engine(threads=1), None)


def test_device_memory_is_checked_for_as_many_threads_as_compute_at_a_time(monkeypatch):
    monkeypatch.setattr(Device, "free_bytes", lambda self: 3 * 10**6)
    for threads, fits in {1: True, 3: True, 4: False, 64: False}.items():
        engine = Engine(threads=threads)
        engine.check_memory(lambda _: 0, lambda count: count * 10**6)
        engine = engine.on_device(STRICT)
        engine.check_memory(lambda _: 0)
        if fits:
            engine.check_memory(lambda _: 0, lambda count: count * 10**6)
        else:
            with pytest.raises(DeviceMemoryError, match="this needs 4 MB"):
                engine.check_memory(lambda _: 0, lambda count: count * 10**6)


# Workers.


def test_a_worker_checks_its_device_and_the_memory_that_its_threads_need(monkeypatch):
    monkeypatch.setattr(Device, "free_bytes", lambda self: 3 * 10**6)
    needs = tuple(count * 10**6 for count in range(1, AT_ONCE + 1))
    for threads, fits in {1: True, 3: True, 4: False, 64: False}.items():
        worker = SimpleNamespace(state=SimpleNamespace(nthreads=threads))
        with nullcontext() if fits else pytest.raises(DeviceMemoryError, match="this needs 4 MB"):
            _check_device("array_api_strict", needs, worker)
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="device='cupy:cuda:0' needs cupy, which is not installed"):
        _check_device("cupy", (), None)


@pytest.mark.full
def test_a_cluster_computes_the_same_and_a_worker_without_the_device_is_named(two_processes):
    there = two_processes.on_device(STRICT)
    assert_array_equal(summed(there), summed(Engine(threads=1).on_device(STRICT)))
    with pytest.raises(SpecError, match=r"worker t[cl][ps]://.*: device='xpu:7' (needs torch|cannot be used)"):
        there.on_device(Device("torch", "xpu:7"))
    there.check_memory(lambda threads: 0, lambda threads: threads)
    assert there.on_device(None).devices == []


WITHOUT = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *given: None if name == "array_api_strict" else real(name, *given)
"""


def where(rows, block, weights):
    """The worker that computes a block."""
    return {str(get_worker().address)}


def worked(engine):
    """The workers that compute a pass."""
    tasks = block_tasks(where, ArrayRows(X), split(len(X), 500), [engine.placed(OURS)])
    return set().union(*engine.each("x", tasks))


@pytest.mark.full
def test_where_workers_declare_a_gpu_only_these_compute_on_a_device(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    with DaskProcesses(tmp_path / "cluster", 0) as cluster:
        cluster.start_worker(PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
        cluster.wait_for_workers()
        with open_engine(cluster.address, timeout=60) as engine:
            (without,) = engine.client.scheduler_info(n_workers=-1)["workers"]
            with pytest.raises(SpecError, match=rf"worker {without}: device='array_api_strict:cpu' needs"):
                engine.on_device(STRICT)
            cluster._options = ["--resources", "GPU=1"]
            cluster.start_worker()
            cluster.wait_for_workers()
            known = engine.client.scheduler_info(n_workers=-1)["workers"]
            (gpu,) = [address for address, worker in known.items() if worker["resources"]]
            assert worked(engine.on_device(STRICT)) == {gpu}
            assert_array_equal(summed(engine.on_device(STRICT)), summed(Engine(threads=1).on_device(STRICT)))
            assert worked(engine) == {gpu, without}
