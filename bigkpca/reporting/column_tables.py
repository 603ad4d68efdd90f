"""Columns of a table in a report: the sentence and the tables about those that go with components."""

from __future__ import annotations

from collections.abc import Sequence

from bigkpca.errors import Array
from bigkpca.reporting.cards import ReportTable
from bigkpca.reporting.columns import Relation, ShownColumn, relations
from bigkpca.reporting.report_data import ReportData

_SHOWN = 5  # columns shown for each component
_MUCH = 0.2  # share of a component that a column explains, from which on the headline names it
READING = (
    "Columns that go with a component explain a share of its scores: by a straight line, or by the means of their "
    "categories. Below them the rows with the lowest and the highest scores."
)


def named_columns(data: ReportData) -> str:
    """The column that goes with each of the first components best, in a sentence; nothing where none explains much."""
    if data.sample is None or data.scores is None:
        return ""
    at, rows = data.sample
    leading = [relations(rows, data.scores[at, j], data.columns)[:1] for j in range(min(3, data.scores.shape[1]))]
    found = [each for of_component in leading for each in of_component]
    told = [
        f"component {j + 1} goes with {each.column.name} ({each.share:.0%} of it explained)"
        for j, each in enumerate(found)
        if each.share >= _MUCH
    ]
    return f" By columns, {', '.join(told)}." if told else ""


def column_tables(data: ReportData, y: Array, at: Array, names: Sequence[str], rows: Array) -> tuple[ReportTable, ...]:
    """The columns that go with scores y, and some rows with their values in these columns.

    at: where the scores of the rows are in y. names: of the rows. rows: (k, d).
    """
    assert data.sample is not None
    found = relations(data.sample[1], y[data.sample[0]], data.columns)[:_SHOWN]
    values = _value_table(y[at], names, rows, [each.column for each in found] or data.columns[:_SHOWN])
    return (_relation_table(found), values) if found else (values,)


def _relation_table(found: Sequence[Relation]) -> ReportTable:
    """The columns that go with a component."""
    lines = []
    for each in found:
        unit = f" ({each.column.unit})" if each.column.unit else ""
        how = f"correlation {each.correlation or 0:+.2f}".replace("-", "−")
        if each.ends is not None:
            how = f"from {each.ends[0]} to {each.ends[1]}"
        lines.append((each.column.name + unit, f"{each.share:.0%}", how))
    return ReportTable(("column", "explains", "how"), tuple(lines), words=True)


def _value_table(scores: Array, names: Sequence[str], rows: Array, columns: Sequence[ShownColumn]) -> ReportTable:
    """Rows with their scores, and their values in these columns."""
    told = [f"{value:.4g}".replace("-", "−") for value in scores]
    head = ("row", "score", *(column.name for column in columns))
    values = [column.words(rows) for column in columns]
    return ReportTable(head, tuple(zip(names, told, *values, strict=True)))
