"""BLAS stays at one thread while tasks run, and has what the caller had set after them."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from bigkpca import KernelPCA
from bigkpca.execution import blas
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.tasks import Task


def blas_threads():
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


needs_threads = pytest.mark.skipif(blas_threads() == 1, reason="BLAS has one thread anyway here")


def within_limit():
    with single_threaded_blas:
        return blas_threads()


def in_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(60)


@needs_threads
def test_blas_has_one_thread_until_the_last_of_overlapping_tasks_ends():
    before, entered, left = blas_threads(), threading.Event(), threading.Event()

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


@needs_threads
def test_limits_that_others_set_are_set_again_and_do_not_hold_in_tasks():
    with threadpool_limits(2):
        assert [in_thread(within_limit), within_limit(), blas_threads()] == [1, 1, 2]
    with single_threaded_blas:
        for library in ThreadpoolController().select(user_api="blas").lib_controllers:
            library.set_num_threads(2)
        assert [blas_threads(), within_limit()] == [2, 1]


def test_libraries_in_which_each_thread_has_a_limit_are_limited_in_each(monkeypatch):
    """As MKL, and OpenBLAS with OpenMP."""

    class OfThreads(threading.local):
        num_threads = 4

        def set_num_threads(self, number):
            self.num_threads = number

    library = OfThreads()
    monkeypatch.setattr(blas, "_OF_THREADS", [library])

    def within_and_after():
        with single_threaded_blas:
            within = library.num_threads
        return within, library.num_threads

    with single_threaded_blas:
        assert within_and_after() == (1, 1)
        assert in_thread(within_and_after) == (1, 4)
    assert library.num_threads == 4


@pytest.mark.full
@pytest.mark.bits
def test_fits_have_the_same_bits_under_the_limits_of_a_caller(digits):
    X = digits.astype(np.float64)

    def fitted():
        return KernelPCA(5, size=300, random_state=0).fit(X).eigenvalues_

    expected = fitted()
    with threadpool_limits(2):
        np.testing.assert_array_equal(in_thread(fitted), expected)
        np.testing.assert_array_equal(fitted(), expected)


def test_tasks_run_with_one_blas_thread(engine):
    assert engine.each("looking", [Task(blas_threads, (), 1)]) == [1]


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
