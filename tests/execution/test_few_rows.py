"""Few rows in memory are scored at once, with the bits of a pass."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from weakref import ref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from bigkpca import KernelPCA
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError
from bigkpca.execution import options as run_options
from bigkpca.execution import projection
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import score_rows


def fitted(digits, **options):
    return KernelPCA(5, size=60, random_state=0, **options).fit(digits[::3])


@pytest.fixture(scope="module")
def kpca(digits):
    return fitted(digits)


def by_pass(kpca, X):
    return score_rows(ArrayRows(X), kpca.model_, Engine(threads=2))


@pytest.mark.bits
@pytest.mark.parametrize("options", [{}, {"method": "rff"}, {"standardize": True}, {"dtype": "float64"}], ids=str)
def test_few_rows_have_the_bits_of_a_pass_and_start_no_engine(options, digits, monkeypatch):
    kpca = fitted(digits, **options)
    wanted = {count: by_pass(kpca, digits[-count:].astype(np.float32)) for count in (1, 2, 300, 1024)}
    monkeypatch.setattr(run_options.RunOptions, "engine", None)
    for count, scores in wanted.items():
        for _ in range(2):  # the second time in the work space of the first
            assert_array_equal(kpca.transform(digits[-count:].astype(np.float32)), scores)


def test_more_rows_are_left_to_a_pass(kpca, digits):
    assert projection.are_few(ArrayRows(digits[:1024]), kpca.model_)
    assert not projection.are_few(ArrayRows(digits[:1025]), kpca.model_)
    assert not projection.are_few(ArrayRows(digits[:101]), fitted(digits, block_rows=100).model_)


def test_models_are_not_kept_alive(digits):
    other = fitted(digits)
    with ThreadPoolExecutor(1) as pool:  # this thread outlives the model
        pool.submit(other.transform, digits[:7].astype(np.float32)).result()
        kept = ref(other.model_), ref(other.model_.features.landmarks)
        del other
        gc.collect()
        assert [each() for each in kept] == [None, None]


def test_threads_do_not_share_work_space(kpca, digits):
    start = threading.Barrier(4)
    parts = [digits[i::4][:400].astype(np.float32) for i in range(4)]
    wanted = [by_pass(kpca, part) for part in parts]

    def scored(part):
        start.wait(60)
        return [kpca.transform(part) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        for found, right in zip(pool.map(scored, parts), wanted, strict=True):
            for each in found:
                assert_array_equal(each, right)


def test_bad_rows_are_named(kpca, digits):
    X = digits[:9].astype(np.float32)
    X[4, 7] = np.nan
    with pytest.raises(DataError, match="row 4, column 7 is NaN"):
        kpca.transform(X)
    far = KernelPCA(2, kernel="poly", degree=5, size=30, random_state=0).fit(digits)
    with pytest.raises(DataError, match=r"rows 0 to 8: kernel values overflow"):
        far.transform(np.full((9, 64), 1e30, np.float32))
