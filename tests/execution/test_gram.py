"""Products with the Gram matrix, tile by tile, against the whole matrix; and their plan of memory."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca import kernels
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.execution import passes
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.numerics.features import Columns
from bigkpca.spec import FitSpec
from tests.helpers.stores import as_zarr

KERNELS = {
    "gaussian": kernels.Gaussian(2.0),
    "polynomial": kernels.Polynomial(0.1),
    "product and sum": kernels.Gaussian(3.0) * kernels.Linear() + 0.5 * kernels.Laplacian(2.0),
    "function": kernels.Function(lambda X, Y: 1 / (1 + np.square(X[:, None] - Y[None]).sum(axis=2))),
}
GAUSSIAN = KERNELS["gaussian"]


@pytest.fixture(autouse=True)
def small_strips(monkeypatch):
    """Strips of 50 rows: several of the real height of 2048 would take large matrices."""
    monkeypatch.setattr(passes, "_STRIP_ROWS", 50)


def columns_of(kernel=GAUSSIAN, dtype=np.float64, offset=0, scale=None):
    return Columns(kernel, np.broadcast_to(offset, 5), np.dtype(dtype), scale=scale)


def product(rows, B, columns, engine=None):
    return passes.gram_product(rows, columns, B, engine or Engine(threads=1), "products")


def rows_and_block(n):
    return np.random.default_rng(0).normal(size=(n, 5)), np.random.default_rng(1).normal(size=(n, 3))


@pytest.mark.parametrize("name", KERNELS)
def test_a_product_is_the_gram_matrix_times_the_block(name):
    kernel = KERNELS[name]
    for n in (2, 49, 50, 99, 100, 137, 150, 240):  # one strip and several, odd and even numbers, whole and cut
        X, B = rows_and_block(n)
        K = kernel.gram(X)
        assert_allclose(product(ArrayRows(X), B, columns_of(kernel)), K @ B, rtol=1e-10, atol=1e-11 * np.abs(K).sum())
    if name != "function":  # in single precision, it is added up in double
        X, B = rows_and_block(137)
        found = product(ArrayRows(X.astype(np.float32)), B, columns_of(kernel, np.float32))
        K = kernel.gram(X.astype(np.float32).astype(np.float64))
        assert found.dtype == np.float64
        assert_allclose(found, K @ B, atol=2e-6 * np.abs(K).sum(axis=1).max())


def test_products_shift_and_scale_their_columns():
    kernel, (X, _) = KERNELS["polynomial"], rows_and_block(120)
    columns = columns_of(kernel, offset=X.mean(axis=0), scale=np.arange(1.0, 6.0))
    expected = kernel.gram(columns.shifted(X)) @ np.ones((120, 1))
    assert_allclose(product(ArrayRows(X), np.ones((120, 1)), columns), expected, rtol=1e-11)
    assert_array_equal(passes.gather(ArrayRows(X), columns, Engine(threads=1)), columns.shifted(X))


@pytest.mark.bits
def test_products_have_the_same_bits_everywhere(engine, tmp_path):
    for n, dtype in ((40, np.float64), (130, np.float32), (200, np.float64)):
        X, B = rows_and_block(n)
        rows, columns = open_rows(as_zarr(tmp_path, X.astype(dtype), (30, 5))), columns_of(dtype=dtype)
        assert_array_equal(product(rows, B, columns, engine), product(rows, B, columns))


def test_a_plan_counts_the_rows_in_memory_and_blocks_but_no_gram_matrix():
    def plan(n, **options):
        rows = ArrayRows(np.broadcast_to(np.zeros(1, np.float32), (n, 100)))
        return plan_fit(rows, FitSpec.checked(n_components=20, **options), 2)

    start, exact, refined = plan(10**5), plan(10**5, method="exact"), plan(10**5, refine=2)
    assert exact.size == refined.size == 10**5
    assert exact.passes == refined.passes == start.passes + 2
    assert exact.bytes_read > start.bytes_read
    assert exact.array_bytes < 8 * 10**10 / 50
    assert plan(10**6, method="exact").array_bytes > 10**6 * (100 * 4 + 8 * 8 * 30)
