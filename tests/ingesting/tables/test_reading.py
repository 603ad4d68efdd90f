"""What messages say about rows of a table: their numbers in the file, whatever is left out."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting.formats import text_rows
from bigkpca.ingesting.streaming import ingest
from tests.data.cases import case
from tests.helpers.named import stored

BEYOND = 2**53 + 1


def csv(path, text):
    (path / "a.csv").write_text(text)
    return path / "a.csv"


@pytest.mark.parametrize("block", [500, 8])
def test_rows_in_messages_are_those_of_the_file_when_some_are_left_out(block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "_TEXT_BYTES", block)
    for text, options, message in (
        ("a,b\n,1\n2,1\n,1\n3000,1\n", {"dtype": "int8"}, r"row 3, column 0 \('a'\) .* is 3000.0, which int8"),
        ("a,y\n,1.5\n2,1\n,1\n3,1.5\n4,inf\n", {"labels": "y"}, "labels of .*: row 4, column 0 is infinity"),
        ("a,y\n" + ",1\n2,1\n" * 99 + "3,x\n", {"labels": "y"}, "row 198 .*has the label 'x'"),
        ("a,b\n,1\n2,1\n,1\n3,inf\n", {}, r"row 3, column 1 \('b'\) is infinity"),
        ("a,y\ninf,\ninf,1\n", {"labels": "y"}, r"row 1, column 0 \('a'\) is infinity \("),
        ("a,b\n,1\n2,1\n,1\n3,x\n", {}, r"row 3, column 1 \('b'\) is 'x', not a number"),
    ):
        with case(message), pytest.raises(DataError, match=message):
            ingest([csv(tmp_path, text)], tmp_path / "o.zarr", missing="drop", **options)
        assert not (tmp_path / "o.zarr").exists()


def test_labels_of_parquet_are_named_by_their_rows(tmp_path):
    pq.write_table(pa.table({"a": [None, 1.0, 2.0], "y": [0.0, 1.0, np.inf]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"the labels of .*: row 2, column 0 is infinity"):
        ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr", labels="y", missing="drop")


def test_rows_that_are_left_out_may_hold_anything_of_the_right_kind(tmp_path):
    ingest([csv(tmp_path, "w,x,y\nu,1,p\nv,2,q\n")], tmp_path / "o.zarr", categories="one-hot", missing="drop")
    source = csv(tmp_path, "w,x,y\nz,,p\nu,inf,\nv,3,q\n")
    ingest([source], tmp_path / "o.zarr", append=True)
    np.testing.assert_array_equal(stored(tmp_path / "o.zarr")["x"][2:], [[0, 1, 3, 0, 1]])
    with pytest.raises(DataError, match=r"row 1, column 0 \('w'\) is 'z', none of the 2 categories of the dataset \("):
        ingest([csv(tmp_path, "w,x,y\nz,,p\nz,3,q\n")], tmp_path / "o.zarr", append=True)


def test_a_whole_number_that_floats_cannot_hold_is_refused(tmp_path):
    for value in (BEYOND, -BEYOND, 2**63 - 1):
        source, out = tmp_path / "a.parquet", tmp_path / f"{value}.zarr"
        pq.write_table(pa.table({"a": [0.5, None, 1.5], "n": [2**60, BEYOND, value]}), source)
        message = rf"row 2, column 1 \('n'\) .* is {value}, which float64, .* --drop, or round its numbers with --dtype"
        with pytest.raises(DataError, match=message):
            ingest([source], out, missing="drop")
        done = ingest([source], out, missing="drop", dtype="float64")
        np.testing.assert_array_equal(stored(done.path)["x"], [[0.5, 2**60], [1.5, float(value)]])


def test_whole_numbers_alone_keep_every_digit(tmp_path):
    pq.write_table(pa.table({"n": [BEYOND, 1], "m": [-BEYOND, 2]}), tmp_path / "a.parquet")
    found = stored(ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr").path)["x"]
    assert found.tolist() == [[BEYOND, -BEYOND], [1, 2]]
    pq.write_table(pa.table({"n": pa.array([2**64 - 1], pa.uint64()), "a": [0.5]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=rf"column 0 \('n'\) .* is {2**64 - 1}, which float64"):
        ingest([tmp_path / "b.parquet"], tmp_path / "p.zarr")


def test_the_advice_is_one_that_can_be_taken(tmp_path):
    ingest([csv(tmp_path, "a,b\n1,2\n")], tmp_path / "o.zarr")
    source = csv(tmp_path, "a,b\n1,x\n,2\n")
    with pytest.raises(DataError, match=r"(?s)--missing drop.*--categories one-hot"):
        ingest([source], tmp_path / "p.zarr")
    with pytest.raises(
        DataError, match=r"(?s)column 1 .* is 'x'.*made without missing values.*keeps the kinds"
    ) as caught:
        ingest([source], tmp_path / "o.zarr", append=True)
    assert "--" not in str(caught.value)
