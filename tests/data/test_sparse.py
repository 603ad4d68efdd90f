"""Sparse rows: the same bits as dense ones, from memory and Dask."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, DataError, SpecError
from bigkpca.execution.plan import sample_bytes
from bigkpca.spec import FitSpec, resolve
from tests.data.cases import refused

RNG = np.random.default_rng(4)
DENSE = RNG.normal(size=(700, 30)) * (RNG.random((700, 30)) < 0.1)
CSR = sp.csr_array(DENSE)
OPTIONS = {"n_components": 4, "size": 60, "random_state": 0}


def in_chunks(matrix, kind=sp.csr_matrix):
    """A Dask array of sparse chunks, as `anndata.experimental.read_lazy` makes it."""
    return da.from_array(matrix.toarray(), chunks=(150, -1)).map_blocks(kind)


@pytest.mark.parametrize("kind", ["chunks", *(pytest.param(k, marks=pytest.mark.full) for k in ("csc", "uncounted"))])
def test_lazy_matrices_give_the_same_results_as_those_in_memory(kind, tmp_path):
    lazy = in_chunks(CSR, sp.csc_array if kind == "csc" else sp.csr_matrix)
    if kind == "uncounted":
        lazy._chunks = ((np.nan,) * 5, lazy.chunks[1])
    expected = KernelPCA(**OPTIONS).fit(CSR)
    found = KernelPCA(**OPTIONS).fit(lazy)
    np.testing.assert_array_equal(found.eigenvalues_, expected.eigenvalues_)
    scores = found.transform(lazy)
    assert isinstance(scores, da.Array)
    np.testing.assert_allclose(scores.compute(), expected.transform(CSR), atol=1e-12)  # its tiles are chunks
    np.testing.assert_allclose(found.residual(lazy).compute(), expected.residual(CSR))
    stored = bigkpca.transform(found.model_, lazy, tmp_path / "s.zarr")
    np.testing.assert_array_equal(stored[:], expected.transform(CSR))


def test_sparse_chunks_are_planned_with_less_memory():
    rows, dense = open_rows(in_chunks(CSR)), open_rows(da.from_array(DENSE, chunks=(150, -1)))
    assert (rows.sparse, dense.sparse) == (True, False)
    planned = [sample_bytes(given, resolve(FitSpec.checked(size=10), given), 2) for given in (rows, dense)]
    assert planned[0] < planned[1]


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of AnnData, about pandas and its own names
def test_matrices_of_anndata_itself(tmp_path):
    anndata = pytest.importorskip("anndata", reason="anndata is not installed")
    expected = KernelPCA(**OPTIONS).fit_transform(CSR)
    if hasattr(anndata.settings, "allow_write_nullable_strings"):  # which are the names in pandas 3
        anndata.settings.allow_write_nullable_strings = True
    whole = anndata.AnnData(X=sp.csr_matrix(CSR))
    whole.write_h5ad(tmp_path / "a.h5ad")
    whole.write_zarr(tmp_path / "a.zarr")
    for name in ("a.h5ad", "a.zarr"):
        X = anndata.experimental.read_lazy(tmp_path / name).X
        np.testing.assert_allclose(KernelPCA(**OPTIONS).fit_transform(X).compute(), expected, atol=1e-12)
        refused(open_rows, (tmp_path / name, SpecError, r"anndata\.experimental\.read_lazy\(.*\)\.X"))


def test_a_fit_gives_the_same_bits_as_of_dense_rows():
    dense = KernelPCA(**OPTIONS).fit(DENSE)
    scores = dense.transform(DENSE)
    for kind in ("csr_array", "csc_matrix", "coo_array", "bsr_array", "lil_array"):
        X = getattr(sp, kind)(CSR)
        found = KernelPCA(**OPTIONS)
        np.testing.assert_array_equal(found.fit_transform(X), scores, err_msg=kind)
        np.testing.assert_array_equal(found.eigenvalues_, dense.eigenvalues_, err_msg=kind)
        np.testing.assert_array_equal(found.transform(X), scores, err_msg=kind)
    assert isinstance(found.transform(CSR[:3]), np.ndarray)


def test_matrices_that_cannot_be_rows_or_are_damaged(tmp_path):
    of_anndata = r"pass .*anndata\.experimental\.read_lazy\('.*'\)\.X"
    sp.save_npz(tmp_path / "x.npz", CSR)
    group = zarr.open_group(tmp_path / "a.zarr", attributes={"encoding-type": "csr_matrix"})
    group.create_array("data", data=np.ones(1))
    (tmp_path / "x.h5ad").write_bytes(b"")
    of_scipy = r"pass an array in it, as in scipy\.sparse\.load_npz\('.*x\.npz'\) or numpy\.load\("
    for name, message in (("x.npz", of_scipy), ("a.zarr", of_anndata), ("x.h5ad", of_anndata)):
        refused(open_rows, (tmp_path / name, SpecError, message))
    for column, message in ((-1, "indices must be >= 0"), (30, "indices must be < 30")):
        wrong = CSR.copy()
        wrong.indices[5] = column
        refused(open_rows, (wrong, CorruptionError, f"the sparse matrix is damaged: .*{message}"))
    refused(open_rows, (sp.csr_array((0, 5)), DataError, "is empty"))
