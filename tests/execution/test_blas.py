"""BLAS stays at one thread while tasks run."""

import json
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info

from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.tasks import Task
from tests.helpers.progress import Recorder


def blas_threads():
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def test_blas_stays_at_one_thread_while_any_of_overlapping_tasks_runs():
    before = blas_threads()
    if before == 1:
        pytest.skip("BLAS has one thread anyway here")
    entered, leave_first, seen = threading.Event(), threading.Event(), []

    def first():
        with single_threaded_blas:
            entered.wait(10)
        leave_first.set()

    def second():
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


def test_tasks_run_with_one_blas_thread(engine):
    assert engine.each("looking", [Task(blas_threads, (), 1)], Recorder()) == [1]


_LATER = """
import json
import numpy
from threadpoolctl import threadpool_info
from bigkpca.execution.blas import single_threaded_blas
with single_threaded_blas:
    before = len(threadpool_info())
import scipy.linalg
with single_threaded_blas:
    found = [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
print(json.dumps([found, len(threadpool_info()) - before]))
"""


def test_a_library_that_is_loaded_later_has_one_thread_too():
    done = subprocess.run([sys.executable, "-c", _LATER], capture_output=True, text=True, timeout=60, check=True)
    threads, more = json.loads(done.stdout)
    if not more:
        pytest.skip("NumPy and SciPy share one library here")
    assert set(threads) == {1}


def test_the_blas_of_scipy_is_there_before_a_limit_is_set():
    """SciPy loads it at its first use, and a limit that was set before would not hold for it."""
    code = "import sys, bigkpca.execution.blas; print('scipy.linalg' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "True\n"
