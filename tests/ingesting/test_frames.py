"""Tables in memory, lazy ones and streams, against the same table in a Parquet file."""

import io
from datetime import datetime, timedelta
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import bigkpca
from bigkpca.errors import DataError, IncompleteError, MemoryLimitError, RepeatedRowsWarning, SpecError
from bigkpca.execution.plan import process_bytes
from bigkpca.ingesting import ingest
from bigkpca.ingesting.formats import arrow, in_memory
from bigkpca.ingesting.formats.in_memory import kind_of_table
from tests.data.cases import case
from tests.helpers.named import stored
from tests.helpers.progress import Recorder
from tests.ingesting.files import about, made

ROWS = 40
RNG = np.random.default_rng(3)
TABLE = pd.DataFrame(
    {
        "delay": [np.nan, *RNG.normal(size=ROWS - 1)],
        "origin": pd.Series([*RNG.choice(["JFK", "LGA", "EWR"], ROWS - 1), None], dtype="str"),
        "day": pd.date_range("2013-01-01", periods=ROWS),
        "seats": RNG.integers(0, 300, ROWS),
        "late": RNG.random(ROWS) > 0.5,
        "y": RNG.choice(["p", "q"], ROWS),
    }
)
OPTIONS = {"categories": "one-hot", "missing": "mean", "labels": "y", "drop": ["late"]}
of_batches = pytest.mark.skipif(not hasattr(pl.LazyFrame, "collect_batches"), reason="an older version of Polars")


def polars():
    return pl.from_pandas(TABLE)


def as_arrow():
    return pa.Table.from_pandas(TABLE)


def dataset():
    return pyarrow.dataset.dataset(as_arrow())


class Stream:
    """A table of a library that nobody knows, with Arrow's protocol alone."""

    def __arrow_c_stream__(self, requested_schema=None):
        return as_arrow().__arrow_c_stream__(requested_schema)


FRAMES = {
    "pandas": lambda: TABLE,
    "pandas with Arrow's types": lambda: TABLE.convert_dtypes(dtype_backend="pyarrow"),
    "pandas of objects": lambda: TABLE.astype({"origin": object, "seats": object}),
    "pandas with categories": lambda: TABLE.astype({"origin": "category"}),
    "polars": polars,
    "polars in chunks": lambda: pl.concat([polars()[:7], polars()[7:]], rechunk=False),
    "polars with categories": lambda: polars().with_columns(pl.col("origin").cast(pl.Categorical)),
    "polars with an enum": lambda: polars().with_columns(pl.col("origin").cast(pl.Enum(["LGA", "JFK", "EWR"]))),
    "lazy": pytest.param(lambda: polars().lazy(), marks=of_batches),
    "lazy with categories": pytest.param(
        lambda: polars().lazy().with_columns(pl.col("origin").cast(pl.Categorical)), marks=of_batches
    ),
    "table": as_arrow,
    "batch": lambda: as_arrow().to_batches()[0],
    "reader": lambda: as_arrow().to_reader(max_chunksize=7),
    "dataset": dataset,
    "stream": Stream,
}


@pytest.fixture(scope="module")
def of_file(tmp_path_factory):
    """What the dataset of the Parquet file holds."""
    return made(tmp_path_factory.mktemp("file"), TABLE, **OPTIONS)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_table_in_memory_becomes_the_dataset_of_its_file(frame, of_file, tmp_path, monkeypatch):
    for module in (arrow, in_memory):
        monkeypatch.setattr(module, "batch_rows", lambda columns: 9)
    done = ingest(frame(), tmp_path / "o.zarr", **OPTIONS)
    found = stored(done.path)
    np.testing.assert_allclose(found["x"], of_file["x"], rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(found["y"], of_file["y"])
    assert (found["names"], found["categories"]) == (of_file["names"], of_file["categories"])
    assert (done.rows, done.labels, done.already_done) == (ROWS, True, False)
    assert ingest(frame(), tmp_path / "o.zarr", **OPTIONS).already_done
    assert not ingest(frame(), tmp_path / "o.zarr", labels="y", append=True).already_done
    with pytest.warns(RepeatedRowsWarning, match=f"the {kind_of_table(frame())} is not added again; to add equal rows"):
        assert ingest(frame(), tmp_path / "o.zarr", labels="y", append=True).already_done  # as for files


def test_equal_rows_are_appended_from_a_new_file(tmp_path):
    frame = pd.DataFrame({"a": [0.5, 1.5]})
    frame.to_parquet(tmp_path / "again.parquet")
    for rows in (frame, frame[:1], frame):
        ingest(rows, tmp_path / "o.zarr", append=rows is not frame or (tmp_path / "o.zarr").exists())
    with pytest.warns(RepeatedRowsWarning, match="to add equal rows once more, write them to a new file and append it"):
        ingest(frame, tmp_path / "o.zarr", append=True)
    assert ingest(tmp_path / "again.parquet", tmp_path / "o.zarr", append=True).rows == 7


def test_rows_with_other_labels_are_not_those_that_were_appended_last(tmp_path):
    (tmp_path / "g.csv").write_text("a\n1\n2\n")
    for name, labels in (("l0", "1\n2\n"), ("l1", "7\n8\n")):
        (tmp_path / f"{name}.csv").write_text(labels)
    for name in ("l0", "l0", "l1", "l1"):
        append = (tmp_path / "o.zarr").exists()
        done = ingest(tmp_path / "g.csv", tmp_path / "o.zarr", labels=str(tmp_path / f"{name}.csv"), append=append)
    assert done.already_done
    assert stored(done.path)["y"].tolist() == [1, 2, 1, 2, 7, 8]


def test_a_stream_whose_batches_have_another_schema_is_named(tmp_path):
    frame = pl.LazyFrame({"a": [0.5, 1.5]}).map_batches(
        lambda part: part.select(pl.col("a").cast(pl.String), b=1.0), validate_output_schema=False
    )
    with pytest.raises(DataError, match="the polars LazyFrame cannot be read as an Arrow table"):
        ingest(frame, tmp_path / "o.zarr")


def test_a_table_of_pandas_numbers_is_kept_bit_for_bit(tmp_path):
    X = RNG.normal(size=(50, 3)).astype(np.float32)
    for frame in (pd.DataFrame(X), pl.DataFrame(X), pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})):
        found = stored(ingest(frame, tmp_path / "o.zarr", overwrite=True).path)
        assert found["x"].dtype == np.float32
        np.testing.assert_array_equal(found["x"], X)


def test_tables_and_files_are_rows_in_their_order_with_columns_by_name(of_file, tmp_path):
    TABLE[10:20].iloc[:, ::-1].to_parquet(tmp_path / "b.parquet")
    parts = [TABLE[:10], tmp_path / "b.parquet", polars()[20:]]
    done = ingest(parts, tmp_path / "o.zarr", **OPTIONS)
    np.testing.assert_allclose(stored(done.path)["x"], of_file["x"], rtol=1e-12, atol=1e-15)
    told = about(tmp_path / "o.zarr")
    assert told["provenance"][0]["sources"] == ["pandas DataFrame", "b.parquet", "polars DataFrame"]
    assert [each["path"] for each in told["sources"]] == [None, str(tmp_path / "b.parquet"), None]
    message = (
        "the pandas DataFrame sources.1. lacks the column 'day' of .*a.parquet, and|the pandas DataFrame sources.1."
    )
    with pytest.raises(SpecError, match=message):
        ingest([TABLE, TABLE.drop(columns="day")], tmp_path / "p.zarr", **OPTIONS)


def test_rows_are_appended_and_encoded_like_those_of_a_dataset(tmp_path):
    first = ingest(TABLE[:20], tmp_path / "o.zarr", **OPTIONS)
    whole = stored(ingest(polars()[20:], tmp_path / "o.zarr", labels="y", append=True).path)["x"]
    like = stored(ingest(polars(), tmp_path / "like.zarr", labels="y", like=first.path).path)["x"]
    np.testing.assert_array_equal(whole, like)
    late = TABLE.assign(origin="BOS")
    with pytest.raises(
        DataError, match=r"the pandas DataFrame: row 0, column 1 \('origin'\) is 'BOS', not one of the 3"
    ):
        ingest(late, tmp_path / "b.zarr", labels="y", like=first.path)


def test_another_table_does_not_replace_a_dataset(tmp_path):
    for changed in (TABLE.assign(seats=TABLE.seats + 1), TABLE[1:], TABLE.rename(columns={"seats": "places"})):
        ingest(TABLE, tmp_path / "o.zarr", **OPTIONS)
        refused = pytest.raises(SpecError, match=r"o\.zarr already holds a dataset made with other options")
        with refused:
            ingest(changed, tmp_path / "o.zarr", **OPTIONS)


def test_the_index_of_a_pandas_frame_is_left_out_with_a_note(tmp_path):
    for frame, notes in (
        (TABLE[5:], []),
        (
            TABLE.set_index("seats", drop=False),
            ["the pandas DataFrame: leaving out the index of the frame (to keep it"],
        ),
        (as_arrow().replace_schema_metadata(None), []),
        (
            pa.Table.from_pandas(TABLE.set_index("day")),
            ["the pyarrow Table: leaving out column 'day', which is the index of a pandas frame"],
        ),
    ):
        said = Recorder()
        done = ingest(frame, tmp_path / "o.zarr", progress=said, overwrite=True, **OPTIONS)
        assert "seats" in stored(done.path)["names"]
        found = [note for note in said.notes if "index" in note]
        assert len(found) == len(notes)
        assert all(note.startswith(start) for note, start in zip(found, notes, strict=True))


def test_every_type_of_column_is_read_or_named(tmp_path):
    on = datetime(2020, 1, 2, 12)
    for column, expected in (
        (pd.Series([on, None]), [18263.5, None]),
        (pd.Series([on, on], dtype="datetime64[ns]").dt.tz_localize("UTC"), [18263.5, 18263.5]),
        (pd.Series([timedelta(hours=2), timedelta(0)]), [2, 0]),
        (pd.Series([Decimal("1.5"), Decimal("-20.25")]), [1.5, -20.25]),
        (pd.Series([1, 2.5, None], dtype=object)[:2], [1, 2.5]),
        (pd.Series([True, None], dtype="boolean"), [1, None]),
        (pd.Series([1.5, 2.5], dtype=np.float16), [1.5, 2.5]),
        (pl.Series([on.time(), None]), [12, None]),
        (pl.Series([1, 2], dtype=pl.Decimal(10, 2)), [1, 2]),
    ):
        frame = (pl if isinstance(column, pl.Series) else pd).DataFrame({"a": [1.0, 2.0], "t": column})
        with case(column.dtype):
            found = stored(ingest(frame, tmp_path / "o.zarr", missing="drop", overwrite=True).path)
            np.testing.assert_array_equal(found["x"][:, 1], [value for value in expected if value is not None])
    for column, kind in (
        (pd.Series([1, "x"], dtype=object), "object .Could not convert 'x'"),
        (pd.Series([1j, 2j]), "complex128"),
        (pd.Series(pd.arrays.SparseArray([0.0, 1.0])), "Sparse"),
        (pd.Series(pd.period_range("2020", periods=2, freq="D")), "period"),
        (pd.Series([2**70, 1], dtype=object), "object"),
        (pd.Series([[1], [2]]), "list"),
        (pl.Series([{"a": 1}, {"a": 2}]), "struct"),
    ):
        frame = (pl if isinstance(column, pl.Series) else pd).DataFrame({"a": [1.0, 2.0], "t": column})
        with case(kind):
            refuse_frame(tmp_path, DataError, rf"column 1 \('t'\) is of type {kind}.*; leave it out with --drop", frame)
            assert ingest(frame, tmp_path / "o.zarr", drop=["t"], overwrite=True).columns == 1


def refuse_frame(folder, error, message, frame, **options):
    """Ingest refuses this frame with an error, and leaves nothing."""
    before = sorted(folder.iterdir())
    with case(message), pytest.raises(error, match=message):
        ingest(frame, folder / "refused.zarr", **options)
    assert sorted(folder.iterdir()) == before


def test_values_that_cannot_be_read_are_named_by_frame_row_and_column(tmp_path):
    missing = r"^the polars DataFrame: row 3, column 1 \('b'\) is missing \(rows of data.*with --missing drop"
    frame = pl.DataFrame({"a": np.arange(5.0), "b": [1, 2, 3, None, 5]})
    refuse_frame(tmp_path, DataError, missing, frame)
    if hasattr(pl.LazyFrame, "collect_batches"):
        refuse_frame(tmp_path, DataError, missing.replace("DataFrame", "LazyFrame"), frame.lazy())
    refuse_frame(
        tmp_path, DataError, r"row 0, column 1 \('w'\) is 'x', not a number", pd.DataFrame({"a": 1, "w": ["x"]})
    )
    twice = pd.DataFrame(np.ones((2, 2)), columns=["a", "a"])
    refuse_frame(tmp_path, SpecError, r"columns 0 and 1 \(counted from 0\) are called 'a'", twice)
    refuse_frame(tmp_path, DataError, "the pandas DataFrame is empty: it has no rows", TABLE[:0])
    refuse_frame(tmp_path, DataError, "the pandas DataFrame has no columns$", pd.DataFrame(index=[1, 2]))
    refuse_frame(tmp_path, DataError, "has no columns besides its labels", TABLE[["y"]], labels="y")
    refuse_frame(
        tmp_path, SpecError, "unknown column of the pandas DataFrame 'yy': did you mean 'y'", TABLE, labels="yy"
    )
    refuse_frame(tmp_path, SpecError, "unknown column of the pandas DataFrame 'z'", TABLE, drop=["z"])
    limit = {"memory": process_bytes() + 50_000_000}
    wide = pa.table({f"c{number}": [0.0] for number in range(6000)})
    refuse_frame(tmp_path, MemoryLimitError, "the pyarrow Table: 6,000 columns, need", wide, **limit)


@of_batches
def test_a_lazy_frame_is_computed_once_and_a_reader_read_once(tmp_path):
    computed = []
    lazy = polars().lazy().map_batches(lambda frame: computed.append(len(frame)) or frame, schema=polars().schema)
    said = Recorder()
    ingest(lazy, tmp_path / "l.zarr", progress=said, **OPTIONS)
    assert sum(computed) == ROWS
    passes = [("copying the polars LazyFrame", 0), ("inspecting columns", ROWS), ("ingest", ROWS)]
    assert said.started == passes
    assert said.finished == 3
    reader = as_arrow().to_reader()
    ingest(reader, tmp_path / "r.zarr", **OPTIONS)
    message = "the pyarrow RecordBatchReader is empty: it has no rows, or they have already been read"
    refuse_frame(tmp_path, DataError, message, reader)


@of_batches
def test_a_stream_that_fails_or_finds_no_space_publishes_nothing(tmp_path, monkeypatch):
    schema = pa.schema({"a": pa.float64()})

    def batches():
        yield pa.record_batch([[1.0, 2.0]], schema=schema)
        raise pa.ArrowInvalid("the source broke")

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    refuse_frame(tmp_path, DataError, "the pyarrow RecordBatchReader cannot be read: .*broke$", reader)

    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(in_memory, "TemporaryFile", Full)
    message = (
        "the polars LazyFrame can be read only once, .* No space left on device; set the environment variable TMPDIR"
    )
    refuse_frame(tmp_path, IncompleteError, message, pl.LazyFrame({"a": [1.0]}))


@of_batches
def test_errors_of_a_source_name_the_table(tmp_path):
    def fail(frame):
        raise ValueError("no luck")

    lazy = pl.LazyFrame({"a": ["1", "x"]})
    for frame, message in (
        (lazy.select("b"), "polars LazyFrame cannot be read: ColumnNotFoundError: [^\n]*b[^\n]*$"),
        (pl.scan_csv(tmp_path / "none.csv"), r"polars LazyFrame cannot be read: FileNotFoundError: .*none\.csv"),
        (lazy.cast(pl.Int64), "polars LazyFrame cannot be read: InvalidOperationError: conversion from `str`"),
        (lazy.map_batches(fail, schema={"a": pl.String}), r"polars LazyFrame cannot be read: \w+: .*no luck"),
    ):
        refuse_frame(tmp_path, DataError, message, frame)
    schema = pa.schema({"a": pa.float64()})
    for error in (OSError(5, "Input/output error"), FileNotFoundError(2, "Input gone")):

        def batches(error=error):
            yield pa.record_batch([[1.0]], schema=schema)
            raise error

        reader = pa.RecordBatchReader.from_batches(schema, batches())
        refuse_frame(tmp_path, DataError, "RecordBatchReader cannot be read: .*Input[^\n]*$", reader)


def test_memory_errors_of_a_source_stay_what_they_are():
    with pytest.raises(MemoryError, match="all"), in_memory._of_source("it"):
        raise MemoryError("all")


def test_a_frame_has_no_members(tmp_path):
    refuse_frame(tmp_path, SpecError, "the pandas DataFrame has no members: leave out --member x", TABLE, member="x")


def test_what_is_not_a_table_is_refused_with_a_way_out(tmp_path):
    for data, message in (
        (np.ones((3, 2)), "the numpy ndarray cannot be ingested: .*; fit and transform use arrays as they are"),
        (3, "the int cannot be ingested: give paths, or tables of pandas, polars or pyarrow"),
        (dd.from_pandas(TABLE, 2), r"cannot be ingested: .*write it with to_parquet\(FOLDER\), and ingest this folder"),
        (TABLE.seats, "the pandas Series is not a table .*: pass a frame"),
        (polars()["seats"], "the polars Series is not a table"),
        ([], "nothing to ingest"),
    ):
        refuse_frame(tmp_path, SpecError, message, data)


@of_batches
def test_types_that_pyarrow_lacks_are_an_error(tmp_path):
    for frame in (pl.DataFrame({"a": [1, 2]}, schema={"a": pl.Int128}), pl.LazyFrame(schema={"a": pl.Int128})):
        refuse_frame(tmp_path, DataError, "cannot be read as an Arrow table: .*format string", frame)


def test_an_older_polars_is_asked_for_a_file(tmp_path, monkeypatch):
    monkeypatch.delattr(pl.LazyFrame, "collect_batches", raising=False)
    refuse_frame(
        tmp_path, SpecError, r"read in batches by Polars 1\.34 and later: .*sink_parquet", pl.LazyFrame({"a": [1]})
    )


def test_a_fit_of_a_dataset_of_a_frame_uses_its_columns(tmp_path):
    frame = TABLE.drop(columns=["y"])
    with pytest.raises(
        DataError, match=r"(?s)in column 1 \('origin'\), .* in column 2 \('day'\).*bigkpca\.ingest\(frame"
    ):
        bigkpca.KernelPCA(2).fit(frame)
    done = bigkpca.ingest(frame, tmp_path / "o.zarr", categories="one-hot", missing="mean")
    model = bigkpca.fit(done.path, tmp_path / "m.zarr", n_components=2, size=10, standardize=True)
    assert model is not None
