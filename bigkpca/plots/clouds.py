"""Scatter plots of scores: a dot for each row, or for all rows of a hexagon, coloured by label or by value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.plots.rows import RowLabels
from bigkpca.plots.style import current_colors, label_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DOTS = 20_000  # rows with a dot each; of more rows, those of a hexagon share one
_SMALL, _LARGE = 1.2, 3.2  # points: width of the dots of very many rows, and of few
_FEW = 2000
_HEXAGON = 6.0  # points from one hexagon to the next
_STEP = 8  # hundredths of an inch between places that a name may have


@dataclass(frozen=True)
class Dots:
    """Dots of a scatter plot: where they are (k, 2), the codes of their labels or their values (k,), and widths (k,) in
    points."""

    at: Array
    codes: Array
    widths: Array


def draw_scores(
    axes: Axes,
    Y: Array,
    pair: tuple[int, int],
    color: RowLabels | Array | None = None,
    *,
    legend: Callable[[Axes], None],
    most: int = MOST_DOTS,
    cmap: Any = None,
) -> None:
    """Scores Y (m, r) of two components, with the names of labels at their centres, or a colour bar for values.

    A dot stands for a row or, above `most` rows, for all rows of a hexagon: the larger, the more, in the colour of
    their most frequent label or their mean value. `legend` draws the legend of labels: before their names, which depend
    on the layout.
    """
    at = Y[:, pair]
    axes.set(xlabel=f"component {pair[0] + 1}", ylabel=f"component {pair[1] + 1}")
    if isinstance(color, RowLabels):
        _draw_labelled(axes, at, color, most, legend)
    elif color is not None:
        _draw_valued(axes, at, color, most, cmap)
    else:
        accent = current_colors().accent
        scatter(axes, dots_of(axes, at, np.zeros(len(at)), most, np.mean), accent)


def _draw_labelled(axes: Axes, at: Array, labels: RowLabels, most: int, legend: Callable[[Axes], None]) -> None:
    words, colors = labels.names, label_colors(len(labels.names))
    codes = np.array([words.index(word) for word in labels.values])
    dots = dots_of(axes, at, codes, most, lambda found: np.bincount(found).argmax())
    scatter(axes, dots, lambda found: [colors[code] for code in found])
    for word, color in zip(words, colors, strict=False):
        axes.plot([], [], "o", color=color, label=word)
    legend(axes)
    own = [dots.at[dots.codes == i] for i in range(len(words))]
    middles = [np.median(each if len(each) else at[codes == i], axis=0) for i, each in enumerate(own)]
    write_names(axes, words, np.array(middles), dots)


def _draw_valued(axes: Axes, at: Array, values: Array, most: int, cmap: Any) -> None:
    """Rows without a value are faint."""
    import matplotlib.dates as dates
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    ticks: dict[str, Any] = {}
    if values.dtype.kind == "M":
        of_dates: Any = dates  # which has no types
        values, locator = np.asarray(of_dates.date2num(values)), of_dates.AutoDateLocator()
        ticks = {"ticks": locator, "format": of_dates.ConciseDateFormatter(locator)}
    known = np.isfinite(values)
    if not known.all():
        ink = current_colors().ink
        scatter(axes, dots_of(axes, at[~known], np.zeros((~known).sum()), most, np.mean), ink, alpha=0.2)
    shades = ScalarMappable(Normalize(values[known].min(), values[known].max()), cmap)
    scatter(axes, dots_of(axes, at[known], values[known], most, np.mean), shades.to_rgba)
    axes.figure.colorbar(shades, ax=axes, **ticks)


def scatter(axes: Axes, dots: Dots, paint: Any, alpha: float | None = None) -> None:
    """Draw the dots, in one colour, or in the colours that a function `paint` gives their codes."""
    for width in np.unique(dots.widths):
        here = dots.widths == width
        color = paint(dots.codes[here]) if callable(paint) else paint
        axes.scatter(dots.at[here, 0], dots.at[here, 1], s=width**2, color=color, alpha=alpha, linewidth=0)


def dots_of(axes: Axes, at: Array, codes: Array, most: int, reduce: Callable[[Array], Any]) -> Dots:
    """A dot for each row, or above `most` rows for each hexagon, with the reduced codes of its rows."""
    if len(at) <= most:
        width = np.clip(_LARGE * (_FEW / len(at)) ** 0.25, _SMALL, _LARGE)
        return Dots(at, codes, np.full(len(at), width))
    groups: list[Array] = []

    def group(members: Any) -> float:
        groups.append(np.asarray(members, np.intp))
        return len(groups)

    box = axes.get_window_extent()
    inches = np.array([box.width, box.height]) / axes.figure.dpi
    across, up = np.maximum(np.round(inches * 72 / _HEXAGON / [1, np.sqrt(3)]).astype(int), 1).tolist()
    bins = axes.hexbin(at[:, 0], at[:, 1], np.arange(len(at)), gridsize=(across, up), reduce_C_function=group)
    middles = np.asarray(bins.get_offsets())
    bins.remove()
    numbers = np.array([len(members) for members in groups])
    steps = np.ceil(5 * np.sqrt(np.minimum(numbers / np.quantile(numbers, 0.98), 1)))  # ink is in proportion to rows
    return Dots(middles, np.array([reduce(codes[members]) for members in groups]), 1.2 + 1.1 * steps)


def write_names(axes: Axes, words: Sequence[str], middles: Array, dots: Dots) -> None:
    """Write words at the middles (k, 2) of their dots.

    A word that would cover another word there, or mostly dots of other labels, moves to the nearest place where at most
    a quarter of the dots that it covers are of other labels. A line then leads from its middle to it. Where there is no
    such place, it is in the legend only.
    """
    from matplotlib import rcParams

    figure: Any = axes.get_figure(root=True)
    figure.draw_without_rendering()  # lays the axes out, so that places on the page are known
    colors, borders = current_colors(), label_colors(len(words))
    letter = rcParams["font.size"] * figure.dpi / 72  # pixels
    at, frame = axes.transData.transform(dots.at), axes.get_window_extent()
    radius = dots.widths[:, None] / 2 * figure.dpi / 72
    sides = [np.arange(low, high, _STEP * figure.dpi / 100) for low, high in (frame.intervalx, frame.intervaly)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    taken: list[tuple[Array, Array]] = []  # middles and half sizes of words

    def free(place: Array, half: Array, code: int, least: float) -> bool:
        if any((np.abs(other - place) <= half + size).all() for other, size in taken):
            return False
        below = dots.codes[(np.abs(at - place) < half + radius).all(axis=1)]
        return bool(np.count_nonzero(below == code) >= least * len(below))

    for code in np.argsort(-np.bincount(dots.codes, minlength=len(words)), kind="stable"):
        middle = axes.transData.transform(middles[code])
        half = np.array([0.36 * letter * len(words[code]) + 0.05 * figure.dpi, 12 / 11 * 0.72 * letter])
        inside = grid[((grid > frame.min + half) & (grid < frame.max - half)).all(axis=1)]
        order = np.argsort(((inside - middle) ** 2).sum(axis=1), kind="stable")
        nearest = (place for place in inside[order] if free(place, half, code, 0.75))
        places = [middle] if free(middle, half, code, 0.5) else list(islice(nearest, 1))
        if not places:
            continue
        place = places[0]
        taken.append((place, half))
        line = None
        if place is not middle:
            axes.plot(*middles[code], "o", color=colors.ink, markersize=3)
            line = {"arrowstyle": "-", "color": colors.ink, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
        name = axes.annotate(words[code], middles[code], (place - middle) * 72 / figure.dpi, textcoords="offset points",
                             ha="center", va="center", fontweight="bold", annotation_clip=False, arrowprops=line,
                             bbox={"boxstyle": "round,pad=0.15", "fc": colors.paper, "ec": borders[code]})  # fmt: skip
        name.set_in_layout(False)  # so that the axes stay where they are
