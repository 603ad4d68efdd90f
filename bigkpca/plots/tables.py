"""Columns of tables: how scores go with them, what scores explain of them, and their values in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.errors import Array, CorruptionError
from bigkpca.ingesting.encoder import Encoder, Kind
from bigkpca.numerics.linear_pca import Captured
from bigkpca.plots.style import current_colors, without_frame
from bigkpca.storage import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        if self.kind == "category":
            whole = values.max(axis=1) == 1
            return [
                self.categories[j] if sure else "missing" for j, sure in zip(values.argmax(axis=1), whole, strict=True)
            ]
        if self.kind == "characters":
            letters = ("", *self.categories)
            texts = ["".join(letters[int(code)] for code in row) for row in values]
            return [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for text in texts]
        if self.kind == "date":
            moments = [(day, np.datetime64(round(day * 86_400), "s")) for day in values[:, 0]]
            return [
                str(moment.astype("datetime64[D]")) if day == np.floor(day) else str(moment)[:16].replace("T", " ")
                for day, moment in moments  # with the time of day where there is one
            ]
        if self.kind == "list":
            return [f"{len(row)} numbers" for row in values]
        numbers = [f"{value + 0.0:.4g}".replace("-", "−") for value in values[:, 0]]  # 0.0 makes no sign of -0.0
        if self.kind == "boolean":
            return [{"0": "no", "1": "yes"}.get(each, each) for each in numbers]
        return numbers

    def nearest(self, rows: Array) -> list[str]:
        """The values of rows (k, d) that need not be rows of the table, such as pre-images: of categories, the nearest
        one."""
        rows = rows.astype(np.float64)
        if self.kind == "category":
            rows[:, self.place] = np.eye(len(self.categories))[rows[:, self.place].argmax(axis=1)]
        elif self.kind == "boolean":
            rows[:, self.place] = rows[:, self.place] >= 0.5
        return self.words(rows)


@dataclass(frozen=True)
class Relation:
    """How scores go with a column: the share of their variance that it explains by a straight line, with this
    correlation; or by the means of its categories, which are lowest and highest at the `ends`.
    """

    column: ShownColumn
    share: float
    correlation: float | None
    ends: tuple[str, str] | None


def shown_columns(names: Sequence[str] | None, about: Mapping[str, Any] | None, path: str) -> tuple[ShownColumn, ...]:
    """The columns of rows with these names, with what their dataset records. Raises CorruptionError."""
    if names is None:
        return ()
    if about is None or "encoding" not in about:
        return tuple(ShownColumn(name, slice(j, j + 1)) for j, name in enumerate(names))
    records.check(about["encoding"], records.ENCODING, path)
    found, at = [], 0
    for column in Encoder.from_json(about["encoding"]).columns:
        width = len(column.names)
        found.append(ShownColumn(column.name, slice(at, at + width), column.kind, column.categories, column.unit))
        at += width
    if at != len(names):
        raise CorruptionError(f"{path} describes {at} columns, and has {len(names)}; ingest it again")
    return tuple(found)


def relations(rows: Array, y: Array, columns: Sequence[ShownColumn]) -> list[Relation]:
    """How scores y (m,) go with each column of their rows (m, d), largest share first."""
    centred, found = y - y.mean(), []
    total = float(centred @ centred)
    for column in columns:
        values = rows[:, column.place].astype(np.float64)
        if column.kind == "category":
            counts = values.sum(axis=0)
            means = np.divide(values.T @ centred, counts, out=np.zeros(len(counts)), where=counts > 0)
            there = np.flatnonzero(counts > 0)
            share = min(1.0, float(counts @ means**2) / total) if total else 0.0
            ends = (there[means[there].argmin()], there[means[there].argmax()]) if len(there) else (0, 0)
            found.append(Relation(column, share, None, (column.categories[ends[0]], column.categories[ends[1]])))
        elif column.kind not in ("characters", "list"):  # whose numbers have no order, or are many
            x = values[:, 0] - values[:, 0].mean()
            size = float(np.sqrt(x @ x) * np.sqrt(total))
            correlation = float(np.clip(x @ centred / size, -1, 1)) if size else 0.0
            found.append(Relation(column, correlation**2, correlation, None))
    return sorted(found, key=lambda each: -each.share)


def correlations(rows: Array, Y: Array, columns: Sequence[ShownColumn]) -> tuple[list[str], Array]:
    """The names of columns, and their correlations with scores Y (m, r), (c, r), those with the first component in
    descending order.

    Of a column of categories it is the correlation ratio, the root of the share of the variance of the scores that lies
    between categories; columns whose numbers have no order are left out.
    """
    found: dict[int, list[float]] = {}  # by the place of the column, since names may repeat
    for y in Y.T:
        for each in relations(rows, y, columns):
            value = np.sqrt(each.share) if each.correlation is None else each.correlation
            found.setdefault(each.column.place.start, []).append(float(value))
    names = {column.place.start: column.name for column in columns}
    order = sorted(found, key=lambda start: -found[start][0])
    return [names[start] for start in order], np.array([found[start] for start in order])


def draw_correlations(
    axes: Axes, names: Sequence[str], values: Array, numbers: Sequence[int], *, most: int, cmap: Any = "PuOr"
) -> None:
    """Correlations (c, r) of named columns with the components that have these numbers; of more than `most` columns,
    those with the largest."""
    shown = np.sort(np.argsort(-np.abs(values).max(axis=1), kind="stable")[:most])
    axes.imshow(values[shown], cmap=cmap, vmin=-1, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(values[shown]):
        color = "white" if abs(value) > 0.6 else "black"
        axes.text(j, i, f"{value:+.2f}".replace("-", "−"), ha="center", va="center", color=color)
    axes.set_yticks(range(len(shown)), [names[i] for i in shown])
    axes.set_xticks(range(len(numbers)), [str(number) for number in numbers])
    axes.set(xlabel="component")
    without_frame(axes)


def draw_captured(axes: Axes, found: Captured, places: Mapping[str, slice], *, most: int) -> None:
    """The share of each named part of the columns that the scores explain, as a bar, and that linear PCA explains, as a
    mark; of more than `most`, those with the largest shares."""
    colors, r = current_colors(), found.components
    shares = {"all columns": found.shares, **found.of_columns(places)}
    names = list(shares)[: most + 1][::-1]  # from the bottom up
    ours, pca = 100 * np.array([shares[name] for name in names]).T
    y = np.arange(len(names))
    axes.barh(y, ours, 0.6, color=colors.accent, label=f"{r} scores" if r > 1 else "the score")
    label = f"linear PCA, {r} component{'s' * (r > 1)}"
    axes.plot(pca, y, "|", color=colors.ink, markersize=11, markeredgewidth=2, label=label)
    axes.set_yticks(y, names)
    axes.set(xlabel="explained share of the variance, %", xlim=(0, 104))
