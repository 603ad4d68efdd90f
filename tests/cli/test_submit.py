"""Commands that run on a cluster itself: they outlive whoever submitted them, and the workers that drive them."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import bigkpca
from tests.helpers import worker_faults
from tests.helpers.commands import run
from tests.helpers.dask_processes import DaskProcesses, wait_until
from tests.helpers.disks import tree_bytes
from tests.helpers.stores import as_zarr
from tests.helpers.worker_faults import NAME, Fault, happened

pytestmark = pytest.mark.full
FIT = ["fit", "x.zarr", "m.zarr", "--size", "50"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with DaskProcesses(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        yield cluster


@pytest.fixture
def rows(tmp_path, monkeypatch):
    as_zarr(tmp_path, np.random.default_rng(0).normal(size=(5000, 8)), (500, 8), "x.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def jobs(cluster):
    lines = run("jobs", "--scheduler", cluster.address, "--json").stdout.splitlines()
    return {each["name"]: each for each in map(json.loads, lines)}


def test_a_command_runs_on_a_worker_and_is_listed(cluster, rows):
    found = run("submit", "--scheduler", cluster.address, "--name", "one", "--wait", *FIT)
    assert found.exit_code == 0, found.output
    assert "fitting: 5,000 rows in " in found.stderr
    assert f"path        {rows}/m.zarr" in found.stderr
    bigkpca.fit("x.zarr", "here.zarr", size=50)
    assert tree_bytes(rows / "m.zarr") == tree_bytes(rows / "here.zarr")
    about = jobs(cluster)["one"]
    assert (about["state"], about["exit_code"]) == ("finished", 0)
    assert about["command"] == "fit x.zarr m.zarr --size 50"
    assert "one" in run("jobs", "--scheduler", cluster.address).stdout


def test_what_cannot_run_is_refused_at_once_or_fails_with_its_own_exit_code(cluster, rows):
    for words, message in (
        (["frobnicate"], "No such command 'frobnicate'"),
        (["jobs"], "No such command 'jobs' to submit"),
        (["fit", "--bad", "x.zarr", "m.zarr"], "No such option '--bad'"),
        (["fit", "x.zarr"], "Missing argument 'MODEL'"),
        (["fit", "x.zarr", "m.zarr", "--scheduler", "tcp://10.0.0.1:1"], "Give --scheduler once, before the command"),
    ):
        found = run("submit", "--scheduler", cluster.address, *words)
        assert (found.exit_code, message in found.output) == (2, True), found.output
    assert "give the address of the cluster" in run("submit", "info", "m.zarr").stderr
    found = run("submit", "--scheduler", cluster.address, "--name", "bad", "--wait", "fit", "nothing.npy", "m.zarr")
    assert found.exit_code == 2
    assert "nothing.npy does not exist" in found.stderr
    about = jobs(cluster)["bad"]
    assert about["state"] == "failed"
    assert "nothing.npy does not exist" in about["message"]
    assert run("jobs", "--scheduler", cluster.address, "--wait", "bad").exit_code == 2
    again = run("submit", "--scheduler", cluster.address, "--name", "bad", "info", "m.zarr")
    assert (again.exit_code, "bad is the name of an earlier submitted command" in again.stderr) == (2, True)
    unknown = run("jobs", "--scheduler", cluster.address, "--wait", "nobody")
    assert (unknown.exit_code, "nobody is not the name of a command" in unknown.stderr) == (2, True)


def test_a_fit_that_needs_more_memory_than_its_worker_has_is_refused_before_it_starts(rows):
    with DaskProcesses(rows / "cluster", 0) as cluster:
        cluster.start_worker(memory="300MB")
        words = ["--name", "large", "--wait", "fit", "x.zarr", "m.zarr", "--size", "4000"]
        found = run("submit", "--scheduler", cluster.address, *words)
        assert found.exit_code == 4, found.output
        assert "but 300 MB are allowed" in found.stderr
        assert "sampling" not in found.stderr
        assert [path.name for path in rows.iterdir() if path.name.startswith("m.zarr.")] == []


def test_a_command_goes_on_at_another_worker_and_gives_up_when_all_of_them_died(rows):
    env = {NAME: str(rows / "fault"), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    Fault("computing", "killed").arm(rows)
    with DaskProcesses(rows / "cluster", 2, ["--preload", worker_faults.__file__], env) as cluster, cluster.revived():
        where = ["--scheduler", cluster.address, "--name"]
        assert run("submit", *where, "moves", "--wait", *FIT).exit_code == 0
        assert len(happened(rows)) == 1
        bigkpca.fit("x.zarr", "here.zarr", size=50)
        assert tree_bytes(rows / "m.zarr") == tree_bytes(rows / "here.zarr")
        Fault("computing", "killed", times=100).arm(rows)
        assert run("submit", *where, "kills", "--wait", "fit", "x.zarr", "n.zarr").exit_code == 6
        assert jobs(cluster)["kills"]["state"] == "failed"


def test_whoever_waits_is_told_when_the_scheduler_goes_away(rows):
    with DaskProcesses(rows / "cluster", 0) as cluster:  # no worker: it waits
        words = ["submit", "--scheduler", cluster.address, "--name", "waits", "--wait", "info", "x.zarr"]
        # Dask looks for a scheduler that is gone for 30 seconds by default.
        env = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s"}
        command = [sys.executable, "-m", "bigkpca.cli", *words]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as waiting:
            wait_until(lambda: "waits" in jobs(cluster))
            assert jobs(cluster)["waits"]["state"] == "waiting"
            cluster.scheduler.send_signal(signal.SIGKILL)
            _, lines = waiting.communicate(timeout=120)
    assert waiting.returncode == 6
    assert "the scheduler is gone" in lines
    assert "submit the same command again" in lines
