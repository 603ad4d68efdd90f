"""What columns of a table have to do with scores, and their values in the words of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.errors import Array, CorruptionError
from bigkpca.ingesting.tables.columns import Kind
from bigkpca.ingesting.tables.encoding import Encoding
from bigkpca.storage import records

_LONGEST = 40  # characters of a text that are shown


@dataclass(frozen=True)
class ShownColumn:
    """A column of the table that rows were made of: where its numbers are in a row, and what they mean."""

    name: str
    place: slice
    kind: Kind = "number"
    categories: tuple[str, ...] = ()
    unit: str | None = None

    def words(self, rows: Array) -> list[str]:
        """The values of rows (k, d) as they were in the table; a filled category as such."""
        values = rows[:, self.place].astype(np.float64)
        if self.kind == "text":
            whole = values.max(axis=1) == 1
            return [
                self.categories[j] if sure else "missing" for j, sure in zip(values.argmax(axis=1), whole, strict=True)
            ]
        if self.kind == "characters":
            letters = ("", *self.categories)
            texts = ["".join(letters[int(code)] for code in row) for row in values]
            return [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts]
        if self.kind == "date":
            return [_date(value) for value in values[:, 0]]
        numbers = [f"{value + 0.0:.4g}".replace("-", "−") for value in values[:, 0]]  # 0.0 makes no sign of -0.0
        if self.kind == "boolean":
            return [{"0": "no", "1": "yes"}.get(each, each) for each in numbers]
        return numbers


@dataclass(frozen=True)
class Relation:
    """How scores go with a column: the share of their variance that it explains, and in which direction.

    share: by a straight line in the column, or by the means of its categories. correlation: None for categories, which
    have the lowest and highest mean score at `ends`.
    """

    column: ShownColumn
    share: float
    correlation: float | None
    ends: tuple[str, str] | None


def shown_columns(names: Sequence[str] | None, about: Mapping[str, Any] | None, path: str) -> tuple[ShownColumn, ...]:
    """The columns of rows with these names, with what their dataset says about them; none where they have no names.

    Raises CorruptionError where the dataset says nothing that can be read.
    """
    if names is None:
        return ()
    if about is None or "encoding" not in about:
        return tuple(ShownColumn(name, slice(j, j + 1)) for j, name in enumerate(names))
    records.check(about["encoding"], records.ENCODING, path)
    found, at = [], 0
    for column in Encoding.from_json(about["encoding"]).columns:
        width = len(column.names)
        found.append(ShownColumn(column.name, slice(at, at + width), column.kind, column.categories, column.unit))
        at += width
    if at != len(names):
        raise CorruptionError(f"{path} describes {at} columns, and has {len(names)}; ingest it again")
    return tuple(found)


def relations(rows: Array, y: Array, columns: Sequence[ShownColumn]) -> list[Relation]:
    """How scores y (m,) go with each column of their rows (m, d), largest share first."""
    centred = y - y.mean()
    total = float(centred @ centred)
    told = [column for column in columns if column.kind != "characters"]  # whose numbers have no order
    found = [_relation(rows[:, column.place].astype(np.float64), centred, total, column) for column in told]
    return sorted(found, key=lambda each: -each.share)


def _relation(values: Array, centred: Array, total: float, column: ShownColumn) -> Relation:
    """How centred scores (m,) with this sum of squares go with the values (m, width) of a column."""
    if column.kind == "text":
        counts = values.sum(axis=0)
        means = np.divide(values.T @ centred, counts, out=np.zeros(len(counts)), where=counts > 0)
        there = np.flatnonzero(counts > 0)
        share = min(1.0, float(counts @ means**2) / total) if total else 0.0
        ends = (int(there[means[there].argmin()]), int(there[means[there].argmax()])) if len(there) else (0, 0)
        return Relation(column, share, None, (column.categories[ends[0]], column.categories[ends[1]]))
    x = values[:, 0] - values[:, 0].mean()
    size = float(np.sqrt(x @ x) * np.sqrt(total))
    correlation = float(np.clip(x @ centred / size, -1, 1)) if size else 0.0
    return Relation(column, correlation**2, correlation, None)


def _date(days: float) -> str:
    """Days since 1970-01-01 as a date, with the time of day where there is one."""
    moment = np.datetime64(round(days * 86_400), "s")
    return str(moment.astype("datetime64[D]")) if days == np.floor(days) else str(moment)[:16].replace("T", " ")
