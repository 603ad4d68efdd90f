"""Clusters: which one is used, and what they are told of their workers."""

import logging
import subprocess
import sys
from threading import Event
from unittest.mock import Mock

import distributed
import pytest

from bigkpca.errors import IncompleteError
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.tasks import Task
from tests.helpers.dask_processes import wait_until
from tests.helpers.progress import Recorder

_SCRIPT = """
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.tasks import Task
from bigkpca.execution.progress import Silent
print("the script runs", flush=True)
def double(number):
    return 2 * number
with open_engine(workers=1) as engine:
    print(engine.each("doubling", [Task(double, (21,), 1)]))
    engine.client.restart(timeout="250 s")  # as after a worker that died
    print(engine.each("doubling", [Task(double, (21,), 1)]))
print(__file__)
"""


@pytest.mark.full
def test_a_process_that_ends_at_once_warns_of_nothing_that_its_workers_hold():
    code = (
        "import os; from bigkpca.execution.clusters import open_engine; open_engine(workers=2).__enter__(); os._exit(6)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280)
    assert found.returncode == 6
    assert "resource_tracker" not in found.stderr


@pytest.mark.full
def test_workers_do_not_run_the_script_that_starts_them(tmp_path):
    """Nothing has to stand behind `if __name__ == "__main__"`, and what the script defines reaches them."""
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280)
    assert found.stdout.splitlines() == ["the script runs", "[42]", "[42]", str(script)]
    assert "Traceback" not in found.stderr
    assert found.returncode == 0


@pytest.mark.full
def test_processes_start_without_the_library_for_tls(monkeypatch):
    monkeypatch.setattr("bigkpca.execution.clusters.find_spec", lambda name: None)
    with open_engine(workers=1) as engine:
        assert engine.client.scheduler.address.startswith("tcp://")
        assert engine.each("halving", [Task(divmod, (42, 2), 1)]) == [(21, 0)]


@pytest.mark.full
def test_dask_says_nothing_of_a_cluster_that_is_slow_to_close(monkeypatch, caplog):
    """As where a worker has a long task: this process waits no more, and the cluster closes behind it."""
    left, closed, real = Event(), Event(), distributed.LocalCluster.close
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("nanny", "scheduler")]

    def close(cluster, timeout=None):
        left.wait(60)
        for logger in loggers:
            logger.error("a worker is still alive")
        real(cluster, timeout)
        closed.set()

    monkeypatch.setattr(distributed.LocalCluster, "close", close)
    monkeypatch.setattr("bigkpca.execution.clusters._CLOSE_SECONDS", 0.1)
    before = [logger.level for logger in loggers]
    with open_engine(workers=1):
        pass
    left.set()
    assert closed.wait(60)
    wait_until(lambda: [logger.level for logger in loggers] == before)
    assert "still alive" not in caplog.text


@pytest.mark.full
def test_a_scheduler_that_refuses_connections_is_tried_again_but_not_for_ever(two_processes, monkeypatch):
    """As one that starts at the same time."""
    tried, recorder, real = [], Recorder(), distributed.Client

    def refused(address, **options):
        tried.append(address)
        if len(tried) < 2:
            raise OSError("refused")
        return real(two_processes.client.scheduler.address, security=two_processes.client.security, **options)

    monkeypatch.setattr(distributed, "Client", refused)
    with open_engine("tcp://127.0.0.1:1", progress=recorder) as engine:
        assert engine.each("halving", [Task(divmod, (42, 2), 1)]) == [(21, 0)]
    assert tried == ["tcp://127.0.0.1:1"] * 2
    (note,) = [note for note in recorder.notes if "retrying" in note]
    assert note == "the scheduler at tcp://127.0.0.1:1 does not answer: retrying for 60 seconds"
    message = r"scheduler at tcp://127.0.0.1:1 does not answer: start one there, or correct the address \(refused\)"
    for error in (OSError, ValueError):
        monkeypatch.setattr(distributed, "Client", Mock(side_effect=error("refused")))
        with pytest.raises(IncompleteError, match=message), open_engine("tcp://127.0.0.1:1", timeout=0):
            pass


def test_a_current_client_is_used(two_processes):
    with two_processes.client.as_current(), open_engine() as engine:
        assert engine.client is two_processes.client
    with open_engine() as engine:
        assert engine.client is None
