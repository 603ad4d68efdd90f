"""Sparse rows: the same bits as dense ones, from memory, .npz and AnnData."""

import pickle
from contextlib import contextmanager

import dask.array as da
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data import sparse
from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, DataError, SpecError
from bigkpca.execution.plan import sample_bytes
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.describe import info

RNG = np.random.default_rng(4)
DENSE = RNG.normal(size=(700, 30)) * (RNG.random((700, 30)) < 0.1)
CSR = sp.csr_array(DENSE)


def in_group(group, matrix, kind="csr_matrix"):
    """A sparse matrix in a group of Zarr or HDF5, as AnnData writes it."""
    group.attrs.update({"encoding-type": kind, "encoding-version": "0.1.0", "shape": list(matrix.shape)})
    for name in ("data", "indices", "indptr"):
        values = getattr(matrix, name)
        options = {"chunks": (97,)} if name != "indptr" else {}
        create = group.create_array if isinstance(group, zarr.Group) else group.create_dataset
        create(name, shape=values.shape, dtype=values.dtype, **options)[:] = values


def anndata(root, matrix):
    """A file of AnnData with a sparse X, a dense layer, and names of its variables."""
    root.attrs["encoding-type"] = "anndata"
    in_group(root.create_group("X"), matrix)
    var = root.create_group("var")
    var.attrs["_index"] = "_index"
    names = np.array([f"gene {j}" for j in range(matrix.shape[1])])
    if isinstance(root, zarr.Group):  # of version 2, which most files of AnnData have
        var.create_array("_index", shape=names.shape, dtype=names.dtype)[:] = names
        root.create_array("dense", shape=matrix.shape, dtype="f8")[:] = matrix.toarray()
    else:
        var.create_dataset("_index", data=[name.encode() for name in names])


@contextmanager
def opened(path):
    """The root of a file of Zarr or HDF5, to change."""
    if path.suffix == ".zarr":
        yield zarr.open_group(str(path), mode="r+")
    else:
        with h5py.File(path, "r+") as file:
            yield file


def npz(path):
    sp.save_npz(path / "x.npz", CSR)
    return path / "x.npz"


def in_zarr(path):
    anndata(zarr.open_group(str(path / "x.zarr"), mode="w", zarr_format=2), CSR)
    return path / "x.zarr"


def in_zarr_alone(path):
    in_group(zarr.open_group(str(path / "alone.zarr"), mode="w"), CSR)
    return path / "alone.zarr"


def in_hdf5(path):
    with h5py.File(path / "x.h5ad", "w") as file:
        anndata(file, CSR)
    return path / "x.h5ad"


STORED = [npz, in_zarr, in_zarr_alone, in_hdf5]


@pytest.mark.parametrize("write", STORED)
def test_rows_are_those_of_the_dense_matrix(write, tmp_path):
    path = write(tmp_path)
    rows = open_rows(path)
    assert info(str(path))["kind"] == "sparse matrix"
    assert (rows.shape, rows.dtype) == (DENSE.shape, DENSE.dtype)
    assert rows.fingerprint() == open_rows(path).fingerprint()
    for start, stop in ((0, 700), (0, 1), (123, 456), (699, 700)):
        np.testing.assert_array_equal(rows.block(start, stop), DENSE[start:stop])
        np.testing.assert_array_equal(rows.block(start, stop, slice(3, 9)), DENSE[start:stop, 3:9])
        part = pickle.loads(pickle.dumps(rows.part(start, stop)))
        np.testing.assert_array_equal(part.block(start, stop), DENSE[start:stop])
    if write in (in_zarr, in_hdf5):
        assert rows.names == tuple(f"gene {j}" for j in range(30))
    if write is in_zarr:
        np.testing.assert_array_equal(open_rows(path, "dense").block(5, 9), DENSE[5:9])


class Backed:
    """A sparse matrix that AnnData has opened but not read: `anndata.read_h5ad(path, backed="r").X`."""

    format = "csr"

    def __init__(self, group):
        self.group, self.shape, self.dtype = group, tuple(group.attrs["shape"]), group["data"].dtype

    def to_memory(self):
        raise AssertionError("rows must be read block by block")


def in_chunks(matrix, kind=sp.csr_matrix):
    """A Dask array of sparse chunks, as `anndata.experimental.read_lazy` makes it."""
    return da.from_array(matrix.toarray(), chunks=(150, -1)).map_blocks(kind)


FULL = [pytest.param(kind, marks=pytest.mark.full) for kind in ("csc chunks", "uncounted", "zarr")]


@pytest.fixture(params=["chunks", "hdf5", *FULL])
def lazy(request, tmp_path):
    """CSR as a matrix that is not in memory."""
    if request.param == "hdf5":
        with h5py.File(in_hdf5(tmp_path), "r") as file:
            yield Backed(file["X"])
    elif request.param == "zarr":
        yield Backed(zarr.open_group(in_zarr(tmp_path), mode="r")["X"])
    else:
        chunks = in_chunks(CSR, sp.csc_array if request.param == "csc chunks" else sp.csr_matrix)
        if request.param == "uncounted":
            chunks._chunks = ((np.nan,) * 5, chunks.chunks[1])
        yield chunks


OPTIONS = {"n_components": 4, "size": 60, "random_state": 0}


def test_lazy_matrices_give_the_same_results_as_those_in_memory(lazy, tmp_path):
    expected = KernelPCA(**OPTIONS).fit(CSR)
    found = KernelPCA(**OPTIONS).fit(lazy)
    np.testing.assert_array_equal(found.eigenvalues_, expected.eigenvalues_)
    scores = found.transform(lazy)
    assert isinstance(scores, da.Array)
    np.testing.assert_allclose(scores.compute(), expected.transform(CSR), atol=1e-12)  # its tiles are chunks
    np.testing.assert_allclose(found.residual(lazy).compute(), expected.residual(CSR))
    stored = bigkpca.transform(found.model_, lazy, tmp_path / "s.zarr")
    np.testing.assert_array_equal(stored[:], expected.transform(CSR))


def test_parts_of_sparse_chunks():
    rows = open_rows(in_chunks(CSR))
    assert (rows.shape, rows.dtype, rows.sparse) == (DENSE.shape, DENSE.dtype, True)
    np.testing.assert_array_equal(rows.block(100, 320, slice(3, 9)), DENSE[100:320, 3:9])
    for columns in (slice(None), slice(0, 4), slice(3, 9)):
        part = rows.part(100, 320, columns).compute(scheduler="synchronous")
        np.testing.assert_array_equal(part.block(140, 310, columns), DENSE[140:310, columns])
    dense = open_rows(da.from_array(DENSE, chunks=(150, -1)))
    assert not dense.sparse
    planned = [sample_bytes(given, resolve(FitSpec.checked(size=10), given), 2) for given in (rows, dense)]
    assert planned[0] < planned[1]


def test_a_kernel_matrix_can_have_sparse_chunks():
    K = sp.csr_array(CSR[:200] @ CSR[:200].T)
    options = {"kernel": "precomputed", "n_components": 3}
    found = KernelPCA(**options).fit(in_chunks(K).rechunk((70, 90)))
    np.testing.assert_allclose(found.eigenvalues_, KernelPCA(**options).fit(K.toarray()).eigenvalues_)


def test_backed_matrices_that_cannot_be_read_again(tmp_path):
    path = in_hdf5(tmp_path)
    in_memory = zarr.open_group(zarr.storage.MemoryStore(), mode="w").create_group("X")
    in_group(in_memory, CSR)
    with h5py.File(path, "r+") as file:
        writable = Backed(file["X"])
        with pytest.raises(SpecError, match=r"x\.h5ad is open for writing: open it with .*backed='r'"):
            open_rows(writable)
    with pytest.raises(SpecError, match=r"the file of the backed matrix is closed: open it again"):
        open_rows(writable)
    with pytest.raises(SpecError, match=r"in a Zarr store without a path: pass its to_memory\(\)"):
        open_rows(Backed(in_memory))


def test_names_of_other_variables_are_not_used(tmp_path):
    path = in_hdf5(tmp_path)
    with h5py.File(path, "r+") as file:
        in_group(file.create_group("raw/X"), sp.csr_array(sp.hstack([CSR, CSR])))
    assert open_rows(path, "raw/X").names is None
    assert open_rows(path, "X").names is not None


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # of AnnData, about pandas and its own names
def test_matrices_of_anndata_itself(tmp_path):
    anndata = pytest.importorskip("anndata", reason="stand-ins of its matrices are tested above")
    expected = KernelPCA(**OPTIONS).fit_transform(CSR)
    if hasattr(anndata.settings, "allow_write_nullable_strings"):  # which are the names in pandas 3
        anndata.settings.allow_write_nullable_strings = True
    whole = anndata.AnnData(X=sp.csr_matrix(CSR))
    whole.write_h5ad(tmp_path / "a.h5ad")
    whole.write_zarr(tmp_path / "a.zarr")
    backed = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    lazy = [anndata.experimental.read_lazy(tmp_path / name).X for name in ("a.h5ad", "a.zarr")]
    stored = anndata.io.sparse_dataset(zarr.open_group(tmp_path / "a.zarr", mode="r")["X"])
    for X in (backed.X, stored, *lazy):
        np.testing.assert_allclose(KernelPCA(**OPTIONS).fit_transform(X).compute(), expected, atol=1e-12)
    backed.file.close()


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
    assert open_rows(CSR).fingerprint() == open_rows(CSR.copy()).fingerprint() != open_rows(2 * CSR).fingerprint()


def test_matrices_that_cannot_be_rows(tmp_path):
    np.savez(tmp_path / "dense.npz", x=DENSE)
    in_group(zarr.open_group(str(tmp_path / "csc.zarr"), mode="w"), sp.csc_array(DENSE), "csc_matrix")
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["x"] = DENSE
    for path, array, message in (
        (tmp_path / "dense.npz", None, r"dense\.npz does not contain a SciPy sparse matrix .*bigkpca ingest"),
        (tmp_path / "csc.zarr", None, r"csc\.zarr is stored by columns \(CSC\)"),
        (tmp_path / "plain.h5", None, r"plain\.h5 does not contain an AnnData sparse matrix"),
        (in_zarr(tmp_path), "Y", "x.zarr contains no matrix 'Y'"),
        (in_zarr_alone(tmp_path), "Y", "alone.zarr is one matrix"),
    ):
        with pytest.raises(SpecError, match=message):
            open_rows(path, array)
    with pytest.raises(DataError, match="is empty"):
        open_rows(sp.csr_array((0, 5)))


def test_damaged_matrices_are_told(tmp_path):
    path = in_zarr_alone(tmp_path)
    group = zarr.open_group(str(path), mode="r+")
    group["indices"][:] = 30
    with pytest.raises(CorruptionError, match=r"alone\.zarr: rows 0 to 4 cannot be read"):
        open_rows(path).block(0, 5)
    group["indptr"][5] = 10**6
    with pytest.raises(CorruptionError, match="indptr does not match a matrix of 700 rows"):
        open_rows(path)
    for write, node in ((in_zarr_alone, "/"), (in_hdf5, "X")):
        for part, message in (
            ("shape", r"needs an attribute 'shape' of two whole numbers, but has None"),
            ("indices", "the sparse matrix lacks indices"),
        ):
            path = write(tmp_path)
            with opened(path) as root:
                del (root[node].attrs if part == "shape" else root[node])[part]
            with pytest.raises(CorruptionError, match=message):
                open_rows(path)
    npz(tmp_path).write_bytes((tmp_path / "x.npz").read_bytes()[:-30])
    (tmp_path / "x.h5ad").write_bytes(b"no HDF5")
    for name in ("x.npz", "x.h5ad"):
        with pytest.raises(CorruptionError, match=f"{name} cannot be read"):
            open_rows(tmp_path / name)


def test_a_matrix_is_read_by_ranges_that_are_dense_in_few_megabytes():
    wide = sparse.sparse_rows(sp.random_array((50, 200_000), density=1e-4, rng=RNG, format="csr"))
    assert wide.grain == 1
    assert wide.block(3, 5).shape == (2, 200_000)
