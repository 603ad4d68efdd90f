"""Engines as a fixture axis, data sets, and LocalClusters that all tests of a process share."""

import fcntl
import os
import secrets
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import settings as hypothesis_settings
from sklearn.datasets import load_digits

import bigkpca
from bigkpca.data.stores import clients
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from tests.helpers.cuts import Steps
from tests.helpers.fits import OPTIONS
from tests.helpers.s3 import BUCKET, Server, settings

# A shell that runs tests in the background has them ignore SIGINT, and what they start would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of processes, each of which would compile all modules that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How many examples Hypothesis draws: few by default, more with `--hypothesis-profile=full` in `.ci/run`, the same in
# each run; others each time with `--hypothesis-profile=long` in `.ci/long`.
hypothesis_settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
hypothesis_settings.register_profile("full", max_examples=200, deadline=None, derandomize=True)
hypothesis_settings.register_profile("long", max_examples=2000, deadline=None)
hypothesis_settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Tests marked `alone` wait until those of other processes end, and these for them."""
    if not hasattr(item.config, "workerinput"):  # the only process
        return (yield)
    how = fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH
    with (Path(item.config.option.basetemp).parent / "alone.lock").open("w") as file:
        fcntl.flock(file, how)
        return (yield)


@pytest.fixture(scope="session")
def digits():
    """The 1797 digits of scikit-learn, (1797, 64), uint8."""
    return load_digits().data.astype(np.uint8)


@pytest.fixture(scope="session")
def two_processes():
    with open_engine(workers=2) as engine:
        yield engine


@pytest.fixture(scope="session")
def three_processes():
    with open_engine(workers=3) as engine:
        yield engine


@pytest.fixture(scope="module")
def cluster_elsewhere(tmp_path_factory):
    """A cluster of other processes, as the one of `--scheduler`: two workers with two threads each."""
    from tests.helpers.dask_processes import DaskProcesses  # which imports Dask, and that sets up loggers

    folder, threads = tmp_path_factory.mktemp("cluster"), ["--nthreads", "2"]
    with DaskProcesses(folder, 2, threads) as cluster, open_engine(cluster.address) as engine:
        yield engine


@pytest.fixture(params=["synchronous", "threads", "processes"])
def engine(request):
    """Everywhere that tasks run."""
    if request.param == "processes":
        return request.getfixturevalue("two_processes")
    return Engine(threads=1 if request.param == "synchronous" else 2)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """One S3 server for all tests of a process."""
    server = Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def use_s3(monkeypatch):
    """Makes this process, and those it starts, speak with the S3 server on a port, with these credentials."""

    def use(port, **credentials):
        for name, value in settings(port, **credentials).items():
            monkeypatch.setenv(name, value)
        clients.client.cache_clear()

    yield use
    clients.client.cache_clear()


@pytest.fixture
def bucket(s3_server, use_s3):
    """The URL of an empty folder in a bucket."""
    use_s3(s3_server.port)
    return f"s3://{BUCKET}/{secrets.token_hex(4)}"


@pytest.fixture(params=["local", pytest.param("objects", marks=pytest.mark.full)])
def root(request, tmp_path):
    """A folder where nothing is, in both kinds of stores."""
    return str(tmp_path / "root") if request.param == "local" else request.getfixturevalue("bucket")


@pytest.fixture
def steps(monkeypatch):
    """Cuts runs off at a step: a change of a local disk, or a request to an object store."""
    return Steps(monkeypatch)


@pytest.fixture(scope="session")
def written_once(tmp_path_factory, digits):
    """A folder with the dataset and the model that `dataset` and `model` copy."""
    folder = tmp_path_factory.mktemp("once")
    array = zarr.create_array(folder / "digits.zarr", shape=digits.shape, dtype=digits.dtype, chunks=(100, 64))
    array[:] = digits
    bigkpca.fit(str(folder / "digits.zarr"), str(folder / "model.zarr"), **OPTIONS)
    return folder


@pytest.fixture
def dataset(tmp_path, written_once):
    """All digits in a Zarr array of 18 chunks."""
    return str(shutil.copytree(written_once / "digits.zarr", tmp_path / "digits.zarr"))


@pytest.fixture
def model(tmp_path, dataset, written_once):
    """A model of `dataset` on disk."""
    return str(shutil.copytree(written_once / "model.zarr", tmp_path / "model.zarr"))


@pytest.fixture
def quiet_signals(monkeypatch):
    """Commands set handlers for their own process; here it is the tests'."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("warnings.showwarning", lambda *_: None)
    monkeypatch.setitem(os.environ, "DASK_LOGGING", "{}")  # what a command sets for its workers ends with the test
