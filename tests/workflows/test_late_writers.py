"""A worker that is cut off inside a block, and goes on after its run ended, touches nothing published since."""

import os
import pathlib
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import psutil
import pytest
from distributed import Client, LocalCluster

import bigkpca
from bigkpca.errors import LockedError
from tests.helpers.dask_processes import wait_until
from tests.helpers.disks import tree_bytes


def stop_inside_block_one(folder, moment):
    """Make this worker stop itself while it writes block 1: before it looks at the claim, or before Zarr renames the
    chunk."""
    from bigkpca.storage.output import Output

    holder, name = (Output, "write") if moment == "before it writes" else (pathlib.Path, "replace")
    real = getattr(holder, name)

    def stopping(*arguments):
        late = any(str(each).endswith("/scores/c/1/0") or getattr(each, "number", 0) == 1 for each in arguments)
        if not late or (folder / "pid").exists():
            return real(*arguments)
        (folder / "new").write_text(str(os.getpid()))
        (folder / "new").rename(folder / "pid")  # which is never seen empty
        os.kill(os.getpid(), signal.SIGSTOP)
        while not (folder / "go").exists():  # another thread may take the signal, and this one goes on a while
            time.sleep(0.01)
        with suppress(OSError, LockedError):
            real(*arguments)
        (folder / "woke").touch()
        return None

    setattr(holder, name, stopping)


@contextmanager
def cut_off(moment, tmp_path, model, dataset):
    """A transform to scores.zarr whose driver was killed while one of its workers stood still inside block 1; a
    function that wakes this worker, and waits until it has written or been refused."""
    signs = tmp_path / "signs"
    signs.mkdir()
    command = [sys.executable, "-m", "bigkpca.cli", "transform", model, dataset, str(tmp_path / "scores.zarr")]
    local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(**local) as cluster:
        with Client(cluster, set_as_default=False) as client:
            client.run(stop_inside_block_one, signs, moment)
        options = ["--block-rows", "200", "--scheduler", cluster.scheduler_address, "-q"]
        with subprocess.Popen([*command, *options]) as driver:
            try:
                wait_until((signs / "pid").exists)
                worker = psutil.Process(int((signs / "pid").read_text()))
                wait_until(lambda: worker.status() == psutil.STATUS_STOPPED)
            finally:
                driver.kill()

        def wake():
            (signs / "go").touch()
            worker.resume()
            wait_until((signs / "woke").exists)

        try:
            yield wake
        finally:
            wake()


@pytest.mark.parametrize(
    ("moment", "other"),
    [
        pytest.param("before it writes", True, marks=pytest.mark.long),
        pytest.param("before it renames", True, marks=pytest.mark.full),
        pytest.param("before it writes", False, marks=pytest.mark.full),
        pytest.param("before it renames", False, marks=pytest.mark.long),
    ],
)
def test_a_late_block_touches_nothing_that_was_published_since(moment, other, model, dataset, tmp_path):
    """Whether the same command finished the output, or one of another model."""
    out, clean, by = tmp_path / "scores.zarr", tmp_path / "clean.zarr", model
    if other:
        bigkpca.fit(dataset, by := tmp_path / "other.zarr", n_components=7, size=60)
    with cut_off(moment, tmp_path, model, dataset) as wake:
        bigkpca.transform(by, dataset, out, block_rows=200, overwrite=other)
        stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        wake()
        assert not list(tmp_path.glob("scores.zarr.*"))
    bigkpca.transform(by, dataset, out, block_rows=200)  # which has nothing to do
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == stamps
    bigkpca.transform(by, dataset, clean, block_rows=200)
    assert tree_bytes(out) == tree_bytes(clean)
    assert not list(tmp_path.glob("scores.zarr.*"))
