"""Passes on a device: values that are moved once in each process, memory that is planned or runs out, and workers of
which some have no device. The device is array_api_strict, which computes in host memory."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import Any
from unittest.mock import Mock

import array_api_strict
import numpy as np
import pytest
from dask.base import tokenize
from distributed import get_worker
from numpy.testing import assert_array_equal

from bigkpca.data.devices import Device
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import MemoryLimitError, SpecError
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine, sum_by_block
from bigkpca.execution.plan import worker_bytes
from bigkpca.execution.tasks import Placed, Task, some_take
from bigkpca.spec import FitSpec, resolve
from tests.data.cases import refused
from tests.data.test_devices import OutOfMemoryError
from tests.execution.test_plan import rows
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
    moved, place, start = [], Device.place, Barrier(20)

    def slowly(self, X):
        moved.append(1)
        sleep(0.05)  # in which other threads ask
        return place(self, X)

    monkeypatch.setattr(Device, "place", slowly)
    placed = Placed(OURS, STRICT)
    assert not moved
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: (start.wait(60), placed.value)[1], range(20)))
    assert len(moved) == len(set(map(id, found))) == 1
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
    devices = (STRICT, Device("torch", "cuda"))
    assert len({tokenize(Placed(Weights(value), device)) for value in (many, one) for device in devices}) == 4


def weighted(rows, block, weights):
    """Sums of the rows of a block times weights, and whether they were on a device."""
    tile = rows.block(block.start, block.stop)
    if type(weights.values) is np.ndarray:
        return np.append(tile.T @ (tile @ weights.values), 0)
    strict = array_api_strict.asarray(tile)
    return np.append(np.asarray(strict.T @ (strict @ weights.values)), 1)


def summed(engine):
    return sum_by_block("adding", weighted, ArrayRows(X), (engine.placed(OURS),), 1024, engine)


@pytest.mark.parametrize("threads", [1, 3])
def test_tasks_of_placed_values_compute_there(threads):
    engine = Engine(threads=threads)
    there = engine.on_device(STRICT)
    assert (engine.devices, there.devices, there.on_device(None).devices) == ([], ["array_api_strict:cpu"], [])
    assert summed(engine)[-1] == 0
    assert_array_equal(summed(there), np.append(summed(engine)[:-1], 20))
    assert engine.placed(OURS) is OURS
    assert [some_take([Task(len, (each.placed(OURS),), 1)], Placed) for each in (engine, there)] == [False, True]


def test_memory_that_is_full_when_a_value_is_moved_ends_the_run(monkeypatch):
    engine = Engine(threads=2).on_device(STRICT)
    monkeypatch.setattr(Device, "place", Mock(side_effect=OutOfMemoryError("full")))
    refused(summed, (engine, MemoryLimitError, r"memory of device='array_api_strict:cpu' is full \(full\): use fewer"))


def test_plans_count_taller_tiles_in_host_memory_where_a_device_computes():
    wide = rows(10**6, 1000)
    fit = resolve(FitSpec.checked(size=500, n_components=5), wide)
    assert worker_bytes(wide, fit, 4) < worker_bytes(wide, fit, 4, STRICT)


# Workers.


@pytest.mark.full
def test_a_cluster_computes_the_same_and_a_worker_without_the_device_is_named(two_processes):
    there = two_processes.on_device(STRICT)
    assert_array_equal(summed(there), summed(Engine(threads=1).on_device(STRICT)))
    message = r"worker t[cl][ps]://.*: device='xpu:7' (needs torch|cannot be used)"
    refused(there.on_device, (Device("torch", "xpu:7"), SpecError, message))


WITHOUT = """
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *given: None if name == "array_api_strict" else real(name, *given)
"""


def worked(engine):
    """The workers that compute a pass."""
    tasks = [Task(lambda _: get_worker().address, (engine.placed(OURS),), 1)] * 40
    return set(engine.each("x", tasks))


@pytest.mark.full
def test_where_workers_declare_a_gpu_only_these_compute_on_a_device(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    with DaskProcesses(tmp_path / "cluster", 0) as cluster:
        cluster.start_worker(PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
        cluster.wait_for_workers()
        with open_engine(cluster.address, timeout=60) as engine:
            (without,) = engine.client.scheduler_info(n_workers=-1)["workers"]
            message = rf"worker {without}: device='array_api_strict:cpu' needs"
            refused(engine.on_device, (STRICT, SpecError, message))
            cluster._options = ["--resources", "GPU=1"]
            cluster.start_worker()
            cluster.wait_for_workers()
            known = engine.client.scheduler_info(n_workers=-1)["workers"]
            (gpu,) = [address for address, worker in known.items() if worker["resources"]]
            assert worked(engine.on_device(STRICT)) == {gpu}
            assert worked(engine) == {gpu, without}
