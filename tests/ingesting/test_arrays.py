"""Files of arrays against plain NumPy: rows, labels, weights, types, and files that are damaged."""

import errno
import gzip
import sys
import zipfile

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.ingesting import Ingested, arrays, chunk_rows, ingest
from bigkpca.ingesting.encoder import cast
from tests.helpers.disks import tree_bytes
from tests.helpers.named import stored
from tests.ingesting.files import ARRAYS, TABLES, WORDS, X, Y, about, idx_bytes, made, npy, refuse

W = np.where(np.arange(300) % 7, np.random.default_rng(1).exponential(size=300).round(1), 0.0)


@pytest.mark.parametrize("writer", [*ARRAYS, *TABLES])
def test_every_format_gives_the_rows_and_labels_of_numpy(tmp_path, monkeypatch, writer):
    source, options = writer(tmp_path, X, Y)
    for piece_bytes in (2**23, 333, 1):
        monkeypatch.setattr("bigkpca.ingesting.arrays.READ_BYTES", piece_bytes)
        monkeypatch.setattr("bigkpca.ingesting.tables.READ_BYTES", piece_bytes)
        done = ingest(source, tmp_path / f"{piece_bytes}.zarr", block_rows=64, **options)
        found = stored(done.path)
        np.testing.assert_array_equal(found["x"], X)
        assert (done.rows, done.columns, done.dtype, done.labels) == (300, 5, np.float64, "labels" in options)
        if options:
            np.testing.assert_array_equal(found["y"], Y)
        assert tree_bytes(done.path) == tree_bytes(tmp_path / f"{2**23}.zarr")
        (told,) = about(done.path)["provenance"]
        assert (told["sources"][0], told["rows"]) == (source.name, [0, 300])


@given(
    values=hnp.arrays(
        st.sampled_from([np.dtype(t) for t in ("u1", "i1", "i2", "i4", "f4", "f8")]),
        hnp.array_shapes(min_dims=2, max_dims=4, max_side=6),
        elements={"allow_nan": False, "allow_infinity": False},
    ),
    block_rows=st.integers(1, 7),
    kind=st.sampled_from(["npy", "Fortran npy", "npz", "Fortran npz", "idx"]),
)
def test_any_shape_and_type_is_flattened_and_kept(tmp_path_factory, values, block_rows, kind):
    source = tmp_path_factory.mktemp("any") / f"a.{kind[-3:]}"
    ordered = np.asfortranarray(values) if kind.startswith("Fortran") else values
    if kind == "idx":
        source.write_bytes(idx_bytes(values))
    else:
        (np.save if kind.endswith("npy") else np.savez)(source, ordered)
    done = ingest(source, f"{source}.zarr", block_rows=block_rows)
    assert done == Ingested(done.path, len(values), values[0].size, values.shape[1:], values.dtype, False, False)
    np.testing.assert_array_equal(stored(done.path)["x"], values.reshape(len(values), -1))


def test_several_files_follow_each_other_with_labels_and_weights_of_all(tmp_path):
    (tmp_path / "y.csv").write_text("label\n" + "".join(f"{WORDS[i % 4]}\n" for i in range(300)))
    beside = {"labels": tmp_path / "y.csv", "sample_weight": npy(tmp_path / "w.npy", W)}
    found = made(tmp_path, X[:100], X[100:].astype(">f8"), **beside)
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(np.array(found["categories"])[found["y"]], WORDS[np.arange(300) % 4])
    np.testing.assert_array_equal(found["w"], W)
    names = [str(tmp_path / name) for name in ("a.npy", "b.npy", "y.csv", "w.npy")]
    assert [source["path"] for source in about(tmp_path / "o.zarr")["sources"]] == names


def test_dtype_casts_sources_of_different_types_or_names_a_value_that_it_cannot_hold(tmp_path):
    for dtype in ("float32", "int16", "bool", "float64"):
        found = made(tmp_path, np.ones((3, 2), "u1"), np.zeros((3, 2), "f4"), dtype=dtype)["x"]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.repeat([[1, 1], [0, 0]], 3, axis=0))
    for value, source, dtype in (
        (300, "i8", "u1"),
        (-1, "i8", "u8"),
        (-1, "i1", "u2"),
        (2**63, "u8", "i8"),
        (2**53 + 1, "i8", "f8"),
        (1.5, "f8", "i4"),
        (1e300, "f8", "f4"),
    ):
        values = np.zeros((4, 3), source)
        values[2, 1] = value
        refuse(tmp_path, DataError, r"a\.npy: row 2 of column 1 .* which .* cannot hold", values, dtype=dtype)


@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_whole_numbers_are_cast_up_to_the_ends_of_their_type(source, dtype):
    least, end = np.iinfo(dtype).min, float(np.iinfo(dtype).max) + 1
    with np.errstate(over="ignore"):
        ends = np.array([least, end], source)
    inside = {ends[0], np.floor(np.nextafter(ends[1], ends[0]))} - {-np.inf}
    outside = {ends[1], np.floor(np.nextafter(ends[0], np.array(-np.inf, source))), np.array(-np.inf, source)[()]}
    for value in inside | outside:
        X, given = np.array([[value]], source), (np.dtype(dtype), 0, "a.npy", None)
        if value in inside:
            assert cast(X, *given)[0, 0] == int(value)
        else:
            with pytest.raises(DataError, match=rf"a\.npy: row 0 of .*, which {np.dtype(dtype)} cannot hold"):
                cast(X, *given)


def test_the_rule_for_chunks_does_not_know_n(tmp_path):
    assert [chunk_rows(row_bytes) for row_bytes in (8, 784, 2**23, 2**30)] == [65536, 2048, 1, 1]
    assert chunk_rows(8, 100) == 100
    made(tmp_path, X)
    x = zarr.open_group(tmp_path / "o.zarr")["x"]
    assert (x.shards, x.chunks, x.metadata.dimension_names) == (None, (32768, 5), ("row", "column"))


def test_what_does_not_fit_together_or_is_no_table_of_numbers_is_refused(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=X)
    np.savez(tmp_path / "e.npz", words=WORDS[:, None], line=X[0])
    (tmp_path / "g").write_bytes(idx_bytes(np.zeros(5, "u1")))
    (tmp_path / "h.gz").write_bytes(gzip.compress(b"hello"))
    (tmp_path / "negative.npy").write_bytes(npy(tmp_path / "j.npy", X).read_bytes().replace(b"(300, 5)", b"(3, -5) "))
    with zipfile.ZipFile(tmp_path / "i.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")

    def weights(value):
        return npy(tmp_path / f"{value}.npy", np.where(np.arange(300) == 250, value, 1.0))

    for contents, options, message in (
        ([], {}, "nothing to ingest"),
        ([tmp_path / "none.npy"], {}, r"none\.npy does not exist"),
        ([tmp_path / "x.zarr"], {}, "x.zarr is a folder that holds a Zarr array or group, which needs no ingest"),
        ([tmp_path / "h.gz"], {}, r"has an unknown format; these can be ingested: \.npy, .*; pass arrays in HDF5 as"),
        ([X, X[:, :4]], {}, r"b\.npy has rows of shape \(4,\), and files before it of \(5,\)"),
        ([X, X.astype("f4")], {}, "holds float32, and files before it float64: choose a type with dtype"),
        ([X, "1,2\n3,4\n"], {}, "some inputs are arrays and some are tables"),
        ([X], {"dtype": "real"}, "'real' is not a number type"),
        ([X], {"dtype": "complex128"}, "cannot be stored as complex128"),
        ([X], {"block_rows": 0}, "block_rows=0: must be"),
        ([X], {"append": True, "overwrite": True}, "append adds to a dataset: leave out overwrite"),
        ([X], {"member": "x"}, "is one array, without a member 'x'"),
        ([X], {"labels": "y"}, "is one array, without a member 'y'"),
        ([X], {"labels": X}, "labels is of type ndarray"),
        ([X], {"drop": ["a"]}, "is an array of numbers: options of columns are for tables"),
        ([X], {"labels": npy(tmp_path / "y.npy", Y[:7])}, "holds 7 labels for 300 rows"),
        ([X], {"labels": npy(tmp_path / "z.npy", X)}, "a file of labels is"),
    ):
        refuse(tmp_path, SpecError, message, *contents, **options)
    with pytest.raises(SpecError, match=r"s3://bucket/a\.npy: only files on a local disk can be ingested"):
        ingest("s3://bucket/a.npy", tmp_path / "o.zarr")
    for values, options, message in (
        (X[0], {}, "two-dimensional"),
        (X[:0], {}, "is empty"),
        (X[:, :0], {}, "is empty"),
        (WORDS[:, None], {}, "<U5 values"),
        (X.astype(complex), {}, "complex128 values"),
        (np.where(X[299, 4] == X, np.nan, X), {}, r"row 299, column 4 is NaN"),
        (tmp_path / "e.npz", {}, r"holds \['line', 'words'\], but no array of numbers"),
        (tmp_path / "e.npz", {"member": "line"}, "two-dimensional"),
        (tmp_path / "g", {}, "two-dimensional"),
        (tmp_path / "negative.npy", {}, r"is not a \.npy file: its shape is \(3, -5\)"),
        (tmp_path / "i.npz", {}, r"holds \[\], but no array of numbers"),
        *((X, {"sample_weight": weights(value)}, r"row 250\b") for value in (-1.0, np.nan, np.inf)),
    ):
        refuse(tmp_path, DataError, message, values, **options)


def test_members_are_chosen_by_name_or_by_being_the_only_one(tmp_path):
    np.savez(tmp_path / "a.npz", train=X, test=X[:5], y=Y, short=Y[:7], grid=X[:2])
    source, both = tmp_path / "a.npz", {"member": "train", "labels": "short"}
    refuse(tmp_path, SpecError, r"holds the arrays \['grid', 'test', 'train'\]: name one with --member", source)
    refuse(tmp_path, SpecError, "unknown array of .* 'trai': did you mean 'train'", source, member="trai")
    refuse(tmp_path, SpecError, r"short has shape \(7,\): 300 labels are needed", source, **both)
    np.testing.assert_array_equal(made(tmp_path, source, member="train", labels="y")["y"], Y)


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refuse(tmp_path, SpecError, r"needs pyarrow: pip install 'bigkpca\[tables\]'", "1,2\n")


def test_a_truncated_or_changed_file_is_corrupt(tmp_path):
    for writer in ARRAYS + TABLES:
        source, options = writer(tmp_path, X, Y)
        content = source.read_bytes()
        if source.suffix == ".csv":
            continue
        source.write_bytes(content[:-100])
        refuse(tmp_path, CorruptionError, rf"{source.name}", source, **options)
        if source.suffix in (".gz", ".npz"):
            source.write_bytes(content[:2000] + bytes([content[2000] ^ 1]) + content[2001:])
            refuse(tmp_path, CorruptionError, f"{source.name}.* does not decode", source, **options)
    (tmp_path / "a").write_bytes(idx_bytes(X) + b"!")
    refuse(tmp_path, CorruptionError, "more values than its header states", tmp_path / "a")


def test_a_file_that_cannot_be_read_for_the_moment_is_not_called_damaged(tmp_path):
    message = r"x\.npy: .*Stale file handle; run the same command again when it is reachable"
    with pytest.raises(IncompleteError, match=message), arrays._decoding(tmp_path / "x.npy"):
        raise OSError(errno.ESTALE, "Stale file handle")
