"""Figures of a model: its spectrum, what its scores explain of columns, and what a component means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.data.rows import ArrayRows, take
from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import score_rows
from bigkpca.numerics.model import Model
from bigkpca.plots.rows import component_index, rows_of, spread_row_numbers
from bigkpca.plots.style import MOST_VECTORS, check_axes, dots, ink, legend, own_or_new, plain_ticks
from bigkpca.storage.models import AnyModel, model_of
from bigkpca.workflows.inputs import dataset_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = {"solid": "o", "fair": "^", "doubtful": "X"}
_STEPS = np.arange(-2, 3)  # standard deviations along a component; few scores are further out
_STRIP, _GAP = 2.0, 0.05  # height of pictures side by side in inches, and the gap between them in widths
_SEEN, _GRID = 2000, 100  # rows that contours show, and points along each axis


def spectrum(model: AnyModel, *, n_components: int | None = None, axes: Axes | None = None) -> Axes:
    """Draw the share of the variance of each component, with the bounds of its certificate.

    Dots are the components of this model, with a mark for the trust in each. As far as they are known, light bars show
    the range from what is proven to what holds with 95 % confidence, and dashes an estimate of the exact value. The
    scale of y is logarithmic.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    n_components : int, optional
        Number of leading components to draw; by default all.
    axes : matplotlib.axes.Axes, optional

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> axes = bigkpca.plots.spectrum(KernelPCA(3, random_state=0).fit(X))
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('component', 'share of variance, %')
    """
    check_axes(axes)
    fitted = model_of(model)
    known, solution = fitted.certificate, fitted.solution
    shares = known.shares(solution.total_variance)
    drawn = solution.explained_variance_ratio, shares.lower, shares.upper, shares.estimate
    values, low, high, estimate = (100 * each[:n_components] for each in drawn)
    x, least = np.arange(1, len(values) + 1), values[values > 0].min()
    axes = own_or_new(axes)
    axes.set_yscale("log")
    if known.confidence:
        bottom = np.maximum(low, least / 2)
        axes.bar(x, high - bottom, 0.7, bottom, color="C0", alpha=0.4, label=f"bounds ({known.confidence:.0%})")
    if not np.isnan(estimate).all():
        axes.plot(x, estimate, "_", color="C1", markersize=9, label="exact (estimate)")
    trust = np.array(known.trust[:n_components])
    for word, mark in _MARKS.items():
        if (here := trust == word).any():
            axes.plot(x[here], values[here], mark, color=ink(), markersize=3.5, label=word)
    axes.use_sticky_edges = False  # a bar leaves no room above a dot on its edge
    axes.set(xlabel="component", ylabel="share of variance, %", ylim=(0.7 * least, None))
    plain_ticks(axes.yaxis)
    axes.locator_params(axis="x", integer=True)
    legend(axes)
    return axes


def columns(model: AnyModel, *, n_columns: int = 20, axes: Axes | None = None) -> Axes:
    """Draw the share of the variance of each column that a linear function of all scores explains, as a bar, and the
    share that linear PCA with as many components explains, as a mark (see `Captured`). Raises SpecError for a model
    that does not know what its scores explain.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
        A model with calibration rows.
    n_columns : int
        Number of columns to draw at most: those with the largest shares.
    axes : matplotlib.axes.Axes, optional
    """
    check_axes(axes)
    fitted = model_of(model)
    if (found := fitted.captured) is None:
        raise SpecError(
            "what the scores of this model explain of its columns is not known: fit it with calibration_rows=2000"
        )
    places = fitted.variables or {name: slice(j, j + 1) for j, name in enumerate(_column_names(fitted))}
    shares = {"all columns": found.shares, **found.of_columns(places)}
    names, r = list(shares)[: n_columns + 1][::-1], found.components  # from the bottom up
    ours, pca = 100 * np.array([shares[name] for name in names]).T
    axes, y = own_or_new(axes), np.arange(len(names))
    axes.barh(y, ours, 0.6, color="C0", label=f"{r} scores" if r > 1 else "the score")
    label = f"linear PCA, {r} component{'s' * (r > 1)}"
    axes.plot(pca, y, "|", color=ink(), markersize=11, markeredgewidth=2, label=label)
    axes.set_yticks(y, names)
    axes.set(xlabel="explained share of the variance, %", xlim=(0, 104))
    legend(axes)
    return axes


def component(
    model: AnyModel,
    number: int = 1,
    *,
    image_shape: Sequence[int] | None = None,
    n_columns: int = 12,
    cmap: Any = "gray",
    axes: Axes | None = None,
) -> Axes:
    """Draw what a component means: pre-images of points along its axis, with scores of -2 to 2 standard deviations, and
    of 0 on all other components.

    They are pictures if the shape of a picture is known, and otherwise curves over the columns. If columns have names
    that are not numbers, bars show how much each changes from the first to the last pre-image, in the units of the
    model: standardized ones, if it standardizes.

    A pre-image that is marked as far corresponds to nothing near the data; the mean of the rows is shown. Raises
    SpecError for a model without pre-images, and for a component that does not exist.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
        A model with pre-images: see `docs/preimages.md`.
    number : int
        The component, counted from 1.
    image_shape : sequence of int, optional
        Shape of a row as a picture in pixels, (H, W) or (H, W, 3). By default the shape before ingest, if the dataset
        records one.
    n_columns : int
        Number of bars at most, for the columns that change most.
    cmap : str or Colormap
        Colours of pictures without colours.
    axes : matplotlib.axes.Axes, optional

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> axes = bigkpca.plots.component(KernelPCA(3, random_state=0).fit(X), 2)
    >>> axes.get_title(), len(axes.lines)
    ('component 2', 5)
    """
    check_axes(axes)
    fitted = model_of(model)
    j, shape = component_index(number, fitted.components), picture_shape(fitted, image_shape)
    n = fitted.sums.weight if fitted.sums else fitted.provenance["identity"]["shape"][0]
    Y = np.zeros((len(_STEPS), fitted.components))
    Y[:, j] = _STEPS * np.sqrt(fitted.solution.eigenvalues[j] / n)
    with single_threaded_blas:
        found = fitted.reconstructing(len(_STEPS))(Y, None)
    words = [f"{step:+} SD".replace("-", "−") if step else "0" for step in _STEPS]
    words = [f"{word} (far)" if lost else word for word, lost in zip(words, found.far, strict=True)]
    axes = own_or_new(axes, _STRIP if shape else None)
    if shape:
        _draw_pictures(axes, found.rows, words, shape, cmap)
    elif fitted.names is None or _numbers(fitted.names) is not None:
        _draw_curves(axes, found.rows, words, fitted)
    else:
        _draw_bars(axes, found.rows, words, fitted, n_columns)
    axes.set_title(f"component {number}")
    return axes


def contours(model: AnyModel, data: Any = None, number: int = 1, *, axes: Axes | None = None) -> Axes:
    """Draw the scores of a component over the plane of rows with two columns, as contours, with at most 2000 rows as
    dots. Along the thick line the score is 0. Raises SpecError for a model of rows with other than two columns, and for
    a component that does not exist.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
        A model of rows with two columns.
    data : path, NumPy, Dask or Zarr array, or frame, (n, 2), optional
        Rows to draw; by default the rows that were fitted, if they are on disk.
    number : int
        The component, counted from 1.
    axes : matplotlib.axes.Axes, optional
    """
    check_axes(axes)
    fitted = model_of(model)
    j = component_index(number, fitted.components)
    if fitted.columns != 2 or not fitted.features.kernel.on_vectors:
        raise SpecError(f"contours need rows of two columns, and this model takes {fitted.columns}: draw its scores")
    rows = rows_of(fitted, data)
    X = take(rows, spread_row_numbers(rows.shape[0], _SEEN))
    margin = 0.1 * np.ptp(X, axis=0)
    x, y = np.linspace(X.min(axis=0) - margin, X.max(axis=0) + margin, _GRID).T
    plane = ArrayRows(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    values = score_rows(plane, fitted, Engine())[:, j].reshape(_GRID, _GRID)
    axes, most = own_or_new(axes), np.abs(values).max()
    drawn = axes.contourf(x, y, values, 16, cmap="RdBu_r", vmin=-most, vmax=most)
    drawn.set_rasterized(True)  # its areas would take a lot of a vector graphic
    axes.contour(x, y, values, [0], colors="black", linewidths=1.6)
    dots(axes, *X.T, color="black")
    axes.figure.colorbar(drawn, ax=axes, label="score")
    axes.set(title=f"component {number}", **dict(zip(("xlabel", "ylabel"), _column_names(fitted), strict=True)))
    return axes


def picture_shape(model: Model, given: Sequence[int] | None) -> tuple[int, ...] | None:
    """This shape of a row as a picture, (H, W) or (H, W, 3), or else the one before ingest, if the dataset of the fit
    records it. Raises SpecError for a shape that does not fit."""
    if given is None:
        recorded = dataset_at(model.provenance.get("identity", {}).get("path")) or {}
        shape = tuple(recorded.get("row_shape") or ())
        return shape if _is_picture(shape) and math.prod(shape) == model.columns else None
    shape = tuple(given)
    if not _is_picture(shape):
        raise SpecError(f"image shape {shape}: give height and width, e.g. 28,28, and 3 after them for colours")
    if math.prod(shape) != model.columns:
        sides = " × ".join(map(str, shape))
        raise SpecError(f"an image shape of {sides} makes {math.prod(shape)} values, and rows have {model.columns}")
    return shape


def _is_picture(shape: Sequence[int]) -> bool:
    return len(shape) in (2, 3) and min(shape) >= 1 and tuple(shape[2:]) in ((), (1,), (3,))


def _numbers(values: Any) -> Array | None:
    """These values as finite numbers (k,), such as wavelengths that name columns; None for anything else."""
    with suppress(ValueError, TypeError):
        found = np.array(values, dtype=np.float64)
        return found if found.ndim == 1 and np.isfinite(found).all() else None
    return None


def _column_names(model: Model) -> Sequence[str]:
    return model.names or [f"column {j}" for j in range(model.columns)]


def _draw_pictures(axes: Axes, rows: Array, words: Sequence[str], shape: tuple[int, ...], cmap: Any) -> None:
    """Pictures side by side; black and white are the extremes of all of them, but for 0.1 % of the values."""
    black, white = np.percentile(rows, [0.1, 99.9])
    scaled = np.clip((rows - black) / (white - black or 1), 0, 1)
    height = shape[0] / shape[1]  # in widths
    for i, row in enumerate(scaled):
        picture, left = row.reshape(shape), i * (1 + _GAP)
        axes.imshow(picture, cmap=cmap, vmin=0, vmax=1, extent=(left, left + 1, 0, height), interpolation="nearest")
    axes.set(xlim=(0, len(rows) * (1 + _GAP) - _GAP), ylim=(0, height), yticks=[], frame_on=False)
    axes.set_xticks(np.arange(len(rows)) * (1 + _GAP) + 0.5, words)
    axes.tick_params(length=0)
    axes.grid(visible=False)


def _draw_curves(axes: Axes, rows: Array, words: Sequence[str], model: Model) -> None:
    """A line for each pre-image, over the columns or the numbers that name them; lines near the mean are faint."""
    x = None if model.names is None else _numbers(model.names)
    x = np.arange(rows.shape[1]) if x is None else x
    order = np.argsort(x, kind="stable")
    for step, word, row in zip(_STEPS, words, rows, strict=True):
        color, alpha = (("C0" if step > 0 else "C1"), 0.3 + 0.35 * abs(step)) if step else (ink(), 1)
        axes.plot(x[order], row[order], color=color, alpha=alpha, label=word, rasterized=len(x) > MOST_VECTORS)
    axes.set(xlabel="column", ylabel="value")
    legend(axes)


def _draw_bars(axes: Axes, rows: Array, words: Sequence[str], model: Model, most: int) -> None:
    """The change of each column from the first to the last pre-image; of more than `most`, those that change most."""
    first, last = model.features.shifted(rows[[0, -1]])
    change, names = (last - first).astype(np.float64), _column_names(model)
    shown = np.argsort(-np.abs(change), kind="stable")[:most][::-1]  # from the bottom up
    axes.barh(range(len(shown)), change[shown], 0.6, color=["C0" if up else "C1" for up in change[shown] >= 0])
    axes.axvline(0, color=ink(), linewidth=0.8)
    axes.set_yticks(range(len(shown)), [names[j] for j in shown])
    axes.set(xlabel=f"change from {words[0]} to {words[-1]}")
