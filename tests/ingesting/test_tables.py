"""Tables of several types: each value against pandas, and every column that cannot be read told in one run."""

from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.ingesting.formats import parquet, text_rows
from bigkpca.ingesting.streaming import ingest
from bigkpca.ingesting.tables import columns, reading
from bigkpca.storage import groups
from bigkpca.storage.describe import info
from tests.helpers.commands import run
from tests.helpers.named import WRITERS, stored
from tests.helpers.progress import Recorder

RNG = np.random.default_rng(11)
N = 400


def flights(rows=N, seed=5):
    """Flights as a timetable has them: dates, texts, truth values, numbers, and values that are missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "at": pd.Timestamp("2013-01-01") + pd.to_timedelta(rng.integers(0, 365 * 24, rows), "h"),
            "carrier": rng.choice(["UA", "AA", "DL", "B6"], rows),
            "distance": rng.choice([200, 760, 1400, 2475], rows),
            "delay": rng.normal(5, 30, rows).round(),
            "late": rng.random(rows) < 0.3,
            "origin": rng.choice(["JFK", "LGA"], rows, p=[0.7, 0.3]),
        }
    )
    frame.loc[frame.index[rng.random(rows) < 0.1], "delay"] = np.nan
    frame.loc[frame.index[rng.random(rows) < 0.05], "carrier"] = None
    return frame


FLIGHTS = flights()


def numbers(frame):
    """The same as columns of numbers, by pandas; NaN where a value is missing."""
    days = (frame["at"] - pd.Timestamp("1970-01-01")) / pd.Timedelta("1D")
    parts = []
    for name in frame.columns:
        if name == "at":
            parts.append(days.rename("at"))
        elif frame[name].dtype.kind in "biuf":
            parts.append(frame[name].astype(float))
        else:
            each = pd.get_dummies(frame[name], prefix=name, prefix_sep="=").astype(float)
            each[frame[name].isna()] = np.nan
            parts.append(each)
    return pd.concat(parts, axis=1)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_mixed_table_is_that_of_pandas(kind, tmp_path):
    source, expected, lacking = WRITERS[kind](tmp_path / f"a.{kind}", FLIGHTS), numbers(FLIGHTS), FLIGHTS.isna().sum()
    for missing, filled, told in (
        ("drop", expected.dropna(), f"{N - len(expected.dropna())} rows are left out"),
        ("mean", expected.fillna(expected.mean()), "the mean of the column stands for them"),
        ("median", expected.fillna(expected.median()), "the median of the column stands for them"),
    ):
        notes, out = Recorder(), tmp_path / f"{missing}.zarr"
        found = stored(ingest([source], out, missing=missing, categories="one-hot", progress=notes).path)
        assert found["names"] == list(expected.columns)
        np.testing.assert_allclose(found["x"], filled, rtol=1e-12)
        (note,) = notes.notes
        assert note.startswith(f"missing values: {lacking['delay']} in 'delay', {lacking['carrier']} in 'carrier'; ")
        assert note.endswith(told)
    columns = ["delay", "distance"]
    found = stored(ingest([source], tmp_path / "o.zarr", labels="carrier", columns=columns, missing="drop").path)
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
        patch.setattr(parquet, "READ_BYTES", size)
        patch.setattr(text_rows, "_TEXT_BYTES", size)
        if complete.empty:
            with pytest.raises(DataError, match=r"no value|no row has a value"):
                ingest([source], path / "o.zarr", missing="drop", categories="one-hot")
            return
        found = stored(ingest([source], path / "o.zarr", missing="drop", categories="one-hot").path)
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
    table = pa.table({f"{number} {values.type}": values for number, (values, _) in enumerate(columns)})
    pq.write_table(table, tmp_path / "a.parquet")
    found = stored(ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr").path)
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
        (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"1,{text}\n" for text in texts))
        done = ingest([tmp_path / "a.csv"], tmp_path / "o.zarr", overwrite=True)
        np.testing.assert_array_equal(stored(done.path)["x"][:, 1], expected, err_msg=texts[0])


def test_integers_of_parquet_stay_integers_beside_categories(tmp_path):
    frame = pd.DataFrame({"a": np.array([7, 300], np.int16), "b": ["x", "y"]})
    frame.to_parquet(tmp_path / "a.parquet")
    done = ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr", categories="one-hot")
    assert done.dtype == np.int16
    np.testing.assert_array_equal(stored(done.path)["x"], [[7, 1, 0], [300, 0, 1]])


def test_which_first_lines_are_headers(tmp_path):
    for lines, names, rows in (
        ("2013-01-01,true,1.5\n2013-01-02,false,2\n", None, [[15706, 1, 1.5], [15707, 0, 2]]),
        ("2013-01-01,2013-01-02\n1,2\n3,4\n", ["2013-01-01", "2013-01-02"], [[1, 2], [3, 4]]),
        ("0,1,2\n5,6,7\n", ["0", "1", "2"], [[5, 6, 7]]),
        ("0,1\n5,6\n", None, [[0, 1], [5, 6]]),
        ("\n\n a , b\n1,2\n", ["a", "b"], [[1, 2]]),
        ('"a\nx",b\n1,2\n', ["a\nx", "b"], [[1, 2]]),
    ):
        (tmp_path / "a.csv").write_text(lines)
        found = stored(ingest([tmp_path / "a.csv"], tmp_path / "o.zarr", overwrite=True).path)
        assert found["names"] == names, lines
        np.testing.assert_array_equal(found["x"], rows, err_msg=lines)


# The same columns in further files


def test_append_and_like_use_what_was_learnt(tmp_path):
    first, further = FLIGHTS[:200], FLIGHTS[200:]
    a, b = WRITERS["csv"](tmp_path / "a.csv", first), WRITERS["parquet"](tmp_path / "b.parquet", further)
    options = {"missing": "mean", "categories": "one-hot", "drop": ["late"]}
    ingest([a], tmp_path / "all.zarr", **options)
    with pytest.raises(SpecError, match="keeps the columns that it began with"):
        ingest([b], tmp_path / "all.zarr", append=True, missing="drop")
    ingest([b], tmp_path / "all.zarr", append=True, **options)
    ingest([b], tmp_path / "new.zarr", like=tmp_path / "all.zarr")
    learnt = numbers(first).drop(columns="late")
    expected = numbers(FLIGHTS)[learnt.columns].fillna(learnt.mean())
    np.testing.assert_allclose(stored(tmp_path / "all.zarr")["x"], expected, rtol=1e-12)
    np.testing.assert_allclose(stored(tmp_path / "new.zarr")["x"], expected[200:], rtol=1e-12)
    assert stored(tmp_path / "new.zarr")["names"] == list(learnt.columns)
    assert [entry["missing"]["values"] for entry in info(str(tmp_path / "all.zarr"))["provenance"]] == [
        {name: int(count) for name, count in part.isna().sum().items() if count} for part in (first, further)
    ]
    assert ingest([b], tmp_path / "new.zarr", like=tmp_path / "all.zarr").already_done
    with pytest.raises(SpecError, match=r"new\.zarr is in the way: .*like is "):
        ingest([b], tmp_path / "new.zarr")


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_to_append_that_do_not_fit_change_nothing(kind, tmp_path):
    options = {"missing": "mean", "categories": "one-hot", "drop": ["late"]}
    ingest([WRITERS[kind](tmp_path / f"a.{kind}", FLIGHTS)], tmp_path / "o.zarr", **options)
    before = stored(tmp_path / "o.zarr")["x"]
    strange, other = (
        FLIGHTS.assign(carrier=["XX" if i > 7 else "UA" for i in range(N)]),
        "is 'XX', none of the 4 categories",
    )
    for frame, error, message in (
        (strange, DataError, rf"row 8, column 1 \('carrier'\) {other} .* and 391 more such rows"),
        (FLIGHTS.drop(columns="delay"), SpecError, r"b\.\w+ lacks the column 'delay' of .*o\.zarr"),
        (FLIGHTS.assign(new=1), SpecError, r"b\.\w+ has the column 'new', unlike .*o\.zarr"),
        (FLIGHTS.assign(delay="long"), DataError, r"row 0, column 3 \('delay'\) is 'long', not a number"),
        (FLIGHTS.assign(delay=np.inf), DataError, r"row 0, column 3 \('delay'\) is infinity, and 399 more"),
        (FLIGHTS.assign(at="soon"), DataError, r"row 0, column 0 \('at'\) is 'soon', not a date"),
    ):
        source = WRITERS[kind](tmp_path / f"b.{kind}", frame)
        with pytest.raises(error, match=message):
            ingest([source], tmp_path / "o.zarr", append=True)
        np.testing.assert_array_equal(stored(tmp_path / "o.zarr")["x"], before)


def test_columns_that_are_chosen_may_be_among_any_others(tmp_path):
    a = WRITERS["csv"](tmp_path / "a.csv", FLIGHTS.assign(more="text"))
    b = WRITERS["parquet"](tmp_path / "b.parquet", FLIGHTS[["distance", "at"]])
    done = ingest([a, b], tmp_path / "o.zarr", columns=["at", "distance"])
    np.testing.assert_allclose(stored(done.path)["x"], np.tile(numbers(FLIGHTS)[["at", "distance"]], (2, 1)))
    ingest([a], tmp_path / "o.zarr", append=True)
    assert open_rows(tmp_path / "o.zarr").shape == (3 * N, 2)


# Bad input


@pytest.mark.parametrize("kind", WRITERS)
def test_every_bad_column_is_told_in_one_run(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "READ_BYTES", 5000)
    monkeypatch.setattr(text_rows, "_TEXT_BYTES", 5000)
    source = WRITERS[kind](tmp_path / f"a.{kind}", FLIGHTS)
    with pytest.raises(DataError) as caught:
        ingest([source], tmp_path / "o.zarr")
    lacking, words = FLIGHTS["delay"].isna(), int(FLIGHTS["carrier"].notna().sum())
    expected = [
        f"{source}: 3 columns cannot be read (rows of data and columns are counted from 0):",
        f"  row 0, column 1 ('carrier') is {FLIGHTS['carrier'][0]!r}, not a number, and {words - 1} more such rows",
        f"  row {lacking.argmax()}, column 3 ('delay') is missing, and {lacking.sum() - 1} more such rows",
        f"  row 0, column 5 ('origin') is {FLIGHTS['origin'][0]!r}, not a number, and {N - 1} more such rows",
    ]
    assert str(caught.value).splitlines()[:4] == expected
    assert "--missing drop" in str(caught.value)
    assert "--categories one-hot" in str(caught.value)
    assert not list(tmp_path.glob("o.zarr*"))


def test_columns_that_cannot_be_chosen(tmp_path):
    source = WRITERS["csv"](tmp_path / "a.csv", FLIGHTS)
    nameless = WRITERS["csv"](tmp_path / "b.csv", FLIGHTS[["distance"]], header=False)
    np.save(tmp_path / "c.npy", np.ones((3, 2)))
    for sources, options, message in (
        ([source], {"columns": ["dely"]}, r"unknown column of .*a\.csv 'dely': did you mean 'delay'"),
        ([source], {"drop": ["dely"]}, r"did you mean 'delay'"),
        ([source], {"drop": list(FLIGHTS.columns)}, "no column of .* is left"),
        ([source], {"columns": ["delay"], "drop": ["late"]}, "choose one"),
        ([source], {"missing": "maen"}, "unknown missing 'maen': did you mean 'mean'"),
        ([source], {"categories": "codes"}, "unknown categories 'codes'"),
        ([source], {"like": "x.zarr", "missing": "mean"}, "like takes all about columns from a dataset"),
        ([source], {"like": tmp_path / "none.zarr"}, r"none\.zarr"),
        ([nameless], {"columns": ["a"]}, r"b\.csv has no column names"),
        ([tmp_path / "c.npy"], {"missing": "drop"}, r"c\.npy is an array of numbers"),
    ):
        with pytest.raises(SpecError, match=message):
            ingest(sources, tmp_path / "o.zarr", **options)
    np.save(tmp_path / "y.npy", np.ones(N))
    with pytest.raises(SpecError, match=r"y\.npy has a label for each row, so no rows can be dropped"):
        ingest([source], tmp_path / "o.zarr", labels=str(tmp_path / "y.npy"), missing="drop")


def test_texts_of_too_many_kinds_and_columns_without_a_value(tmp_path):
    many = pd.DataFrame({"tail": [f"N{i}" for i in range(1001)], "a": 1.0, "none": np.nan})
    source = WRITERS["parquet"](tmp_path / "a.parquet", many)
    message = r"column 'tail' has more than 1000 different texts; column 'none' has no value"
    with pytest.raises(DataError, match=message):
        ingest([source], tmp_path / "o.zarr", categories="one-hot", missing="mean")
    with pytest.raises(DataError, match="no row has a value in every column, so that all would be dropped"):
        ingest([source], tmp_path / "o.zarr", drop=["tail"], missing="drop")


def test_a_dataset_that_does_not_say_its_columns_is_damaged(tmp_path):
    source = WRITERS["csv"](tmp_path / "a.csv", FLIGHTS)
    ingest([source], tmp_path / "o.zarr", missing="mean", categories="one-hot")
    group = groups.open_group(str(tmp_path / "o.zarr"), "dataset", "r+")
    about = group.attrs["bigkpca"]
    for key, value in (("missing", "guess"), ("columns", [{"name": "a"}]), ("left_out", 3), ("named", "yes")):
        group.attrs["bigkpca"] = {**about, "encoding": {**about["encoding"], key: value}}
        with pytest.raises(CorruptionError, match=f"o.zarr does not say what it must: {key} is"):
            ingest([source], tmp_path / "o.zarr", append=True)
    group.attrs["bigkpca"] = {key: value for key, value in about.items() if key != "rows"}
    with pytest.raises(IncompleteError, match="its ingest did not finish"):
        ingest([source], tmp_path / "p.zarr", like=tmp_path / "o.zarr")


def test_names_with_commas_are_quoted(tmp_path):
    frame = pd.DataFrame({"a, b": [1.0, 2.0], "c": [3.0, 4.0], "d": ["x", "y"]})
    source = WRITERS["csv"](tmp_path / "a.csv", frame)
    done = run("ingest", str(source), str(tmp_path / "o.zarr"), "--columns", '"a, b", c')
    assert done.exit_code == 0, done.output
    assert stored(tmp_path / "o.zarr")["names"] == ["a, b", "c"]
    done = run("ingest", str(source), str(tmp_path / "p.zarr"), "--drop", "d,c")
    assert stored(tmp_path / "p.zarr")["names"] == ["a, b"]
    (tmp_path / "b.csv").write_text("b,a,a\n1,2,3\n4,5,6\n")  # both of this name
    found = stored(ingest([tmp_path / "b.csv"], tmp_path / "b.zarr", drop=["a"]).path)
    np.testing.assert_array_equal(found["x"], [[1], [4]])


def parquet_of(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_a_column_that_means_something_else_in_a_further_file_is_refused(tmp_path):
    moments = pa.array([0, 1], pa.timestamp("ns"))
    kinds = {
        "number": pa.array([1.0, 2.0]),
        "date": moments,
        "time": pa.array([0, 1], pa.time64("us")),
        "list": pa.array([[1], [2]]),
    }
    files = {name: parquet_of(tmp_path / f"{name}.parquet", a=[1.0, 2.0], t=values) for name, values in kinds.items()}
    for first in ("number", "date", "time"):
        done = ingest([files[first]], tmp_path / f"{first}.zarr")
        before = stored(done.path)["x"]
        for second in set(files) - {first}:
            for options in ({"append": True}, {"like": tmp_path / f"{first}.zarr"}):
                out = tmp_path / (f"{first}.zarr" if "append" in options else "other.zarr")
                with pytest.raises((DataError, SpecError), match=r"not a|not of kind|plain numbers|of type list"):
                    ingest([files[second]], out, **options)
        np.testing.assert_array_equal(stored(done.path)["x"], before)
    nothing = parquet_of(tmp_path / "null.parquet", a=[1.0], t=pa.nulls(1))
    found = stored(ingest([nothing, files["date"]], tmp_path / "null.zarr", missing="mean").path)
    assert found["x"][:, 1].max() < 1e-6  # days, and no nanoseconds


def test_dates_with_and_without_time_zones_are_read_each_by_itself(tmp_path):
    texts = ["1970-01-02", "1970-01-02 06:00:00.123456789", "1970-01-02T06:00:00Z", "1970-01-02T06:00:00+06:00"]
    (tmp_path / "a.csv").write_text("a,t\n" + "".join(f"1,{text}\n" for text in texts))
    pq.write_table(pa.table({"a": [0.0], "t": [datetime(1970, 1, 2)]}), tmp_path / "first.parquet")
    ingest([tmp_path / "first.parquet"], tmp_path / "o.zarr")
    done = ingest([tmp_path / "a.csv"], tmp_path / "o.zarr", append=True)
    np.testing.assert_allclose(stored(done.path)["x"][:, 1], [1, 1, 1.25, 1.25, 1], atol=2e-6)


@pytest.mark.parametrize("kind", WRITERS)
def test_labels_with_gaps_keep_their_kind(kind, tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4, 5], "y": pd.array([3, 1, None, 2, 3], "Int64")})
    source = WRITERS[kind](tmp_path / f"a.{kind}", frame)
    found = stored(ingest([source], tmp_path / "o.zarr", labels="y", missing="drop").path)
    np.testing.assert_array_equal(found["y"], [3, 1, 2, 3])
    words = parquet_of(tmp_path / "w.parquet", a=[1.0, 2, 3], y=pa.array(["x", None, "NA"], pa.large_string()))
    kept = stored(ingest([words], tmp_path / "w.zarr", labels="y", missing="drop").path)
    assert kept["categories"] == ["x", "NA"]


def test_wide_encodings_are_made_a_few_rows_at_a_time(tmp_path, monkeypatch):
    sizes = []
    real = reading.encode
    monkeypatch.setattr(reading, "encode", lambda values, column: sizes.append(len(values)) or real(values, column))
    names = [f"n{i}" for i in range(500)]
    source = parquet_of(tmp_path / "a.parquet", word=names * 40, a=np.arange(20_000.0))
    ingest([source], tmp_path / "o.zarr", categories="one-hot")
    assert max(sizes) <= 2**22 // (8 * 501)


def test_texts_that_are_no_numbers_are_found_without_parsing_each(tmp_path, monkeypatch):
    parsed, real = [], columns.numbers
    monkeypatch.setattr(columns, "numbers", lambda values, kind: parsed.append(len(values)) or real(values, kind))
    source = parquet_of(tmp_path / "a.parquet", word=["UA", "AA"] * 100_000)
    with pytest.raises(DataError, match="is 'UA', not a number, and 199,999 more such rows"):
        ingest([source], tmp_path / "o.zarr")
    assert 0 < len(parsed) < 1000


def test_a_word_that_is_no_number_counts_more_than_one_that_may_be_missing(tmp_path):
    (tmp_path / "countries.csv").write_text('c,n\n"NA",1\nDE,2\nFR,3\n', encoding="utf-8")
    message = r"row 1, column 0 \('c'\) is 'DE', not a number, and 1 more such rows .*--categories"
    with pytest.raises(DataError, match=message):
        ingest([str(tmp_path / "countries.csv")], str(tmp_path / "countries.zarr"))
