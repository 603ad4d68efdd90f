"""The values of a table again, from the columns of numbers that `ingest` made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.ingesting.columns import TableColumn

_DAY = 86_400


def decode(X: Array, column: TableColumn) -> Any:
    """An Arrow array of the values of a column, from its columns of numbers X (k, columns of numbers): the inverse of
    `encode`, but for missing values. Numbers that are none of these, such as those of pre-images, become the nearest
    category, truth value, second or character."""
    import pyarrow as pa

    if column.kind == "text":
        return pa.array(np.array(column.categories, object)[X.argmax(axis=1)], pa.string())
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
