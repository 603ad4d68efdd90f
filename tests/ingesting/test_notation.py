"""How texts write numbers, dates and missing values, and columns whose kind is named: read in all files of a dataset as
in the first."""

from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.ingesting import ingest, notation, tables
from bigkpca.ingesting.columns import texts_of
from bigkpca.ingesting.formats import text
from bigkpca.ingesting.notation import Notation, notations_of, parsed_dates, parsed_numbers
from bigkpca.storage.describe import info
from tests.helpers.commands import run
from tests.helpers.named import stored
from tests.helpers.progress import Recorder
from tests.ingesting.files import made, npy, refuse

TABLE = """zip;size;price;share;day;moment;n
01234;low;$1.000,50;50%;31/01/2013;2013-01-01;1
90210;high;-;12,5 %;01/02/2013;2013-01-02 12:00;-1.500,25
01234;mid;-20;0,5;02/02/2013;2013-01-03;9999
"""
OPTIONS = {
    "categorical": ["zip"],
    "ordinal": {"size": ["low", "mid", "high"]},
    "numeric": ["price", "share"],
    "na_values": ["-", "9999"],
    "missing": "mean",
    "decimal": ",",
    "thousands": ".",
    "date_format": "%d/%m/%Y",
}
DAY = 15706  # 2013-01-01
ROWS = [
    [1, 0, 0, 1000.5, 0.5, DAY + 30, DAY, 1],
    [0, 1, 2, (1000.5 - 20) / 2, 0.125, DAY + 31, DAY + 1.5, -1500.25],
    [1, 0, 1, -20, 0.5, DAY + 32, DAY + 2, (1 - 1500.25) / 2],
]


@given(
    value=st.floats(-1e12, 1e12),
    digits=st.integers(0, 6),
    decimal=st.sampled_from(".,·"),
    thousands=st.sampled_from(["", "'", " ", "_", "\u202f"]),
    sign=st.sampled_from(["", "$", "€ ", "%", " %"]),
)
def test_a_number_in_any_notation_is_that_of_python(value, digits, decimal, thousands, sign):
    plain = f"{value:.{digits}f}"
    text = f"{value:,.{digits}f}".translate({ord("."): decimal, ord(","): thousands})
    text = text + sign if "%" in sign else text.replace("-", f"-{sign}") if value < 0 else sign + text
    found = parsed_numbers(pa.array([text, None]), Notation(decimal, thousands, signs=bool(sign))).to_pylist()
    assert found == [float(plain) / (100 if "%" in sign else 1), None]


@given(
    moment=st.datetimes(datetime(1950, 1, 1), datetime(2049, 12, 31)),
    date_format=st.sampled_from(
        ["%d/%m/%Y", "%m/%d/%y", "%Y%m%d", "%d %b %Y %I:%M %p", "%B %d, %Y", "%d.%m.%Y %H:%M:%S.%f", "%Y-%j"]
    ),
)
def test_a_date_of_any_format_is_that_of_python(moment, date_format):
    text = moment.strftime(date_format)
    for zone, hours in (("", 0), (" +0530", 5.5)):
        given = Notation(date_format=date_format + " %z" * bool(zone))
        (found,) = parsed_dates(pa.array([text + zone]), given).to_pylist()
        expected = datetime.strptime(text, date_format)
        assert (expected - found).total_seconds() / 3600 == hours


def test_the_notations_that_read_the_most_texts_are_the_simplest():
    for texts, expected in (
        (["1", "2.5"], [Notation()]),
        (["1,5"], [Notation(",")]),
        (["0,125"], [Notation(",")]),
        (["1,500", "2"], [Notation(","), Notation(thousands=",")]),
        (["1,500", "1.5", "x"], [Notation(thousands=",")]),
        (["1.500,5"], [Notation(",", ".")]),
        (["€1.500,5"], [Notation(",", ".", signs=True)]),
        (["1 500,5"], [Notation(",", " ")]),
        (["1'500"], [Notation(thousands="'")]),
        (["2013/12/31"], [Notation(date_format="%Y/%m/%d")]),
        (["31/12/13", "01/02/13"], [Notation(date_format="%d/%m/%y")]),
        (["x", "y", "1"], []),
        ([], []),
    ):
        assert notations_of(texts) == expected, texts


@pytest.mark.parametrize("how", ["append", "like"])
def test_files_added_later_are_read_as_the_first(how, tmp_path):
    found = made(tmp_path, TABLE, **OPTIONS)
    np.testing.assert_allclose(found["x"], ROWS)
    assert found["names"] == ["zip=01234", "zip=90210", "size", "price", "share", "day", "moment", "n"]
    options = {"append": True} if how == "append" else {"like": tmp_path / "o.zarr", "out": "p.zarr"}
    lines = TABLE.splitlines()
    turned = "\n".join(";".join(reversed(line.split(";"))) for line in lines)
    for content in (TABLE.encode("utf-16"), TABLE.replace("$", "€").encode("cp1252"), turned):
        encoding = "cp1252" if b"\x80" in (content if isinstance(content, bytes) else b"") else None
        found = made(tmp_path, content, encoding=encoding, overwrite=how == "like", **options)
        np.testing.assert_allclose(found["x"][-3:], ROWS)
    message = r"row 1, column 4 \('day'\) is '2013-02-01', not a date of the format '%d/%m/%Y'"
    refuse(tmp_path, DataError, message, TABLE.replace("01/02/2013", "2013-02-01"), **options)
    message = r"row 0, column 1 \('size'\) is 'tiny', not one of its levels low, mid, high"
    refuse(tmp_path, DataError, message, TABLE.replace("low", "tiny"), **options)


def test_files_without_names_added_later_are_read_as_the_first(tmp_path):
    made(tmp_path, "a;d\n1,5;31.01.2013\n", decimal=",", date_format="%d.%m.%Y")
    found = made(tmp_path, "2,5;02.02.2013\n3;01.01.2013\n", append=True)
    np.testing.assert_array_equal(found["x"], [[1.5, DAY + 30], [2.5, DAY + 32], [3, DAY]])
    assert "has no column names" in found["notes"][0]


def test_the_command_line_takes_the_same_options(tmp_path):
    (tmp_path / "a.csv").write_bytes(TABLE.encode("utf-16-le"))
    done = run(
        *("ingest", tmp_path / "a.csv", tmp_path / "o.zarr", "--categorical", "zip", "--ordinal", "size=low,mid,high"),
        *(
            "--numeric",
            "price,share",
            "--na-values",
            "-,9999",
            "--missing",
            "mean",
            "--decimal",
            ",",
            "--thousands",
            ".",
        ),
        *("--date-format", "day=%d/%m/%Y", "--encoding", "utf-16-le", "--max-categories", 5),
    )
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(stored(tmp_path / "o.zarr")["x"], ROWS)
    assert "zip (2 categories), size (3 levels), price (number)" in run("info", tmp_path / "o.zarr").output
    for option, message in (
        (("--ordinal", "size"), "'size' is not of the form COLUMN=LOW,HIGH"),
        (("--date-format", "%d/%m/%Y", "--date-format", "%Y"), "give one format, or COLUMN=FORMAT for each column"),
        (("--date-format", "day=%d/%m/%Y", "--date-format", "day=%Y"), "column 'day' is named twice"),
        (("--ordinal", "size=low,mid", "--ordinal", "size=mid,low"), "column 'size' is named twice"),
    ):
        done = run("ingest", tmp_path / "a.csv", tmp_path / "p.zarr", *option)
        assert (done.exit_code, message in done.output) == (2, True), done.output


def test_columns_of_parquet_take_the_same_options(tmp_path):
    table = {
        "code": [3, 1, 3],
        "grade": [1.0, None, 2.0],
        "level": [10, 30, 20],
        "price": ["$1,000", "2", "-"],
        "day": ["01/02/2013", "02/02/2013", "-"],
        "number": [20130101, 20130102, 20130103],
        "x": [1.5, -999.0, 2.5],
    }
    found = made(
        *(tmp_path, table),
        categorical=["code", "grade"],
        ordinal={"level": ["10", "20", "30"]},
        numeric="price",
        thousands=",",
        na_values=["-", "-999"],
        missing="median",
        date_format={"day": "%d/%m/%Y", "number": "%Y%m%d"},
    )
    assert found["names"] == ["code=1", "code=3", "grade=1", "grade=2", "level", "price", "day", "number", "x"]
    days = [DAY + 31, DAY + 32, DAY + 31.5]
    expected = [[0, 1, 1, 0, 0, 1000], [1, 0, 0, 0, 2, 2], [0, 1, 0, 1, 1, 501]]
    expected = np.column_stack([expected, days, [DAY, DAY + 1, DAY + 2], [1.5, 2, 2.5]])
    np.testing.assert_array_equal(found["x"], expected)
    message = r"Use --date-format 'day=%d/%m/%Y' or --date-format 'day=%m/%d/%Y' for 'day'"
    refuse(tmp_path, DataError, message, {"day": ["01/02/2013"]})
    refuse(tmp_path, DataError, r"row 0, column 0 \('d'\) is 7, not a date", {"d": [7]}, date_format={"d": "%Y%m%d"})


def test_a_new_word_goes_to_the_others_if_there_are_some(tmp_path, monkeypatch):
    for limit, last in ((2, [0, 0, 1]), (3, None)):
        made(tmp_path, "w\n" + "a\nb\n" * 3 + "c\n", categorical="w", max_categories=limit)
        if last is None:
            refuse(tmp_path, DataError, "row 0, column 0 .* is 'd', not one of the 3 categories", "w\nd\n", append=True)
        else:
            assert made(tmp_path, "w\nd\n", append=True)["x"][-1].tolist() == last
    found = made(
        tmp_path, "w,x\n(other),1\n(other),1\na,1\nb,1\n,1\n", missing="mean", categorical="w", max_categories=1
    )
    assert found["names"] == ["w=a", "w=(other)", "x"]
    np.testing.assert_array_equal(found["x"][-2:], [[0, 1, 1], [0.25, 0.75, 1]])
    monkeypatch.setattr(tables, "_MOST_TEXTS", 3)
    message = "column 'w' has more than 3 distinct texts"
    refuse(tmp_path, DataError, message, "w\na\nb\nc\nd\n", categorical="w", max_categories=2)


def test_missing_levels_are_filled_in(tmp_path):
    found = made(tmp_path, "w\nlow\nhigh\nNA\nhigh\n", ordinal={"w": ["low", "high"]}, missing="mean")["x"]
    np.testing.assert_allclose(found[:, 0], [0, 1, 2 / 3, 1])
    found = made(tmp_path, "w\nlow\nhigh\nNA\n", ordinal={"w": ["low", "high"]}, missing="drop")["x"]
    assert (found.tolist(), found.dtype) == ([[0], [1]], np.uint8)
    message = r"row 0, column 0 \('w'\) is 'x', not one of its levels"
    refuse(tmp_path, DataError, message, "w\nx\n", ordinal={"w": ["low", "high"]}, missing="mean")


def test_infinity_is_found_while_means_are_learnt(tmp_path):
    refuse(
        tmp_path, DataError, r"row 0, column 0 \('a'\) is infinity, and 1 more", "a\ninf\n-inf\nNA\n", missing="mean"
    )


def test_options_that_cannot_be_meant(tmp_path):
    table = "a,b\n1,x\n"
    for options, message in (
        ({"decimal": "point"}, "decimal='point': must be one character"),
        ({"thousands": "0"}, "thousands='0': must be one character"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands are both ','"),
        ({"date_format": "%d/%m"}, "date_format='%d/%m' has no year: write it as in"),
        ({"date_format": {"a": "%Y %Q"}}, "date_format='%Y %Q' cannot be read"),
        ({"max_categories": 0, "categories": "one-hot"}, "max_categories=0: must be at least 1"),
        ({"max_categories": 3}, "max_categories limits categories: use it with"),
        ({"ordinal": {"b": ["x"]}}, "column 'b' needs two or more different levels"),
        ({"ordinal": {"b": ["x", "x"]}}, "column 'b' needs two or more different levels"),
        ({"categorical": ["b"], "numeric": ["b"]}, "column 'b' is named by categorical and numeric: name it once"),
        ({"categorical": ["b"], "drop": ["b"]}, "categorical names the column 'b', which is left out"),
        ({"numeric": ["b"], "columns": ["a"]}, "numeric names the column 'b', which is left out"),
        ({"ordinal": {"c": ["x", "y"]}}, r"unknown column of .*a\.csv 'c'"),
        ({"categorical": ["b"], "text": "b"}, "text makes rows from the characters of one column"),
        *(({"encoding": name}, f"encoding '{name}' is unknown") for name in ("hex", "undefined")),
    ):
        refuse(tmp_path, SpecError, message, table, **options)
    refuse(tmp_path, SpecError, "has no column names", "1,2\n", categorical=["a"])
    source = npy(tmp_path / "x.npy", np.ones((2, 2)))
    refuse(
        tmp_path, SpecError, r"encoding='cp1252' is for CSV files, and .*x\.npy is not one", source, encoding="cp1252"
    )


def test_labels_in_a_file_of_their_own_have_the_same_encoding(tmp_path):
    (tmp_path / "y.csv").write_bytes("kind\né\nb\n".encode("cp1252"))
    found = made(tmp_path, np.ones((2, 2)), labels=str(tmp_path / "y.csv"), encoding="cp1252")
    assert found["categories"] == ["é", "b"]


def test_bytes_of_another_encoding_far_behind_are_found(tmp_path):
    content = b"a,b\n" + b"1,2\n" * 30_000
    for encoding, end in (("ascii", b"\xe9,2\n"), ("utf-16", b"\n\0")):
        text = content.decode().encode(encoding) + end
        refuse(
            tmp_path,
            DataError,
            f"is not {encoding} text",
            text[: -1 if encoding == "utf-16" else None],
            encoding=encoding,
        )


def test_another_encoding_makes_another_dataset(tmp_path):
    (tmp_path / "a.csv").write_bytes("a,é\n1,2\n".encode())
    assert not ingest(tmp_path / "a.csv", tmp_path / "o.zarr").already_done
    assert ingest(tmp_path / "a.csv", tmp_path / "o.zarr").already_done
    with pytest.raises(SpecError, match="already holds a dataset made with other options"):
        ingest(tmp_path / "a.csv", tmp_path / "o.zarr", encoding="cp1252")


def test_a_dataset_that_does_not_say_how_it_is_written_is_damaged(tmp_path):
    made(tmp_path, TABLE, **OPTIONS)
    group = zarr.open_group(tmp_path / "o.zarr")
    about = group.attrs["bigkpca"]
    for wrong in ({"notation": {"decimal": 1}}, {"notation": {"else": 1}}, {"other": 1}, {"kind": "word"}):
        first, *others = about["encoding"]["columns"]
        encoding = {**about["encoding"], "columns": [first | wrong, *others]}
        group.attrs["bigkpca"] = {**about, "encoding": encoding}
        refuse(tmp_path, CorruptionError, "o.zarr is not a valid record: columns is", TABLE, append=True)


def test_a_file_that_changes_between_passes_is_not_called_wrong(tmp_path):
    source = tmp_path / "a.csv"
    source.write_text("w\n" + "x\ny\n" * 5)

    class Meddling(Recorder):
        def finish(self):
            source.write_text("w\n" + "x\nz\n" * 6)

    message = r"a\.csv changed while it was being read"
    refuse(tmp_path, IncompleteError, message, source, categories="one-hot", progress=Meddling())
    assert made(tmp_path, source, categories="one-hot")["names"] == ["w=x", "w=z"]


def test_what_was_not_given_is_not_recorded(tmp_path):
    made(tmp_path, "a,w\n1,x\n2,y\n", categories="one-hot")
    for column in info(str(tmp_path / "o.zarr"))["encoding"]["columns"]:
        assert column.keys() == {"name", "kind", "categories", "fills", "length"}
    assert notation.ISO.to_json() == {}


def test_nan_is_missing_in_columns_of_categories_too(tmp_path):
    table = pa.table({"c": [1.0, 2.0, float("nan"), None, 1.0], "x": [0.0, 1.0, 2.0, 3.0, 4.0]})
    found = made(tmp_path, {"c": table["c"], "x": table["x"]}, categorical="c", missing="drop")
    assert found["x"].tolist() == [[1, 0, 0], [0, 1, 1], [1, 0, 4]]
    message = r"row 2, column 0 \('c'\) is NaN, and 1 more such rows"
    refuse(tmp_path, DataError, message, {"c": table["c"]}, categorical="c", out="other.zarr")


@pytest.mark.parametrize(
    ("values", "kind", "na_value"),
    [([-99.9, 1.0], pa.float32(), "-99.9"), ([-0.5, 1.0], pa.float64(), "-.5"), ([-99.0, 1.0], pa.float64(), "-9.9e1")],
)
def test_numbers_that_mean_a_missing_value_are_found_in_every_precision(values, kind, na_value, tmp_path):
    table = {"a": pa.array(values, kind), "b": pa.array([1.0, 2.0])}
    assert made(tmp_path, table, na_values=na_value, missing="drop")["x"].tolist() == [[1, 2]]


def test_na_values_count_for_labels(tmp_path):
    found = made(tmp_path, "a,y\n1,5\n2,?\n3,6\n", na_values="?", missing="drop", labels="y")
    assert found["x"].tolist() == [[1], [3]]


@pytest.mark.parametrize("apart", [False, True])
def test_labels_are_numbers_in_the_notation_of_the_file(apart, tmp_path):
    labels = "y\n1,5\n-2\n1.000,25\n"
    (tmp_path / "y.csv").write_text(labels)
    table = "\n".join(f"{n};{label}" for n, label in zip("x123", labels.split(), strict=True))
    options = {"labels": str(tmp_path / "y.csv"), "drop": ["y"]} if apart else {"labels": "y"}
    found = made(tmp_path, table, decimal=",", thousands=".", **options)
    np.testing.assert_array_equal(found["y"], [1.5, -2, 1000.25])
    found = made(tmp_path, table.replace("-2", "4,5"), append=True, labels=options["labels"])
    np.testing.assert_array_equal(found["y"][3:], [1.5, -2 if apart else 4.5, 1000.25])


def test_numbers_that_mean_a_missing_value_do_as_categories_in_every_spelling():
    for values in (["-9", "1"], ["-9.0", "1"], [-9.0, 1.0], [-9, 1]):
        for na_value in ("-9", "-9.0"):
            assert texts_of(pa.array(values), Notation(na_values=(na_value,)))[1].tolist() == [True, False]


def test_labels_keep_their_texts_unless_all_are_numbers(tmp_path, monkeypatch):
    options = {"labels": "y", "decimal": ",", "thousands": "."}
    for texts, y, categories in (
        (["1.100", "1100", "x"], [0, 1, 2], ["1.100", "1100", "x"]),
        (["1.5", "1.500"], [0, 1], ["1.5", "1.500"]),
        (["1.500", "7"], [1500, 7], None),
        (["18.446.744.073.709.551.615", "1"], [2**64 - 1, 1], None),
        (["28.446.744.073.709.551.615", "1"], [0, 1], ["28.446.744.073.709.551.615", "1"]),
    ):
        found = made(tmp_path, "a;y\n" + "".join(f"1;{each}\n" for each in texts), **options)
        assert (found["y"].tolist(), found["categories"]) == (y, categories), texts
    monkeypatch.setattr(text, "_TEXT_BYTES", 32)  # the first ones are numbers
    content = "a;y\n" + "1;5\n" * 100 + "1;1.5\n"
    refuse(tmp_path, DataError, "row 100 .* has the label '1.5', but the first ones are int64", content, **options)


def test_numbers_of_typed_columns_are_categories_as_they_are(tmp_path):
    options = {"categorical": "c", "decimal": ",", "thousands": "."}
    assert made(tmp_path, {"c": [1.234, 1234.0, 2.5]}, **options)["names"] == ["c=1.234", "c=1234", "c=2.5"]
    found = made(tmp_path, "c\n1,234\n1234\n2,5\n", append=True)["x"]
    np.testing.assert_array_equal(found, np.concatenate([np.eye(3)] * 2))
    found = made(tmp_path, {"c": [1.234, 2.5]}, ordinal={"c": ["1.234", "2.5"]}, decimal=",", thousands=".")
    assert found["x"].tolist() == [[0], [1]]


def test_an_advised_format_is_taken_with_all_others(tmp_path):
    table = "a,b\n17/05/2013,05/17/2013\n"
    message = "Use --date-format 'a=%d/%m/%Y' --date-format 'b=%m/%d/%Y' instead of --date-format '%d/%m/%Y' for 'b'"
    refuse(tmp_path, DataError, message, table, date_format="%d/%m/%Y")
    found = made(tmp_path, table, date_format={"a": "%d/%m/%Y", "b": "%m/%d/%Y"})
    assert found["x"].tolist() == [[DAY + 136, DAY + 136]]
    message = "Use --date-format 'a=%d/%m/%Y' for 'a'; use --date-format 'b=%m/%d/%Y' for 'b'"
    refuse(tmp_path, DataError, message, table)
    named = {"date_format": {"a": "%d/%m/%Y"}}
    refuse(tmp_path, DataError, "Use --date-format 'b=%m/%d/%Y' for 'b'", table, **named)
    message = "Use --date-format 'a=%d/%m/%Y' instead of --date-format 'a=%m/%d/%Y' for 'a'"
    refuse(tmp_path, DataError, message, table, date_format={"a": "%m/%d/%Y", "b": "%m/%d/%Y"})


def test_levels_are_checked_before_files_are_read(tmp_path):
    refuse(tmp_path, SpecError, "needs two or more different levels", tmp_path / "no.csv", ordinal={"c": ["1", "1.0"]})


def test_long_integers_with_thousands_separators_are_not_rounded_in_silence(tmp_path):
    content = 'a,b\n"9,007,199,254,740,993",1\n'
    refuse(tmp_path, DataError, "9007199254740993", content, thousands=",")


def test_a_level_that_means_a_missing_value_is_refused(tmp_path):
    message = r"ordinal: the level '\?' of column 'q' is also one of na_values"
    refuse(tmp_path, SpecError, message, "q\nlow\n?\n", ordinal={"q": ["?", "low"]}, na_values="?")


def test_labels_that_are_values_are_refused(tmp_path):
    refuse(tmp_path, SpecError, "labels is of type list: name a column", "a\n1\n2\n", labels=[0, 1])
