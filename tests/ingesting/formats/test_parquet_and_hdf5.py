"""Parquet and HDF5: columns and data sets that can be rows or labels, and those that cannot."""

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bigkpca.errors import DataError, SpecError
from bigkpca.ingesting.formats import parquet
from bigkpca.ingesting.streaming import ingest
from tests.ingesting.files import X, Y, about, labels_of, refuse, rows_of


def test_parquet_with_nulls_or_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "READ_BYTES", 64)
    source = tmp_path / "a.parquet"
    values = pa.array([*range(20), None, 3])
    pq.write_table(pa.table({"a": np.arange(22), "b": values, "name": ["x"] * 22, "on": [b"1"] * 22}), source)
    both = r"(?s)2 columns cannot .*row 0, column 2 \('name'\) is 'x', .*row 20, column 1 \('b'\) is missing"
    refuse(tmp_path, DataError, both, source, labels="on")
    refuse(tmp_path, DataError, r"a\.parquet: column 3 \('on'\) is of type binary: neither numbers", source)
    refuse(tmp_path, SpecError, "unknown column of .* 'nam': did you mean 'name'", source, labels="nam")
    pq.write_table(pa.table({"a": np.arange(22), "b": values}), source)
    refuse(tmp_path, DataError, r"row 20, column 1 \('b'\) is missing", source)
    pq.write_table(pa.table({"a": pa.array(["x"] * 22).dictionary_encode()}), source)
    refuse(tmp_path, DataError, r"row 0, column 0 \('a'\) is 'x', not a number, and 21 more", source)
    pq.write_table(pa.table({"a": np.arange(0)}), source)
    refuse(tmp_path, DataError, "is empty", source)


def hdf5_of_all_kinds(path):
    """A file of rows x and y, and of data sets that can be neither rows nor labels."""
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = X, Y
        file.create_dataset("null", data=h5py.Empty("f4"))
        file.create_dataset("scalar", data=3.0)
        file.create_dataset("empty", shape=(0, 5), dtype="f4")
        file.create_dataset("compound", data=np.zeros((300, 2), [("a", "i4"), ("b", "f4")]))
        file.create_dataset("reference", shape=(300, 2), dtype=h5py.ref_dtype)
        file.create_dataset("ragged", shape=(300, 2), dtype=h5py.vlen_dtype("i4"))
        file.create_dataset("latin", data=np.array([b"\xff"] * 300))
        space = h5py.h5s.create_simple((300, 2))
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, space)  # which NumPy does not have
    return path


def test_hdf5_data_sets_that_cannot_be_rows_are_refused_or_passed_over(tmp_path):
    source = hdf5_of_all_kinds(tmp_path / "a.h5")
    refuse(tmp_path, SpecError, r"holds the arrays \['empty', 'x'\]: name one", source)
    done = ingest([source], tmp_path / "fine.zarr", member="x", labels="y")
    np.testing.assert_array_equal(rows_of(done.path), X)
    for member, message in (
        ("null", r"a\.h5:null has shape \(0,\): rows must be two-dimensional"),
        ("scalar", r"a\.h5:scalar has shape \(\): rows must be two-dimensional"),
        ("empty", r"a\.h5:empty is empty: shape \(0, 5\)"),
        ("compound", r"a\.h5:compound holds .* values: rows must be real numbers"),
        ("reference", r"a\.h5:reference holds object values: rows must be real numbers"),
        ("ragged", r"a\.h5:ragged holds object values: rows must be real numbers"),
        ("time", r"a\.h5:time holds object values: rows must be real numbers"),
    ):
        refuse(tmp_path, DataError, message, source, member=member)


def test_hdf5_data_sets_that_cannot_be_labels_are_refused(tmp_path):
    source = hdf5_of_all_kinds(tmp_path / "a.h5")
    refuse(tmp_path, SpecError, "null holds 0 labels for 300 rows", source, member="x", labels="null")
    refuse(tmp_path, DataError, "latin is not text in UTF-8: 'utf-8' codec", source, member="x", labels="latin")
    for labels in ("scalar", "compound", "reference", "time"):
        message = rf"a\.h5:{labels} has shape .* labels are \(n,\), text or numbers of at most 8 bytes"
        refuse(tmp_path, DataError, message, source, member="x", labels=labels)
    np.savez(tmp_path / "a.npz", x=X, y=Y.astype(np.longdouble))
    refuse(tmp_path, DataError, "a.npz:y has shape .* at most 8 bytes", tmp_path / "a.npz", labels="y")


def test_parquet_labels_of_every_type(tmp_path):
    for values, expected in (
        (pa.array([2**64 - 1, 3], pa.uint64()), np.array([2**64 - 1, 3], np.uint64)),
        (pa.array([True, False]), np.array([True, False])),
        (pa.array([2**40, 3]).dictionary_encode(), np.array([2**40, 3])),
        (pa.array([0, 10**6], pa.timestamp("us")), ["1970-01-01 00:00:00.000000", "1970-01-01 00:00:01.000000"]),
        (pa.array([0, 1], pa.date32()), ["1970-01-01", "1970-01-02"]),
        (pa.array([b"p", b"q"]), ["p", "q"]),
    ):
        pq.write_table(pa.table({"a": X[:2, 0], "y": values}), tmp_path / "a.parquet")
        out = ingest([tmp_path / "a.parquet"], tmp_path / "out.zarr", labels="y", overwrite=True).path
        of_text = isinstance(expected, list)
        assert about(out).get("categories") == (expected if of_text else None)
        assert labels_of(out).dtype == (np.int32 if of_text else expected.dtype), values.type
        np.testing.assert_array_equal(labels_of(out), [0, 1] if of_text else expected)


def test_parquet_labels_without_words_are_refused(tmp_path):
    for values, kind in ((pa.array([[1], [2]]), "list<"), (pa.array([b"\xff", b"q"]), "binary")):
        pq.write_table(pa.table({"a": X[:2, 0], "y": values}), tmp_path / "a.parquet")
        message = f"a.parquet:y, of type {kind}.* cannot be labels, which are numbers or text in UTF-8"
        refuse(tmp_path, DataError, message, tmp_path / "a.parquet", labels="y")
