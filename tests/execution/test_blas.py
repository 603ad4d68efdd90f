"""BLAS stays at one thread while tasks run."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from bigkpca import KernelPCA
from bigkpca.execution import blas
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.tasks import Task


def blas_threads():
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(60)


def test_blas_has_one_thread_until_the_last_of_overlapping_tasks_ends():
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
    with threadpool_limits(2):  # which others can set, too
        assert blas_threads() == 2


def test_what_the_caller_had_set_is_set_again():
    if blas_threads() == 1:
        pytest.skip("BLAS has one thread anyway here")
    found = []

    def computing():
        with single_threaded_blas:
            found.append(blas_threads())

    with threadpool_limits(2):
        in_thread(computing)
        computing()
        assert blas_threads() == 2
    assert found == [1, 1]


def test_a_limit_that_is_changed_meanwhile_is_set_again():
    if blas_threads() == 1:
        pytest.skip("BLAS has one thread anyway here")
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    with single_threaded_blas:
        for library in libraries:
            library.set_num_threads(2)
        assert blas_threads() == 2
        with single_threaded_blas:
            assert blas_threads() == 1


def test_libraries_in_which_each_thread_has_a_limit_are_limited_in_each(monkeypatch):
    """As MKL, and OpenBLAS with OpenMP."""

    class OfThreads(threading.local):
        num_threads = 4

        def set_num_threads(self, number):
            self.num_threads = number

    library, found = OfThreads(), []
    monkeypatch.setattr(blas, "_OF_THREADS", [library])

    def computing():
        with single_threaded_blas:
            found.append(library.num_threads)
        found.append(library.num_threads)

    with single_threaded_blas:
        computing()
        in_thread(computing)
    assert found == [1, 1, 1, 4]
    assert library.num_threads == 4


@pytest.mark.full
@pytest.mark.bits
def test_fits_have_the_same_bits_under_the_limits_of_a_caller(digits):
    X = digits.astype(np.float64)

    def fitted():
        return KernelPCA(5, size=300, random_state=0).fit(X).eigenvalues_

    expected, found = fitted(), []
    with threadpool_limits(2):
        in_thread(lambda: found.append(fitted()))
        found.append(fitted())
    for each in found:
        np.testing.assert_array_equal(each, expected)


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
