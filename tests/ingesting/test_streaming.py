"""Every format against plain NumPy, and the promises of ingest: checked, bounded, atomic, repeatable."""

from __future__ import annotations

import errno
import gzip
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, DataError, IncompleteError, LockedError, SpecError
from bigkpca.ingesting import streaming as ingest_module
from bigkpca.ingesting.formats import binary, columnar, table, text
from bigkpca.ingesting.streaming import Ingested, ingest, shard_rows
from bigkpca.storage import destination, durable, groups, locks
from tests.helpers.disks import small_disk, tree_bytes
from tests.helpers.files import shared_file
from tests.helpers.stores import sha256

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


# Formats: what comes out is what plain NumPy holds


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


WRITERS = [
    write_npy,
    write_big_endian_fortran_npy,
    write_npz,
    write_fortran_npz,
    write_idx,
    write_idx_gz,
    write_csv,
    write_csv_gz,
    write_parquet,
    write_hdf5,
]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("piece_bytes", [2**23, 1000, 1])
def test_every_format_gives_the_rows_and_labels_of_numpy(tmp_path, monkeypatch, write, piece_bytes):
    for module in (table, columnar):
        monkeypatch.setattr(module, "READ_BYTES", piece_bytes)
    monkeypatch.setattr(text, "_TEXT_BYTES", piece_bytes)
    source, options = write(tmp_path, X, Y)
    done = ingest([source], tmp_path / "out.zarr", block_rows=64, **options)
    assert done == Ingested(str(tmp_path / "out.zarr"), 300, 5, (5,), np.dtype(float), "labels" in options, False)
    np.testing.assert_array_equal(rows_of(done.path), X)
    if options:
        np.testing.assert_array_equal(labels_of(done.path), Y)
    assert about(done.path)["provenance"] == [
        {"sources": [source.name], "rows": [0, 300], "sha256": sha256(X)},
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=hnp.arrays(
        st.sampled_from([np.dtype(t) for t in ("u1", "i1", "i2", "i4", "f4", "f8")]),
        hnp.array_shapes(min_dims=2, max_dims=4, max_side=6),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
    block_rows=st.integers(1, 7),
    fortran=st.booleans(),
)
def test_any_shape_and_type_is_flattened_and_kept(tmp_path_factory, values, block_rows, fortran):
    path = tmp_path_factory.mktemp("any")
    stored = np.asfortranarray(values) if fortran else values
    np.savez(path / "a.npz", stored)
    (path / "a").write_bytes(idx_bytes(values))
    for source in (npy(path / "a.npy", stored), path / "a.npz", path / "a"):
        done = ingest([source], f"{path}/{source.name}.zarr", block_rows=block_rows)
        assert done.row_shape == tuple(about(done.path)["row_shape"]) == values.shape[1:]
        assert done.dtype == values.dtype
        np.testing.assert_array_equal(rows_of(done.path), values.reshape(len(values), -1))


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet", "hdf5", "file", "npy"])
def test_text_labels_become_codes_by_first_appearance(tmp_path, kind):
    words, labels = WORDS[Y], None
    if kind == "npz":
        np.savez(tmp_path / "a.npz", x=X, y=words)
        source, labels = tmp_path / "a.npz", "y"
    elif kind == "csv":
        source, labels = tmp_path / "a.csv", "kind"
        source.write_text(csv_text(X, ["kind", *"abcde"], words, "\t"))
    elif kind == "parquet":
        source, labels = tmp_path / "a.parquet", "kind"
        column = pa.array(words).dictionary_encode()
        pq.write_table(pa.table({"a": X[:, 0], "kind": column, "b": X[:, 1].astype("f4")}), source)
    elif kind == "hdf5":
        source, labels = tmp_path / "a.h5", "y"
        with h5py.File(source, "w") as file:
            file["x"], file["y"] = X, [str(word) for word in words]
    else:
        source, labels = npy(tmp_path / "a.npy", X), str(tmp_path / f"labels.{kind if kind == 'npy' else 'csv'}")
        if kind == "npy":
            np.save(labels, words)
        else:
            Path(labels).write_text("\n".join(["kind", *words]))
    done = ingest([source], tmp_path / "out.zarr", labels=labels)
    categories = about(done.path)["categories"]
    assert categories == list(dict.fromkeys(words.tolist()))
    assert labels_of(done.path).dtype == np.int32
    np.testing.assert_array_equal(np.array(categories)[labels_of(done.path)], words)
    assert rows_of(done.path).shape == (300, 2 if kind == "parquet" else 5)


@pytest.mark.parametrize(("labels", "dtype"), [(["1", "2"], "i8"), (["1", "2.5"], "f8"), (["1", "b"], "i4")])
def test_a_label_column_has_the_narrowest_kind_of_its_texts(tmp_path, labels, dtype):
    (tmp_path / "a.csv").write_text(csv_text(X[:2], ["y", *"abcde"], labels))
    done = ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", labels="y")
    assert labels_of(done.path).dtype == dtype


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([2**63, 1], np.array([2**63, 1], np.uint64)),
        ([2**64 - 1, 2**64 - 2], np.array([2**64 - 1, 2**64 - 2], np.uint64)),
        ([10**20, 10**20 + 1, 10**20], np.array([0, 1, 0], np.int32)),  # text: as floats both would be one
        ([-1, 2**63], np.array([0, 1], np.int32)),
        (["1e5", "3"], np.array([1e5, 3])),
    ],
    ids=["beyond int64", "up to 2^64", "beyond 64 bits", "of both signs", "floats"],
)
def test_long_whole_labels_are_kept_apart(tmp_path, labels, expected):
    (tmp_path / "a.csv").write_text(csv_text(X[: len(labels)], ["y", *"abcde"], labels))
    found = labels_of(ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", labels="y").path)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_a_long_label_far_down_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("k,a\n" + "1,2\n" * 20000 + f"{2**63},2\n")
    refuse(tmp_path, DataError, "row 20000 .* has the label '9223372036854775808', but", tmp_path / "a.csv", labels="k")


@pytest.mark.parametrize("first", ["PAR1", "PK", "PAR1,b", "GIF89a,b", "CDF", "IDX,b"])
@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".csv.gz", ".CSV.GZ"])
def test_a_csv_may_begin_as_other_formats_do(tmp_path, first, suffix):
    names = (first + ",z").split(",")
    body = (",".join(names) + "\n" + ",".join("1" * len(names)) + "\n").encode()
    (tmp_path / f"a{suffix}").write_bytes(gzip.compress(body) if suffix.lower().endswith("gz") else body)
    done = ingest([tmp_path / f"a{suffix}"], tmp_path / "out.zarr")
    np.testing.assert_array_equal(rows_of(done.path), [[1] * len(names)])


def test_parquet_of_any_suffix_is_known_by_both_its_ends(tmp_path):
    source, _ = write_parquet(tmp_path, X, Y)
    for name in ("rows.csv", "rows", "rows.npy"):
        done = ingest([source.rename(tmp_path / name)], tmp_path / f"{name}.zarr", labels="label")
        np.testing.assert_array_equal(rows_of(done.path), X)
        source = tmp_path / name


def test_csv_forgives_blank_lines_and_quotes(tmp_path):
    (tmp_path / "a.csv").write_text('\n"a, b","c"\r\n"1",2\n\n 3 ,"4"\n\n')
    done = ingest([tmp_path / "a.csv"], tmp_path / "out.zarr")
    np.testing.assert_array_equal(rows_of(done.path), [[1, 2], [3, 4]])


# Several sources, types, labels in one file


def test_several_sources_follow_each_other_in_order(tmp_path):
    a, b = npy(tmp_path / "a.npy", X[:100]), npy(tmp_path / "b.npy", X[100:].astype(">f8"))
    (tmp_path / "c.csv").write_text(csv_text(X))
    (tmp_path / "y.csv").write_text("".join(f"{i}\n" for i in range(600)))
    done = ingest([a, b, tmp_path / "c.csv"], tmp_path / "o.zarr", labels=str(tmp_path / "y.csv"), block_rows=64)
    np.testing.assert_array_equal(rows_of(done.path), np.concatenate([X, X]))
    np.testing.assert_array_equal(labels_of(done.path), np.arange(600))
    assert [source["path"] for source in about(done.path)["sources"]] == [str(a), str(b), str(tmp_path / "c.csv")]
    assert about(done.path)["provenance"][0]["sources"] == ["a.npy", "b.npy", "c.csv"]


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool", "float64"])
def test_dtype_casts_sources_of_different_types(tmp_path, dtype):
    a, b = npy(tmp_path / "a.npy", np.ones((3, 2), "u1")), npy(tmp_path / "b.npy", np.zeros((3, 2), "f4"))
    done = ingest([a, b], tmp_path / "out.zarr", dtype=dtype)
    assert done.dtype == dtype
    np.testing.assert_array_equal(rows_of(done.path), np.repeat([[1, 1], [0, 0]], 3, axis=0))


@pytest.mark.parametrize(
    ("value", "source", "dtype"),
    [
        (300, "i8", "u1"),
        (-1, "i8", "u8"),
        (-1, "i1", "u2"),
        (2**63, "u8", "i8"),
        (1.5, "f8", "i4"),
        (1e300, "f8", "f4"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_named(tmp_path, value, source, dtype):
    values = np.zeros((4, 3), source)
    values[2, 1] = value
    with pytest.raises(DataError, match=r"a\.npy: row 2, column 1 .* which .* cannot hold"):
        ingest([npy(tmp_path / "a.npy", values)], tmp_path / "out.zarr", dtype=dtype)


def test_the_shard_rule_does_not_know_n(tmp_path):
    assert shard_rows(8) == 65536
    assert shard_rows(784) == 8192
    assert shard_rows(2**23) == 1
    assert shard_rows(2**30) == 1
    assert shard_rows(8, 100) == 100
    done = ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr")
    x = zarr.open_group(done.path)["x"]
    assert x.shards == (65536, 5)
    assert x.metadata.dimension_names == ("row", "column")


# Bad input: what, where, what to do


def test_nan_is_named_by_row_and_column_of_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "READ_BYTES", 400)
    bad = X.copy()
    bad[123, 3] = np.nan
    a, b = npy(tmp_path / "a.npy", X), npy(tmp_path / "b.npy", bad)
    with pytest.raises(DataError, match=r"b\.npy: row 123, column 3 is NaN"):
        ingest([a, b], tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(
    ("lines", "labels", "message"),
    [
        ("a,b\n1,2\n3,\n", None, r"row 1, column 1 \('b'\) is empty"),
        ("1,2\n3,x\n", None, r"row 1, column 1 is 'x', not a number"),
        ("k,a\nr,1\ns,t\n", "k", r"row 1, column 1 \('a'\) is 't'"),
        ("k,a,b\nr,1,2\ns,3,nan\n", "k", r"row 1, column 2 \('b'\) is NaN"),
        ("a,b\n1,2\n3,4,5\n", None, r"row 1 has 3 fields, the first line 2"),
        ("a,b,c\n1,2\n", None, r"row 0 has 2 fields, the first line 3"),
        ("1,2\n1_0,3\n", None, r"rows 0 to 1 do not parse: could not convert"),
        ("k,a\n,1\n", "k", r"row 0 .* has no label"),
        ("k\n1\n", "k", r"no column but its labels"),
        ("", None, r"a\.csv is empty"),
        ("a,b\n", None, r"a\.csv is empty: it holds no rows"),
        ("a,b\n1,\xff\n", None, r"is not text in UTF-8"),
        ("k,a\n" + "1,2\n" * 20000 + "x,2\n", "k", r"row 20000 .* has the label 'x', but the first ones are int64"),
    ],
)
def test_a_csv_with_bad_fields_is_refused(tmp_path, lines, labels, message):
    (tmp_path / "a.csv").write_bytes(lines.encode("latin1"))
    with pytest.raises(DataError, match=message):
        ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", labels=labels)


def refuse(tmp_path, error, message, *sources, **options):
    with pytest.raises(error, match=message):
        ingest(sources, tmp_path / "out.zarr", **options)
    assert not list(tmp_path.glob("out.zarr*"))


def test_sources_that_do_not_fit_together_are_refused(tmp_path):
    a, narrow = npy(tmp_path / "a.npy", X), npy(tmp_path / "b.npy", X[:, :4])
    single = npy(tmp_path / "c.npy", X.astype("f4"))
    refuse(tmp_path, SpecError, "nothing to ingest")
    refuse(tmp_path, SpecError, r"none\.npy does not exist", tmp_path / "none.npy")
    refuse(tmp_path, SpecError, "is a folder", tmp_path)
    refuse(tmp_path, SpecError, r"b\.npy has 4 columns, .*a\.npy has 5", a, narrow)
    refuse(tmp_path, SpecError, "holds float32, .*float64: choose one type with --dtype", a, single)
    refuse(tmp_path, SpecError, "'real' is not a type of numbers", a, dtype="real")
    refuse(tmp_path, SpecError, "cannot be stored as complex128", a, dtype="complex128")
    refuse(tmp_path, SpecError, "block_rows is 0", a, block_rows=0)
    refuse(tmp_path, SpecError, "choose one", a, append=True, overwrite=True)
    refuse(tmp_path, SpecError, "has no members, so --member x", a, member="x")
    refuse(tmp_path, SpecError, "--labels y: no such file", a, labels="y")
    with pytest.raises(SpecError, match="only local paths can be written"):
        ingest([a], "s3://bucket/x.zarr")
    for name, labels in (("d.csv", WORDS), ("e.csv", range(4))):
        (tmp_path / name).write_text(csv_text(X[:4], ["k", *"abcde"], labels))
    both = tmp_path / "d.csv", tmp_path / "e.csv"
    refuse(tmp_path, SpecError, r"the labels of .*e\.csv are int64, those of .*d\.csv text", *both, labels="k")


def test_what_is_no_table_of_numbers_is_refused(tmp_path):
    refuse(tmp_path, DataError, "two-dimensional", npy(tmp_path / "a.npy", X[0]))
    refuse(tmp_path, DataError, "is empty", npy(tmp_path / "b.npy", X[:0]))
    refuse(tmp_path, DataError, "is empty", npy(tmp_path / "c.npy", X[:, :0]))
    refuse(tmp_path, DataError, "<U5 values", npy(tmp_path / "d.npy", WORDS[:, None]))
    np.savez(tmp_path / "e.npz", words=WORDS[:, None], line=X[0])
    refuse(tmp_path, DataError, "complex128 values", npy(tmp_path / "f.npy", X.astype(complex)))
    refuse(tmp_path, DataError, r"no array of numbers .* \['line', 'words'\]", tmp_path / "e.npz")
    refuse(tmp_path, DataError, "two-dimensional", tmp_path / "e.npz", member="line")
    refuse(tmp_path, DataError, "<U5 values", tmp_path / "e.npz", member="words")
    (tmp_path / "g").write_bytes(idx_bytes(np.zeros(5, "u1")))
    refuse(tmp_path, DataError, "two-dimensional", tmp_path / "g")
    (tmp_path / "h.txt").write_text("hello")
    refuse(tmp_path, SpecError, r"no format that can be ingested: those are \.npy", tmp_path / "h.txt")
    (tmp_path / "h.gz").write_bytes(gzip.compress(b"hello"))
    refuse(tmp_path, SpecError, "no format that can be ingested", tmp_path / "h.gz")


def test_members_are_chosen_by_name_or_by_being_the_only_one(tmp_path):
    np.savez(tmp_path / "a.npz", train=X, test=X[:5], y=Y, short=Y[:7], grid=X[:2])
    source = tmp_path / "a.npz"
    refuse(tmp_path, SpecError, r"holds the arrays \['grid', 'test', 'train'\]: name one with --member", source)
    refuse(tmp_path, SpecError, "unknown array of .* 'trai': did you mean 'train'", source, member="trai")
    refuse(tmp_path, SpecError, "unknown array of .* 'z'", source, member="train", labels="z")
    refuse(tmp_path, SpecError, "short holds 7 labels for 300 rows", source, member="train", labels="short")
    refuse(tmp_path, DataError, r"grid has shape \(2, 5\) .* labels are \(n,\)", source, member="train", labels="grid")


def test_labels_must_match_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "READ_BYTES", 40)
    a = npy(tmp_path / "a.npy", X)
    labels = npy(tmp_path / "y.npy", Y[:299])
    refuse(tmp_path, SpecError, "holds 299 labels for 300 rows", a, labels=str(labels))
    (tmp_path / "y.csv").write_text("pear\n" * 300)
    refuse(tmp_path, SpecError, "holds 299 labels for 300 rows .*header", a, labels=str(tmp_path / "y.csv"))
    (tmp_path / "two.csv").write_text("1,2\n")
    refuse(tmp_path, SpecError, "2 columns: a file of labels has one", a, labels=str(tmp_path / "two.csv"))
    np.savez(tmp_path / "y.npz", Y)
    refuse(tmp_path, SpecError, "labels in a file of their own come as", a, labels=str(tmp_path / "y.npz"))
    refuse(tmp_path, DataError, r"has shape \(300, 5\)", a, labels=str(a))
    weights = np.where(np.arange(300) == 8, np.inf, 1.0)
    refuse(tmp_path, DataError, "labels of .* row 8", a, labels=str(npy(tmp_path / "w.npy", weights)))
    np.savez(tmp_path / "b.npz", x=X, y=weights)
    refuse(tmp_path, DataError, "labels of .* row 8", tmp_path / "b.npz", labels="y")
    (tmp_path / "c.csv").write_text("1,2\n")
    refuse(tmp_path, SpecError, "has no header, so no column 'y'", tmp_path / "c.csv", labels="y")
    (tmp_path / "d.csv").write_text("label,a\n1,2\n")
    refuse(tmp_path, SpecError, "unknown column .* did you mean 'label'", tmp_path / "d.csv", labels="lable")


def test_parquet_with_nulls_or_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(columnar, "READ_BYTES", 64)
    source = tmp_path / "a.parquet"
    values = pa.array([*range(20), None, 3])
    pq.write_table(pa.table({"a": np.arange(22), "b": values, "name": ["x"] * 22, "on": [b"1"] * 22}), source)
    refuse(tmp_path, DataError, "a.parquet:name, of type string", source, labels="on")
    refuse(tmp_path, SpecError, "unknown column of .* 'nam': did you mean 'name'", source, labels="nam")
    pq.write_table(pa.table({"a": np.arange(22), "b": values}), source)
    refuse(tmp_path, DataError, "row 20 .*, column 'b' is null", source)
    pq.write_table(pa.table({"a": pa.array(["x"] * 22).dictionary_encode()}), source)
    refuse(tmp_path, DataError, "a.parquet:a, of type dictionary", source)
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


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([2**64 - 1, 3], pa.uint64()), np.array([2**64 - 1, 3], np.uint64)),
        (pa.array([True, False]), np.array([True, False])),
        (pa.array([2**40, 3]).dictionary_encode(), np.array([2**40, 3])),
        (pa.array([0, 10**6], pa.timestamp("us")), ["1970-01-01 00:00:00.000000", "1970-01-01 00:00:01.000000"]),
        (pa.array([0, 1], pa.date32()), ["1970-01-01", "1970-01-02"]),
        (pa.array([b"p", b"q"]), ["p", "q"]),
    ],
    ids=["uint64", "bool", "categories of numbers", "times", "dates", "bytes"],
)
def test_parquet_labels_of_every_type(tmp_path, values, expected):
    pq.write_table(pa.table({"a": X[:2, 0], "y": values}), tmp_path / "a.parquet")
    done = ingest([tmp_path / "a.parquet"], tmp_path / "out.zarr", labels="y")
    if isinstance(expected, list):
        assert about(done.path)["categories"] == expected
        np.testing.assert_array_equal(labels_of(done.path), [0, 1])
    else:
        assert labels_of(done.path).dtype == expected.dtype
        np.testing.assert_array_equal(labels_of(done.path), expected)


def test_parquet_labels_without_words_are_refused(tmp_path):
    for values, kind in ((pa.array([[1], [2]]), "list<"), (pa.array([b"\xff", b"q"]), "binary")):
        pq.write_table(pa.table({"a": X[:2, 0], "y": values}), tmp_path / "a.parquet")
        message = f"a.parquet:y, of type {kind}.* cannot be labels, which are numbers or text in UTF-8"
        refuse(tmp_path, DataError, message, tmp_path / "a.parquet", labels="y")


@pytest.mark.parametrize(
    "values",
    [pa.array([0, 1], pa.timestamp("us", "UTC")), pa.array([0, 1], pa.date32()), pa.array([0, 1], pa.duration("s"))],
    ids=["times with a zone", "dates", "durations"],
)
def test_parquet_times_are_no_rows(tmp_path, values):
    pq.write_table(pa.table({"a": X[:2, 0], "t": values}), tmp_path / "a.parquet")
    refuse(tmp_path, DataError, "a.parquet:t, of type .*: rows must be real numbers", tmp_path / "a.parquet")


@pytest.mark.parametrize(("library", "suffix"), [("pyarrow", ".parquet"), ("h5py", ".h5")])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, library, suffix):
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / f"a{suffix}").write_bytes(b"?")
    refuse(tmp_path, SpecError, rf"needs {library} .*pip install 'bigkpca\[io\]'", tmp_path / f"a{suffix}")


@pytest.mark.parametrize("write", [w for w in WRITERS if w is not write_csv])
def test_a_truncated_file_is_corrupt(tmp_path, write):
    source, _ = write(tmp_path, X, Y)
    source.write_bytes(source.read_bytes()[:-100])
    refuse(tmp_path, CorruptionError, f"{source.name}.* (truncated|needed)", source)


@pytest.mark.parametrize("write", [write_idx_gz, write_csv_gz, write_npz])
def test_a_flipped_byte_is_found_by_the_checksum(tmp_path, write):
    source, _ = write(tmp_path, X, Y)
    damaged = bytearray(source.read_bytes())
    damaged[2000] ^= 1
    source.write_bytes(damaged)
    refuse(tmp_path, CorruptionError, f"{source.name} does not decode", source)


def test_more_values_than_the_header_says_are_corrupt(tmp_path):
    (tmp_path / "a").write_bytes(idx_bytes(X) + b"!")
    refuse(tmp_path, CorruptionError, "more values than its header says", tmp_path / "a")


# Repeatable and atomic


def test_doing_it_again_touches_nothing(tmp_path):
    a = npy(tmp_path / "a.npy", X)
    assert not ingest([a], tmp_path / "out.zarr").already_done
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "out.zarr").rglob("*")}
    again = ingest([a], str(tmp_path / "out.zarr") + "/")
    assert again.already_done
    assert (again.rows, again.columns, again.dtype) == (300, 5, np.float64)
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "out.zarr").rglob("*")}


def test_other_input_is_in_the_way_until_overwritten(tmp_path):
    a, b = npy(tmp_path / "a.npy", X), npy(tmp_path / "b.npy", X * 2)
    ingest([a], tmp_path / "out.zarr")
    with pytest.raises(SpecError, match=r"in the way.*--overwrite"):
        ingest([b], tmp_path / "out.zarr")
    ingest([b], tmp_path / "out.zarr", overwrite=True)
    np.testing.assert_array_equal(rows_of(tmp_path / "out.zarr"), X * 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.npy", "out.zarr"]


class Stop(BaseException):
    """As Ctrl-C, at a moment of the test's choice."""


def stop_at(monkeypatch, module, name, call=1):
    real, calls = getattr(module, name), []

    def stopping(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise Stop
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, stopping)


MOMENTS = [
    (ingest_module, "_codes", 1),
    (durable, "sync_tree", 1),
    (zarr.core.attributes.Attributes, "__setitem__", 1),
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_stopped_ingest_starts_over_and_ends_the_same(tmp_path, moment):
    source, options = write_npz(tmp_path, X, Y)
    ingest([source], tmp_path / "whole.zarr", block_rows=64, **options)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, *moment)
        with pytest.raises(Stop):
            ingest([source], tmp_path / "out.zarr", block_rows=64, **options)
    assert not list(tmp_path.glob("out.zarr*"))
    with pytest.raises(SpecError, match="does not exist"):
        open_rows(tmp_path / "out.zarr")
    assert not ingest([source], tmp_path / "out.zarr", block_rows=64, **options).already_done
    assert tree_bytes(tmp_path / "out.zarr") == tree_bytes(tmp_path / "whole.zarr")


@pytest.mark.parametrize("moment", [*MOMENTS, (destination.Destination, "put_in_place", 1)])
def test_a_stopped_overwrite_leaves_the_old_dataset(tmp_path, moment):
    old = npy(tmp_path / "old.npy", X * 2)
    ingest([old], tmp_path / "out.zarr")
    before = tree_bytes(tmp_path / "out.zarr")
    source, options = write_npz(tmp_path, X, Y)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, *moment)
        with pytest.raises(Stop):
            ingest([source], tmp_path / "out.zarr", overwrite=True, **options)
    assert tree_bytes(tmp_path / "out.zarr") == before
    assert ingest([old], tmp_path / "out.zarr").already_done
    ingest([source], tmp_path / "out.zarr", overwrite=True, **options)
    np.testing.assert_array_equal(rows_of(tmp_path / "out.zarr"), X)
    np.testing.assert_array_equal(labels_of(tmp_path / "out.zarr"), Y)


@pytest.mark.parametrize("options", [{"overwrite": True}, {"append": True}])
def test_refused_rows_leave_the_old_dataset(tmp_path, options):
    ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr", block_rows=64)
    bad = np.where(np.arange(300)[:, None] == 299, np.nan, X)
    with pytest.raises(DataError, match="row 299, column 0 is NaN"):
        ingest([npy(tmp_path / "b.npy", bad)], tmp_path / "out.zarr", **options)
    assert open_rows(tmp_path / "out.zarr").shape == (300, 5)
    np.testing.assert_array_equal(open_rows(tmp_path / "out.zarr").block(0, 300), X)
    assert not list(tmp_path.glob("out.zarr.*"))


def test_two_at_once_are_refused(tmp_path):
    a = npy(tmp_path / "a.npy", X)
    with locks.lock(str(tmp_path / "out.zarr")), pytest.raises(LockedError, match="another run"):
        ingest([a], tmp_path / "out.zarr")


@pytest.mark.parametrize("piece_bytes", [1, 333, 5000])
def test_the_bytes_of_a_dataset_do_not_depend_on_the_pieces(tmp_path, monkeypatch, piece_bytes):
    source, options = write_npz(tmp_path, X, WORDS[Y])
    ingest([source], tmp_path / "a.zarr", block_rows=64, **options)
    monkeypatch.setattr(table, "READ_BYTES", piece_bytes)
    ingest([source], tmp_path / "b.zarr", block_rows=64, **options)
    assert tree_bytes(tmp_path / "a.zarr") == tree_bytes(tmp_path / "b.zarr")


def test_every_shard_is_written_once_and_metadata_never_lags(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "READ_BYTES", 400)
    written, put = [], zarr.Array.__setitem__

    def counting(array, rows, values):
        assert array.shape[0] >= rows.stop
        written.append((array.path, rows.start, rows.stop))
        put(array, rows, values)

    monkeypatch.setattr(zarr.Array, "__setitem__", counting)
    ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr", block_rows=128)
    assert written == [("x", 0, 128), ("x", 128, 256), ("x", 256, 300)]


# Append


def dataset(tmp_path, rows=X, words=None):
    np.savez(tmp_path / "first.npz", x=rows, y=WORDS[Y] if words is None else words)
    return ingest([tmp_path / "first.npz"], tmp_path / "out.zarr", labels="y", block_rows=64).path


def more(tmp_path, count=200, name="more"):
    new = RNG.normal(size=(count, 5)), np.array(["kiwi", "pear"])[RNG.integers(0, 2, count)]
    np.savez(tmp_path / f"{name}.npz", x=new[0], y=new[1])
    return tmp_path / f"{name}.npz", *new


def check_appended(path, new, words):
    np.testing.assert_array_equal(rows_of(path), np.concatenate([X, new]))
    categories = np.array(about(path)["categories"])
    np.testing.assert_array_equal(categories[labels_of(path)], np.concatenate([WORDS[Y], words]))
    assert about(path)["provenance"] == [
        {"sources": ["first.npz"], "rows": [0, 300], "sha256": sha256(X)},
        {"sources": ["more.npz"], "rows": [300, 300 + len(new)], "sha256": sha256(new)},
    ]


def test_append_adds_rows_and_is_safe_to_repeat(tmp_path):
    path = dataset(tmp_path)
    source, new, words = more(tmp_path)
    done = ingest([source], path, labels="y", append=True)
    assert (done.rows, done.already_done) == (500, False)
    check_appended(path, new, words)
    before = tree_bytes(path)
    assert [Path(s["path"]).name for s in about(path)["sources"]] == ["first.npz", "more.npz"]
    assert ingest([source], path, labels="y", append=True).already_done
    assert tree_bytes(path) == before
    assert open_rows(path).shape == (500, 5)


def test_append_may_repeat_the_first_source_once(tmp_path):
    a = npy(tmp_path / "a.npy", X)
    ingest([a], tmp_path / "out.zarr")
    assert ingest([a], tmp_path / "out.zarr", append=True).rows == 600
    assert ingest([a], tmp_path / "out.zarr", append=True).already_done


@pytest.mark.parametrize("moment", [*MOMENTS, (zarr.Array, "__setitem__", 3)])
def test_a_stopped_append_leaves_the_old_rows_and_completes_later(tmp_path, moment):
    path = dataset(tmp_path)
    longer, *_ = more(tmp_path, 400, "longer")
    source, new, words = more(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, *moment)
        with pytest.raises(Stop):
            ingest([longer], path, labels="y", append=True)
    rows = open_rows(path)
    assert rows.shape == (300, 5)
    np.testing.assert_array_equal(rows.block(0, 300), X)
    np.testing.assert_array_equal(labels_of(path)[:300], ingested_codes())
    assert ingest([tmp_path / "first.npz"], path, labels="y", block_rows=64).already_done
    ingest([source], path, labels="y", append=True)
    check_appended(path, new, words)


def ingested_codes():
    order = list(dict.fromkeys(WORDS[Y].tolist()))
    return [order.index(word) for word in WORDS[Y]]


def test_append_refuses_what_does_not_fit(tmp_path):
    path = dataset(tmp_path)
    before = tree_bytes(path)

    def refused(message, *sources, **options):
        with pytest.raises(SpecError, match=message):
            ingest(sources, path, append=True, **options)
        assert tree_bytes(path) == before

    source, new, _ = more(tmp_path)
    refused("labels is text there and none in the new rows", source)
    refused("columns is 5 there and 4", npy(tmp_path / "a.npy", X[:, :4]))
    refused("dtype is float64 there and float32", source, labels="y", dtype="float32")
    refused("block_rows is 64 there and 32", source, labels="y", block_rows=32)
    np.savez(tmp_path / "numbers.npz", x=new, y=np.arange(200))
    refused("labels is text there and int64", tmp_path / "numbers.npz", labels="y")
    with pytest.raises(SpecError, match="does not exist: no dataset"):
        ingest([source], tmp_path / "none.zarr", append=True)
    ingest([npy(tmp_path / "b.npy", X)], tmp_path / "plain.zarr")
    with pytest.raises(SpecError, match="labels is none there and text"):
        ingest([source], tmp_path / "plain.zarr", append=True, labels="y")


def test_append_to_a_damaged_tail_is_corruption(tmp_path):
    path = dataset(tmp_path)
    source, *_ = more(tmp_path)
    shard = Path(path) / "x" / "c" / "4" / "0"
    shard.write_bytes(shard.read_bytes()[:-8])
    with pytest.raises(CorruptionError, match="rows 256 to 299 cannot be read"):
        ingest([source], path, labels="y", append=True)


# Limits of the machine


@pytest.fixture
def disk(tmp_path):
    with small_disk("1m", tmp_path / "disk") as place:
        yield place


def test_a_full_disk_is_incomplete_and_the_same_command_finishes(tmp_path, disk):
    source = npy(tmp_path / "a.npy", RNG.normal(size=(4000, 64)))
    small = npy(tmp_path / "small.npy", X)
    ingest([small], disk / "out.zarr")
    with pytest.raises(IncompleteError, match="make room and run the same command again"):
        ingest([source], disk / "out.zarr", overwrite=True, block_rows=256)
    np.testing.assert_array_equal(rows_of(disk / "out.zarr"), X)
    subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
    ingest([source], disk / "out.zarr", overwrite=True, block_rows=256)
    np.testing.assert_array_equal(rows_of(disk / "out.zarr"), np.load(source))


def test_a_dataset_of_which_only_the_beginning_is_there_is_refused(tmp_path):
    """As one that an ingest is writing, or as earlier versions left it when they were stopped."""
    a = npy(tmp_path / "a.npy", X)
    ingest([a], tmp_path / "out.zarr")
    group = zarr.open_group(tmp_path / "out.zarr")
    group.attrs["bigkpca"] = {key: value for key, value in group.attrs["bigkpca"].items() if key != "rows"}
    with pytest.raises(IncompleteError, match="did not finish"):
        open_rows(tmp_path / "out.zarr")
    with pytest.raises(IncompleteError, match="did not finish; run that command again"):
        ingest([a], tmp_path / "out.zarr", append=True)
    ingest([a], tmp_path / "out.zarr")
    np.testing.assert_array_equal(rows_of(tmp_path / "out.zarr"), X)


def test_a_dataset_that_was_killed_half_way_is_told_of(tmp_path):
    (tmp_path / "out.zarr.bigkpca-new").mkdir()
    with pytest.raises(IncompleteError, match=r"out\.zarr is not finished: run the command that makes it again"):
        open_rows(tmp_path / "out.zarr/")


def test_only_a_full_disk_is_told_as_one(tmp_path, monkeypatch):
    a = npy(tmp_path / "a.npy", X)
    for code, error in ((errno.EDQUOT, IncompleteError), (errno.EIO, OSError)):

        def failing(path, code=code):
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(durable, "sync_tree", failing)
        with pytest.raises(error, match="disk is full" if error is IncompleteError else "Input/output"):
            ingest([a], tmp_path / "out.zarr")


@pytest.mark.parametrize("suffix", [".npy", ".csv.gz", ".npz", ".gz"])
def test_memory_does_not_grow_with_the_rows(tmp_path, suffix):
    """Peaks for 4 and 16 shards of 1 MB: in pieces and shards the longer one needs no more."""
    peaks = []
    for n in (4, 16):
        values = np.tile(RNG.integers(0, 9, size=(1024, 128)).astype(float), (n, 1))
        source = tmp_path / f"rows{n}{suffix}"
        if suffix == ".npy":
            np.save(source, values)
        elif suffix == ".npz":
            np.savez(source, values)
        elif suffix == ".gz":
            source.write_bytes(gzip.compress(idx_bytes(values), 1))
        else:
            body = "\n".join(",".join(row) for row in values[:1024].astype(int).astype(str)) + "\n"
            source.write_bytes(gzip.compress((body * n).encode(), 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table, "READ_BYTES", 2**19)
            patch.setattr(text, "_TEXT_BYTES", 2**17)
            tracemalloc.start()
            ingest([source], tmp_path / f"out{n}.zarr", block_rows=1024)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


def test_pieces_are_at_most_eight_megabytes():
    for row_bytes in (1, 784, 2**23 + 1):
        a, b = next(iter(table.ranges(10**9, row_bytes)))
        assert b - a == 1 or (b - a) * row_bytes <= 2**23
    assert text._TEXT_BYTES * 4 <= 2**23


def test_progress_is_told_of_every_row(tmp_path):
    told = []

    class Told:
        def start(self, title, rows):
            told.append((title, rows))

        def advance(self, rows):
            told.append(rows)

        def finish(self):
            told.append("finish")

        def note(self, message):
            raise AssertionError(message)

    ingest([npy(tmp_path / "a.npy", X)], tmp_path / "out.zarr", progress=Told())
    assert told == [("ingest", 300), 300, "finish"]
    (tmp_path / "a.csv").write_text("1,2\n3,x\n")
    with pytest.raises(DataError, match="row 1"):
        ingest([tmp_path / "a.csv"], tmp_path / "b.zarr", progress=Told())
    assert told[3:] == [("ingest", 0), "finish"]


# Real files


def test_mnist(tmp_path):
    source, labels = shared_file("mnist/t10k-images-idx3-ubyte.gz"), shared_file("mnist/t10k-labels-idx1-ubyte.gz")
    done = ingest([source], tmp_path / "out.zarr", labels=str(labels))
    with gzip.open(source) as file:
        expected = np.frombuffer(file.read()[16:], np.uint8).reshape(10000, 784)
    assert done.row_shape == (28, 28)
    np.testing.assert_array_equal(rows_of(done.path), expected)
    np.testing.assert_array_equal(labels_of(done.path)[:5], [7, 2, 1, 0, 4])


@pytest.mark.parametrize("name", ["usps/usps_int16.npz", "covertype/covtype_93k.npz"])
def test_real_npz(tmp_path, name):
    source = shared_file(name)
    done = ingest([source], tmp_path / "out.zarr", labels="y")
    with np.load(source) as arrays:
        np.testing.assert_array_equal(rows_of(done.path), arrays["X_milli" if "usps" in name else "X_raw"])
        np.testing.assert_array_equal(labels_of(done.path), arrays["y"])


def test_promoters_hold_text(tmp_path):
    with pytest.raises(DataError, match=r"promoters\.csv: row 0, column 1 \('sequence'\) is 'gcc.*, not a number"):
        ingest([shared_file("promoters/promoters.csv")], tmp_path / "out.zarr", labels="label")


def test_a_zip_without_arrays_is_told_so(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    refuse(tmp_path, DataError, r"holds no array of numbers .* \[\]", tmp_path / "a.npz")
    assert binary.is_idx(b"PK\x03\x04") is False
