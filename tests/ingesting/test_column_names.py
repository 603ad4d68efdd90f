"""Names of columns in ingest: kept, matched across files, and told where they are missing."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, SpecError
from bigkpca.ingesting.streaming import ingest
from bigkpca.storage.describe import info
from tests.data.cases import case
from tests.helpers.commands import run
from tests.helpers.named import FRAME, INDEXED, TURNED, WRITERS, X, csv, parquet, stored
from tests.helpers.progress import Recorder


def test_the_index_of_a_parquet_frame_is_left_out_and_told(tmp_path):
    for kind, frame in INDEXED.items():
        notes, source = Recorder(), parquet(tmp_path / f"{kind}.parquet", frame)
        found = stored(ingest([source], tmp_path / f"{kind}.zarr", progress=notes).path)
        np.testing.assert_array_equal(found["x"], frame.to_numpy(), err_msg=kind)
        assert found["names"] == ["a", "b", "c"]
        index = [name for name in pq.read_schema(source).names if name not in "abc"]
        assert [note.partition(" is left out")[0] for note in notes.notes] == [f"{source}: column {n!r}" for n in index]
        assert len(index) == frame.index.nlevels
    notes = Recorder()
    done = ingest([parquet(tmp_path / "a.parquet", FRAME[::2])], tmp_path / "out.zarr", progress=notes)
    assert stored(done.path)["x"].shape == (30, 3)  # a range is no column
    assert notes.notes == []


def test_the_index_of_parquet_may_hold_labels_and_is_known_without_the_metadata_of_pandas(tmp_path):
    found = stored(ingest([parquet(tmp_path / "a.parquet", INDEXED["a name"])], tmp_path / "a.zarr", labels="id").path)
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(found["y"], np.arange(60) ** 2)
    bare = pq.read_table(parquet(tmp_path / "b.parquet", INDEXED["dropped rows"])).replace_schema_metadata(None)
    pq.write_table(bare, tmp_path / "c.parquet")
    notes, sources = Recorder(), [tmp_path / "b.parquet", tmp_path / "c.parquet"]
    done = ingest(sources, tmp_path / "out.zarr", progress=notes)
    np.testing.assert_array_equal(stored(done.path)["x"], np.tile(X[X[:, 0] > 0], (2, 1)))
    assert [note.partition("column")[0] for note in notes.notes] == [f"{sources[0]} and 1 more: "]


def test_the_nameless_first_column_of_a_csv_is_left_out_and_told(tmp_path):
    for kind in ("dropped rows", "text"):
        notes = Recorder()
        INDEXED[kind].to_csv(tmp_path / "a.csv")
        done = ingest([tmp_path / "a.csv"], tmp_path / f"{kind}.zarr", progress=notes)
        np.testing.assert_allclose(stored(done.path)["x"], INDEXED[kind].to_numpy(), rtol=1e-15)
        assert stored(done.path)["names"] == ["a", "b", "c"]
        (note,) = notes.notes
        assert note.startswith(f"{tmp_path / 'a.csv'}: the first column, which has no name, is left out")
        assert "name it in the header" in note


def test_the_nameless_first_column_of_a_csv_may_hold_labels_and_others_are_kept(tmp_path):
    INDEXED["text"].to_csv(tmp_path / "a.csv")
    found = stored(ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", labels="").path)
    assert found["categories"] == list(INDEXED["text"].index)
    assert found["x"].shape == (60, 3)
    for header in (",b,", "a,,c"):
        (tmp_path / "a.csv").write_text(f"{header}\n1,2,3\n")
        found = stored(ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", overwrite=True).path)
        np.testing.assert_array_equal(found["x"], [[1, 2, 3]])
        assert found["names"] == header.split(",")


# Several files: columns are found by name


@pytest.mark.parametrize(("first", "second"), [("csv", "parquet"), ("parquet", "csv")])
def test_columns_are_found_by_name_in_further_files(first, second, tmp_path):
    kinds = np.array(["u", "v"])[np.arange(60) % 2]
    a = WRITERS[first](tmp_path / f"a.{first}", FRAME[:20].assign(kind=kinds[:20])[["a", "kind", "b", "c"]])
    b = WRITERS[second](tmp_path / f"b.{second}", TURNED[20:].reset_index(drop=True).assign(kind=kinds[20:]))
    found = stored(ingest([a, b], tmp_path / "out.zarr", labels="kind").path)
    np.testing.assert_allclose(found["x"], X, rtol=1e-15)
    np.testing.assert_array_equal(np.array(found["categories"])[found["y"]], kinds)
    assert found["names"] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", WRITERS)
def test_files_with_other_columns_are_refused(kind, tmp_path):
    for other, message in (
        (FRAME[["a", "b"]], r"b\.\w+ lacks the column 'c' of .*a\.\w+: columns are found by name.*rename, add"),
        (FRAME.assign(d=1.0), r"b\.\w+ has the column 'd', unlike .*a\.\w+"),
        (FRAME.rename(columns={"b": "B"}), r"lacks the column 'b' of .* and has the column 'B', unlike"),
        (
            pd.DataFrame(np.ones((2, 9)), columns=list("stuvwxyza")),
            r"lacks the columns 'b', 'c' of .* has the columns 's', 't', 'u', 'v', 'w' and 3 more, unlike",
        ),
    ):
        write = WRITERS[kind]
        a, b = write(tmp_path / f"a.{kind}", FRAME), write(tmp_path / f"b.{kind}", other)
        with case(message), pytest.raises(SpecError, match=message):
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
    np.save(tmp_path / "a.npy", np.ones((3, 500)))
    ingest([tmp_path / "a.npy"], tmp_path / "out.zarr")
    group = zarr.open_group(str(tmp_path / "out.zarr"))
    names = [f"a rather long name of a column, number {j}" for j in range(500)]
    group.attrs["bigkpca"] = {**group.attrs["bigkpca"], "column_names": names}
    rows = open_rows(tmp_path / "out.zarr")
    assert rows.names == tuple(names)
    sent = pickle.dumps(rows.part(0, 3))
    assert len(sent) < 10_000
    np.testing.assert_array_equal(pickle.loads(sent).block(0, 3), np.ones((3, 500)))
    assert f"{names[6]}, {names[7]}, ... (500 in all)" in run("info", str(tmp_path / "out.zarr")).output
    assert info(str(tmp_path / "out.zarr"))["column_names"] == names


def test_files_that_are_appended_to_rows_without_names_follow_the_first_of_them(tmp_path):
    np.save(tmp_path / "d.npy", np.array([[0.0, 0.0]]))
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("b,a\n2,1\n")
    ingest([tmp_path / "d.npy"], tmp_path / "d.zarr")
    ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "d.zarr", append=True)
    np.testing.assert_array_equal(open_rows(tmp_path / "d.zarr").block(0, 3), [[0, 0], [1, 2], [1, 2]])
