"""Reader of .csv files with commas, semicolons or tabs, also compressed by gzip.

A first column without a name, where all others have one, holds row names as pandas and R write them, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.errors import Array, DataError, SpecError
from bigkpca.ingesting.formats.base import TEXT, Column, check_finite_labels, refuse_member
from bigkpca.ingesting.formats.text_rows import TextRows
from bigkpca.ingesting.tables.frame import Frame, Labels

_WHOLE = re.compile(r"\s*[+-]?\d[\d_]*\s*")
_ROW_NAMES = (
    "the first column, which has no name, is left out, as it is the names of rows that pandas and R write, and no "
    "feature (to keep it, name it in the header)"
)


def csv_frame(path: Path, member: str | None, labels: str | None) -> Frame:
    """Columns of a .csv file, without its column of labels."""
    refuse_member(path, member)
    layout = TextRows.open(path)
    label = None if labels is None else layout.column(labels)
    row_names = None if label == 0 else layout.row_names
    columns = tuple(j for j in range(layout.width) if j not in (label, row_names))
    if not columns:
        raise DataError(f"{path} has no column but its labels")
    number = np.dtype(np.float64)
    return Frame(
        where=str(path),
        columns=columns,
        names=layout.names,
        kinds=tuple(layout.kinds[j] for j in columns),
        types=tuple(layout.kinds[j] for j in columns),
        dtypes=(number,) * len(columns),
        rows=None,
        labels=None if label is None else _labels(layout, label),
        read=layout.read,
        notes=() if row_names is None else (_ROW_NAMES,),
        from_first_rows=True,
    )


def csv_column(path: Path) -> Column:
    """Labels in a .csv file with one column, numbers or text."""
    layout = TextRows.open(path)
    if layout.width != 1:
        raise SpecError(f"{path} has {layout.width} columns: a file of labels has one")
    labels = _labels(layout, 0)

    def batches() -> Iterator[Array]:
        first = 0
        for texts in layout.texts(0):
            yield labels.values(texts, first + np.arange(len(texts)))
            first += len(texts)

    return Column(str(path), labels.dtype, None, batches())


def _labels(layout: TextRows, column: int) -> Labels:
    """The labels in a column: integers, floats, or else text, by the first rows."""
    first: list[str | None] = next((each.to_pylist() for each in layout.texts(column)), [])
    texts = [text for text in first if text]
    whole = all(_WHOLE.fullmatch(text) for text in texts)  # as floats, long integers would become equal
    kinds = ("int64", "uint64") if whole else ("float64",)
    dtype = next((dtype for dtype in map(np.dtype, kinds) if _all_are(texts, dtype)), TEXT)
    return Labels(column, dtype, lambda values, rows: _of_dtype(values.to_pylist(), dtype, rows, str(layout.path)))


def _of_dtype(texts: list[str | None], dtype: np.dtype[Any], rows: Array, where: str) -> Array:
    """Labels of one dtype from their texts. Raises DataError at the first that is missing or of another kind."""
    given = [text for text in texts if text]
    if len(given) < len(texts):
        row = rows[next(i for i, text in enumerate(texts) if not text)]
        raise DataError(
            f"{where}: row {row} (counted from 0) has no label; in quotes, NA, None and the like would be words"
        )
    if dtype == TEXT:
        return np.array(given, str)
    if not _all_are(given, dtype):
        i = next(i for i, text in enumerate(given) if not _all_are([text], dtype))
        raise DataError(
            f"{where}: row {rows[i]} (counted from 0) has the label {given[i]!r}, but the first ones are "
            f"{dtype} numbers: labels must be all of one kind"
        )
    found = np.array(given).astype(dtype)
    check_finite_labels(found, rows, where)
    return found


def _all_are(texts: Sequence[str], dtype: np.dtype[Any]) -> bool:
    """Whether all texts can be read as this dtype."""
    try:
        np.array(texts).astype(dtype)
    except (ValueError, OverflowError):
        return False
    return True
