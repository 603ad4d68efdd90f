"""Columns of frames: which are numbers, and those that are none by name."""

from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError
from tests.data.cases import case

DAY = datetime(2020, 1, 1)


def frame_of(**columns):
    """A frame of the library that the last column is of."""
    of_pandas = isinstance([*columns.values()][-1], pd.Series)
    return (pd.DataFrame if of_pandas else pl.DataFrame)(columns)


def test_columns_that_are_no_numbers_are_named():
    for name, column in (
        ("datetime64", pd.Series([DAY, DAY])),
        ("datetime64", pd.Series([DAY, DAY]).dt.tz_localize("UTC")),
        ("timedelta64", pd.Series([DAY, DAY]) - DAY),
        ("category", pd.Series(["u", "v"], dtype="category")),
        ("object", pd.Series(["u", 2.0], dtype=object)),
        ("complex128", pd.Series([1j, 2j])),
        ("object", pd.Series([np.zeros(3), np.ones(3)])),
        ("List", pl.Series([[1.0, 2.0], [2.0, 3.0]])),
        ("period", pd.Series(pd.period_range("2020", periods=2, freq="D"))),
        ("timestamp", pd.Series([DAY, DAY], dtype="timestamp[ns][pyarrow]")),
        ("string", pd.Series(["u", "v"], dtype="string[pyarrow]")),
        ("Datetime", pl.Series([DAY, DAY])),
        ("Date", pl.Series([DAY.date(), DAY.date()])),
        ("Duration", pl.Series([DAY - DAY, DAY - DAY])),
        ("String", pl.Series(["u", "v"])),
        ("Categorical", pl.Series(["u", "v"], dtype=pl.Categorical)),
        ("Struct", pl.Series([{"a": 1}, {"a": 2}])),
        ("Enum", pl.Series(["u", "v"], dtype=pl.Enum(["u", "v"]))),
    ):
        for number, data in ((0, frame_of(t=column)), (1, frame_of(a=[1.0, 2.0], t=column))):
            message = rf"the frame contains .*{name}.* values in column {number} \('t'\): rows must be real numbers"
            for use in (open_rows, KernelPCA(1).fit):
                with case((name, number)), pytest.raises(DataError, match=message):
                    use(data)


def test_all_columns_that_are_no_numbers_are_named_with_what_to_do():
    columns = {"a": [1.0, 2.0], "w": ["u", "v"], "t": [DAY, DAY]}
    places = r"\w+.* values in column 1 \('w'\), \w+.* values in column 2 \('t'\): rows must be"
    advice = r"ColumnTransformer, .*numpy\.stack\(column\), or .*bigkpca\.ingest\(frame, .*categorical=\[\.\.\.\]\)"
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        with case(type(frame)), pytest.raises(DataError, match=rf"the frame contains {places}.*{advice}"):
            KernelPCA(1).fit(frame)
    many = pd.DataFrame({f"w{number}": ["u", "v"] for number in range(8)})
    with pytest.raises(DataError, match=r"in column 4 \('w4'\), and in 3 more columns: rows must be"):
        KernelPCA(1).fit(many)


def test_columns_that_are_numbers_are_rows_however_they_are_kept():
    for column in (
        pd.Series([1, 0], dtype="Int64"),
        pd.Series([True, False], dtype="boolean"),
        pd.Series([True, False]),
        pd.Series([1, 0], dtype="int64[pyarrow]"),
        pd.Series([1, 0], dtype="category"),
        pd.Series([1, 0], dtype=object),
        pd.Series([1.0, 0.0], dtype="Sparse[float64]"),
        pl.Series([True, False]),
        pl.Series([1, 0], dtype=pl.UInt8),
        pl.Series([1, 0], dtype=pl.Decimal(10, 2)),
    ):
        with case(column.dtype):
            rows = open_rows(frame_of(a=[0.5, 0.25], b=column))
            np.testing.assert_array_equal(rows.block(0, 2), [[0.5, 1], [0.25, 0]])
            assert rows.dtype == np.float64


def test_values_that_a_frame_misses_are_nan_and_their_column_is_named():
    for series, kinds in (
        (pd.Series, ["Int64", "boolean", "category", "int64[pyarrow]", "bool[pyarrow]", object]),
        (pl.Series, [pl.Int64, pl.Boolean, pl.Decimal(10, 2)]),
    ):
        for kind in kinds:
            column = series([True if "bool" in str(kind).lower() else 1, None], dtype=kind)
            with case(kind):
                frame = frame_of(a=[0.5, 0.25], b=column)
                assert np.isnan(open_rows(frame).block(0, 2)[1, 1])
                with pytest.raises(DataError, match=r"row 1, column 1 \('b'\) is NaN"):
                    KernelPCA(1).fit(frame)


def test_frames_of_polars_keep_their_precision_in_an_estimator():
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    plain = KernelPCA(2, size=20, random_state=0).fit(X)
    kpca = KernelPCA(2, size=20, random_state=0).fit(pl.DataFrame(X, schema=list("abc")))
    assert list(kpca.feature_names_in_) == list("abc")
    assert kpca.model_.features.dtype == np.float32
    np.testing.assert_array_equal(kpca.eigenvalues_, plain.eigenvalues_)
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        kpca.transform(pl.DataFrame(X, schema=list("abz")))
