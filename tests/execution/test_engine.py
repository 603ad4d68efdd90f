"""Where tasks run changes nothing: order, sums, limits, progress, errors."""

import gc
import threading
import time
import weakref
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError, MemoryLimitError
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_sets
from bigkpca.execution.tasks import Task
from tests.helpers.dask_processes import wait_until
from tests.helpers.progress import Recorder


@dataclass(frozen=True)
class Bracket:
    """Records the shape of a sum."""

    text: str

    def __add__(self, other):
        return Bracket(f"({self.text}+{other.text})")


def late_when_even(number):
    time.sleep(0.01 * (number % 2 == 0))  # so that results come out of order
    return Bracket(str(number))


def fail_on_third(number):
    if number % 3 == 2:
        raise DataError(f"task {number} failed")
    return number


def test_sums_follow_a_fixed_tree_results_keep_their_order_and_errors_are_those_of_tasks(engine):
    for count, tree in {1: "0", 7: "(((0+1)+(2+3))+((4+5)+6))"}.items():
        tasks = [Task(late_when_even, (number,), 1) for number in range(count)]
        assert engine.total("adding", tasks).text == tree
    recorder, failing = Recorder(), Recorder()
    found = replace(engine, progress=recorder).each("listing", [Task(late_when_even, (i,), 10) for i in range(6)])
    assert [result.text for result in found] == list("012345")
    wait_until(lambda: recorder.rows >= 60)  # events of a cluster may arrive a moment after its results
    assert (recorder.started, recorder.rows, recorder.finished) == ([("listing", 60)], 60, 1)
    assert engine.each("nothing", []) == []
    with pytest.raises(DataError, match="task 2 failed"):
        replace(engine, progress=failing).each("failing", [Task(fail_on_third, (number,), 1) for number in range(4)])
    assert failing.finished == 1


@pytest.mark.parametrize("of_results", [Engine.each, lambda *given: [Engine.total(*given)]], ids=["each", "total"])
def test_a_pass_keeps_no_result_in_memory(of_results):
    tasks = [Task(np.full, (1000, float(number)), 1) for number in range(20)]
    gc.disable()  # what is part of a circle of references waits for it
    try:
        results = of_results(Engine(threads=2), "making", tasks)
        alive = [weakref.ref(result) for result in results]
        del results
        assert not [each for each in alive if each() is not None]
    finally:
        gc.enable()


def test_workers_with_too_little_memory_are_refused(two_processes):
    two_processes.check_memory(lambda threads: threads)
    message = r"worker t[cl][ps]://.* may use .* MB, but the plan needs 1000000000 MB"
    with pytest.raises(MemoryLimitError, match=message):
        two_processes.check_memory(lambda threads: 10**15)
    Engine(threads=2).check_memory(lambda threads: 10**15)  # threads have no limits of workers


def test_a_pass_that_fails_leaves_no_thread_behind():
    def fails(number):
        raise ValueError(number)

    for _ in range(30):
        with pytest.raises(ValueError, match=r"^[0-7]$"):
            Engine(threads=2).total("adding up", [Task(fails, (number,), 1) for number in range(8)])
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("bigkpca")]


def test_sets_of_rows_come_in_their_own_order(engine):
    X = np.arange(3.0 * 20_000).reshape(-1, 3)  # five blocks
    rng = np.random.default_rng(0)
    none, one, mixed = np.empty(0, np.intp), np.array([19_999]), rng.choice(20_000, 300, replace=False)
    ascending = np.sort(rng.choice(20_000, 500, replace=False))  # some are in the other set, too
    sets = (ascending, none, mixed, one)
    for numbers, found in zip(sets, read_sets(ArrayRows(X), engine, *sets), strict=True):
        assert np.array_equal(found, X[numbers])
