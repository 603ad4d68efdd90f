"""Parquet and HDF5: columns and data sets that can be rows or labels, and those that cannot."""

import h5py
import numpy as np
import pyarrow as pa

from bigkpca.errors import DataError, SpecError
from bigkpca.ingesting.formats import arrow
from tests.ingesting.files import X, Y, made, refuse


def test_parquet_with_nulls_or_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "READ_BYTES", 64)
    numbers = {"a": np.arange(22), "b": pa.array([*range(20), None, 3])}
    table = numbers | {"name": ["x"] * 22, "on": [b"1"] * 22}
    both = r"(?s)2 columns cannot .*row 0, column 2 \('name'\) is 'x', .*row 20, column 1 \('b'\) is missing"
    refuse(tmp_path, DataError, both, table, labels="on")
    refuse(tmp_path, DataError, r"a\.parquet: column 3 \('on'\) is of type binary: not numbers", table)
    refuse(tmp_path, SpecError, "unknown column of .* 'nam': did you mean 'name'", table, labels="nam")
    refuse(tmp_path, DataError, r"row 20, column 1 \('b'\) is missing", numbers)
    words = {"a": pa.array(["x"] * 22).dictionary_encode()}
    refuse(tmp_path, DataError, r"row 0, column 0 \('a'\) is 'x', not a number, and 21 more", words)
    refuse(tmp_path, DataError, "is empty", {"a": np.arange(0)})


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


def test_hdf5_data_sets_that_cannot_be_rows_or_labels_are_refused_or_passed_over(tmp_path):
    source = hdf5_of_all_kinds(tmp_path / "a.h5")
    refuse(tmp_path, SpecError, r"holds the arrays \['empty', 'x'\]: name one", source)
    np.testing.assert_array_equal(made(tmp_path, source, member="x", labels="y")["x"], X)
    for member, message in (
        ("null", r"has shape \(0,\): rows must be two-dimensional"),
        ("scalar", r"has shape \(\): rows must be two-dimensional"),
        ("empty", r"is empty: shape \(0, 5\)"),
        ("compound", r"holds .* values: rows must be real numbers"),
        ("reference", r"holds object values: rows must be real numbers"),
        ("ragged", r"holds object values: rows must be real numbers"),
        ("time", r"holds object values: rows must be real numbers"),
    ):
        refuse(tmp_path, DataError, rf"a\.h5:{member} {message}", source, member=member)
    refuse(tmp_path, SpecError, "null holds 0 labels for 300 rows", source, member="x", labels="null")
    refuse(tmp_path, DataError, "latin is not UTF-8 text: 'utf-8' codec", source, member="x", labels="latin")
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
        found, of_text = made(tmp_path, {"a": X[:2, 0], "y": values}, labels="y"), isinstance(expected, list)
        assert found["categories"] == (expected if of_text else None)
        assert found["y"].dtype == (np.int32 if of_text else expected.dtype), values.type
        np.testing.assert_array_equal(found["y"], [0, 1] if of_text else expected)
    for values, kind in ((pa.array([[1], [2]]), "list<"), (pa.array([b"\xff", b"q"]), "binary")):
        message = f"a.parquet:y, of type {kind}.* cannot be labels, which must be numbers or UTF-8 text"
        refuse(tmp_path, DataError, message, {"a": X[:2, 0], "y": values}, labels="y")
