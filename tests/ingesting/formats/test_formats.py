"""Every format against plain NumPy: rows, labels, types, and files of the world."""

import gzip
import sys
import zipfile

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bigkpca.errors import CorruptionError, DataError, SpecError
from bigkpca.ingesting import Ingested, chunk_rows, ingest
from bigkpca.ingesting.formats import arrow, base, text
from tests.helpers.disks import tree_bytes
from tests.helpers.named import stored
from tests.helpers.stores import sha256
from tests.ingesting.files import WORDS, WRITERS, X, Y, about, csv_text, idx_bytes, made, refuse


@pytest.mark.parametrize("writer", WRITERS)
def test_every_format_gives_the_rows_and_labels_of_numpy(tmp_path, monkeypatch, writer):
    source, options = writer(tmp_path, X, Y)
    for piece_bytes in (2**23, 5000, 333, 1):
        for module in (base, arrow):
            monkeypatch.setattr(module, "READ_BYTES", piece_bytes)
        monkeypatch.setattr(text, "_TEXT_BYTES", piece_bytes)
        out = str(tmp_path / f"{piece_bytes}.zarr")
        done = ingest([source], out, block_rows=64, **options)
        assert done == Ingested(out, 300, 5, (5,), np.dtype(float), "labels" in options, False)
        np.testing.assert_array_equal(stored(out)["x"], X)
        if options:
            np.testing.assert_array_equal(stored(out)["y"], Y)
        assert tree_bytes(out) == tree_bytes(tmp_path / f"{2**23}.zarr")
        assert about(out)["provenance"] == [{"sources": [source.name], "rows": [0, 300], "sha256": sha256(X)}]


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
    done = ingest([source], f"{source}.zarr", block_rows=block_rows)
    assert done.row_shape == tuple(about(done.path)["row_shape"]) == values.shape[1:]
    assert done.dtype == values.dtype
    np.testing.assert_array_equal(stored(done.path)["x"], values.reshape(len(values), -1))


def test_several_sources_follow_each_other_in_order(tmp_path):
    (tmp_path / "y.csv").write_text("".join(f"{i}\n" for i in range(600)))
    labels = str(tmp_path / "y.csv")
    found = made(tmp_path, X[:100], X[100:].astype(">f8"), csv_text(X), labels=labels, block_rows=64)
    np.testing.assert_array_equal(found["x"], np.concatenate([X, X]))
    np.testing.assert_array_equal(found["y"], np.arange(600))
    names = ["a.npy", "b.npy", "c.csv"]
    told = about(tmp_path / "o.zarr")
    assert [source["path"] for source in told["sources"]] == [str(tmp_path / name) for name in names]
    assert told["provenance"][0]["sources"] == names


def test_dtype_casts_sources_of_different_types(tmp_path):
    for dtype in ("float32", "int16", "bool", "float64"):
        found = made(tmp_path, np.ones((3, 2), "u1"), np.zeros((3, 2), "f4"), dtype=dtype)["x"]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.repeat([[1, 1], [0, 0]], 3, axis=0))


def test_a_value_that_the_type_cannot_hold_is_named(tmp_path):
    for value, source, dtype in (
        (300, "i8", "u1"),
        (-1, "i8", "u8"),
        (-1, "i1", "u2"),
        (2**63, "u8", "i8"),
        (1.5, "f8", "i4"),
        (1e300, "f8", "f4"),
    ):
        values = np.zeros((4, 3), source)
        values[2, 1] = value
        refuse(tmp_path, DataError, r"a\.npy: row 2, column 1 .* which .* cannot hold", values, dtype=dtype)


class Saturating(np.ndarray):
    """Floats that are cast as on arm64: to the nearest number that the type has."""

    def astype(self, dtype, **options):
        plain, dtype = np.asarray(self), np.dtype(dtype)
        if dtype.kind not in "iu":
            return plain.astype(dtype, **options)
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        held = [least if value <= least else most if value >= most else int(value) for value in plain.ravel().tolist()]
        return np.array(held, dtype).reshape(plain.shape)


@pytest.mark.parametrize("kind", [np.ndarray, Saturating])
@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_whole_numbers_are_cast_up_to_the_ends_of_their_type_on_any_processor(kind, source, dtype):
    least, end = np.iinfo(dtype).min, float(np.iinfo(dtype).max) + 1
    with np.errstate(over="ignore"):
        ends = np.array([least, end], source)
    inside = {ends[0], np.floor(np.nextafter(ends[1], ends[0]))} - {-np.inf}
    outside = {ends[1], np.floor(np.nextafter(ends[0], np.array(-np.inf, source))), np.array(-np.inf, source)[()]}
    for value in inside | outside:
        X, given = np.array([[value]], source).view(kind), (np.dtype(dtype), np.arange(1), "a.npy", str)
        if value in inside:
            assert base.cast(X, *given)[0, 0] == int(value)
        else:
            with pytest.raises(DataError, match=rf"a\.npy: row 0, 0 .*, which {np.dtype(dtype)} cannot hold"):
                base.cast(X, *given)


def test_the_rule_for_chunks_does_not_know_n(tmp_path):
    assert chunk_rows(8) == 65536
    assert chunk_rows(784) == 2048
    assert chunk_rows(2**23) == 1
    assert chunk_rows(2**30) == 1
    assert chunk_rows(8, 100) == 100
    made(tmp_path, X)
    x = zarr.open_group(tmp_path / "o.zarr")["x"]
    assert (x.shards, x.chunks) == (None, (32768, 5))
    assert x.metadata.dimension_names == ("row", "column")


def test_sources_that_do_not_fit_together_are_refused(tmp_path):
    words, codes = (csv_text(X[:4], ["k", *"abcde"], labels) for labels in (WORDS, range(4)))
    (tmp_path / "empty").mkdir()
    zarr.create_array(tmp_path / "x.zarr", data=X)
    for contents, options, message in (
        ([], {}, "nothing to ingest"),
        ([tmp_path / "none.npy"], {}, r"none\.npy does not exist"),
        ([tmp_path / "empty"], {}, "empty is a folder without files to ingest"),
        ([tmp_path / "x.zarr"], {}, "x.zarr is a folder that holds a Zarr array or group, which needs no ingest"),
        ([X, X[:, :4]], {}, r"b\.npy has 4 columns, .*a\.npy has 5"),
        ([X, X.astype("f4")], {}, "holds float32, .*float64: choose one type with --dtype"),
        ([X], {"dtype": "real"}, "'real' is not a number type"),
        ([X], {"dtype": "complex128"}, "cannot be stored as complex128"),
        ([X], {"block_rows": 0}, "block_rows=0: must be"),
        ([X], {"append": True, "overwrite": True}, "choose one"),
        ([X], {"member": "x"}, "has no members: leave out --member x"),
        ([X], {"labels": "y"}, "--labels y: there is no such file"),
        ([words, codes], {"labels": "k"}, r"the labels of .*b\.csv are int64, but those of .*a\.csv text"),
    ):
        refuse(tmp_path, SpecError, message, *contents, **options)
    with pytest.raises(SpecError, match=r"s3://bucket/a\.csv: only files on a local disk can be ingested"):
        ingest(["s3://bucket/a.csv"], tmp_path / "o.zarr")


def test_what_is_no_table_of_numbers_is_refused(tmp_path):
    for values, message in (
        (X[0], "two-dimensional"),
        (X[:0], "is empty"),
        (X[:, :0], "is empty"),
        (WORDS[:, None], "<U5 values"),
        (X.astype(complex), "complex128 values"),
    ):
        refuse(tmp_path, DataError, message, values)
    np.savez(tmp_path / "e.npz", words=WORDS[:, None], line=X[0])
    refuse(tmp_path, DataError, r"holds \['line', 'words'\], but no array of numbers", tmp_path / "e.npz")
    refuse(tmp_path, DataError, "two-dimensional", tmp_path / "e.npz", member="line")
    refuse(tmp_path, DataError, "<U5 values", tmp_path / "e.npz", member="words")
    (tmp_path / "g").write_bytes(idx_bytes(np.zeros(5, "u1")))
    refuse(tmp_path, DataError, "two-dimensional", tmp_path / "g")
    (tmp_path / "h.txt").write_text("hello")
    refuse(tmp_path, SpecError, r"has an unknown format; these can be ingested: \.npy", tmp_path / "h.txt")
    with zipfile.ZipFile(tmp_path / "i.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    refuse(tmp_path, DataError, r"holds \[\], but no array of numbers", tmp_path / "i.npz")
    (tmp_path / "h.gz").write_bytes(gzip.compress(b"hello"))
    refuse(tmp_path, SpecError, "has an unknown format", tmp_path / "h.gz")


def test_members_are_chosen_by_name_or_by_being_the_only_one(tmp_path):
    np.savez(tmp_path / "a.npz", train=X, test=X[:5], y=Y, short=Y[:7], grid=X[:2])
    source = tmp_path / "a.npz"
    refuse(tmp_path, SpecError, r"holds the arrays \['grid', 'test', 'train'\]: name one with --member", source)
    refuse(tmp_path, SpecError, "unknown array of .* 'trai': did you mean 'train'", source, member="trai")
    refuse(tmp_path, SpecError, "unknown array of .* 'z'", source, member="train", labels="z")
    refuse(tmp_path, SpecError, "short holds 7 labels for 300 rows", source, member="train", labels="short")
    refuse(tmp_path, DataError, r"grid has shape \(2, 5\) .* labels are \(n,\)", source, member="train", labels="grid")


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("a.h5", "h5py", "io"),
        ("a.csv", "pyarrow", "tables"),
        ("a.parquet", "pyarrow", "tables"),
        ("a.arrow", "pyarrow", "tables"),
    ],
)
def test_a_missing_extra_is_named(name, library, extra, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / name).write_bytes(b"1,2\n")
    refuse(tmp_path, SpecError, rf"needs {library}: pip install 'bigkpca\[{extra}\]'", tmp_path / name)


def test_a_feather_file_of_version_1_is_not_called_damaged(tmp_path):
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(200) + b"FEA1")
    refuse(
        tmp_path, SpecError, r"a\.feather is a Feather file of version 1, .*: write it again", tmp_path / "a.feather"
    )


def test_a_truncated_or_changed_file_is_corrupt(tmp_path):
    for writer in WRITERS:
        source, options = writer(tmp_path, X, Y)
        if source.suffix == ".csv":
            continue
        content = source.read_bytes()
        source.write_bytes(content[:-100])
        refuse(tmp_path, CorruptionError, f"{source.name}.* (truncated|needed)", source)
        if source.suffix in (".gz", ".npz"):
            source.write_bytes(content[:2000] + bytes([content[2000] ^ 1]) + content[2001:])
            refuse(tmp_path, CorruptionError, f"{source.name} does not decode", source, **options)
    (tmp_path / "a").write_bytes(idx_bytes(X) + b"!")
    refuse(tmp_path, CorruptionError, "more values than its header states", tmp_path / "a")
