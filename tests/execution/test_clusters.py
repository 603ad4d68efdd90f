"""Clusters: which one is used, and what they are told of their workers."""

import subprocess
import sys

import pytest

from bigkpca.execution.clusters import open_engine
from bigkpca.execution.tasks import Task

_SCRIPT = """
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.tasks import Task
from bigkpca.execution.progress import Progress
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


def test_a_current_client_is_used(two_processes):
    with two_processes.client.as_current(), open_engine() as engine:
        assert engine.client is two_processes.client
    with open_engine() as engine:
        assert engine.client is None
