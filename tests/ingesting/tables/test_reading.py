"""What messages say about rows of a table: their numbers in the file, whatever is left out."""

import numpy as np
import pyarrow as pa
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting.formats import text
from tests.ingesting.files import made, refuse

BEYOND = 2**53 + 1


@pytest.mark.parametrize("block", [500, 8])
def test_rows_in_messages_are_those_of_the_file_when_some_are_left_out(block, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_TEXT_BYTES", block)
    for content, options, message in (
        ("a,b\n,1\n2,1\n,1\n3000,1\n", {"dtype": "int8"}, r"row 3, column 0 \('a'\) .* is 3000.0, which int8"),
        ("a,y\n,1.5\n2,1\n,1\n3,1.5\n4,inf\n", {"labels": "y"}, "labels of .*: row 4, column 0 is infinity"),
        ("a,y\n" + ",1\n2,1\n" * 99 + "3,x\n", {"labels": "y"}, "row 198 .*has the label 'x'"),
        ("a,b\n,1\n2,1\n,1\n3,inf\n", {}, r"row 3, column 1 \('b'\) is infinity"),
        ("a,y\ninf,\ninf,1\n", {"labels": "y"}, r"row 1, column 0 \('a'\) is infinity \("),
        ("a,b\n,1\n2,1\n,1\n3,x\n", {}, r"row 3, column 1 \('b'\) is 'x', not a number"),
        ({"a": [None, 1, 2], "y": [0, 1, np.inf]}, {"labels": "y"}, "labels of .*: row 2, column 0 is infinity"),
    ):
        refuse(tmp_path, DataError, message, content, missing="drop", **options)


def test_rows_that_are_left_out_may_hold_anything_of_the_right_kind(tmp_path):
    made(tmp_path, "w,x,y\nu,1,p\nv,2,q\n", categories="one-hot", missing="drop")
    found = made(tmp_path, "w,x,y\nz,,p\nu,inf,\nv,3,q\n", append=True)
    np.testing.assert_array_equal(found["x"][2:], [[0, 1, 3, 0, 1]])
    message = r"row 1, column 0 \('w'\) is 'z', not one of the 2 categories of the dataset \("
    refuse(tmp_path, DataError, message, "w,x,y\nz,,p\nz,3,q\n", append=True)


def test_a_whole_number_that_floats_cannot_hold_is_refused(tmp_path):
    for value in (BEYOND, -BEYOND, 2**63 - 1):
        table = {"a": [0.5, None, 1.5], "n": [2**60, BEYOND, value]}
        message = rf"row 2, column 1 \('n'\) .* is {value}, which float64, .* --drop, or round its numbers with --dtype"
        refuse(tmp_path, DataError, message, table, missing="drop")
        found = made(tmp_path, table, missing="drop", dtype="float64")
        np.testing.assert_array_equal(found["x"], [[0.5, 2**60], [1.5, float(value)]])


def test_whole_numbers_alone_keep_every_digit(tmp_path):
    found = made(tmp_path, {"n": [BEYOND, 1], "m": [-BEYOND, 2]})["x"]
    assert found.tolist() == [[BEYOND, -BEYOND], [1, 2]]
    table = {"n": pa.array([2**64 - 1], pa.uint64()), "a": [0.5]}
    refuse(tmp_path, DataError, rf"column 0 \('n'\) .* is {2**64 - 1}, which float64", table)


def test_the_advice_is_one_that_can_be_taken(tmp_path):
    made(tmp_path, "a,b\n1,2\n")
    table = "a,b\n1,x\n,2\n"
    refuse(tmp_path, DataError, r"(?s)--missing drop.*--categories one-hot", table)
    message = r"(?s)column 1 .* is 'x'.*made without missing values.*keeps the kinds"
    with pytest.raises(DataError, match=message) as caught:
        made(tmp_path, table, append=True)
    assert "--" not in str(caught.value)
