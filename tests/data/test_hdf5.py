"""Datasets of h5py are read by slices, also lazily, in other processes, and after their file was closed."""

import pickle
import time

import dask
import dask.array as da
import h5py
import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import take, tiles
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.execution.projection import score_rows
from tests.helpers.lazy import refuse
from tests.helpers.memory import traced_peak

X = np.random.default_rng(0).normal(size=(503, 6))
OPTIONS = {"n_components": 3, "size": 40, "random_state": 0}


@pytest.fixture
def path(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["plain"] = X
        file.create_dataset("group/chunked", data=X.astype(">f4"), chunks=(64, 4), compression="gzip")
    return tmp_path / "a.h5"


def test_a_dataset_is_the_rows_of_its_values(path):
    with h5py.File(path) as file:
        for name, values in (("plain", X), ("group/chunked", X.astype("f4"))):
            rows = open_rows(file[name])
            assert (rows.shape, rows.names, rows.where) == (X.shape, None, f"{path}:/{name}")
            np.testing.assert_array_equal(rows.block(20, 455), values[20:455])
            np.testing.assert_array_equal(np.concatenate([*tiles(rows, 0, 503, 16)]), values)
            np.testing.assert_array_equal(take(rows, np.array([0, 63, 64, 502])), values[[0, 63, 64, 502]])
        assert (open_rows(file["plain"]).grain, rows.grain) == (503, 64)


def test_fits_and_results_are_those_of_the_array(path):
    plain = KernelPCA(**OPTIONS).fit(X)
    with h5py.File(path) as file:
        kpca = KernelPCA(**OPTIONS).fit(file["plain"])
        np.testing.assert_array_equal(kpca.eigenvalues_, plain.eigenvalues_)
        with dask.config.set(scheduler=refuse):
            scores, residual = kpca.transform(file["plain"]), kpca.residual(file["plain"])
        assert isinstance(scores, da.Array)
        stored = bigkpca.transform(kpca.model_, file["plain"], path.with_name("s.zarr"))
        np.testing.assert_allclose(stored[:], plain.transform(X), atol=1e-12)
        np.testing.assert_allclose(scores.compute(), plain.transform(X), atol=1e-12)
    np.testing.assert_allclose(residual.compute(), plain.residual(X), atol=1e-12)  # its file is closed now


@pytest.mark.full
def test_workers_open_the_file_themselves(path, two_processes):
    with h5py.File(path) as file:
        found = score_rows(open_rows(file["plain"]), KernelPCA(**OPTIONS).fit(X).model_, two_processes)
    np.testing.assert_allclose(found, KernelPCA(**OPTIONS).fit(X).transform(X), atol=1e-12)


def test_other_processes_read_the_version_that_was_opened(path):
    with h5py.File(path) as file:
        rows = open_rows(file["plain"])
        sent = pickle.loads(pickle.dumps(rows.part(0, 503)))
        assert sent.dataset is None
        assert sent.fingerprint() == rows.fingerprint() != open_rows(file["group/chunked"]).fingerprint()
        np.testing.assert_array_equal(sent.block(30, 40), X[30:40])
    time.sleep(0.01)
    with h5py.File(path, "r+") as file:
        file["plain"][0] = 0
    with pytest.raises(IncompleteError, match=r"a\.h5:/plain changed while it was being read"):
        sent.block(30, 40)
    path.unlink()
    with pytest.raises(CorruptionError, match=r"a\.h5 is missing; restore it"):  # as on a worker that does not see it
        sent.block(30, 40)


def test_what_of_hdf5_is_not_rows(path):
    with h5py.File(path) as file:
        for use in (open_rows, KernelPCA(1).fit):
            with pytest.raises(SpecError, match=r"a\.h5:/ is a group of \['group', 'plain'\]: pass a dataset in it"):
                use(file)
        closed = file["plain"]
    with pytest.raises(SpecError, match="the file of the h5py dataset is closed: open it again"):
        open_rows(closed)
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        file["x"], file["cube"], file["text"] = X, np.zeros((2, 3, 4)), ["a", "b"]
        with pytest.raises(SpecError, match=r"not in a file on disk: pass its values, as in X\[:\]"):
            open_rows(file["x"])
    with h5py.File(path, "r+") as file:
        file["cube"], file["complex"] = np.zeros((2, 3, 4)), X + 1j
        with pytest.raises(DataError, match=r":/cube has shape \(2, 3, 4\): rows must be two-dimensional"):
            open_rows(file["cube"])
        with pytest.raises(DataError, match=":/complex holds complex128 values"):
            open_rows(file["complex"])


def test_a_damaged_chunk_is_named(path):
    with h5py.File(path) as file:
        at = file["group/chunked"].id.get_chunk_info(0).byte_offset
    content = bytearray(path.read_bytes())
    content[at : at + 40] = b"\xff" * 40
    path.write_bytes(content)
    damaged = pytest.raises(CorruptionError, match=r"chunked: rows 0 to 9 cannot be read .*restore")
    with h5py.File(path) as file, damaged:
        open_rows(file["group/chunked"]).block(0, 10)


@pytest.mark.full
def test_rows_are_streamed(tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.spec.DRAWN_ROWS", 256)  # whose kernels take as much for any number of rows
    with h5py.File(tmp_path / "b.h5", "w") as file:
        values = file.create_dataset("x", (200_000, 50), "f8", chunks=(1000, 50))  # 80 MB
        for start in range(0, 200_000, 10_000):
            values[start : start + 10_000] = np.random.default_rng(start).normal(size=(10_000, 50))

    def fit():
        with h5py.File(tmp_path / "b.h5") as file:
            KernelPCA(2, method="rff", size=20, random_state=0).fit(file["x"])

    assert traced_peak(fit, attempts=1) < 0.7 * 80e6
