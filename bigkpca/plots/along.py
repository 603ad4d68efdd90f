"""Pre-images along the axis of a component: as pictures, curves, or changes of the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics.model import Model
from bigkpca.plots.pictures import PictureFrame
from bigkpca.plots.style import current_colors, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("pictures", "curves", "bars")
STEPS = (-2, -1, 0, 1, 2)  # standard deviations along a component; few scores are further out
_MOST_PIXELS = 512  # sides of a picture; larger ones are subsampled


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


def column_numbers(model: Model) -> Array | None:
    """The names of the columns as numbers (d,), such as wavelengths; None if they have none, or other names."""
    with suppress(ValueError):
        return None if model.names is None else np.array(model.names, dtype=float)
    return None


def draw_pictures(axes: Axes, along: Walk, shape: tuple[int, ...], cmap: Any = None) -> None:
    """Pictures side by side, of grey or colours; with a colour map, greys have its colours."""
    frame, k = PictureFrame.of(shape, along.rows), len(along.steps)
    sheet = frame.sheet(along.rows, cmap=cmap, max_side=_MOST_PIXELS)
    axes.imshow(sheet)
    width = (sheet.shape[1] + 1) / k
    axes.set_xticks(width * (np.arange(k) + 0.5) - 1, along.names)
    axes.set_yticks([])
    without_frame(axes)


def draw_curves(axes: Axes, along: Walk, x: Array | None) -> None:
    """A line for each pre-image, over the columns at x (d,), or else their positions; lines near the mean are faint."""
    colors, far = current_colors(), max(abs(step) for step in along.steps) or 1
    x = np.arange(along.rows.shape[1]) if x is None else x
    order = np.argsort(x, kind="stable")
    for step, label, row in zip(along.steps, along.names, along.rows, strict=True):
        color = colors.accent if step > 0 else colors.second if step < 0 else colors.ink
        axes.plot(x[order], row[order], color=color, alpha=0.3 + 0.7 * abs(step) / far if step else 1, label=label)
    axes.set(xlabel="column", ylabel="value")


def deviations(model: Model) -> Array | None:
    """Standard deviations (d,) of the columns, from the rows that the pass of the fit drew, or from those that the
    model keeps; None without any."""
    drawn = model.drawn
    if drawn is not None:
        X, shares = drawn.X.astype(np.float64), drawn.weights / drawn.probabilities
        mean = shares @ X / shares.sum()
        return np.asarray(np.sqrt(shares @ (X - mean) ** 2 / shares.sum()))
    own = model.features.landmarks_in_user_units()
    return None if own is None else np.asarray(own.std(axis=0, dtype=np.float64))


def draw_bars(axes: Axes, along: Walk, model: Model, most: int) -> None:
    """The change of each column from the first to the last pre-image, in its standard deviations if the model has rows;
    of more than `most` columns, those that change most."""
    change, unit = along.rows[-1] - along.rows[0], ""
    if (spread := deviations(model)) is not None:
        change, unit = np.divide(change, spread, out=np.zeros(len(change)), where=spread > 0), " (in SD of the column)"
    shown = np.argsort(-np.abs(change), kind="stable")[:most][::-1]  # from the bottom up
    y, colors = np.arange(len(shown)), current_colors()
    axes.barh(y, change[shown], 0.6, color=[colors.accent if up else colors.second for up in change[shown] >= 0])
    axes.axvline(0, color=colors.ink, linewidth=0.8)
    axes.set_yticks(y, [model.names[j] if model.names else f"column {j}" for j in shown])
    axes.set(xlabel=f"change from {along.names[0]} to {along.names[-1]}{unit}")


def kind_for(model: Model, kind: str | None, shape: tuple[int, ...] | None) -> str:
    """This kind, or else the one that suits the columns. Raises SpecError if the columns do not allow it."""
    if kind is None and shape:
        return "pictures"
    if kind is None:
        return "bars" if model.names is not None and column_numbers(model) is None else "curves"
    if kind not in KINDS:
        raise SpecError(f"kind={kind!r} is not one of {', '.join(KINDS)}")
    if kind == "pictures" and shape is None:
        raise SpecError("pictures need the shape of a row: pass image_shape, e.g. (28, 28)")
    return kind


def draw_walk(
    axes: Axes, model: Model, along: Walk, kind: str, shape: tuple[int, ...] | None, *, most: int = 12, cmap: Any = None
) -> None:
    """Draw pre-images as this kind, which suits the columns."""
    if kind == "pictures" and shape is not None:
        draw_pictures(axes, along, shape, cmap)
    elif kind == "curves":
        draw_curves(axes, along, column_numbers(model))
    else:
        draw_bars(axes, along, model, most)
