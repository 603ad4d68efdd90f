"""Tables of several types: each value against pandas, and every column that cannot be read told in one run."""

from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from hypothesis import assume, given
from hypothesis import strategies as st

from bigkpca.errors import CorruptionError, DataError, SpecError
from bigkpca.ingesting import columns, ingest, tables
from bigkpca.ingesting.formats import arrow, text
from bigkpca.storage.describe import info
from tests.helpers.commands import run
from tests.helpers.named import WRITERS, stored
from tests.ingesting.files import made, npy, refuse

N = 400


def flights():
    """Flights as a timetable has them: dates, texts, truth values, numbers, and values that are missing."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "at": pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 365 * 24, N), "h"),
            "carrier": rng.choice(["UA", "AA", "DL", "B6"], N),
            "distance": rng.choice([200, 760, 1400, 2475], N),
            "delay": rng.normal(5, 30, N).round(),
            "late": rng.random(N) < 0.3,
            "origin": rng.choice(["JFK", "LGA"], N, p=[0.7, 0.3]),
        }
    )
    frame.loc[rng.random(N) < 0.1, "delay"] = np.nan
    frame.loc[rng.random(N) < 0.05, "carrier"] = None
    return frame


FLIGHTS = flights()


def numbers(frame):
    """The same as columns of numbers, by pandas; NaN where a value is missing."""
    words, days = ["carrier", "origin"], (frame["at"] - pd.Timestamp("1970-01-01")) / pd.Timedelta("1D")
    found = pd.get_dummies(frame.assign(at=days), columns=words, prefix_sep="=", dtype=float).astype(float)
    for word in words:
        found.loc[frame[word].isna(), found.columns.str.startswith(word)] = np.nan
    return found[sorted(found, key=lambda name: frame.columns.get_loc(name.partition("=")[0]))]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_mixed_table_is_that_of_pandas(kind, tmp_path):
    source, expected, lacking = WRITERS[kind](tmp_path / f"a.{kind}", FLIGHTS), numbers(FLIGHTS), FLIGHTS.isna().sum()
    for missing, filled, told in (
        ("drop", expected.dropna(), f"dropped {N - len(expected.dropna())} rows"),
        ("mean", expected.fillna(expected.mean()), "filled in the mean of the column"),
        ("median", expected.fillna(expected.median()), "filled in the median of the column"),
    ):
        found = made(tmp_path, source, missing=missing, categories="one-hot")
        assert found["names"] == list(expected.columns)
        np.testing.assert_allclose(found["x"], filled, rtol=1e-12)
        (note,) = found["notes"]
        assert note.startswith(f"missing values: {lacking['delay']} in 'delay', {lacking['carrier']} in 'carrier'; ")
        assert note.endswith(told)
    columns = ["delay", "distance"]
    found = made(tmp_path, source, labels="carrier", columns=columns, missing="drop")
    kept = FLIGHTS.dropna()  # with which the labels go
    np.testing.assert_array_equal(found["x"], kept[columns])
    assert found["names"] == columns
    np.testing.assert_array_equal(np.array(found["categories"])[found["y"]], kept["carrier"])


@given(
    values=st.lists(
        st.tuples(
            st.one_of(st.none(), st.sampled_from(["a", "b", "é,", 'q"', "1", "true"])),
            st.one_of(st.none(), st.floats(-1e6, 1e6)),
        ),
        min_size=1,
        max_size=30,
    ),
    size=st.integers(1, 200),
    kind=st.sampled_from(list(WRITERS)),
)
def test_any_table_of_text_and_numbers_is_that_of_pandas(values, size, kind, tmp_path_factory):
    """In batches of any size, in both formats."""
    path = tmp_path_factory.mktemp("any")
    frame = pd.DataFrame(values, columns=["word", "x"]).assign(z=1.0).astype({"word": object, "x": float})
    # Else a column of a text file is one of numbers or of truth values.
    assume(kind == "parquet" or not frame["word"].dropna().isin(["1", "true"]).all())
    complete = frame.dropna()
    source = WRITERS[kind](path / f"a.{kind}", frame)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "READ_BYTES", size)
        patch.setattr(text, "_TEXT_BYTES", size)
        if complete.empty:
            message = "no value|no row has a value"
            refuse(path, DataError, message, source, missing="drop", categories="one-hot")
            return
        found = made(path, source, missing="drop", categorical="word")  # also if most of its texts are numbers
    categories = sorted(complete["word"].unique())
    expected = [[float(word == each) for each in categories] for word in complete["word"]]
    np.testing.assert_array_equal(found["x"], np.column_stack([expected, complete[["x", "z"]]]))


def test_parquet_columns_of_every_type(tmp_path):
    columns = (
        (pa.array([True, False]), [1, 0]),
        (pa.array([0, 86_400_000_000 * 3 // 2], pa.timestamp("us")), [0, 1.5]),
        (pa.array([0, 86_400_000_000], pa.timestamp("us", "America/New_York")), [0, 1]),
        (pa.array([0, 10**9 * 3600 * 6], pa.timestamp("ns")), [0, 0.25]),
        (pa.array([-1, 20000], pa.date32()), [-1, 20000]),
        (pa.array([0, 86_400_000], pa.date64()), [0, 1]),
        (pa.array([0, 5400], pa.time32("s")), [0, 1.5]),
        (pa.array([0, 5400 * 10**9], pa.time64("ns")), [0, 1.5]),
        (pa.array([-7200, 1800], pa.duration("s")), [-2, 0.5]),
        (pa.array([Decimal("1.25"), Decimal("-2.5")]), [1.25, -2.5]),
        (pa.array([3, 4]).dictionary_encode(), [3, 4]),
        (pa.array(["3", " 4.5 "]), [3, 4.5]),
    )
    found = made(tmp_path, {f"{number} {values.type}": values for number, (values, _) in enumerate(columns)})
    for name, x, (_, expected) in zip(found["names"], found["x"].T, columns, strict=True):
        np.testing.assert_array_equal(x, expected, err_msg=name)


def test_csv_columns_of_every_kind(tmp_path):
    for texts, expected in (
        (["true", "FALSE", "True"], [1, 0, 1]),
        (["1970-01-02", "1969-12-31", "2013-01-01"], [1, -1, 15706]),
        (["1970-01-02 06:00:00", "1970-01-01T12:00", "1970-01-01"], [1.25, 0.5, 0]),
        (["1970-01-02T06:00:00Z", "1970-01-01T12:00:00+06:00", "1970-01-01T00:00:00Z"], [1.25, 0.25, 0]),
        (["05:30:00", "00:00", "23:15:00"], [5.5, 0, 23.25]),
        (["+1", "-1e3", " 2 "], [1, -1000, 2]),
    ):
        found = made(tmp_path, "a,b\n" + "".join(f"1,{text}\n" for text in texts))
        np.testing.assert_array_equal(found["x"][:, 1], expected, err_msg=texts[0])


def test_integers_of_parquet_stay_integers_beside_categories(tmp_path):
    found = made(tmp_path, {"a": np.array([7, 300], np.int16), "b": ["x", "y"]}, categories="one-hot")["x"]
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, [[7, 1, 0], [300, 0, 1]])


def test_which_first_lines_are_headers(tmp_path):
    for lines, names, rows in (
        ("2013-01-01,true,1.5\n2013-01-02,false,2\n", None, [[15706, 1, 1.5], [15707, 0, 2]]),
        ("2013-01-01,2013-01-02\n1,2\n3,4\n", ["2013-01-01", "2013-01-02"], [[1, 2], [3, 4]]),
        ("0,1,2\n5,6,7\n", ["0", "1", "2"], [[5, 6, 7]]),
        ("0,1\n5,6\n", None, [[0, 1], [5, 6]]),
        ("\n\n a , b\n1,2\n", ["a", "b"], [[1, 2]]),
        ('"a\nx",b\n1,2\n', ["a\nx", "b"], [[1, 2]]),
    ):
        found = made(tmp_path, lines)
        assert found["names"] == names, lines
        np.testing.assert_array_equal(found["x"], rows, err_msg=lines)


def test_append_and_like_use_what_was_learnt(tmp_path):
    first, further = FLIGHTS[:200], FLIGHTS[200:]
    a, b = WRITERS["csv"](tmp_path / "a.csv", first), WRITERS["parquet"](tmp_path / "b.parquet", further)
    options = {"missing": "mean", "categories": "one-hot", "drop": ["late"]}
    made(tmp_path, a, **options)
    refuse(tmp_path, SpecError, "keeps its original columns", b, append=True, missing="drop")
    grown = made(tmp_path, b, append=True, **options)
    new = made(tmp_path, b, out="new.zarr", like=tmp_path / "o.zarr")
    learnt = numbers(first).drop(columns="late")
    expected = numbers(FLIGHTS)[learnt.columns].fillna(learnt.mean())
    np.testing.assert_allclose(grown["x"], expected, rtol=1e-12)
    np.testing.assert_allclose(new["x"], expected[200:], rtol=1e-12)
    assert new["names"] == list(learnt.columns)
    assert [entry["missing"]["values"] for entry in info(str(tmp_path / "o.zarr"))["provenance"]] == [
        {name: int(count) for name, count in part.isna().sum().items() if count} for part in (first, further)
    ]
    assert ingest([b], tmp_path / "new.zarr", like=tmp_path / "o.zarr").already_done
    refuse(tmp_path, SpecError, r"new\.zarr already holds .*like is ", b, out="new.zarr", overwrite=False)


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_to_append_that_do_not_fit_change_nothing(kind, tmp_path):
    write = WRITERS[kind]
    options = {"missing": "mean", "categories": "one-hot", "drop": ["late"]}
    made(tmp_path, write(tmp_path / f"a.{kind}", FLIGHTS), **options)
    strange = FLIGHTS.assign(carrier=["XX" if i > 7 else "UA" for i in range(N)])
    unknown = r"row 8, column 1 \('carrier'\) is 'XX', not one of the 4 categories .* and 391 more such rows"
    for frame, error, message in (
        (strange, DataError, unknown),
        (FLIGHTS.drop(columns="delay"), SpecError, r"b\.\w+ lacks the column 'delay' of .*o\.zarr"),
        (FLIGHTS.assign(new=1), SpecError, r"b\.\w+ has the column 'new', unlike .*o\.zarr"),
        (FLIGHTS.assign(delay="long"), DataError, r"row 0, column 3 \('delay'\) is 'long', not a number"),
        (FLIGHTS.assign(delay=np.inf), DataError, r"row 0, column 3 \('delay'\) is infinity, and 399 more"),
        (FLIGHTS.assign(at="soon"), DataError, r"row 0, column 0 \('at'\) is 'soon', not a date"),
    ):
        refuse(tmp_path, error, message, write(tmp_path / f"b.{kind}", frame), append=True)


def test_columns_that_are_chosen_may_be_among_any_others(tmp_path):
    more = FLIGHTS.assign(more="text").to_csv(index=False)
    found = made(tmp_path, more, FLIGHTS[["distance", "at"]], columns=["at", "distance"])
    np.testing.assert_allclose(found["x"], np.tile(numbers(FLIGHTS)[["at", "distance"]], (2, 1)))
    assert made(tmp_path, more, append=True)["x"].shape == (3 * N, 2)


def test_names_with_commas_are_quoted(tmp_path):
    frame = pd.DataFrame({"a, b": [1.0, 2.0], "c": [3.0, 4.0], "d": ["x", "y"]})
    source = WRITERS["csv"](tmp_path / "a.csv", frame)
    for number, (options, names) in enumerate(
        ((("--columns", '"a, b", c'), ["a, b", "c"]), (("--drop", "d,c"), ["a, b"]))
    ):
        done = run("ingest", str(source), str(tmp_path / f"{number}.zarr"), *options)
        assert done.exit_code == 0, done.output
        assert stored(tmp_path / f"{number}.zarr")["names"] == names
    found = made(tmp_path, "b,a,a\n1,2,3\n4,5,6\n", drop=["a"])  # both of this name
    np.testing.assert_array_equal(found["x"], [[1], [4]])


@pytest.mark.parametrize("kind", WRITERS)
def test_every_bad_column_is_told_in_one_run(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow, "READ_BYTES", 5000)
    monkeypatch.setattr(text, "_TEXT_BYTES", 5000)
    source = WRITERS[kind](tmp_path / f"a.{kind}", FLIGHTS)
    with pytest.raises(DataError) as caught:
        made(tmp_path, source)
    lacking, words = FLIGHTS["delay"].isna(), int(FLIGHTS["carrier"].notna().sum())
    assert str(caught.value).splitlines()[:4] == [
        f"{source}: 3 columns cannot be read (rows of data and columns are counted from 0):",
        f"  row 0, column 1 ('carrier') is {FLIGHTS['carrier'][0]!r}, not a number, and {words - 1} more such rows",
        f"  row {lacking.argmax()}, column 3 ('delay') is missing, and {lacking.sum() - 1} more such rows",
        f"  row 0, column 5 ('origin') is {FLIGHTS['origin'][0]!r}, not a number, and {N - 1} more such rows",
    ]
    assert "--missing drop" in str(caught.value)
    assert "--categories one-hot" in str(caught.value)
    assert not list(tmp_path.glob("o.zarr*"))


def test_columns_that_cannot_be_chosen(tmp_path):
    table = FLIGHTS.to_csv(index=False)
    for content, options, message in (
        (table, {"columns": ["dely"]}, r"unknown column of .*a\.csv 'dely': did you mean 'delay'"),
        (table, {"drop": ["dely"]}, r"did you mean 'delay'"),
        (table, {"drop": list(FLIGHTS.columns)}, "no column of .* is left"),
        (table, {"columns": ["delay"], "drop": ["late"]}, "use only one of them"),
        (table, {"missing": "maen"}, "unknown missing 'maen': did you mean 'mean'"),
        (table, {"categories": "codes"}, "unknown categories 'codes'"),
        (table, {"like": "x.zarr", "missing": "mean"}, "like takes all column settings from a dataset"),
        (table, {"like": tmp_path / "none.zarr"}, r"none\.zarr"),
        ("1\n2\n", {"columns": ["a"]}, r"a\.csv has no column names"),
        (np.ones((3, 2)), {"missing": "drop"}, r"a\.npy is an array of numbers"),
        (
            table,
            {"labels": str(npy(tmp_path / "y.npy", np.ones(N))), "missing": "drop"},
            r"y\.npy has a label for each row, so rows cannot be dropped",
        ),
    ):
        refuse(tmp_path, SpecError, message, content, **options)


def test_texts_of_too_many_kinds_and_columns_without_a_value(tmp_path):
    table = {"tail": [f"N{i}" for i in range(1001)], "a": [1.0] * 1001, "none": [np.nan] * 1001}
    message = r"column 'tail' has more than 1000 distinct texts; column 'none' has no value"
    refuse(tmp_path, DataError, message, table, categories="one-hot", missing="mean")
    message = "no row has a value in every column, so all rows would be dropped"
    refuse(tmp_path, DataError, message, table, drop=["tail"], missing="drop")


def test_a_dataset_that_does_not_say_its_columns_is_damaged(tmp_path):
    table = FLIGHTS.to_csv(index=False)
    made(tmp_path, table, missing="mean", categories="one-hot")
    group = zarr.open_group(tmp_path / "o.zarr")
    about = group.attrs["bigkpca"]
    for key, value in (("missing", "guess"), ("columns", [{"name": "a"}]), ("left_out", 3), ("named", "yes")):
        group.attrs["bigkpca"] = {**about, "encoding": {**about["encoding"], key: value}}
        refuse(tmp_path, CorruptionError, f"o.zarr is not a valid record: {key} is", table, append=True)
    group.attrs["bigkpca"] = {key: value for key, value in about.items() if key != "rows"}
    message = "o.zarr is not a valid record: rows is missing"
    refuse(tmp_path, CorruptionError, message, table, out="p.zarr", like=tmp_path / "o.zarr")


def test_a_column_that_means_something_else_in_a_further_file_is_refused(tmp_path):
    kinds = {
        "number": pa.array([1.0, 2.0]),
        "date": pa.array([0, 1], pa.timestamp("ns")),
        "time": pa.array([0, 1], pa.time64("us")),
        "list": pa.array([[1], [2]]),
    }
    tables = {name: {"a": [1.0, 2.0], "t": values} for name, values in kinds.items()}
    for first in ("number", "date", "time"):
        made(tmp_path, tables[first])
        for second in set(tables) - {first}:
            for options in ({"append": True}, {"like": tmp_path / "o.zarr", "out": "other.zarr"}):
                message = r"not a|not of kind|plain numbers|of type list"
                refuse(tmp_path, (DataError, SpecError), message, tables[second], **options)
    found = made(tmp_path, {"a": [1.0], "t": pa.nulls(1)}, tables["date"], missing="mean")
    assert found["x"][:, 1].max() < 1e-6  # days, and no nanoseconds


def test_dates_with_and_without_time_zones_are_read_each_by_itself(tmp_path):
    texts = ["1970-01-02", "1970-01-02 06:00:00.123456789", "1970-01-02T06:00:00Z", "1970-01-02T06:00:00+06:00"]
    made(tmp_path, {"a": [0.0], "t": [datetime(1970, 1, 2)]})
    found = made(tmp_path, "a,t\n" + "".join(f"1,{text}\n" for text in texts), append=True)
    np.testing.assert_allclose(found["x"][:, 1], [1, 1, 1.25, 1.25, 1], atol=2e-6)


@pytest.mark.parametrize("kind", WRITERS)
def test_labels_with_gaps_keep_their_kind(kind, tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 5], "y": pd.array([3, 1, None, 2, 3], "Int64")})
    found = made(tmp_path, WRITERS[kind](tmp_path / f"a.{kind}", frame), labels="y", missing="drop")
    np.testing.assert_array_equal(found["y"], [3, 1, 2, 3])
    words = {"a": [1.0, 2, 3], "y": pa.array(["x", None, "NA"], pa.large_string())}
    assert made(tmp_path, words, labels="y", missing="drop")["categories"] == ["x", "NA"]


def test_wide_encodings_are_made_a_few_rows_at_a_time(tmp_path, monkeypatch):
    sizes, real = [], tables.encode
    monkeypatch.setattr(tables, "encode", lambda values, column: sizes.append(len(values)) or real(values, column))
    made(tmp_path, {"word": [f"n{i}" for i in range(500)] * 40, "a": np.arange(20_000.0)}, categories="one-hot")
    assert max(sizes) <= 2**22 // (8 * 501)


@pytest.mark.full
def test_texts_that_are_no_numbers_are_found_without_parsing_each(tmp_path, monkeypatch):
    parsed, real = [], columns.numbers
    monkeypatch.setattr(columns, "numbers", lambda values, *how: parsed.append(len(values)) or real(values, *how))
    message = "is 'UA', not a number, and 199,999 more such rows"
    refuse(tmp_path, DataError, message, {"word": ["UA", "AA"] * 100_000})
    assert 0 < len(parsed) < 1000


def test_a_word_that_is_no_number_counts_more_than_one_that_may_be_missing(tmp_path):
    message = r"row 1, column 0 \('c'\) is 'DE', not a number, and 1 more such rows .*--categories"
    refuse(tmp_path, DataError, message, 'c,n\n"NA",1\nDE,2\nFR,3\n')
