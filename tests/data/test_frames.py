"""Columns of frames: which are numbers, and those that are none by name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError

DAY = datetime(2020, 1, 1)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (pd.Series([DAY, DAY]), "datetime64"),
        (pd.Series([DAY, DAY]).dt.tz_localize("UTC"), "datetime64"),
        (pd.Series([DAY, DAY]) - DAY, "timedelta64"),
        (pd.Series(["u", "v"], dtype="category"), "category"),
        (pd.Series(["u", 2.0], dtype=object), "object"),
        (pd.Series([1j, 2j]), "complex128"),
        (pd.Series(pd.period_range("2020", periods=2, freq="D")), "period"),
        (pl.Series([DAY, DAY]), "Datetime"),
        (pl.Series([DAY.date(), DAY.date()]), "Date"),
        (pl.Series([DAY - DAY, DAY - DAY]), "Duration"),
        (pl.Series(["u", "v"]), "String"),
        (pl.Series(["u", "v"], dtype=pl.Categorical), "Categorical"),
        (pl.Series([[1], [2, 3]]), "List"),
    ],
    ids=lambda value: None if isinstance(value, str) else f"{type(value).__module__}",
)
@pytest.mark.parametrize("alone", [True, False])
def test_columns_of_a_frame_that_are_no_numbers_are_named(column: Any, name: str, alone: bool) -> None:
    frame = pd.DataFrame if isinstance(column, pd.Series) else pl.DataFrame
    data = frame({"t": column} if alone else {"a": [1.0, 2.0], "t": column})
    message = rf"the frame holds .*{name}.* values in column {0 if alone else 1} \('t'\): rows must be real numbers"
    with pytest.raises(DataError, match=message):
        open_rows(data)
    with pytest.raises(DataError, match=message):
        KernelPCA(1).fit(data)


@pytest.mark.parametrize(
    "column",
    [
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
    ],
    ids=lambda column: f"{type(column).__module__} {column.dtype}",
)
def test_columns_of_a_frame_that_are_numbers_are_rows_however_they_are_kept(column: Any) -> None:
    frame = pd.DataFrame if isinstance(column, pd.Series) else pl.DataFrame
    rows = open_rows(frame({"a": [0.5, 0.25], "b": column}))
    np.testing.assert_array_equal(rows.block(0, 2), [[0.5, 1], [0.25, 0]])
    assert rows.dtype == np.float64


def test_values_that_a_frame_misses_are_nan() -> None:
    for column in (pd.Series([1, None], dtype="Int64"), pd.Series([True, None], dtype="boolean")):
        assert np.isnan(open_rows(pd.DataFrame({"a": [0.5, 0.25], "b": column})).block(0, 2)[1, 1])
