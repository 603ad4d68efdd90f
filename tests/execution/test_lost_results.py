"""Workers that die while they hold results, or before they answer: neither is the scheduler's end, nor an error."""

import os
import signal
import time
from dataclasses import replace

import pytest
from distributed.comm import CommClosedError

from bigkpca.errors import IncompleteError
from bigkpca.execution import on_cluster
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.tasks import Task
from bigkpca.execution.workers import Crew, on_workers, sight_of
from tests.helpers.dask_processes import DaskProcesses, wait_until

pytestmark = pytest.mark.long


@pytest.fixture
def client(tmp_path):
    with DaskProcesses(tmp_path, 2) as cluster, cluster.client() as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def double(number):
    time.sleep(0.2)  # so that it is seen while it is computed again
    return 2 * number


def test_a_result_that_is_lost_with_its_worker_is_computed_again(client, monkeypatch):
    real, killed = on_cluster._result, list[str]()

    def after_a_death(run, future):
        if not killed:
            ((worker, *_),) = client.who_has([future]).values()
            killed.append(worker)
            os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
            wait_until(lambda: future.status == "lost")
        return real(run, future)

    monkeypatch.setattr(on_cluster, "_result", after_a_death)
    tasks = [Task(double, (number,), 1) for number in range(8)]
    assert Engine(client=client).each("doubling", tasks, Silent()) == [2 * number for number in range(8)]
    assert killed


def test_results_that_are_lost_with_all_workers_end_the_run(client, monkeypatch):
    real, killed = on_cluster._result, dict[str, int]()

    def after_all_deaths(run, future):
        if not killed:
            killed.update(client.run(os.getpid))
            for worker in killed.values():
                os.kill(worker, signal.SIGKILL)
            wait_until(lambda: not client.scheduler_info()["workers"])
        return real(run, future)

    monkeypatch.setattr(on_cluster, "_result", after_all_deaths)
    engine = Engine(client=client, timeout=2)
    hangs = "no worker is connected to the scheduler|tcp:.* works on"  # which may have been started again by then
    with pytest.raises(IncompleteError, match=f"nothing has finished for 2 seconds: ({hangs})"):
        engine.each("doubling", [Task(double, (1,), 1)], Silent())


def die_in_one(first, dask_worker=None):
    if dask_worker.address == first:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def test_a_worker_that_dies_before_it_answers_is_left_out(client):
    first, other = sorted(client.scheduler_info()["workers"])
    assert list(on_workers(client, 30, die_in_one, first, workers=[first, other])) == [other]


def test_checks_pass_over_workers_that_go_away(client, monkeypatch):
    gone, run = CommClosedError("in <TCP (closed)>"), client.run
    monkeypatch.setattr(client, "run", lambda *given, **how: run(*given, **how) | {"tcp://127.0.0.1:1": gone})
    crew = Crew()
    crew.look(client, 30)
    crew.require(client, 30, replace(crew.requirements, sights=(sight_of("/"),)))
    assert not crew.unfit
