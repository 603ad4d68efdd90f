"""Values beside the rows, one for each row: labels, which are numbers or text, and sample weights, which are finite
numbers of at least 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bigkpca.data.beside import WEIGHTS, Beside
from bigkpca.data.sample_weights import check_weights
from bigkpca.errors import Array, DataError, SpecError, check_finite
from bigkpca.ingesting.columns import BesideColumn, TableColumn, marks_of, numbers
from bigkpca.ingesting.notation import ISO, Notation

Names = Mapping[Beside, str]
"""The columns, or arrays, of a file with values beside its rows, by name."""


def check_single(names: Sequence[str], name: str, where: str, kind: Beside) -> None:
    """Raise SpecError if several columns have the name of the one with these values."""
    if names.count(name) > 1:
        raise SpecError(
            f"{where} has {names.count(name)} columns {name!r}: give the column of {kind.noun}s a unique name"
        )


def dtype_of_array(
    kind: Beside, shape: tuple[int, ...], dtype: np.dtype[Any], rows: int | None, where: str
) -> np.dtype[Any]:
    """The dtype in which values are stored beside `rows` rows (None: not known yet), float64 for weights. Raises an
    error for an array that cannot hold them."""
    text = "" if kind is WEIGHTS else "text or "
    known = (dtype.kind in "buif" and dtype.itemsize <= 8) or (dtype.kind == "U" and bool(text))
    if len(shape) != 1 or not known:
        raise DataError(
            f"{where} has shape {shape} and type {dtype}: {kind.noun}s are (n,), {text}numbers of at most 8 bytes"
        )
    if rows is not None and shape[0] != rows:
        raise SpecError(f"{where} holds {shape[0]} {kind.noun}s for {rows} rows")
    return np.dtype(np.float64) if kind is WEIGHTS else dtype


def check_values(kind: Beside, values: Array, rows: Array, where: str) -> None:
    """Raise DataError naming the first value that is NaN, infinite or, as a weight, negative; `rows` are row numbers in
    the file (k,)."""
    right = np.isfinite(values) if values.dtype.kind == "f" else np.ones(len(values), bool)
    if kind is WEIGHTS:
        right &= values >= 0
    if right.all():
        return
    i = int(np.argmin(right))
    if kind is WEIGHTS:
        check_weights(values[i : i + 1], int(rows[i]), where)
    check_finite(values[i : i + 1, None], int(rows[i]), f"the {kind.noun}s of {where}")


def weights_of_column(number: int, called: str, where: str, notation: Notation = ISO) -> BesideColumn:
    """The sample weights in a column of a table, numbers or texts in this notation. called: the column in messages."""
    column = TableColumn("", "number", notation=notation)

    def values(part: Any, rows: Array) -> Array:
        import pyarrow as pa

        try:
            found, missing = numbers(part, column.kind, notation)
        except pa.ArrowInvalid:
            found, missing = np.empty(0), np.ones(len(part), bool)
        if missing.any():
            fault = marks_of(part, column).fault(part, column, 0, np.ones(len(part), bool), missing_too=True)
            assert fault is not None
            raise DataError(
                f"{where}: row {rows[fault.row]} (counted from 0) has no sample weight: {called} is {fault.what}; "
                "weights are finite numbers of at least 0"
            )
        check_values(WEIGHTS, found, rows, f"{where}, {called}")
        return found.astype(np.float64)

    return BesideColumn(number, np.dtype(np.float64), values, column)
