"""Pre-images along the axis of a component: as pictures, maps, curves, or changes of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.data.labels import index_values
from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics.model import Model
from bigkpca.plots.pictures import PictureFrame
from bigkpca.plots.style import current_colors, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("pictures", "maps", "curves", "bars")
STEPS = (-2, -1, 0, 1, 2)  # standard deviations along a component; few scores are further out
_MOST_PIXELS = 512  # sides of a picture; larger ones are subsampled
_GAP = 0.08  # of the width of a map


@dataclass(frozen=True)
class Walk:
    """Pre-images (k, d) at these standard deviations (k,) along a component, and whether each is far from all data, so
    that it is the mean of the rows."""

    steps: tuple[float, ...]
    rows: Array
    far: Array

    @property
    def names(self) -> list[str]:
        """The steps in words."""
        names = [f"{step:+g} SD".replace("-", "−") if step else "0" for step in self.steps]
        return [f"{name} (far)" if lost else name for name, lost in zip(names, self.far, strict=True)]


def walk_along(model: Model, j: int, steps: Sequence[float] = STEPS) -> Walk:
    """The pre-images along component j (from 0). Raises SpecError for a model without pre-images."""
    model.check_preimages()
    n = model.sums.weight if model.sums else model.provenance["identity"]["shape"][0]
    Y = np.zeros((len(steps), model.components))
    Y[:, j] = np.array(steps) * np.sqrt(model.solution.eigenvalues[j] / n)
    with single_threaded_blas:
        found = model.reconstructing(len(steps))(Y, None)
    return Walk(tuple(steps), found.rows, found.far)


@dataclass(frozen=True)
class ColumnAxes:
    """What the columns of a model are: their names, the coordinates along their dim, or those of a grid."""

    names: tuple[str, ...] | None
    index: dict[str, Array]

    @classmethod
    def of(cls, model: Model) -> ColumnAxes:
        """Those that the model records; names that are numbers, such as wavelengths, are coordinates."""
        names, index = model.names, index_values(model.provenance.get("column_labels"))
        texts = [values for values in index.values() if values.dtype.kind not in "iufM"]
        if texts and len(index) == 1:
            names = tuple(texts[0].astype(str).tolist())
        if names is not None and not index:
            with suppress(ValueError):
                index = {"column": np.array(names, dtype=float)}
        return cls(names, {} if texts else index)

    @property
    def grid(self) -> dict[str, Array]:
        """The two coordinates of numbers of a grid; empty if the columns are not on one."""
        numbers = all(values.dtype.kind in "iuf" for values in self.index.values())
        return self.index if len(self.index) == 2 and numbers else {}

    @property
    def kind(self) -> str:
        """How rows with these columns are drawn: as maps, curves, or bars."""
        return "maps" if self.grid else "bars" if self.names is not None and not self.index else "curves"


def draw_pictures(axes: Axes, along: Walk, shape: tuple[int, ...], cmap: Any = None) -> None:
    """Pictures side by side, of grey or colours; with a colour map, greys have its colours."""
    frame, k = PictureFrame.of(shape, along.rows), len(along.steps)
    sheet = frame.sheet(along.rows, cmap=cmap, max_side=_MOST_PIXELS)
    axes.imshow(sheet)
    width = (sheet.shape[1] + 1) / k
    axes.set_xticks(width * (np.arange(k) + 0.5) - 1, along.names)
    axes.set_yticks([])
    without_frame(axes)


def draw_maps(axes: Axes, along: Walk, grid: dict[str, Array], cmap: Any = None) -> None:
    """Maps side by side over a grid with two coordinates, the second one along x unless it is a latitude; with a colour
    bar. Cells without a column, such as land in a map of the sea, are blank."""
    from matplotlib.ticker import MaxNLocator

    (y_name, ys), (_, xs) = sorted(grid.items(), key=lambda each: not each[0].lower().startswith("lat"))
    (y, row), (x, column) = (np.unique(values.astype(float), return_inverse=True) for values in (ys, xs))
    fields = np.full((len(along.steps), len(y), len(x)), np.nan)
    fields[:, row, column] = along.rows
    x_edges, y_edges = _edges(x), _edges(y)
    offsets = (1 + _GAP) * (x_edges[-1] - x_edges[0]) * np.arange(len(fields))
    low, high = along.rows.min(), along.rows.max()
    for offset, field in zip(offsets, fields, strict=True):
        drawn = axes.pcolormesh(x_edges + offset, y_edges, field, vmin=low, vmax=high, cmap=cmap, rasterized=True)
    axes.set_xticks(offsets + (x_edges[0] + x_edges[-1]) / 2, along.names)
    axes.set(ylabel=y_name, aspect="equal")
    axes.yaxis.set_major_locator(MaxNLocator(2))
    without_frame(axes)
    bar = axes.inset_axes((1.02, 0, 0.015, 1))  # as high as the maps
    axes.figure.colorbar(drawn, cax=bar, ticks=MaxNLocator(2))


def _edges(x: Array) -> Array:
    """The edges (k + 1,) of cells with these ascending centres (k,)."""
    inner = (x[1:] + x[:-1]) / 2
    first, last = (inner[0], inner[-1]) if len(x) > 1 else (x[0] + 0.5, x[0] - 0.5)
    return np.concatenate([[2 * x[0] - first], inner, [2 * x[-1] - last]])


def draw_curves(axes: Axes, along: Walk, index: dict[str, Array]) -> None:
    """A line for each pre-image, over the coordinate of the columns or their numbers; lines near the mean are faint."""
    colors, far = current_colors(), max(abs(step) for step in along.steps) or 1
    (name, x), *_ = *index.items(), ("column", np.arange(along.rows.shape[1]))
    order = np.argsort(x, kind="stable")
    for step, label, row in zip(along.steps, along.names, along.rows, strict=True):
        color = colors.accent if step > 0 else colors.second if step < 0 else colors.ink
        axes.plot(x[order], row[order], color=color, alpha=0.3 + 0.7 * abs(step) / far if step else 1, label=label)
    axes.set(xlabel=name, ylabel="value")


def draw_bars(axes: Axes, along: Walk, model: Model, names: Sequence[str] | None, *, most: int) -> None:
    """The change of each column from the first to the last pre-image, in its standard deviations if the model knows
    them; of more than `most` columns, those that change most."""
    change, unit = along.rows[-1] - along.rows[0], ""
    if model.captured is not None:
        spread = model.features.unscaled(np.sqrt(model.captured.variance))
        change, unit = np.divide(change, spread, out=np.zeros(len(change)), where=spread > 0), " (in SD of the column)"
    shown = np.argsort(-np.abs(change), kind="stable")[:most][::-1]  # from the bottom up
    y, colors = np.arange(len(shown)), current_colors()
    axes.barh(y, change[shown], 0.6, color=[colors.accent if up else colors.second for up in change[shown] >= 0])
    axes.axvline(0, color=colors.ink, linewidth=0.8)
    axes.set_yticks(y, [f"column {j}" if names is None else names[j] for j in shown])
    axes.set(xlabel=f"change from {along.names[0]} to {along.names[-1]}{unit}")


def kind_for(model: Model, kind: str | None, shape: tuple[int, ...] | None) -> str:
    """This kind, or else the one that suits the columns. Raises SpecError if the columns do not allow it."""
    own = ColumnAxes.of(model)
    if kind is None:
        return "pictures" if shape else own.kind
    if kind not in KINDS:
        raise SpecError(f"kind={kind!r} is not one of {', '.join(KINDS)}")
    if kind == "pictures" and shape is None:
        raise SpecError("pictures need the shape of a row: pass image_shape, e.g. (28, 28)")
    if kind == "maps" and not own.grid:
        raise SpecError(
            "maps need columns that were stacked from two dims with numbers as coordinates: fit a DataArray such as "
            "field.stack(cell=['lat', 'lon'])"
        )
    return kind


def draw_walk(
    axes: Axes, model: Model, along: Walk, kind: str, shape: tuple[int, ...] | None, *, most: int = 12, cmap: Any = None
) -> None:
    """Draw pre-images as this kind, which suits the columns."""
    own = ColumnAxes.of(model)
    if kind == "pictures" and shape is not None:
        draw_pictures(axes, along, shape, cmap)
    elif kind == "maps":
        draw_maps(axes, along, own.grid, cmap)
    elif kind == "curves":
        draw_curves(axes, along, own.index if len(own.index) == 1 else {})
    else:
        draw_bars(axes, along, model, own.names, most=most)
