"""The values of a table again, from the columns of numbers that `ingest` made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.ingesting.columns import TableColumn

_DAY = 86_400


def decode(X: Array, column: TableColumn) -> Any:
    """An Arrow array of the values of a column, from its columns of numbers X (k, columns of numbers): the inverse of
    `encode`. Numbers that are none of these, such as those of pre-images, become the nearest category, level, truth
    value, second or character. A category that was filled in is null."""
    import pyarrow as pa

    if column.kind == "text":
        filled = (np.array(column.fills) == X).all(axis=1) if column.fills else np.zeros(len(X), bool)
        return pa.array(np.array(column.categories, object)[X.argmax(axis=1)], pa.string(), mask=filled)
    if column.kind == "ordinal":
        levels = np.clip(np.rint(X[:, 0]), 0, len(column.categories) - 1).astype(np.intp)
        return pa.array(np.array(column.categories, object)[levels], pa.string())
    if column.kind == "characters":
        letters = np.array(["", *column.categories], object)
        codes = np.clip(np.rint(X), 0, len(column.categories)).astype(np.intp)
        return pa.array(["".join(row) for row in letters[codes]], pa.string())
    values = X[:, 0]
    if column.kind == "boolean":
        return pa.array(values >= 0.5)
    if column.kind == "date":
        return pa.array(np.rint(values * _DAY).astype("datetime64[s]"))
    return pa.array(np.ascontiguousarray(values))
