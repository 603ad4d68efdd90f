"""Sparse rows: the same bits as dense ones, from memory, .npz and AnnData."""

import pickle
from contextlib import contextmanager

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigkpca import KernelPCA
from bigkpca.data import sparse
from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, DataError, SpecError
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


def test_a_fit_gives_the_same_bits_as_of_dense_rows():
    options = {"n_components": 4, "size": 60, "random_state": 0}
    dense = KernelPCA(**options).fit(DENSE)
    scores = dense.transform(DENSE)
    for kind in ("csr_array", "csc_matrix", "coo_array", "bsr_array", "lil_array"):
        X = getattr(sp, kind)(CSR)
        found = KernelPCA(**options)
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
