"""BLAS stays at one thread while tasks run."""

import importlib.util
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from bigkpca import KernelPCA
from bigkpca.execution.blas import _Loaded, single_threaded_blas
from bigkpca.execution.tasks import Task


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


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(60)


def test_what_the_caller_had_set_is_set_again_whoever_enters_and_leaves():
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
    before = blas_threads()
    in_thread(single_threaded_blas.__enter__)
    found.append(blas_threads())
    single_threaded_blas.__exit__()
    assert found == [1, 1, 1]
    assert blas_threads() == before
    with threadpool_limits(2):  # which others can set, too
        assert blas_threads() == 2


def test_a_limit_that_is_changed_meanwhile_is_set_again_and_told():
    if blas_threads() == 1:
        pytest.skip("BLAS has one thread anyway here")

    def set_by_others():
        for library in ThreadpoolController().select(user_api="blas").lib_controllers:
            library.set_num_threads(2)  # what earlier versions of threadpoolctl let any thread do

    def computing():
        with single_threaded_blas:
            set_by_others()
            with single_threaded_blas:
                assert blas_threads() == 1
            set_by_others()

    with pytest.warns(RuntimeWarning, match="threads, although it was limited to one"):
        computing()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_process_is_not_limited():
    before = blas_threads()
    with single_threaded_blas:
        child = os.fork()
        if not child:
            os._exit(blas_threads())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == before


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
from bigkpca.execution.blas import _Loaded, single_threaded_blas
assert "scipy.linalg" in sys.modules
with single_threaded_blas:
    assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {1}
"""


def test_the_blas_of_scipy_has_one_thread_too():
    """SciPy loads its own at its first use: it must be there before a limit is set, which would not hold for it."""
    subprocess.run([sys.executable, "-c", FRESH], timeout=120, check=True)


_IMPORTS_BESIDE_SEARCHES = """
import _imp, shutil, sys, threading
from importlib.util import find_spec, spec_from_file_location
import numpy
from bigkpca.execution.blas import _libraries
origin, folder = find_spec("_bisect").origin, sys.argv[1]
paths = [shutil.copy(origin, f"{folder}/{i}.so") for i in range(300)]  # an import of the same file opens it once

def importing():
    for path in paths:
        _imp.create_dynamic(spec_from_file_location("_bisect", path))

thread = threading.Thread(target=importing)
thread.start()
while thread.is_alive():
    _libraries.__wrapped__(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the loader of Linux")
def test_a_search_for_libraries_and_an_import_of_another_thread_do_not_wait_for_each_other(tmp_path):
    if not getattr(importlib.util.find_spec("_bisect"), "has_location", False):
        pytest.skip("this Python has its modules built in")
    run = [sys.executable, "-c", _IMPORTS_BESIDE_SEARCHES, str(tmp_path)]
    assert subprocess.run(run, timeout=100, check=False).returncode == 0


def test_the_libraries_found_are_those_of_threadpoolctl():
    found, wanted = ({each["filepath"] for each in search.info()} for search in (_Loaded(), ThreadpoolController()))
    assert found == wanted
