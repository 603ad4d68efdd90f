"""Values of columns: blanks around words do not count, quotes keep what would mean a missing value, and a dataset says
what its columns are, so that further files can be checked."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting.streaming import ingest
from bigkpca.storage.describe import info
from tests.helpers.named import stored


def table(path, content, **options):
    """The dataset of a CSV file with this content."""
    (path / "a.csv").write_text(content)
    return stored(ingest([path / "a.csv"], path / "o.zarr", **options).path)


def test_blanks_around_words_do_not_count(tmp_path):
    found = table(tmp_path, 'w,a\nAA,1\n AA,2\nAA  ,3\n" AA",4\nA A,5\n', categories="one-hot")
    assert found["names"] == ["w=A A", "w=AA", "a"]
    np.testing.assert_array_equal(found["x"][:, 1], [1, 1, 1, 1, 0])
    (tmp_path / "b.csv").write_text("w,a\n  A A ,6\n")
    ingest([tmp_path / "b.csv"], tmp_path / "o.zarr", append=True)
    assert stored(tmp_path / "o.zarr")["x"][-1].tolist() == [1, 0, 6]


def test_blanks_around_labels_and_what_is_missing_do_not_count(tmp_path):
    found = table(tmp_path, "y,a\nAA,1\n AA, 2\nB,  \n NA ,4\nB, NA\n  ,5\nB,6\n", labels="y", missing="drop")
    assert found["categories"] == ["AA", "B"]
    assert found["x"].tolist() == [[1], [2], [6]]


def test_parquet_keeps_blanks(tmp_path):
    pq.write_table(pa.table({"w": ["AA", " AA"]}), tmp_path / "a.parquet")
    done = ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr", categories="one-hot")
    assert stored(done.path)["names"] == ["w= AA", "w=AA"]


def test_a_word_in_quotes_is_a_word(tmp_path):
    for word in ("NA", "None", "null", "nan"):
        text = f'w,a\n"{word}",1\n{word},2\nDE,3\n"",4\n,5\n'
        found = table(tmp_path, text, categories="one-hot", missing="drop", overwrite=True)
        assert found["names"] == [*sorted(["w=DE", f"w={word}"]), "a"]
        assert found["x"][:, -1].tolist() == [1, 3]
        found = table(tmp_path, text, labels="w", missing="drop", overwrite=True)
        assert found["categories"] == [word, "DE"]
        assert len(table(tmp_path, text, text="w", missing="drop", overwrite=True)["x"]) == 2
        with pytest.raises(DataError, match=r"row 1, column 0 \('w'\) is missing, and 2 more such rows"):
            ingest([tmp_path / "a.csv"], tmp_path / "p.zarr", categories="one-hot")


def test_numbers_in_quotes_are_numbers_and_may_be_missing(tmp_path):
    frame = pd.DataFrame({"a": [1.5, None, 3], "w": ["x", "y", None], "t": ["2013-01-01", "2013-01-02", "2013-01-03"]})
    frame.to_csv(tmp_path / "a.csv", index=False, quoting=1)  # all fields
    found = stored(ingest([tmp_path / "a.csv"], tmp_path / "o.zarr", categories="one-hot", missing="mean").path)
    np.testing.assert_array_equal(found["x"][:, 0], [1.5, 2.25, 3])
    np.testing.assert_array_equal(found["x"][:, 1:3], [[1, 0], [0, 1], [0.5, 0.5]])
    text = 'a,t\n"NA",2013-01-01\n"1","NA"\n 2 ,2013-01-03\n'
    found = table(tmp_path, text, missing="mean", overwrite=True)
    assert found["x"].tolist() == [[1.5, 15706], [1, 15707], [2, 15708]]


def test_words_of_parquet_are_words_and_null_is_missing(tmp_path):
    words, numbers = ["NA", None, "", "DE"], ["1", "2", "3", "NA"]
    pq.write_table(pa.table({"w": words, "a": numbers, "b": [1.0, 2, 3, 4]}), tmp_path / "a.parquet")
    found = stored(
        ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr", drop=["a"], categories="one-hot", missing="drop").path
    )
    assert found["names"] == ["w=DE", "w=NA", "b"]
    assert found["x"][:, -1].tolist() == [1, 4]
    found = stored(ingest([tmp_path / "a.parquet"], tmp_path / "p.zarr", columns=["a"], missing="mean").path)
    assert found["x"].tolist() == [[1], [2], [3], [2]]  # numbers that are kept as text


def test_a_number_is_no_truth_value_unless_it_is_0_or_1(tmp_path):
    pq.write_table(pa.table({"t": [True, False], "a": [1.0, 2]}), tmp_path / "a.parquet")
    ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr", dtype="float64")
    pq.write_table(pa.table({"t": [1, 0, 5, 1], "a": [1.0, 2, 3, 4]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"row 2, column 0 \('t'\) is 5, not true or false \("):
        ingest([tmp_path / "b.parquet"], tmp_path / "o.zarr", append=True)
    pq.write_table(pa.table({"t": [1, 0], "a": [1.0, 2]}), tmp_path / "c.parquet")
    ingest([tmp_path / "c.parquet"], tmp_path / "o.zarr", append=True)
    assert stored(tmp_path / "o.zarr")["x"][:, 0].tolist() == [1, 0, 1, 0]


def test_a_dataset_of_truth_values_says_so_and_takes_no_others(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\ntrue,false\nfalse,true\n")
    (tmp_path / "b.csv").write_text("a,b\n5,0.5\n")
    ingest([tmp_path / "a.csv"], tmp_path / "o.zarr")
    assert [each["kind"] for each in info(str(tmp_path / "o.zarr"))["encoding"]["columns"]] == ["boolean"] * 2
    for out, options in (("o.zarr", {"append": True}), ("p.zarr", {"like": tmp_path / "o.zarr"})):
        with pytest.raises(DataError, match=r"row 0, column 0 \('a'\) is '5', not true or false"):
            ingest([tmp_path / "b.csv"], tmp_path / out, **options)
    assert stored(tmp_path / "o.zarr")["x"].tolist() == [[1, 0], [0, 1]]


def test_truth_values_may_follow_numbers(tmp_path):
    pq.write_table(pa.table({"a": [0.5, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [True, False]}), tmp_path / "b.parquet")
    ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr")
    assert "encoding" not in info(str(tmp_path / "o.zarr"))
    ingest([tmp_path / "b.parquet"], tmp_path / "o.zarr", append=True, dtype="float64")
    assert stored(tmp_path / "o.zarr")["x"].tolist() == [[0.5], [2], [1], [0]]
