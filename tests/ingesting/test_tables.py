"""Tables as numbers: types, categories, means and texts, from files, folders and tables in memory."""

from datetime import datetime, time, timedelta
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

from bigkpca.errors import DataError, RepeatedRowsWarning, SpecError
from bigkpca.ingesting import ingest
from tests.data.cases import case
from tests.helpers.named import stored
from tests.helpers.progress import Recorder
from tests.ingesting.files import RNG, about, made, refuse

ROWS = 30
DAY = 18262  # 2020-01-01
TABLE = pd.DataFrame(
    {
        "seats": RNG.integers(1, 300, ROWS),
        "origin": RNG.choice(["EWR", "JFK", "LGA"], ROWS),
        "day": pd.date_range("2020-01-01", periods=ROWS, freq="6h"),
        "delay": np.where(np.arange(ROWS) % 7, RNG.normal(size=ROWS).round(2), np.nan),
        "y": RNG.choice(["late", "on time"], ROWS),
        "w": RNG.random(ROWS),
    }
)
BESIDE = {"labels": "y", "sample_weight": "w"}
HOW = {"categorical": "origin", "missing": "mean", **BESIDE}
DELAY = TABLE.delay.fillna(TABLE.delay.mean())
EXPECTED = np.column_stack(
    [TABLE.seats, *(TABLE.origin == name for name in ("EWR", "JFK", "LGA")), DAY + np.arange(ROWS) / 4, DELAY]
).astype(float)
NAMES = ["seats", "origin=EWR", "origin=JFK", "origin=LGA", "day", "delay"]


class Stream:
    """A table of any other library, e.g. DuckDB."""

    def __arrow_c_stream__(self, requested_schema=None):
        return as_arrow().__arrow_c_stream__(requested_schema)


def as_arrow():
    return pa.Table.from_pandas(TABLE, preserve_index=False)


ENUMERATION = pl.Enum(["LGA", "JFK", "EWR"])
FRAMES = {
    "pandas": lambda: TABLE,
    "pandas with categories": lambda: TABLE.astype({"origin": "category", "y": "category"}),
    "pandas with types of Arrow": lambda: TABLE.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda: pl.from_pandas(TABLE),
    "polars with an enumeration": lambda: pl.from_pandas(TABLE).with_columns(pl.col("origin").cast(ENUMERATION)),
    "lazy": lambda: pl.from_pandas(TABLE).lazy(),
    "table": as_arrow,
    "batch": lambda: as_arrow().to_batches()[0],
    "reader": lambda: as_arrow().to_reader(max_chunksize=7),
    "dataset": lambda: pa.dataset.dataset(as_arrow()),
    "stream": Stream,
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_table_in_memory_becomes_numbers(name, tmp_path, monkeypatch):
    if name == "lazy" and not hasattr(pl.LazyFrame, "collect_batches"):
        pytest.skip("this polars does not collect in batches")
    monkeypatch.setattr("bigkpca.ingesting.tables.READ_BYTES", 200)
    done = ingest(FRAMES[name](), tmp_path / "o.zarr", **HOW)
    found = stored(done.path)
    np.testing.assert_allclose(found["x"], EXPECTED, rtol=1e-12)
    np.testing.assert_array_equal(np.array(found["categories"])[found["y"]], TABLE.y)
    np.testing.assert_array_equal(found["w"], TABLE.w)
    assert (found["names"], done.rows, done.labels, done.sample_weight) == (NAMES, ROWS, True, True)
    assert [(each.name, each.kind, each.missing) for each in done.encoded] == [
        ("seats", "number", 0), ("origin", "category", 0), ("day", "date", 0), ("delay", "number", 5)
    ]  # fmt: skip
    assert ingest(FRAMES[name](), tmp_path / "o.zarr", **HOW).already_done
    assert not ingest(FRAMES[name](), tmp_path / "o.zarr", append=True).already_done  # with y and w
    with pytest.warns(RepeatedRowsWarning, match="is not added again; to add equal rows"):
        assert ingest(FRAMES[name](), tmp_path / "o.zarr", **BESIDE, append=True).rows == 2 * ROWS


def test_whole_labels_of_text_stay_whole_in_their_column_or_file(tmp_path):
    for name, labels in (("a.csv", [3, 1]), ("b.csv", [2, 2])):
        frame = pd.DataFrame({"n": [1.0, 2.5], "y": labels})
        frame.to_csv(tmp_path / name, index=False)
        frame[["y"]].to_csv(tmp_path / f"y{name}", index=False)
    for labels, more in (("y", None), (tmp_path / "ya.csv", tmp_path / "yb.csv")):
        done = ingest(tmp_path / "a.csv", tmp_path / "o.zarr", labels=labels, overwrite=True)
        ingest(tmp_path / "b.csv", done.path, labels=more, append=True)
        np.testing.assert_array_equal(stored(done.path)["y"], np.array([3, 1, 2, 2]), strict=True)


def test_a_reader_is_read_once(tmp_path):
    reader, shown = as_arrow().to_reader(), Recorder()
    ingest(reader, tmp_path / "o.zarr", progress=shown, **HOW)
    assert shown.started == [("inspecting columns", ROWS), ("ingest", ROWS)]
    with pytest.raises(DataError, match="is empty: it has no rows, or they have been read already"):
        ingest(reader, tmp_path / "p.zarr", **HOW)


def test_numbers_keep_their_common_type_bit_for_bit(tmp_path):
    X = RNG.normal(size=(50, 3)).astype(np.float32)
    for frame in (pd.DataFrame(X, columns=[*"abc"]), pl.DataFrame(X), pa.table(dict(zip("abc", X.T, strict=True)))):
        found = stored(ingest(frame, tmp_path / "o.zarr", overwrite=True).path)["x"]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, X)


def test_every_type_of_column_is_read_or_named(tmp_path):
    on = datetime(2020, 1, 2, 12)
    for column, expected in (
        (pd.Series([on, on - timedelta(days=1)]), [DAY + 1.5, DAY + 0.5]),
        (pd.Series([on, on]).dt.tz_localize("Asia/Tokyo"), [DAY + 1.125] * 2),
        (pd.Series([Decimal("1.5"), Decimal("-20.25")]), [1.5, -20.25]),
        (pd.Series([True, False], dtype="boolean"), [1, 0]),
        (pd.Series([1.5, 2.5], dtype=np.float16), [1.5, 2.5]),
        (pl.Series([1, 2], dtype=pl.Decimal(10, 2)), [1, 2]),
        (pl.Series([on.date(), on.date()]), [DAY + 1] * 2),
    ):
        frame = (pl if isinstance(column, pl.Series) else pd).DataFrame({"a": [1.0, 2.0], "t": column})
        with case(column.dtype):
            found = stored(ingest(frame, tmp_path / "o.zarr", overwrite=True).path)["x"]
            np.testing.assert_array_equal(found[:, 1], expected)
    for column, message in (
        (pd.Series([1, "x"], dtype=object), "Could not convert 'x'"),
        (pd.Series([1j, 2j]), "complex128"),
        (pd.Series(pd.arrays.SparseArray([0.0, 1.0])), "Sparse"),
        (pd.Series(pd.period_range("2020", periods=2, freq="D")), "'t' .*period.* cannot become numbers: "),
        (pd.Series([2**70, 1], dtype=object), "too large"),
        (pd.Series([2**62 + 1, 1]), "row 0 of column 't' .* is 4611686018427387905, which float64 cannot hold"),
        (pd.Series([timedelta(0), timedelta(1)]), r"'t' \(duration.* cannot become numbers: .*convert them first"),
        (pl.Series([time(12), time(18)]), r"'t' \(time64.* cannot become numbers"),
        (pl.Series([[1.0, 2.0], [3.0, 4.0]]), r"'t' \(.*list.* cannot become numbers"),
        (pl.Series([{"a": 1}, {"a": 2}]), r"'t' \(struct.*leave others out with drop"),
        (pl.Series(["x", "y"]), r"'t' \(string.*, such as 'x'\) .*categorical=\['t'\] \(--categorical t\)"),
        (pl.Series([1.0, None]), r"row 1 .* of column 't' is missing: use missing='mean'"),
        (pl.Series([1.0, np.inf]), r"row 1 .* of column 't' is infinite"),
    ):
        frame = (pl if isinstance(column, pl.Series) else pd).DataFrame({"a": [1.0, 2.0], "t": column})
        with case(message), pytest.raises(DataError, match=message):
            ingest(frame, tmp_path / "p.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["o.zarr"]


def test_what_is_not_a_table_is_refused_with_a_way_out(tmp_path):
    schema = pa.schema({"a": pa.float64()})

    def batches():
        yield pa.record_batch([[1.0, 2.0]], schema=schema)
        raise ValueError("the source broke")

    def labelled(*values):
        return [pd.DataFrame({"a": [1.0], "y": [value]}) for value in values]

    broken = pa.RecordBatchReader.from_batches(schema, batches())
    for data, options, error, message in (
        (np.ones((3, 2)), {}, SpecError, "ndarray cannot be ingested: .*arrays need no ingest: fit and transform"),
        (dd.from_pandas(TABLE, 2), {}, SpecError, r"cannot be ingested: .*to_parquet\(FOLDER\), and ingest that"),
        (TABLE.seats, {}, (DataError, SpecError), "the pandas Series (is not a table|cannot be ingested)"),
        (TABLE[:0], {}, DataError, "the pandas DataFrame is empty"),
        (TABLE[["w"]], {"member": "x"}, SpecError, "is a table, which has no members: leave out member"),
        (broken, {}, DataError, "the pyarrow RecordBatchReader cannot be read: .*the source broke"),
        (labelled(1, 1.5), {"labels": "y"}, SpecError, "y is int64 and, from row 1 on, float64: convert all to one t"),
        (labelled(1, "x"), {"labels": "y"}, SpecError, "y is int64 and, from row 1 on, text"),
        (labelled("x", 1), {"labels": "y"}, SpecError, "y is text and, from row 1 on, int64"),
    ):
        with case(message), pytest.raises(error, match=message):
            ingest(data, tmp_path / "o.zarr", **options)
    assert list(tmp_path.iterdir()) == []


def test_the_index_of_a_pandas_frame_is_left_out_with_a_note(tmp_path):
    TABLE.set_index("seats").to_parquet(tmp_path / "i.parquet")
    for frame, notes in ((TABLE[5:], 0), (TABLE.set_index("seats"), 1), (tmp_path / "i.parquet", 1), (TABLE, 0)):
        shown = Recorder()
        done = ingest(frame, tmp_path / "o.zarr", columns=["delay"], missing="mean", progress=shown, overwrite=True)
        assert (len(shown.notes), done.columns) == (notes, 1)
        assert all("which is the index of a pandas frame" in note for note in shown.notes)


def test_columns_are_chosen_by_name_and_in_order(tmp_path):
    for options, names in (
        ({"columns": ["day", "seats"]}, ["day", "seats"]),
        ({"drop": ["origin", "delay", "y"]}, ["seats", "day", "w"]),
        ({"columns": "seats"}, ["seats"]),
    ):
        assert made(tmp_path, TABLE, **options)["names"] == names
    for options, message in (
        ({"drop": ["sets"]}, "unknown column of .*'sets': did you mean 'seats'"),
        ({"columns": ["a"], "drop": ["b"]}, "use only one of them"),
        ({"drop": list(TABLE)}, "no column of .* is left"),
        ({"labels": "yy"}, "unknown column of .*'yy': did you mean 'y'"),
        ({"labels": "y", "sample_weight": "y"}, "labels and sample_weight name the same column"),
        ({"missing": "median"}, "unknown missing 'median'"),
        ({"max_categories": 0, "categorical": "origin"}, "max_categories=0 limits categories: give at least 1"),
        ({"max_categories": 3}, "name their columns with categorical"),
        ({"text": "y", "drop": ["w"]}, "text makes rows"),
    ):
        refuse(tmp_path, SpecError, message, TABLE, **options)


def test_the_most_frequent_categories_are_kept_and_new_ones_join_the_others(tmp_path):
    frame = pd.DataFrame({"w": ["b", "a", "b", "c", "c", "d", "b"], "n": [1.0] * 7})
    found = made(tmp_path, frame, categorical="w", max_categories=2)
    assert found["names"] == ["w=b", "w=c", "w=(other)", "n"]
    np.testing.assert_array_equal(found["x"][:, :3].argmax(axis=1), [0, 2, 0, 1, 1, 2, 0])
    later = ingest(pd.DataFrame({"n": [2.0], "w": ["new"]}), tmp_path / "o.zarr", append=True)
    np.testing.assert_array_equal(stored(later.path)["x"][7], [0, 0, 1, 2])
    many = pd.DataFrame({"w": [f"{i:04}" for i in range(1001)]})
    message = "'w' has 1,001 different values: keep the most frequent .*max_categories"
    refuse(tmp_path, DataError, message, many, categorical="w")
    assert ingest(many, tmp_path / "many.zarr", categorical="w", max_categories=1001).columns == 1002


UNFIT = {
    "name": [f"{i:04}" for i in range(1200)],
    "sex": ["f", "m"] * 600,
    "age": [None, 30.5, 40.5] * 400,
    "deck": ["a", None, "b"] * 400,
    "speed": [0.5, 1.0, np.inf] * 400,
    "empty": pa.nulls(1200, pa.float64()),
}
TEXTS = r"columns 'name' \([^;]* 'sex' \([^;]*categorical=\['sex', 'deck'\]"
MANY = "column 'name' has 1,200 different values: keep the most frequent as categories"
AGE = r"a\.parquet: row 0 [^,;]*'age' is missing, as are 399 values after it"
DECK = "row 1 [^,;]*'deck' is missing, as are 399 values after it"
INFINITE = r"a\.parquet: row 2 [^,;]*'speed' is infinite: remove"
EMPTY = "column 'empty' has only missing values: leave it out"


@pytest.mark.parametrize(
    ("options", "faults"),
    [
        ({}, [TEXTS, f"{AGE}: use missing='mean'", INFINITE, EMPTY]),
        ({"missing": "mean"}, [TEXTS, INFINITE, EMPTY]),
        ({"categorical": ["name", "sex", "deck"]}, [MANY, f"{AGE}, {DECK}: use missing='mean'", INFINITE, EMPTY]),
        ({"categorical": ["name", "sex", "deck"], "missing": "mean"}, [MANY, INFINITE, EMPTY]),
        ({"columns": ["age", "speed", "empty"]}, [f"{AGE}, row 0 [^,;]*'empty' is missing[^;]*", INFINITE]),
    ],
)
def test_all_columns_that_cannot_be_used_are_named_together(options, faults, tmp_path):
    refuse(tmp_path, DataError, "^[^;]*" + "[^;]*; [^;]*".join(faults) + "[^;]*$", UNFIT, UNFIT, **options)


def test_a_column_of_identifiers_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.ingesting.encoder._MOST_DISTINCT", 1100)
    names = {"categorical": ["name", "sex", "deck"], "max_categories": 9, "missing": "mean"}
    message = "column 'name' has more than 1,100 different values: is it an identifier"
    refuse(tmp_path, DataError, message, UNFIT, **names)


def test_codes_are_the_same_categories_in_every_format(tmp_path):
    texts = pd.DataFrame({"zip": ["1", "2", "10"]})
    for frame in (texts, texts.astype(int), texts.astype(float), texts.astype("Int64"), texts.astype("category")):
        assert made(tmp_path, frame, categorical=["zip"])["names"] == ["zip=1", "zip=10", "zip=2"]
    texts = {"zip": pa.array([1.0, 2.0, 10.0, np.nan])}
    assert made(tmp_path, texts, categorical=["zip"], missing="mean")["names"] == ["zip=1", "zip=10", "zip=2"]


def test_missing_values_are_the_means_of_the_first_rows(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 3.0, None], "w": ["x", None, "x"], "b": pd.array([True, None, True], "boolean")})
    found = made(tmp_path, frame, categorical="w", missing="mean")
    np.testing.assert_array_equal(found["x"], [[1, 1, 1], [3, 1, 1], [2, 1, 1]])
    later = pd.DataFrame({"a": [None], "w": ["x"], "b": [False]}).astype({"a": float})
    ingest(later, tmp_path / "o.zarr", append=True)
    np.testing.assert_array_equal(stored(tmp_path / "o.zarr")["x"][3], [2, 1, 0])


def test_rows_are_appended_and_encoded_like_those_of_a_dataset(tmp_path):
    first = ingest(TABLE[:20], tmp_path / "o.zarr", **HOW)
    TABLE[20:].iloc[:, ::-1].to_csv(tmp_path / "b.csv", index=False)
    whole = stored(ingest(tmp_path / "b.csv", first.path, append=True, **BESIDE).path)["x"]
    like = stored(ingest(pl.from_pandas(TABLE), tmp_path / "like.zarr", like=first.path, **BESIDE).path)["x"]
    np.testing.assert_array_equal(whole, like)
    assert about(first.path)["encoding"] == about(tmp_path / "like.zarr")["encoding"]
    for frame, options, error, message in (
        (TABLE.assign(origin="BOS"), {}, DataError, r"row 0 .* of column 'origin' is 'BOS', not one of the 3 categor"),
        (TABLE.drop(columns="day"), {}, SpecError, r"lacks the columns 'day' of the dataset"),
        (TABLE.assign(seats="many"), {}, DataError, r"'seats' is of type large_string, and of kind number|'seats'"),
        (TABLE.assign(delay=np.inf), {}, DataError, r"column 'delay' is infinite"),
        (TABLE, {"drop": ["day"]}, SpecError, "has the columns of a dataset: leave out all other options of columns"),
    ):
        with case(message), pytest.raises(error, match=message):
            ingest(frame, tmp_path / "p.zarr", like=first.path, **BESIDE, **options)
        with case(message), pytest.raises(error, match=message):
            ingest(frame, first.path, append=True, **BESIDE, **options)
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    arrays = ingest(tmp_path / "x.npy", tmp_path / "x.zarr").path
    with pytest.raises(SpecError, match="is a table, but the dataset was made of arrays"):
        ingest(TABLE, tmp_path / "p.zarr", like=arrays)
    with pytest.raises(SpecError, match="is an array, whose columns have no names"):
        ingest(tmp_path / "x.npy", first.path, append=True)


def test_another_table_does_not_replace_a_dataset(tmp_path):
    ingest(TABLE, tmp_path / "o.zarr", **HOW)
    for changed in (TABLE.assign(seats=TABLE.seats + 1), TABLE[1:], TABLE.rename(columns={"seats": "places"})):
        with pytest.raises(SpecError, match=r"o\.zarr already holds a dataset made with other options"):
            ingest(changed, tmp_path / "o.zarr", **HOW)


def test_texts_become_rows_of_characters(tmp_path):
    (tmp_path / "a.fasta").write_text(">one\nACG\nt\n>two\nAC\n")
    rows = [[1, 2, 3, 4], [1, 2, 0, 0]]
    found = made(tmp_path, tmp_path / "a.fasta")
    np.testing.assert_array_equal(found["x"], rows)
    assert (found["x"].dtype, found["names"][0]) == (np.uint8, "sequence[0]")
    frame = pd.DataFrame({"s": ["ACGT", "AC"], "y": [1, 2]})
    found = made(tmp_path, frame, text="s", labels="y")
    np.testing.assert_array_equal(found["x"], rows)
    np.testing.assert_array_equal(found["y"], [1, 2])
    for text in ("ACGTA", "AN"):
        with pytest.raises(DataError, match=f"row 0 .* of column 's' is '{text}', longer than the 4 characters"):
            ingest(pd.DataFrame({"s": [text], "y": [1]}), tmp_path / "o.zarr", labels="y", append=True)
    (tmp_path / "b.fa").write_text("ACG\n")
    refuse(tmp_path, DataError, r"b\.fa is not a FASTA file: it begins with 'ACG'", tmp_path / "b.fa")


def folder(at, suffix):
    for (year, month), rows in TABLE[["seats", "delay"]].fillna(0.0).groupby([TABLE.index // 10, TABLE.index % 2]):
        place = at / f"year={2020 + year}" / f"month={month}"
        place.mkdir(parents=True)
        getattr(rows, f"to_{suffix}")(place / f"a.{suffix}", index=False)
    (at / "README.md").write_text("hello")
    (at / "_temporary").mkdir()
    (at / "_temporary" / "b.csv").write_text("no,table\n")
    return at


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_folder_is_one_table_with_the_keys_of_its_folders(suffix, tmp_path):
    found = made(tmp_path, folder(tmp_path / "f", suffix))
    order, years = np.lexsort([TABLE.index % 2, TABLE.index // 10]), 2020 + np.arange(ROWS) // 10
    months = np.sort(np.arange(ROWS).reshape(3, 10) % 2).ravel()
    np.testing.assert_array_equal(found["x"][:, [0, 2, 3]], np.column_stack([TABLE.seats[order], years, months]))
    assert found["names"] == ["seats", "delay", "year", "month"]
    assert any("README.md: no format that can be ingested" in note for note in found["notes"])
    np.testing.assert_array_equal(made(tmp_path, tmp_path / "f", labels="year")["y"], years)
    assert made(tmp_path, tmp_path / "f", categorical="year")["names"][2:5] == ["year=2020", "year=2021", "year=2022"]


def test_files_of_a_folder_have_the_same_columns_and_types(tmp_path):
    at = folder(tmp_path / "f", "csv")
    (at / "year=2020" / "month=0" / "b.csv").write_text("seats,dely\n1,2\n")
    refuse(tmp_path, SpecError, r"b\.csv lacks the column 'delay' .* has the column 'dely'", at)
    (at / "year=2020" / "month=0" / "b.csv").unlink()
    TABLE.to_parquet(at / "c.parquet")
    refuse(tmp_path, SpecError, "holds files of several formats", at)
    at = tmp_path / "typed"
    at.mkdir()
    for first, second, message in (
        (1, 1.5, "type double, and int64 in the first file: .*1\\.5"),
        (True, 5, "type int64, and bool in the first file"),
        (1, pd.Timestamp(2020, 1, 1), r"type timestamp.*, and int64 in the first file"),
    ):
        for name, value in (("a", first), ("b", second)):
            pd.DataFrame({"n": [value]}).to_parquet(at / f"{name}.parquet")
        refuse(tmp_path, DataError, rf"b\.parquet: column 'n' is of {message}", at)
    (tmp_path / "empty").mkdir()
    refuse(tmp_path, SpecError, "empty is a folder without files to ingest", tmp_path / "empty")
