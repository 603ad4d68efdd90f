"""Products with the Gram matrix, tile by tile, against the whole matrix; and their plans of memory."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.execution import gram
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Silent
from bigkpca.numerics.features import Columns
from bigkpca.spec import FitSpec
from tests.execution.sources import KERNELS, some_rows, sources, threads_and_processes
from tests.helpers.commands import peak_bytes, planned_bytes
from tests.helpers.stores import as_zarr


@pytest.fixture(autouse=True)
def small_strips(monkeypatch):
    """Strips of 50 rows: several of the real height of 2048 would take large matrices."""
    monkeypatch.setattr(gram, "_STRIP_ROWS", 50)


def columns_of(kernel, offset=None, dtype=np.float64, scale=None):
    return Columns(kernel, np.zeros(5) if offset is None else offset, np.dtype(dtype), scale=scale)


def product(rows, kernel, B, engine=None, **options):
    columns = columns_of(kernel, **options)
    return gram.gram_product(rows, columns, B, engine or Engine(threads=1), Silent(), "products")


def block(n, columns=3):
    return np.random.default_rng(1).normal(size=(n, columns))


@pytest.mark.parametrize("kernel", KERNELS, ids=["gaussian", "polynomial", "product and sum", "function"])
def test_a_product_is_the_gram_matrix_times_the_block(kernel):
    for n in (2, 49, 50, 99, 100, 137, 150, 240):  # one strip and several, odd and even numbers, whole and cut
        X, B = some_rows(n), block(n)
        K = kernel.gram(X)
        assert_allclose(product(ArrayRows(X), kernel, B), K @ B, rtol=1e-10, atol=1e-11 * np.abs(K).sum())


def test_products_are_the_same_for_strips_of_any_height(monkeypatch):
    X, B = some_rows(70), block(70)
    for height in (1, 7, 64, 2048):
        monkeypatch.setattr(gram, "_STRIP_ROWS", height)
        assert_allclose(product(ArrayRows(X), KERNELS[0], B), KERNELS[0].gram(X) @ B, rtol=1e-11, atol=1e-12)


def test_products_of_single_precision_are_added_up_in_double():
    X, B = some_rows(137).astype(np.float32), block(137)
    for kernel in KERNELS[:3]:
        found = product(ArrayRows(X), kernel, B, dtype=np.float32)
        K = kernel.gram(X.astype(np.float64))
        assert found.dtype == np.float64
        assert_allclose(found, K @ B, atol=2e-6 * np.abs(K).sum(axis=1).max())


def test_products_shift_and_scale_their_columns():
    X, B = some_rows(120), np.ones((120, 1))
    options = {"offset": X.mean(axis=0), "scale": np.arange(1.0, 6.0)}
    columns = columns_of(KERNELS[1], **options)
    expected = KERNELS[1].gram(columns.shifted(X)) @ B
    assert_allclose(product(ArrayRows(X), KERNELS[1], B, **options), expected, rtol=1e-11)
    assert_array_equal(gram.gather(ArrayRows(X), columns, Engine(threads=1), Silent()), columns.shifted(X))


def test_products_come_from_every_source(tmp_path):
    X, B = some_rows(170), block(170)
    for source in sources(X, tmp_path):
        found = product(open_rows(source), KERNELS[0], B)
        assert_allclose(found, KERNELS[0].gram(X) @ B, rtol=1e-11, atol=1e-12)
        gathered = gram.gather(open_rows(source), columns_of(KERNELS[0]), Engine(threads=2), Silent())
        assert_array_equal(gathered, X)


@pytest.mark.bits
@threads_and_processes
def test_products_have_the_same_bits_everywhere(engine, tmp_path):
    for n, dtype in ((40, np.float64), (130, np.float32), (200, np.float64)):
        X, B = some_rows(n).astype(dtype), block(n)
        rows = open_rows(as_zarr(tmp_path, X, (30, 5)))
        reference = product(rows, KERNELS[0], B, dtype=dtype)
        assert_array_equal(product(rows, KERNELS[0], B, engine, dtype=dtype), reference)


def test_a_plan_counts_the_rows_in_memory_and_blocks_but_no_gram_matrix():
    def plan(n, **options):
        rows = ArrayRows(np.broadcast_to(np.zeros(1, np.float32), (n, 100)))
        return plan_fit(rows, FitSpec.checked(components=20, **options), 2)

    start, exact, refined = plan(10**5), plan(10**5, method="exact"), plan(10**5, refine=2)
    assert exact.size == refined.size == 10**5
    assert exact.passes == refined.passes == start.passes + 2
    assert exact.bytes_read > start.bytes_read
    assert exact.peak_bytes < 8 * 10**10 / 50
    assert plan(10**6, method="exact").peak_bytes > 10**6 * (100 * 4 + 8 * 8 * 30)


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
@pytest.mark.parametrize(
    "options",
    [
        "--components 30 --method exact",
        "--components 100 --refine 5 --residual-tol 1e-9 --size 500",
        "--components 10 --refine 2 --residual-tol 1e-9 --method rff --size 500 --standardize",
    ],
)
def test_peaks_stay_below_the_plan(options, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 10)) @ rng.normal(size=(10, 300)) + rng.normal(size=(20_000, 300))
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    command = ("fit", tmp_path / "rows.npy", tmp_path / "m.zarr", *options.split(), "-q")
    assert peak_bytes(*command) <= planned_bytes(*command)
