"""Products with the Gram matrix, tile by tile, against the whole matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.execution import gram
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.numerics.features import Columns
from tests.execution.sources import KERNELS, some_rows, sources


def product(rows, kernel, B, engine=None, dtype=np.float64):
    d = rows.shape[1]
    columns = Columns(kernel, np.zeros(d), np.dtype(dtype))
    return gram.gram_product(rows, columns, B, engine or Engine(threads=1), Silent(), "products")


@pytest.fixture
def small_strips(monkeypatch):
    monkeypatch.setattr(gram, "_STRIP_ROWS", 50)
    return 50


@pytest.mark.parametrize("n", [2, 49, 50, 99, 100, 137, 150, 240, 250], ids=lambda n: f"{n} rows")
@pytest.mark.parametrize("kernel", KERNELS, ids=["gaussian", "polynomial", "product and sum", "function"])
def test_a_product_is_the_gram_matrix_times_the_block(kernel, n, small_strips):
    X, B = some_rows(n), np.random.default_rng(1).normal(size=(n, 3))
    K = kernel.gram(X)
    assert_allclose(product(ArrayRows(X), kernel, B), K @ B, rtol=1e-10, atol=1e-11 * np.abs(K).sum())


@pytest.mark.parametrize("strip", [1, 7, 64, 2048])
def test_products_are_the_same_for_strips_of_any_height(strip, monkeypatch):
    monkeypatch.setattr(gram, "_STRIP_ROWS", strip)
    X, B = some_rows(130), np.random.default_rng(1).normal(size=(130, 4))
    assert_allclose(product(ArrayRows(X), KERNELS[0], B), KERNELS[0].gram(X) @ B, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS[:3], ids=["gaussian", "polynomial", "product and sum"])
def test_products_of_single_precision_are_added_up_in_double(kernel, small_strips):
    X, B = some_rows(137).astype(np.float32), np.random.default_rng(1).normal(size=(137, 3))
    columns = Columns(kernel, np.zeros(5), np.dtype(np.float32))
    found = gram.gram_product(ArrayRows(X), columns, B, Engine(threads=1), Silent(), "products")
    K = kernel.gram(X.astype(np.float64))
    assert found.dtype == np.float64
    assert_allclose(found, K @ B, atol=2e-6 * np.abs(K).sum(axis=1).max())


def test_products_shift_and_scale_their_columns(small_strips):
    X, B = some_rows(120), np.ones((120, 1))
    offset, scale = X.mean(axis=0), np.arange(1.0, 6.0)
    columns = Columns(KERNELS[1], offset, np.dtype(np.float64), scale=scale)
    found = gram.gram_product(ArrayRows(X), columns, B, Engine(threads=1), Silent(), "products")
    expected = KERNELS[1].gram(columns.shifted(X)) @ B
    assert_allclose(found, expected, rtol=1e-11)
    gathered = gram.gather(ArrayRows(X), columns, Engine(threads=1), Silent())
    assert_array_equal(gathered, columns.shifted(X))


def test_products_come_from_every_source(tmp_path, small_strips):
    X, B = some_rows(170), np.random.default_rng(1).normal(size=(170, 3))
    expected = KERNELS[0].gram(X) @ B
    for source in sources(X, tmp_path).values():
        assert_allclose(product(open_rows(source), KERNELS[0], B), expected, rtol=1e-11, atol=1e-12)
        columns = Columns(KERNELS[0], np.zeros(5), np.dtype(np.float64))
        assert_array_equal(gram.gather(open_rows(source), columns, Engine(threads=2), Silent()), X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [40, 130, 200])
@pytest.mark.bits
def test_products_have_the_same_bits_everywhere(engine, n, dtype, tmp_path, small_strips):
    X, B = some_rows(n).astype(dtype), np.random.default_rng(1).normal(size=(n, 3))
    rows = open_rows(sources(X, tmp_path)["path"])
    reference = product(rows, KERNELS[0], B, dtype=dtype)
    assert_array_equal(product(rows, KERNELS[0], B, engine, dtype), reference)
