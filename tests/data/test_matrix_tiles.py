"""Matrices read in pieces: every entry once, every chunk once, and no more of it in memory than a piece."""

import hashlib

import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.data import matrix_tiles as module
from bigkpca.data import npy
from bigkpca.data.matrix_tiles import Part, halves, matrix_tiles, parts, read_bytes, tile_shape, upper_share
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import DataError
from bigkpca.numerics.solvers import add_tile
from tests.helpers.stores import as_npy, as_zarr

N = 83
K = np.random.default_rng(0).normal(size=(N, N))
K += K.T
CHUNKS = [(10, 10), (20, 10), (83, 7), (13, 17), (100, 100)]
KINDS = {
    "numpy": lambda folder: K,
    "npy": lambda folder: as_npy(folder, K),
    "Fortran npy": lambda folder: as_npy(folder, np.asfortranarray(K)),
    "sharded": lambda folder: as_zarr(folder, K, (10, 10), shards=(40, 20)),
    "zarr v2": lambda folder: as_zarr(folder, K, (10, 10), zarr_format=2),
    **{f"zarr {chunks}": lambda folder, chunks=chunks: as_zarr(folder, K, chunks) for chunks in CHUNKS},
    **{f"dask {chunks}": lambda folder, chunks=chunks: da.from_array(K, chunks=chunks) for chunks in CHUNKS[1:4]},
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Strips and pieces of a few rows, so that there are many."""
    monkeypatch.setattr(module, "_STRIP_ROWS", 24)
    monkeypatch.setattr(module, "_TALL", 5)
    monkeypatch.setattr(module, "TILE_BYTES", 1500)
    monkeypatch.setattr(module, "PART_BYTES", 3000)
    monkeypatch.setattr(npy, "_RUN_BYTES", 64)


def loaded(rows, part):
    """What a task on this part is given."""
    handed = rows.part(part.rows.start, part.rows.stop, part.columns)
    return handed.compute(scheduler="synchronous") if hasattr(handed, "compute") else handed


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_make_up_the_matrix_and_are_small_or_one_chunk(kind, tmp_path):
    rows, seen = open_rows(KINDS[kind](tmp_path)), np.zeros((N, N), int)
    chunk = np.prod(np.minimum(rows.grid, N)) * 8
    for part in parts(rows, None, upper=False):
        if kind.startswith("dask"):  # handed to tasks
            assert part.shape[0] * part.shape[1] * 8 <= max(3000, part.shape[0] * rows.grid[1] * 8)
        else:
            assert part.columns == slice(0, N)
        for at, values in matrix_tiles(loaded(rows, part), part):
            assert_array_equal(values, K[at.rows, at.columns])
            assert values.nbytes <= read_bytes(rows) <= max(1500, chunk)
            seen[at.rows, at.columns] += 1
            tall, wide = at.within(part)
            assert (tall.stop - tall.start, wide.stop - wide.start) == at.shape == values.shape
            assert (tall.start + part.rows.start, wide.start + part.columns.start) == (at.rows.start, at.columns.start)
    assert (seen == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_upper_half_is_enough_for_a_product_where_chunks_allow_it(kind, tmp_path):
    rows = open_rows(KINDS[kind](tmp_path))
    B, out, seen = np.random.default_rng(1).normal(size=(N, 3)), np.zeros((N, 3)), np.zeros((N, N), int)
    upper = halves(rows)
    for part in parts(rows, None, upper=upper):
        for at, values in matrix_tiles(loaded(rows, part), part, upper=upper):
            add_tile(out, B, at.rows, at.columns, values, mirrored=upper)
            seen[at.rows, at.columns] += 1
    assert_allclose(out, K @ B, atol=1e-12)
    assert seen.max() == 1
    assert (seen.mean() < 0.7) == (upper and tile_shape(rows)[0] < 40)
    if not kind.startswith("dask"):  # whose parts are cut to pieces by another grid
        assert seen.mean() <= upper_share(rows) + 0.03  # the last band is short


def test_chunks_that_make_up_squares_on_the_diagonal_can_be_halved(tmp_path):
    found = [chunks for chunks in [*CHUNKS, (10, 20)] if halves(open_rows(as_zarr(tmp_path, K, chunks)))]
    assert found == [(10, 10), (20, 10), (100, 100)]
    assert halves(open_rows(K))


@given(
    n=st.integers(1, N),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    upper=st.booleans(),
    block_rows=st.one_of(st.none(), st.integers(1, 100)),
)
def test_any_grid_gives_the_product(n, height, width, upper, block_rows):
    rows = ArrayRows(K[:n, :n], grid=(min(height, n), min(width, n)))
    upper = upper and halves(rows)
    B, out = np.eye(n), np.zeros((n, n))
    for part in parts(rows, block_rows, upper=upper):
        for at, values in matrix_tiles(rows, part, upper=upper):
            for edge, size, end in ((at.rows, height, n), (at.columns, width, n)):  # whole chunks
                assert edge.start % min(size, n) == 0
                assert edge.stop % min(size, n) == 0 or edge.stop == end
            add_tile(out, B, at.rows, at.columns, values, mirrored=upper)
    assert_allclose(out, K[:n, :n], atol=1e-14)


@pytest.mark.parametrize(("chunks", "upper"), [((13, 17), False), ((20, 10), False), ((20, 10), True)])
def test_each_chunk_is_decoded_once(chunks, upper, tmp_path, monkeypatch):
    rows = open_rows(as_zarr(tmp_path, K, chunks))
    decoded, block, (height, width) = np.zeros([-(-N // size) for size in chunks], int), ZarrRows.block, chunks

    def counting(self, start, stop, columns):
        decoded[start // height : -(-stop // height), columns.start // width : -(-columns.stop // width)] += 1
        return block(self, start, stop, columns)

    monkeypatch.setattr(ZarrRows, "block", counting)
    for part in parts(rows, None, upper=upper):
        list(matrix_tiles(rows, part, upper=upper))
    assert decoded.max() == 1
    assert upper or decoded.min() == 1


def test_values_that_are_not_finite_are_named_and_the_rest_is_digested():
    digest = hashlib.sha256()
    whole = Part(slice(0, N), slice(0, N))
    values = [piece for _, piece in matrix_tiles(ArrayRows(K), whole, digest=digest)]
    assert digest.hexdigest() == hashlib.sha256(b"".join(piece.tobytes() for piece in values)).hexdigest()
    broken = K.copy()
    broken[71, 50] = np.nan
    corner = Part(slice(60, N), slice(40, N))
    for rows, part in ((ArrayRows(broken), whole), (ArrayRows(broken[60:, 40:], 60, first_column=40), corner)):
        with pytest.raises(DataError, match=r"row 71, column 50 is NaN"):
            list(matrix_tiles(rows, part))
