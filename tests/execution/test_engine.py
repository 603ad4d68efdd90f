"""Where tasks run changes nothing: order, sums, limits, progress, errors."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster
from threadpoolctl import threadpool_info

from bigkpca.errors import DataError, MemoryLimitError, SpecError, UnlikeWorkersWarning
from bigkpca.execution.blas import blas_core_types, single_threaded_blas
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine, Task, shared
from bigkpca.execution.units import parse_bytes, parse_seconds
from tests.helpers.progress import Recorder


@dataclass(frozen=True)
class Bracket:
    """Records the shape of a sum."""

    text: str

    def __add__(self, other: Bracket) -> Bracket:
        return Bracket(f"({self.text}+{other.text})")


def late_when_even(number: int) -> Bracket:
    time.sleep(0.02 * (number % 2 == 0))
    return Bracket(str(number))


@pytest.mark.parametrize(
    ("count", "tree"),
    [(1, "0"), (2, "(0+1)"), (5, "(((0+1)+(2+3))+4)"), (7, "(((0+1)+(2+3))+((4+5)+6))")],
)
def test_sums_follow_a_tree_that_block_numbers_fix(engine: Engine, count: int, tree: str) -> None:
    tasks = [Task(late_when_even, (number,), 1) for number in range(count)]
    assert engine.total("adding", tasks, Recorder()).text == tree


def test_results_keep_the_order_of_tasks(engine: Engine) -> None:
    tasks = [Task(late_when_even, (number,), 1) for number in range(6)]
    assert [result.text for result in engine.each("listing", tasks, Recorder())] == list("012345")


def test_no_tasks_give_no_results(engine: Engine) -> None:
    assert engine.each("nothing", [], Recorder()) == []


def test_progress_hears_of_every_row_once(engine: Engine) -> None:
    recorder = Recorder()
    engine.total("adding", [Task(late_when_even, (number,), 10) for number in range(6)], recorder)
    for _ in range(100):  # events of a cluster may arrive a moment after its results
        if recorder.rows == 60:
            break
        time.sleep(0.05)
    assert (recorder.started, recorder.rows, recorder.finished) == ([("adding", 60)], 60, 1)


def fail_on_third(number: int) -> int:
    if number % 3 == 2:
        raise DataError(f"task {number} failed")
    return number


def test_an_error_of_a_task_reaches_the_caller_as_itself(engine: Engine) -> None:
    recorder = Recorder()
    with pytest.raises(DataError, match="task 2 failed"):
        engine.each("failing", [Task(fail_on_third, (number,), 1) for number in range(4)], recorder)
    assert recorder.finished == 1


def test_shared_values_arrive_in_every_task(engine: Engine) -> None:
    value = shared({"landmarks": [1, 2, 3]})
    tasks = [Task(lambda given: given["landmarks"][-1], (value,), 1) for _ in range(3)]
    assert engine.each("sharing", tasks, Recorder()) == [3, 3, 3]


def blas_threads() -> int:
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def test_blas_stays_at_one_thread_while_any_of_overlapping_tasks_runs() -> None:
    before = blas_threads()
    if before == 1:
        pytest.skip("BLAS has one thread anyway here")
    entered, leave_first, seen = threading.Event(), threading.Event(), []

    def first() -> None:
        with single_threaded_blas:
            entered.wait(10)
        leave_first.set()

    def second() -> None:
        with single_threaded_blas:
            entered.set()
            leave_first.wait(10)
            seen.append(blas_threads())  # the first has left by now

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == [1]
    assert blas_threads() == before


def test_tasks_run_with_one_blas_thread(engine: Engine) -> None:
    assert engine.each("looking", [Task(blas_threads, (), 1)], Recorder()) == [1]


def test_workers_with_too_little_memory_are_refused(two_processes: Engine) -> None:
    two_processes.check_memory(lambda threads: threads)
    with pytest.raises(MemoryLimitError, match=r"worker tcp://.* may use .* MB, the plan needs 1000000000 MB"):
        two_processes.check_memory(lambda threads: 10**15)


def test_threads_have_no_worker_limits() -> None:
    Engine(threads=2).check_memory(lambda threads: 10**15)


_SCRIPT = """
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Task
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


def test_one_of_scheduler_and_workers() -> None:
    with pytest.raises(SpecError, match="not both"), open_engine("tcp://127.0.0.1:1", 2):
        pass


def test_a_current_client_is_used(two_processes: Engine) -> None:
    assert two_processes.client is not None
    with two_processes.client.as_current(), open_engine() as engine:
        assert engine.client is two_processes.client
    with open_engine() as engine:
        assert engine.client is None


@pytest.mark.parametrize(("text", "amount"), [("2 GB", 2 * 10**9), ("1MiB", 2**20), (5, 5)])
def test_amounts_of_memory(text: str | int, amount: int) -> None:
    assert parse_bytes(text) == amount


def test_an_amount_is_positive() -> None:
    with pytest.raises(SpecError, match="'-1 GB': an amount of memory must be positive"):
        parse_bytes("-1 GB")


def test_an_amount_that_is_none() -> None:
    with pytest.raises(SpecError, match="'lots' is not an amount of memory"):
        parse_bytes("lots")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90 s", 90), ("10 min", 600), ("2 mins", 120), ("1.5 h", 5400), ("1 minute", 60), (3.5, 3.5)]
)
def test_times_are_read_as_people_type_them(text: str | float, seconds: float) -> None:
    assert parse_seconds(text) == seconds


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
                UnlikeWorkersWarning, match=r"unlike processors .* \(1, e\.g\. tcp://.*same OPENBLAS_CORETYPE"
            ),
            open_engine(),
        ):
            pass
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with open_engine() as engine:
                assert engine.client is unlike_workers
