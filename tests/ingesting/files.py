"""Rows and labels written in every format, and what a dataset made of them holds."""

import gzip
import struct

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigkpca.ingesting.streaming import ingest
from bigkpca.storage import groups

RNG = np.random.default_rng(7)
X = RNG.normal(size=(300, 5))
Y = RNG.integers(0, 4, 300)
WORDS = np.array(["pear", "apple", "fig", "plum"])


def idx_bytes(values):
    code = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}[values.dtype.str[1:]]
    head = bytes([0, 0, code, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return head + values.astype(values.dtype.newbyteorder(">")).tobytes()


def csv_text(X, names=None, labels=None, mark=","):
    lines = [] if names is None else [mark.join(names)]
    for i, row in enumerate(X):
        fields = [repr(float(value)) for value in row]
        lines.append(mark.join([str(labels[i]), *fields] if labels is not None else fields))
    return "\n".join(lines) + "\n"


def npy(path, values):
    np.save(path, values)
    return path


def rows_of(path):
    return zarr.open_group(path, mode="r")["x"][:]


def labels_of(path):
    return zarr.open_group(path, mode="r")["y"][:]


def about(path):
    return groups.describe(str(path))


def write_npy(path, X, y):
    return npy(path / "a.npy", X), {}


def write_big_endian_fortran_npy(path, X, y):
    return npy(path / "a.npy", np.asfortranarray(X.astype(X.dtype.newbyteorder(">")))), {}


def write_npz(path, X, y):
    np.savez_compressed(path / "a.npz", data=X, y=y, scalar=3)
    return path / "a.npz", {"labels": "y"}


def write_fortran_npz(path, X, y):
    np.savez(path / "a.npz", data=np.asfortranarray(X), other=X[:2], y=y)
    return path / "a.npz", {"labels": "y", "member": "data"}


def write_idx(path, X, y):
    (path / "rows").write_bytes(idx_bytes(X))
    (path / "labels").write_bytes(idx_bytes(y.astype(np.uint8)))
    return path / "rows", {"labels": str(path / "labels")}


def write_idx_gz(path, X, y):
    (path / "rows-ubyte.gz").write_bytes(gzip.compress(idx_bytes(X)))
    (path / "labels.gz").write_bytes(gzip.compress(idx_bytes(y.astype(np.int32))))
    return path / "rows-ubyte.gz", {"labels": str(path / "labels.gz")}


def write_csv(path, X, y):
    (path / "a.csv").write_text(csv_text(X, ["kind", *"abcde"], y))
    return path / "a.csv", {"labels": "kind"}


def write_csv_gz(path, X, y):
    (path / "a.csv.gz").write_bytes(gzip.compress(csv_text(X, mark=";").encode("utf-8-sig")))
    npy(path / "y.npy", y)
    return path / "a.csv.gz", {"labels": str(path / "y.npy")}


def write_parquet(path, X, y):
    columns = dict(zip("abcde", X.T, strict=True))
    pq.write_table(pa.table({"label": y, **columns}), path / "a.parquet", row_group_size=70)
    return path / "a.parquet", {"labels": "label"}


def write_hdf5(path, X, y):
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("deep/x", data=X, chunks=(50, 2), compression="gzip")
        file["y"] = y
    return path / "a.h5", {"labels": "y"}


WRITERS = [write_npy, write_big_endian_fortran_npy, write_npz, write_fortran_npz, write_idx, write_idx_gz]
WRITERS += [write_csv, write_csv_gz, write_parquet, write_hdf5]


def refuse(tmp_path, error, message, *sources, **options):
    with pytest.raises(error, match=message):
        ingest(sources, tmp_path / "out.zarr", **options)
    assert not list(tmp_path.glob("out.zarr*"))
