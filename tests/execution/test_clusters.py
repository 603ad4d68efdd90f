"""Clusters: which one is used, and what they are told of their workers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster

from bigkpca.errors import SpecError, UnlikeWorkersWarning
from bigkpca.execution.blas import blas_core_types
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.tasks import Task

_SCRIPT = """
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.tasks import Task
from bigkpca.execution.progress import Silent

print("the script runs", flush=True)

def double(number):
    return 2 * number

with open_engine(workers=1) as engine:
    print(engine.each("doubling", [Task(double, (21,), 1)], Silent()))
    engine.client.restart()  # as after a worker that died
    print(engine.each("doubling", [Task(double, (21,), 1)], Silent()))
print(__file__)
"""


@pytest.mark.cluster
def test_workers_do_not_run_the_script_that_starts_them(tmp_path: Path) -> None:
    """Nothing has to stand behind `if __name__ == "__main__"`, and what the script defines reaches them."""
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert found.stdout.splitlines() == ["the script runs", "[42]", "[42]", str(script)]
    assert "Traceback" not in found.stderr
    assert found.returncode == 0


@pytest.mark.cluster
def test_processes_start_without_the_library_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigkpca.execution.clusters.find_spec", lambda name: None)
    with open_engine(workers=1) as engine:
        assert engine.client is not None
        assert engine.client.scheduler.address.startswith("tcp://")
        assert engine.each("halving", [Task(divmod, (42, 2), 1)], Silent()) == [(21, 0)]


def test_one_of_scheduler_and_workers() -> None:
    with pytest.raises(SpecError, match="not both"), open_engine("tcp://127.0.0.1:1", 2):
        pass


def test_a_current_client_is_used(two_processes: Engine) -> None:
    assert two_processes.client is not None
    with two_processes.client.as_current(), open_engine() as engine:
        assert engine.client is two_processes.client
    with open_engine() as engine:
        assert engine.client is None


@pytest.fixture
def unlike_workers() -> Iterator[Client]:
    """Two workers whose BLAS computes for other processors."""
    here = blas_core_types()
    other = "Nehalem" if "Nehalem" not in here else "Prescott"
    workers = {
        number: {"cls": Nanny, "options": {"nthreads": 1, "env": {"OPENBLAS_CORETYPE": name} if name else {}}}
        for number, name in enumerate(["", other])
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "port": 0, "host": "127.0.0.1"}}
    with (
        SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        if len(set(client.run(blas_core_types).values())) == 1:
            pytest.skip("BLAS does not let its processor type be chosen here")
        yield client


@pytest.mark.cluster
def test_a_cluster_of_unlike_workers_is_told_of_once(unlike_workers: Client) -> None:
    with unlike_workers.as_current():
        with (
            pytest.warns(
                UnlikeWorkersWarning, match=r"different processors: .* \(1, e\.g\. tcp://.*same OPENBLAS_CORETYPE"
            ),
            open_engine(),
        ):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with open_engine() as engine:
                assert engine.client is unlike_workers
