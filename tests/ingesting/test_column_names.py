"""Names of columns in ingest: kept, matched across files, and told where they are missing."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, SpecError
from bigkpca.storage.describe import info
from tests.helpers.commands import run
from tests.helpers.named import FRAME, INDEXED, TURNED, WRITERS, X
from tests.ingesting.files import made, refuse, write


def text_of(frame, header=True):
    return frame.to_csv(index=False, header=header)


def test_the_index_of_a_parquet_frame_is_left_out_and_told(tmp_path):
    for kind, frame in INDEXED.items():
        found, source = made(tmp_path, frame), tmp_path / "a.parquet"
        np.testing.assert_array_equal(found["x"], frame.to_numpy(), err_msg=kind)
        assert found["names"] == ["a", "b", "c"]
        index = [name for name in pq.read_schema(source).names if name not in "abc"]
        assert [note.partition(", which is the index")[0] for note in found["notes"]] == [
            f"{source}: leaving out column {name!r}" for name in index
        ]
        assert len(index) == frame.index.nlevels
    found = made(tmp_path, FRAME[::2])
    assert (found["x"].shape, found["notes"]) == ((30, 3), [])  # a range is no column


def test_the_index_of_parquet_may_hold_labels_and_is_known_without_the_metadata_of_pandas(tmp_path):
    found = made(tmp_path, INDEXED["a name"], labels="id")
    np.testing.assert_array_equal(found["x"], X)
    np.testing.assert_array_equal(found["y"], np.arange(60) ** 2)
    dropped = INDEXED["dropped rows"]
    found = made(tmp_path, dropped, pq.read_table(write(tmp_path, dropped)).replace_schema_metadata(None))
    np.testing.assert_array_equal(found["x"], np.tile(dropped, (2, 1)))
    assert [note.partition("column")[0] for note in found["notes"]] == [
        f"{tmp_path / 'a.parquet'} and 1 more: leaving out "
    ]


def test_the_nameless_first_column_of_a_csv_is_left_out_and_told_unless_it_holds_labels(tmp_path):
    for kind in ("dropped rows", "text"):
        found = made(tmp_path, INDEXED[kind].to_csv())
        np.testing.assert_allclose(found["x"], INDEXED[kind].to_numpy(), rtol=1e-15)
        assert found["names"] == ["a", "b", "c"]
        (note,) = found["notes"]
        assert note.startswith(f"{tmp_path / 'a.csv'}: leaving out the first column, which has no name")
        assert "name it in the header" in note
    found = made(tmp_path, INDEXED["text"].to_csv(), labels="")
    assert (found["categories"], found["x"].shape) == (list(INDEXED["text"].index), (60, 3))
    for header in (",b,", "a,,c"):  # where others lack a name, all are kept
        found = made(tmp_path, f"{header}\n1,2,3\n")
        assert (found["names"], found["x"].tolist()) == (header.split(","), [[1, 2, 3]])


@pytest.mark.parametrize(("first", "second"), [("csv", "parquet"), ("parquet", "csv")])
def test_columns_are_found_by_name_in_further_files(first, second, tmp_path):
    kinds = np.array(["u", "v"])[np.arange(60) % 2]
    a = WRITERS[first](tmp_path / f"a.{first}", FRAME[:20].assign(kind=kinds[:20])[["a", "kind", "b", "c"]])
    b = WRITERS[second](tmp_path / f"b.{second}", TURNED[20:].reset_index(drop=True).assign(kind=kinds[20:]))
    found = made(tmp_path, a, b, labels="kind")
    np.testing.assert_allclose(found["x"], X, rtol=1e-15)
    np.testing.assert_array_equal(np.array(found["categories"])[found["y"]], kinds)
    assert found["names"] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", WRITERS)
def test_files_with_other_columns_are_refused(kind, tmp_path):
    wide = pd.DataFrame(np.ones((2, 9)), columns=list("stuvwxyza"))
    for other, message in (
        (FRAME[["a", "b"]], r"b\.\w+ lacks the column 'c' of .*a\.\w+: columns are matched by name.*rename, add"),
        (FRAME.assign(d=1.0), r"b\.\w+ has the column 'd', unlike .*a\.\w+"),
        (FRAME.rename(columns={"b": "B"}), r"lacks the column 'b' of .* and has the column 'B', unlike"),
        (wide, r"lacks the columns 'b', 'c' of .* has the columns 's', 't', 'u', 'v', 'w' and 3 more, unlike"),
    ):
        a, b = (WRITERS[kind](tmp_path / f"{name}.{kind}", frame) for name, frame in (("a", FRAME), ("b", other)))
        refuse(tmp_path, SpecError, message, a, b)


def test_files_without_names_are_taken_in_order_which_is_told(tmp_path):
    """As `split` cuts a file: the header is in the first part alone."""
    found = made(tmp_path, *(text_of(FRAME[20 * i : 20 * i + 20], header=i == 0) for i in range(3)))
    np.testing.assert_allclose(found["x"], X, rtol=1e-15)
    assert found["names"] == ["a", "b", "c"]
    (note,) = found["notes"]
    begin = f"{tmp_path / 'b.csv'} and 1 more: has no column names; assuming that its columns have the order"
    assert note.startswith(begin)
    found = made(tmp_path, text_of(FRAME, header=False))  # no file has names, nor has the dataset
    assert (found["names"], found["notes"], open_rows(tmp_path / "o.zarr").names) == (None, [], None)
    assert "column_names" not in info(str(tmp_path / "o.zarr"))


def test_names_come_from_the_first_file_that_has_some(tmp_path):
    found = made(tmp_path, X[:10], text_of(FRAME[10:20]), text_of(TURNED[20:]))
    np.testing.assert_allclose(found["x"], X, rtol=1e-15)
    assert found["names"] == ["a", "b", "c"]
    made(tmp_path, np.zeros((1, 2)))  # also where files are appended to rows without names
    found = made(tmp_path, "a,b\n1,2\n", "b,a\n2,1\n", append=True)
    assert found["x"].tolist() == [[0, 0], [1, 2], [1, 2]]


def test_a_name_of_several_columns(tmp_path):
    a, twice = "y,x,z\n1,2,3\n", pa.Table.from_arrays([pa.array(X[:, j]) for j in range(3)], names=["x", "y", "x"])
    both = r" \(counted from 0\) are called 'x': give each a unique name, .* leave out all with this name using --dr"
    more = "x,y,x,x\n1,2,3,4\n"
    for content, columns in (("x,x,y\n1,2,3\n", "0 and 1"), (twice, "0 and 2"), (more, "0 and 2 and 3")):
        refuse(tmp_path, SpecError, rf"columns {columns}{both}", content)
        refuse(tmp_path, SpecError, rf"b\.\w+: columns {columns}{both}", a, content)
        message = r"a\.\w+ has \d columns 'x': give the column of labels a unique name"
        refuse(tmp_path, SpecError, message, content, labels="x")
    assert made(tmp_path, twice, drop=["x"])["names"] == ["y"]
    assert made(tmp_path, twice, columns=["y"])["names"] == ["y"]
    made(tmp_path, "y\n1\n")
    refuse(tmp_path, SpecError, r"a\.csv lacks the column 'y' of .* and has the column 'x'", "x,x\n1,2\n", append=True)


def test_columns_without_a_name_are_found_in_order(tmp_path):
    a, b, c = (f"{header}\n1,2,3\n" for header in (",x,", ",x,", ",,x"))
    assert made(tmp_path, a, b)["names"] == ["", "x", ""]
    refuse(tmp_path, SpecError, r"b\.csv has its columns in another order .* several have no name: give each", a, c)


def test_errors_count_columns_as_their_own_file_does(tmp_path):
    for value, message in ((np.nan, "is NaN"), (1e300, r".* is 1e\+3")):
        bad = TURNED.to_numpy(copy=True)
        bad[7, 0] = value
        message = rf"b\.parquet: row 7, column 0 \('c'\) {message}"
        refuse(tmp_path, DataError, message, FRAME, dict(zip("cba", bad.T, strict=True)), dtype="float32")


def test_append_finds_columns_by_name(tmp_path):
    made(tmp_path, text_of(FRAME[:20]))
    np.testing.assert_allclose(made(tmp_path, text_of(TURNED[20:]), append=True)["x"], X, rtol=1e-15)
    message = r"a\.csv lacks the column 'a' of .*o\.zarr and has the column 'z', unlike"
    refuse(tmp_path, SpecError, message, text_of(FRAME.rename(columns={"a": "z"})), append=True)


def test_append_takes_columns_in_order_where_names_are_missing_and_tells(tmp_path):
    named, nameless = text_of(FRAME[:20]), text_of(FRAME[20:], header=False)
    for first, second, message in (
        (named, nameless, f"{tmp_path / 'a.csv'}: has no column names; assuming that its columns have the order"),
        (nameless, named, f"{tmp_path / 'o.zarr'} has no column names: assuming that the new rows have its columns"),
    ):
        made(tmp_path, first)
        found = made(tmp_path, second, append=True)
        assert [note.startswith(message) for note in found["notes"]] == [True]
        assert found["x"].shape == (60, 3)
        assert open_rows(tmp_path / "o.zarr").names == (("a", "b", "c") if first == named else None)


def test_names_do_not_travel_with_every_task(tmp_path):
    names = [f"a rather long name of a column, number {j}" for j in range(500)]
    made(tmp_path, dict.fromkeys(names, np.ones(3)), out="out.zarr")
    rows = open_rows(tmp_path / "out.zarr")
    assert rows.names == tuple(names)
    sent = pickle.dumps(rows.part(0, 3))
    assert len(sent) < 10_000
    np.testing.assert_array_equal(pickle.loads(sent).block(0, 3), np.ones((3, 500)))
    assert f"{names[6]}, {names[7]}, ... (500 in all)" in run("info", str(tmp_path / "out.zarr")).output
    assert info(str(tmp_path / "out.zarr"))["column_names"] == names
