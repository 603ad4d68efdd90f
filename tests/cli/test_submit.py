"""Commands that run on a cluster itself: they outlive whoever submitted them, and the workers that drive them."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from click.testing import CliRunner

import bigkpca
from bigkpca.cli import main
from bigkpca.errors import SpecError
from tests.helpers.dask_processes import DaskProcesses, wait_until
from tests.helpers.disks import tree_bytes

pytestmark = pytest.mark.full
BY_LINES = [sys.executable, "-m", "bigkpca.cli"]
FIT = ["fit", "x.npy", "m.zarr", "--size", "50"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with DaskProcesses(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        yield cluster


@pytest.fixture
def rows(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(5000, 8)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoked(*words):
    return CliRunner().invoke(main, list(words))


def jobs(cluster):
    lines = invoked("jobs", "--scheduler", cluster.address, "--json").stdout.splitlines()
    return {each["name"]: each for each in map(json.loads, lines)}


def children(process):
    """The processes that a process started, which are alive."""
    found = subprocess.run(["ps", "-o", "pid=,stat=", "--ppid", str(process.pid)], capture_output=True, text=True)
    return [int(pid) for pid, stat in map(str.split, found.stdout.splitlines()) if not stat.startswith("Z")]


def is_alive(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_a_command_runs_where_it_was_submitted_and_is_listed(cluster, rows):
    found = invoked("submit", "--scheduler", cluster.address, "--name", "one", "--wait", *FIT)
    assert found.exit_code == 0, found.output
    assert f"running on {cluster.address}" in found.stderr
    assert "path        m.zarr" in found.stderr
    bigkpca.fit("x.npy", "here.zarr", size=50)
    assert tree_bytes(rows / "m.zarr") == tree_bytes(rows / "here.zarr")
    about = jobs(cluster)["one"]
    assert (about["state"], about["exit_code"], about["command"]) == ("finished", 0, "fit x.npy m.zarr --size 50")
    assert about["progress"].startswith("fitting: 5,000 rows in ")
    table = invoked("jobs", "--scheduler", cluster.address).stdout
    assert "one" in table
    assert "fitting: 5,000 rows" in table
    assert bigkpca.submit(["info", "m.zarr"], scheduler=cluster.address).result(timeout=60) == 0


def test_what_cannot_run_is_refused_at_once_or_fails_with_its_own_exit_code(cluster, rows):
    for words, message in (
        (["frobnicate"], "No such command 'frobnicate'"),
        (["jobs"], "No such command 'jobs' to submit"),
        (["fit", "--bad", "x.npy", "m.zarr"], "No such option '--bad'"),
        (["fit", "x.npy", "m.zarr", "--scheduler", "tcp://10.0.0.1:1"], "Give --scheduler once, before the command"),
    ):
        found = invoked("submit", "--scheduler", cluster.address, *words)
        assert (found.exit_code, message in found.output) == (2, True), found.output
        with pytest.raises(SpecError, match=message):
            bigkpca.submit(words, scheduler=cluster.address)
    assert "give the address of the cluster" in invoked("submit", "info", "m.zarr").stderr
    found = invoked("submit", "--scheduler", cluster.address, "--name", "bad", "--wait", "fit", "nothing.npy", "m.zarr")
    assert found.exit_code == 2
    assert "nothing.npy does not exist" in found.stderr
    assert jobs(cluster)["bad"]["state"] == "failed"
    assert invoked("jobs", "--scheduler", cluster.address, "--wait", "bad").exit_code == 2
    again = invoked("submit", "--scheduler", cluster.address, "--name", "bad", "info", "m.zarr")
    assert (again.exit_code, "bad is the name of an earlier submitted command" in again.stderr) == (2, True)
    unknown = invoked("jobs", "--scheduler", cluster.address, "--cancel", "nobody")
    assert (unknown.exit_code, "nobody is not the name of a command" in unknown.stderr) == (2, True)


def test_a_command_goes_on_at_another_worker_and_its_first_process_ends(rows):
    with DaskProcesses(rows / "cluster", 2) as cluster:
        invoked("submit", "--scheduler", cluster.address, "--name", "moves", *FIT)
        wait_until(lambda: any(children(worker) for worker in cluster.workers))
        driven = next(number for number, worker in enumerate(cluster.workers) if children(worker))
        (process,) = children(cluster.workers[driven])
        cluster.kill_worker(driven)
        assert invoked("jobs", "--scheduler", cluster.address, "--wait", "moves").exit_code == 0
        wait_until(lambda: not is_alive(process))
    bigkpca.fit("x.npy", "here.zarr", size=50)
    assert tree_bytes(rows / "m.zarr") == tree_bytes(rows / "here.zarr")


def test_a_command_that_kills_all_its_workers_has_failed(rows):
    env = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with DaskProcesses(rows / "cluster", 1, env=env) as cluster:
        invoked("submit", "--scheduler", cluster.address, "--name", "kills", *FIT)
        wait_until(lambda: children(cluster.workers[0]))
        cluster.kill_worker(0)
        assert invoked("jobs", "--scheduler", cluster.address, "--wait", "kills").exit_code == 6
        assert jobs(cluster)["kills"]["message"] == "the workers that ran it died, one after another"


def test_a_command_that_is_cancelled_stops_as_ctrl_c_stops_it(cluster, rows):
    np.save("many.npy", np.random.default_rng(0).normal(size=(60_000, 30)).astype("f4"))
    invoked(
        "submit", "--scheduler", cluster.address, "--name", "long", "fit", "many.npy", "m.zarr", "--method", "exact"
    )
    wait_until(lambda: "running on" in jobs(cluster)["long"]["message"])
    assert invoked("jobs", "--scheduler", cluster.address, "--cancel", "long").exit_code == 0
    assert invoked("jobs", "--scheduler", cluster.address, "--wait", "long").exit_code == 6
    about = jobs(cluster)["long"]
    assert (about["state"], about["message"]) == (
        "cancelled",
        "bigkpca: stopped; no partial output was published: rerun the same command to resume",
    )
    assert not (rows / "m.zarr").exists()


def test_whoever_waits_is_told_when_the_scheduler_goes_away(rows):
    with DaskProcesses(rows / "cluster", 0) as cluster:  # no worker: it waits
        command = [*BY_LINES, "submit", "--scheduler", cluster.address, "--name", "waits", "--wait", "info", "x.npy"]
        # Dask looks for a scheduler that is gone for 30 seconds by default.
        env = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s"}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as waiting:
            wait_until(lambda: "waits" in jobs(cluster))
            assert jobs(cluster)["waits"]["state"] == "waiting"
            cluster.scheduler.send_signal(signal.SIGKILL)
            _, lines = waiting.communicate(timeout=120)
    assert waiting.returncode == 6
    assert "the scheduler is gone" in lines
    assert "submit the same command again" in lines
