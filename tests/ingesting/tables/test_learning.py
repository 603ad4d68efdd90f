"""What is learnt of a table before it is read: kinds and categories, over all rows that are kept."""

import numpy as np
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting import tables
from bigkpca.ingesting.formats import text
from tests.ingesting.files import made, refuse

LATE = [str(i % 3) for i in range(200)] + ["x"]  # a word far behind numbers


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """The kinds of columns are guessed from the first 64 bytes."""
    monkeypatch.setattr(text, "_TEXT_BYTES", 16)


def csv(**columns):
    lines = [columns, *zip(*columns.values(), strict=True)]
    return "".join(",".join(map(str, line)) + "\n" for line in lines)


def test_a_column_is_text_where_any_row_holds_a_word(tmp_path):
    for early, missing in (("7", "refuse"), ("2013-01-01", "mean"), ("true", "median"), ("7", "drop"), ("", "drop")):
        values = [early] * 200 + ["x", "y"]
        found = made(tmp_path, csv(a=range(202), w=values), categories="one-hot", missing=missing)
        categories = sorted({early, "x", "y"} - {""})
        assert found["names"] == ["a", *(f"w={each}" for each in categories)]
        expected = [[float(word == each) for each in categories] for word in values if word]
        np.testing.assert_array_equal(found["x"][:, 1:], expected)
        others = {"7": "; 200 others are numbers", "2013-01-01": "; 200 others are dates"}.get(early, "")
        note = f"{tmp_path / 'a.csv'}: column 1 ('w') is read as text since row 200: 'x'{others}"
        assert note in found["notes"]
    late = [*LATE, *"uvwyz"]
    found = made(tmp_path, csv(a=[1, 2], w=[1, 2]), csv(a=[3] * 206, w=late), categories="one-hot")
    names = [f"w={each}" for each in "012uvwxyz"]  # also where a later file holds the word
    assert found["names"] == ["a", *names]
    assert found["x"].sum(axis=0).tolist() == [621, 67, 68, 67, *[1] * 6]


def test_a_column_that_is_mostly_numbers_becomes_categories_only_if_it_is_named(tmp_path):
    table = csv(a=range(201), w=LATE)
    message = r"column 1 \('w'\) is read as text since row 200: 'x'; 200 others are numbers\. If 'x' .*--na-values x\."
    for categories in ("one-hot", None):
        if categories:
            refuse(tmp_path, DataError, message, table, categories=categories)
            refuse(
                tmp_path,
                DataError,
                "since row 200: 'x'; 202 others",
                csv(a=[1, 2], w=[1, 2]),
                table,
                categories=categories,
            )
        found = made(tmp_path, table, categories=categories, categorical=["w"])
        assert found["names"] == ["a", "w=0", "w=1", "w=2", "w=x"]
        assert found["notes"] == []


def test_without_categories_a_late_word_is_named_with_what_helps(tmp_path):
    table, message = csv(a=range(201), w=LATE), r"row 200, column 1 \('w'\) is 'x', not a number"
    for missing in ("refuse", "mean", "median", "drop"):
        refuse(tmp_path, DataError, f"{message}.*--categories one-hot", table, missing=missing)
    made(tmp_path, csv(a=[1], w=[1]))
    refuse(tmp_path, DataError, message, table, append=True)


def test_a_number_column_of_too_many_values_names_the_word_that_made_it_text(tmp_path):
    table = csv(a=range(1502), w=[*range(1500), "n.a.", 3])
    message = r"column 1 \('w'\) is read as text since row 1,500: 'n\.a\.'; over 1,000 others are numbers"
    refuse(tmp_path, DataError, message, table, categories="one-hot")


def test_categories_are_those_of_the_rows_that_are_kept(tmp_path):
    table = csv(w=["u", "v", "u", "z"], a=[1, 2, "", 4], y=["p", "q", "q", ""])
    for labels, more in ((None, ["y=p", "y=q"]), ("y", [])):
        found = made(tmp_path, table, labels=labels, categories="one-hot", missing="drop")
        assert found["names"] == ["w=u", "w=v", "a", *more]
        np.testing.assert_array_equal(found["x"][:, :3], [[1, 0, 1], [0, 1, 2]])


def test_a_median_of_many_values_is_that_of_a_sample_which_differs_by_column_and_not_by_run(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "_SAMPLE", 1000)
    values = np.sort(np.random.default_rng(0).exponential(size=20_000))
    table = {"a": [*values, None], "b": [*values, None]}
    x, y = (made(tmp_path, table, missing="median")["x"][-1] for _ in range(2))
    np.testing.assert_array_equal(x, y)
    assert x[0] != x[1]
    assert (np.abs(np.searchsorted(values, x) / len(values) - 0.5) < 4 * 0.5 / np.sqrt(1000)).all()
