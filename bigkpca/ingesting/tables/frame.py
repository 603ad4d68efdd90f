"""A file of columns of several types, as a stream of batches of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.ingesting.tables.columns import Kind


@dataclass(frozen=True)
class Labels:
    """The column of labels of a frame: its number, their dtype, and what makes labels (k,) of a part of the column, of
    rows with these numbers (k,)."""

    column: int
    dtype: np.dtype[Any]
    values: Callable[[Any, Array], Array]


@dataclass(frozen=True)
class Frame:
    """The columns of a file.

    columns: their numbers in the file, without labels and row names. names: of all columns of the file; None where it
    has none. kinds, types: what the columns hold, and in the words of the file; the kind is None for what cannot be
    numbers. dtypes: of the columns that are numbers or truth values. rows: None where the file must be read to count
    them. read: batches (pyarrow.RecordBatch) of the columns of these numbers, in this order; those of a text file are
    texts. notes: remarks for users on how the file is read. from_first_rows: whether kinds are those of the first rows,
    so that later ones may hold words.
    """

    where: str
    columns: tuple[int, ...]
    names: tuple[str, ...] | None
    kinds: tuple[Kind | None, ...]
    types: tuple[str, ...]
    dtypes: tuple[np.dtype[Any] | None, ...]
    rows: int | None
    labels: Labels | None
    read: Callable[[Mapping[int, Kind]], Iterator[Any]]
    notes: tuple[str, ...] = ()
    text: str | None = None  # the column whose characters are the rows, unless options say otherwise
    from_first_rows: bool = False

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """Names of the columns that may be features."""
        return None if self.names is None else tuple(self.names[j] for j in self.columns)
