"""Names of columns in ingest: kept, matched across files, and told where they are missing."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, SpecError
from bigkpca.ingesting.streaming import ingest
from bigkpca.storage.describe import info
from tests.helpers.commands import run
from tests.helpers.named import FRAME, INDEXED, TURNED, WRITERS, X, csv, parquet, stored
from tests.helpers.progress import Recorder


@pytest.mark.parametrize("kind", INDEXED)
def test_the_index_of_a_parquet_frame_is_left_out_and_told(kind, tmp_path):
    notes, frame = Recorder(), INDEXED[kind]
    source = parquet(tmp_path / "a.parquet", frame)
    done = ingest([source], tmp_path / "out.zarr", progress=notes)
    found = stored(done.path)
    np.testing.assert_array_equal(found["x"], frame.to_numpy())
    assert found["names"] == ["a", "b", "c"]
    index = [name for name in pq.read_schema(source).names if name not in "abc"]
    assert [note.partition(" is left out")[0] for note in notes.notes] == [f"{source}: column {n!r}" for n in index]
    assert len(index) == frame.index.nlevels


def test_a_range_index_is_no_column(tmp_path):
    notes = Recorder()
    done = ingest([parquet(tmp_path / "a.parquet", FRAME[::2])], tmp_path / "out.zarr", progress=notes)
    assert stored(done.path)["x"].shape == (30, 3)
    assert notes.notes == []


def test_an_index_is_known_by_its_name_where_other_programs_lost_the_metadata(tmp_path):
    bare = pq.read_table(parquet(tmp_path / "a.parquet", INDEXED["dropped rows"])).replace_schema_metadata(None)
    pq.write_table(bare, tmp_path / "b.parquet")
    done = ingest([tmp_path / "b.parquet"], tmp_path / "out.zarr")
    np.testing.assert_array_equal(stored(done.path)["x"], X[X[:, 0] > 0])


def test_labels_may_name_the_index(tmp_path):
    done = ingest([parquet(tmp_path / "a.parquet", INDEXED["a name"])], tmp_path / "out.zarr", labels="id")
    found = stored(done.path)
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(found["y"], np.arange(60) ** 2)


def test_one_note_tells_of_all_files(tmp_path):
    notes = Recorder()
    files = [parquet(tmp_path / f"{i}.parquet", FRAME[(X[:, 0] > 0) == i]) for i in range(2)]
    ingest(files, tmp_path / "out.zarr", progress=notes)
    assert [note.partition("column")[0] for note in notes.notes] == [f"{files[0]} and 1 more: "]


@pytest.mark.parametrize("kind", ["dropped rows", "text"])
def test_the_nameless_first_column_of_a_csv_is_left_out_and_told(kind, tmp_path):
    notes = Recorder()
    INDEXED[kind].to_csv(tmp_path / "a.csv")
    done = ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", progress=notes)
    np.testing.assert_allclose(stored(done.path)["x"], INDEXED[kind].to_numpy(), rtol=1e-15)
    assert stored(done.path)["names"] == ["a", "b", "c"]
    (note,) = notes.notes
    assert note.startswith(f"{tmp_path / 'a.csv'}: the first column, which has no name, is left out")
    assert "name it in the header" in note


def test_the_nameless_first_column_of_a_csv_may_hold_the_labels(tmp_path):
    INDEXED["text"].to_csv(tmp_path / "a.csv")
    found = stored(ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", labels="").path)
    assert found["categories"] == list(INDEXED["text"].index)
    assert found["x"].shape == (60, 3)


def test_other_nameless_columns_of_a_csv_are_kept(tmp_path):
    for header in (",b,", "a,,c"):
        (tmp_path / "a.csv").write_text(f"{header}\n1,2,3\n")
        found = stored(ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", overwrite=True).path)
        np.testing.assert_array_equal(found["x"], [[1, 2, 3]])
        assert found["names"] == header.split(",")


# Several files: columns are found by name


@pytest.mark.parametrize("first", WRITERS)
@pytest.mark.parametrize("second", WRITERS)
def test_columns_are_found_by_name_in_further_files(first, second, tmp_path):
    kinds = np.array(["u", "v"])[np.arange(60) % 2]
    a = WRITERS[first](tmp_path / f"a.{first}", FRAME[:20].assign(kind=kinds[:20])[["a", "kind", "b", "c"]])
    b = WRITERS[second](tmp_path / f"b.{second}", TURNED[20:].reset_index(drop=True).assign(kind=kinds[20:]))
    found = stored(ingest([a, b], tmp_path / "out.zarr", labels="kind").path)
    np.testing.assert_allclose(found["x"], X, rtol=1e-15)
    np.testing.assert_array_equal(np.array(found["categories"])[found["y"]], kinds)
    assert found["names"] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (FRAME[["a", "b"]], r"b\.\w+ lacks the column 'c' of .*a\.\w+: columns are found by name.*rename, add"),
        (FRAME.assign(d=1.0), r"b\.\w+ has the column 'd', unlike .*a\.\w+"),
        (FRAME.rename(columns={"b": "B"}), r"lacks the column 'b' of .* and has the column 'B', unlike"),
        (
            pd.DataFrame(np.ones((2, 9)), columns=list("stuvwxyza")),
            r"lacks the columns 'b', 'c' of .* has the columns 's', 't', 'u', 'v', 'w' and 3 more, unlike",
        ),
    ],
)
def test_files_with_other_columns_are_refused(kind, other, message, tmp_path):
    write = WRITERS[kind]
    a, b = write(tmp_path / f"a.{kind}", FRAME), write(tmp_path / f"b.{kind}", other)
    with pytest.raises(SpecError, match=message):
        ingest([a, b], tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_files_without_names_are_taken_in_order_which_is_told(tmp_path):
    """As `split` cuts a file: the header is in the first part alone."""
    notes = Recorder()
    parts = [csv(tmp_path / f"{i}.csv", FRAME[20 * i : 20 * i + 20], header=i == 0) for i in range(3)]
    found = stored(ingest(parts, tmp_path / "out.zarr", progress=notes).path)
    np.testing.assert_allclose(found["x"], X, rtol=1e-15)
    assert found["names"] == ["a", "b", "c"]
    (note,) = notes.notes
    assert note.startswith(f"{parts[1]} and 1 more: has no column names; its columns are taken to be in the order")


def test_names_come_from_the_first_file_that_has_some(tmp_path):
    np.save(tmp_path / "a.npy", X[:10])
    files = [tmp_path / "a.npy", csv(tmp_path / "b.csv", FRAME[10:20]), csv(tmp_path / "c.csv", TURNED[20:])]
    found = stored(ingest(files, tmp_path / "out.zarr").path)
    np.testing.assert_allclose(found["x"], X, rtol=1e-15)
    assert found["names"] == ["a", "b", "c"]


def test_a_name_of_several_columns(tmp_path):
    for name, header in (("a", "x,x,y"), ("b", "x,x,y"), ("c", "y,x,x")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\n1,2,3\n")
    a, b, c = (tmp_path / f"{name}.csv" for name in "abc")
    assert stored(ingest([a, b], tmp_path / "out.zarr").path)["names"] == ["x", "x", "y"]
    with pytest.raises(SpecError, match=r"c\.csv has its columns in another order .* 'x' is the name of several"):
        ingest([a, c], tmp_path / "no.zarr")
    with pytest.raises(SpecError, match=r"a\.csv has 2 columns 'x': give that of the labels a name of its own"):
        ingest([a], tmp_path / "no.zarr", labels="x")
    twice = pa.Table.from_arrays([pa.array(X[:, j]) for j in range(3)], names=["x", "x", "y"])
    pq.write_table(twice, tmp_path / "a.parquet")
    np.testing.assert_array_equal(stored(ingest([tmp_path / "a.parquet"], tmp_path / "p.zarr").path)["x"], X)
    with pytest.raises(SpecError, match=r"a\.parquet has 2 columns 'x'"):
        ingest([tmp_path / "a.parquet"], tmp_path / "no.zarr", labels="x")


def test_errors_count_columns_as_their_own_file_does(tmp_path):
    a = parquet(tmp_path / "a.parquet", FRAME)
    for value, message in (
        (np.nan, r"row 7, column 0 \('c'\) is NaN"),
        (1e300, r"row 7, column 0 \('c'\) .* is 1e\+3"),
    ):
        bad = TURNED.to_numpy(copy=True)
        bad[7, 0] = value
        pq.write_table(pa.table(dict(zip("cba", bad.T, strict=True))), tmp_path / "b.parquet")
        with pytest.raises(DataError, match=rf"b\.parquet: {message}"):
            ingest([a, tmp_path / "b.parquet"], tmp_path / "out.zarr", dtype="float32")


def test_files_without_names_make_datasets_without(tmp_path):
    notes = Recorder()
    found = stored(ingest([csv(tmp_path / "a.csv", FRAME, header=False)], tmp_path / "o.zarr", progress=notes).path)
    assert found["names"] is None
    assert open_rows(tmp_path / "o.zarr").names is None
    assert "column_names" not in info(str(tmp_path / "o.zarr"))
    assert notes.notes == []


def test_a_dataset_of_before_names_is_told_of(tmp_path):
    source, notes = csv(tmp_path / "a.csv", FRAME), Recorder()
    ingest([source], tmp_path / "out.zarr")
    assert ingest([source], tmp_path / "out.zarr", progress=notes).already_done
    assert notes.notes == []
    group = zarr.open_group(str(tmp_path / "out.zarr"))
    about = group.attrs["bigkpca"]
    group.attrs["bigkpca"] = {key: value for key, value in about.items() if key != "column_names"}
    assert ingest([source], tmp_path / "out.zarr", progress=notes).already_done
    assert [note.endswith("remove it and run this again to be sure") for note in notes.notes] == [True]
    assert open_rows(tmp_path / "out.zarr").names is None


# Append: columns are found by name in the dataset


def test_append_finds_columns_by_name(tmp_path):
    ingest([csv(tmp_path / "a.csv", FRAME[:20])], tmp_path / "out.zarr")
    ingest([csv(tmp_path / "b.csv", TURNED[20:])], tmp_path / "out.zarr", append=True)
    np.testing.assert_allclose(stored(tmp_path / "out.zarr")["x"], X, rtol=1e-15)
    with pytest.raises(SpecError, match=r"c\.csv lacks the column 'a' of .*out\.zarr and has the column 'z', unlike"):
        ingest([csv(tmp_path / "c.csv", FRAME.rename(columns={"a": "z"}))], tmp_path / "out.zarr", append=True)


def test_append_takes_columns_in_order_where_names_are_missing_and_tells(tmp_path):
    named, nameless = csv(tmp_path / "a.csv", FRAME[:20]), csv(tmp_path / "b.csv", FRAME[20:], header=False)
    for first, second, message in (
        (named, nameless, f"{nameless}: has no column names; its columns are taken to be in the order"),
        (nameless, named, f"{tmp_path / 'o.zarr'} has no column names: the new rows are taken to have its columns"),
    ):
        notes = Recorder()
        ingest([first], tmp_path / "o.zarr", overwrite=True)
        ingest([second], tmp_path / "o.zarr", append=True, progress=notes)
        assert [note.startswith(message) for note in notes.notes] == [True]
        assert stored(tmp_path / "o.zarr")["x"].shape == (60, 3)
        assert open_rows(tmp_path / "o.zarr").names == (("a", "b", "c") if first == named else None)


def test_names_do_not_travel_with_every_task(tmp_path):
    wide = pd.DataFrame(np.ones((3, 2000)), columns=[f"a rather long name, number {j}" for j in range(2000)])
    ingest([csv(tmp_path / "a.csv", wide)], tmp_path / "out.zarr")
    rows = open_rows(tmp_path / "out.zarr")
    assert len(rows.names or ()) == 2000
    sent = pickle.dumps(rows.part(0, 3))
    assert len(sent) < 10_000
    np.testing.assert_array_equal(pickle.loads(sent).block(0, 3), np.ones((3, 2000)))


# What is told of them


def test_info_shortens_many_names(tmp_path):
    wide = pd.DataFrame(np.ones((3, 40)), columns=[f"p{j}" for j in range(40)])
    ingest([csv(tmp_path / "a.csv", wide)], tmp_path / "out.zarr")
    assert "p6, p7, ... (40 in all)" in run("info", str(tmp_path / "out.zarr")).output
    assert len(info(str(tmp_path / "out.zarr"))["column_names"]) == 40


@pytest.mark.parametrize("frame", [FRAME, pl.DataFrame(dict(FRAME))], ids=["pandas", "polars"])
def test_rows_that_are_not_finite_are_named_by_column(frame):
    bad = X.copy()
    bad[17, 1] = np.nan
    frame = type(frame)(dict(zip("abc", bad.T, strict=True)))
    with pytest.raises(DataError, match=r"row 17, column 1 \('b'\) is NaN"):
        KernelPCA(2, size=20).fit(frame)


def test_files_that_are_appended_to_rows_without_names_follow_the_first_of_them(tmp_path):
    np.save(tmp_path / "d.npy", np.array([[0.0, 0.0]]))
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("b,a\n2,1\n")
    ingest([tmp_path / "d.npy"], tmp_path / "d.zarr")
    ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "d.zarr", append=True)
    np.testing.assert_array_equal(open_rows(tmp_path / "d.zarr").block(0, 3), [[0, 0], [1, 2], [1, 2]])
