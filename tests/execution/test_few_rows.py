"""Few rows in memory are scored at once, with the bits of a pass."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bigkpca import KernelPCA
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import DataError
from bigkpca.execution import few_rows, run_options
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows

Array = np.ndarray[Any, Any]


def fitted(digits, **options):
    return KernelPCA(5, size=60, random_state=0, **options).fit(digits)


def by_pass(kpca, X):
    return score_rows(ArrayRows(X), kpca.model_, Engine(threads=2), Silent())


@pytest.mark.bits
@pytest.mark.parametrize("options", [{}, {"method": "rff"}, {"standardize": True}, {"dtype": "float64"}])
@pytest.mark.parametrize("count", [1, 2, 300, 1024])
def test_few_rows_have_the_bits_of_a_pass_and_start_no_engine(options, count, digits, monkeypatch):
    kpca = fitted(digits, **options)
    X = digits[-count:].astype(np.float32)
    wanted = by_pass(kpca, X)
    monkeypatch.setattr(run_options.RunOptions, "engine", None)
    assert_array_equal(kpca.transform(X), wanted)
    assert_array_equal(kpca.transform(X), wanted)  # in the work space of before


def test_more_rows_are_left_to_a_pass(digits):
    kpca = fitted(digits)
    blocks = fitted(digits, block_rows=100)
    assert few_rows.are_few(ArrayRows(digits[:1024]), kpca.model_)
    assert not few_rows.are_few(ArrayRows(digits[:1025]), kpca.model_)
    assert not few_rows.are_few(ArrayRows(digits[:101]), blocks.model_)


def test_models_take_turns_and_are_not_kept_alive(digits):
    one, other = fitted(digits), fitted(digits, sigma=40.0)
    X = digits[:7].astype(np.float32)
    wanted = [by_pass(each, X) for each in (one, other)]
    for _ in range(2):
        assert_array_equal(one.transform(X), wanted[0])
        assert_array_equal(other.transform(X), wanted[1])
    with ThreadPoolExecutor(1) as pool:  # this thread outlives the model
        pool.submit(other.transform, X).result()
        slots = [few_rows._prepared.slot, pool.submit(lambda: few_rows._prepared.slot).result()]
        model = ref(other.model_)
        del other
        gc.collect()
        assert model() is None
        assert [slot.project for slot in slots] == [None, None]


def test_threads_do_not_share_work_space(digits):
    kpca, start = fitted(digits), threading.Barrier(4)
    parts = [digits[i::4][:400].astype(np.float32) for i in range(4)]
    wanted = [by_pass(kpca, part) for part in parts]

    def scored(part):
        start.wait(10)
        return [kpca.transform(part) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for found, right in zip(pool.map(scored, parts), wanted, strict=True):
            for each in found:
                assert_array_equal(each, right)


def test_bad_rows_are_named(digits):
    kpca, X = fitted(digits), digits[:9].astype(np.float32)
    X[4, 7] = np.nan
    with pytest.raises(DataError, match="row 4, column 7 is NaN"):
        kpca.transform(X)
    far = KernelPCA(2, kernel="poly", degree=5, size=30, random_state=0).fit(digits)
    with pytest.raises(DataError, match=r"rows 0 to 8: kernel values overflow"):
        far.transform(np.full((9, 64), 1e30, np.float32))
