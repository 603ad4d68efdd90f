"""BLAS stays at one thread while tasks run."""

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
    entered, left = threading.Event(), threading.Event()

    def first():
        with single_threaded_blas:
            entered.wait(60)
        left.set()

    thread = threading.Thread(target=first)
    thread.start()
    with single_threaded_blas:
        entered.set()
        assert left.wait(60)
        assert blas_threads() == 1
    thread.join(60)
    assert blas_threads() == before


def test_tasks_run_with_one_blas_thread(engine):
    assert engine.each("looking", [Task(blas_threads, (), 1)], Recorder()) == [1]


FRESH = """
import sys
from threadpoolctl import threadpool_info
from bigkpca.execution.blas import single_threaded_blas
assert "scipy.linalg" in sys.modules
with single_threaded_blas:
    assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {1}
"""


def test_the_blas_of_scipy_has_one_thread_too():
    """SciPy loads its own at its first use: it must be there before a limit is set, which would not hold for it."""
    subprocess.run([sys.executable, "-c", FRESH], timeout=120, check=True)
