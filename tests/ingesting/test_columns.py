"""Values of columns: blanks around words do not count, quotes keep what would mean a missing value, and a dataset says
what its columns are, so that further files can be checked."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting.columns import TableColumn, codes, numbers, unread_values
from bigkpca.ingesting.notation import ISO, Notation
from bigkpca.storage.describe import info
from tests.ingesting.files import made, refuse


def test_blanks_around_words_do_not_count_but_in_parquet(tmp_path):
    found = made(tmp_path, 'w,a\nAA,1\n AA,2\nAA  ,3\n" AA",4\nA A,5\n', categories="one-hot")
    assert found["names"] == ["w=A A", "w=AA", "a"]
    np.testing.assert_array_equal(found["x"][:, 1], [1, 1, 1, 1, 0])
    assert made(tmp_path, "w,a\n  A A ,6\n", append=True)["x"][-1].tolist() == [1, 0, 6]
    assert made(tmp_path, {"w": ["AA", " AA"]}, categories="one-hot")["names"] == ["w= AA", "w=AA"]


def test_blanks_around_labels_and_what_is_missing_do_not_count(tmp_path):
    found = made(tmp_path, "y,a\nAA,1\n AA, 2\nB,  \n NA ,4\nB, NA\n  ,5\nB,6\n", labels="y", missing="drop")
    assert found["categories"] == ["AA", "B"]
    assert found["x"].tolist() == [[1], [2], [6]]


@pytest.mark.parametrize("word", ["NA", "None", "null", "nan"])
def test_a_word_in_quotes_is_a_word(word, tmp_path):
    text = f'w,a\n"{word}",1\n{word},2\nDE,3\n"",4\n,5\n'
    found = made(tmp_path, text, categories="one-hot", missing="drop")
    assert found["names"] == [*sorted(["w=DE", f"w={word}"]), "a"]
    assert found["x"][:, -1].tolist() == [1, 3]
    assert made(tmp_path, text, labels="w", missing="drop")["categories"] == [word, "DE"]
    assert len(made(tmp_path, text, text="w", missing="drop")["x"]) == 2
    message = r"row 1, column 0 \('w'\) is missing, and 2 more such rows"
    refuse(tmp_path, DataError, message, text, categories="one-hot")


def test_numbers_in_quotes_are_numbers_and_may_be_missing(tmp_path):
    frame = pd.DataFrame({"a": [1.5, None, 3], "w": ["x", "y", None], "t": ["2013-01-01", "2013-01-02", "2013-01-03"]})
    text = frame.to_csv(index=False, quoting=1)  # all fields
    found = made(tmp_path, text, categories="one-hot", missing="mean")["x"]
    np.testing.assert_array_equal(found[:, :3], [[1.5, 1, 0], [2.25, 0, 1], [3, 0.5, 0.5]])
    found = made(tmp_path, 'a,t\n"NA",2013-01-01\n"1","NA"\n 2 ,2013-01-03\n', missing="mean")
    assert found["x"].tolist() == [[1.5, 15706], [1, 15707], [2, 15708]]


def test_words_of_parquet_are_words_and_null_is_missing(tmp_path):
    table = {"w": ["NA", None, "", "DE"], "a": ["1", "2", "3", "NA"], "b": [1.0, 2, 3, 4]}
    found = made(tmp_path, table, drop=["a"], categories="one-hot", missing="drop")
    assert found["names"] == ["w=DE", "w=NA", "b"]
    assert found["x"][:, -1].tolist() == [1, 4]
    found = made(tmp_path, table, columns=["a"], missing="mean")
    assert found["x"].tolist() == [[1], [2], [3], [2]]  # numbers that are kept as text


@pytest.mark.parametrize("first", ["csv", "parquet"])
def test_numbers_and_truth_values_are_the_same_categories_in_csv_and_parquet(first, tmp_path):
    frame = pd.DataFrame({"c": [2.0, 1.5, -3.0], "t": [True, False, True], "n": [1, 2, 1], "w": ["1.0", "x", "TRUE"]})
    named = frame.assign(w=["1", "x", "true"]).astype({"c": str, "t": str, "n": str})
    named = named.assign(c=named.c.str.removesuffix(".0"), t=named.t.str.lower())
    expected = pd.get_dummies(named, prefix_sep="=", dtype=int)
    contents = {"csv": frame.to_csv(index=False), "parquet": frame}
    second = "parquet" if first == "csv" else "csv"
    options = {"categorical": ["c", "t", "n", "w"]}
    made(tmp_path, contents[first], **options)
    found = [made(tmp_path, contents[second], append=True)]
    if first == "csv":
        found.append(made(tmp_path, contents[first], contents[second], **options))
    for each in found:
        assert each["names"] == list(expected.columns)
        np.testing.assert_array_equal(each["x"], np.tile(expected, (2, 1)))


def test_levels_are_found_in_every_spelling():
    for values in (["2.0", "1", "10"], [2.0, 1.0, 10.0], [2, 1, 10]):
        for levels in (("1", "2", "10"), ("1.0", "2.0", "10.0")):
            found, _, strange = codes(pa.array(values), TableColumn("a", "ordinal", levels))
            assert (found.tolist(), strange.any()) == ([1, 0, 2], False)


def test_a_number_is_no_truth_value_unless_it_is_0_or_1(tmp_path):
    made(tmp_path, {"t": [True, False], "a": [1.0, 2]}, dtype="float64")
    message = r"row 2, column 0 \('t'\) is 5, not true or false \("
    refuse(tmp_path, DataError, message, {"t": [1, 0, 5, 1], "a": [1.0, 2, 3, 4]}, append=True)
    found = made(tmp_path, {"t": [1, 0], "a": [1.0, 2]}, append=True)
    assert found["x"][:, 0].tolist() == [1, 0, 1, 0]


def test_a_dataset_of_truth_values_says_so_and_takes_no_others(tmp_path):
    made(tmp_path, "a,b\ntrue,false\nfalse,true\n")
    assert [each["kind"] for each in info(str(tmp_path / "o.zarr"))["encoding"]["columns"]] == ["boolean"] * 2
    for options in ({"append": True}, {"like": tmp_path / "o.zarr", "out": "p.zarr"}):
        message = r"row 0, column 0 \('a'\) is '5', not true or false"
        refuse(tmp_path, DataError, message, "a,b\n5,0.5\n", **options)


def test_truth_values_may_follow_numbers(tmp_path):
    made(tmp_path, {"a": [0.5, 2.0]})
    assert "encoding" not in info(str(tmp_path / "o.zarr"))
    found = made(tmp_path, {"a": [True, False]}, append=True, dtype="float64")
    assert found["x"].tolist() == [[0.5], [2], [1], [0]]


@pytest.mark.parametrize("notation", [ISO, Notation(",", "."), Notation(signs=True)])
def test_texts_that_are_not_numbers_are_those_that_fail_one_by_one(notation):
    texts = [
        "1",
        " 2 ",
        "x",
        "NA",
        "",
        "inf",
        "-Infinity",
        "nan",
        "1,5",
        "1.500",
        "$3",
        "5%",
        "1e5",
        "e5",
        ".",
        "-",
        "0x1",
    ]
    texts = pa.array([*texts, None, "x"])
    expected = []
    for i in range(len(texts)):
        try:
            numbers(texts.slice(i, 1), "number", notation)
            expected.append(False)
        except pa.ArrowInvalid:
            expected.append(True)
    assert unread_values(texts, "number", notation).tolist() == expected
    assert 4 < sum(expected) < 12
