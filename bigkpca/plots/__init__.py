"""Figures of models, drawn by Matplotlib on axes that you pass, or on a new figure.

All functions take a fitted KernelPCA, a Model, or the path of a model (`drift` takes the output of a job), and return
the axes. They draw in the current style of Matplotlib; `bigkpca.report` draws the same figures in its own style.
Matplotlib is imported when a function is called: pip install 'bigkpca[report]'.

style       colours of the current style, axes and ticks
rows        the rows that are shown: their scores, labels and values
spectra, clouds, along, tables, runs, outliers    the figures, each a function that draws on axes
pictures    rows as pictures
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.data.opening import open_rows, path_of
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath
from bigkpca.errors import SpecError
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import check_columns
from bigkpca.numerics.model import Model
from bigkpca.plots.along import STEPS, draw_walk, kind_for, walk_along
from bigkpca.plots.clouds import draw_scores
from bigkpca.plots.outliers import draw_unusual, judged_rows, stored_judged_rows
from bigkpca.plots.pictures import image_shape as checked_shape
from bigkpca.plots.pictures import recorded_shape
from bigkpca.plots.rows import (
    MAX_SCORES,
    coloring,
    input_rows,
    project_rows,
    read_scores,
    sampled_rows,
    source_of,
    values_of_rows,
)
from bigkpca.plots.runs import draw_drift, drift_of_runs
from bigkpca.plots.spectra import draw_spectrum
from bigkpca.plots.style import check_axes, legend_above, legend_beside, own_or_new
from bigkpca.plots.tables import correlations, draw_captured, draw_correlations, shown_columns
from bigkpca.storage.models import AnyModel, model_of
from bigkpca.workflows.flags import checked_flag
from bigkpca.workflows.inputs import dataset_at, feature_store, open_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STRIP = 2.0  # inches: height of a figure of pictures side by side

__all__ = ["columns", "component", "drift", "scores", "spectrum", "unusual"]


def spectrum(
    model: AnyModel, *, eigenvalues: bool = False, n_components: int | None = None, axes: Axes | None = None
) -> Axes:
    """Draw the share of the variance of each component, with the bounds of its certificate.

    Dots are the components of this model, with a mark for the trust in each. As far as they are known, light bars show
    the range from what is proven to what holds with 95 % confidence, and dashes an estimate of the exact value.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    eigenvalues : bool
        Draw the eigenvalues themselves instead of shares in percent.
    n_components : int, optional
        Number of leading components to draw; by default all.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. The scale of y is logarithmic.

    Raises
    ------
    SpecError
        No model, n_components below 1, no Matplotlib, or `axes` is not one Axes.
    CorruptionError
        The model does not match its digest.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> axes = bigkpca.plots.spectrum(KernelPCA(3, random_state=0).fit(X))
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('component', 'share of variance, %')
    """
    check_axes(axes)
    fitted = model_of(model)
    most = None if n_components is None else _count("n_components", n_components)
    axes = own_or_new(axes)
    draw_spectrum(axes, fitted, eigenvalues=eigenvalues, most=most)
    axes.legend()
    return axes


def scores(
    model: AnyModel,
    data: Any = None,
    components: tuple[int, int] = (1, 2),
    *,
    scores: Any = None,
    color: Any = None,
    cmap: Any = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw the scores of two components, coloured by label or by value.

    Labels are named at the centres of their dots. Up to 20,000 rows have a dot each. Above, a dot stands for all rows
    of a hexagon: the larger, the more, in the colour of their most frequent label or of their mean value.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d), optional
        Rows whose scores to draw; by default the rows that were fitted, if they are on disk.
    components : two ints
        Components along x and y, counted from 1.
    scores : path or array of shape (n, r), optional
        Scores in place of `data`: a feature store written by `transform`, the output of a job, or an array.
    color : array of shape (n,), path, or name, optional
        Labels or values of the rows: in memory, or as `labels` of `bigkpca.report`. Dates, and numbers with more than
        twelve distinct values, have a colour bar. Other values are labels, of which the rarest are grouped as "other"
        if there are more than twelve.
    cmap : str or Colormap, optional
        Colours of values; by default those of the current style. Labels have the colours in which the style draws
        lines, if it has enough.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    SpecError
        Rows or scores that do not fit the model, rows that are gone, components that do not exist, not one color for
        each row, no Matplotlib, or `axes` is not one Axes.
    DataError, CorruptionError, IncompleteError
        As in `transform`.

    Notes
    -----
    Draws at most 65,536 rows, in evenly spaced stretches, and fewer wide rows that it has to project first. Makes no
    pass over the data.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> kpca = KernelPCA(3, random_state=0).fit(X)
    >>> axes = bigkpca.plots.scores(kpca, X, (2, 3), color=X[:, 0] > 0)
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('component 2', 'component 3')
    """
    check_axes(axes)
    fitted = model_of(model)
    try:
        x, y = components
    except (TypeError, ValueError):
        raise SpecError(f"components={components!r}: give two numbers, e.g. (1, 2)") from None
    if data is not None and scores is not None:
        raise SpecError("data and scores exclude each other: pass rows, or their scores")
    if scores is not None:
        shown = read_scores(open_scores(fitted, scores), fitted, Progress())
    else:
        shown = project_rows(_rows_of(data, fitted), fitted, Progress(), MAX_SCORES)
    pair = _index(x, shown.scores.shape[1]), _index(y, shown.scores.shape[1])
    colored = None
    if color is not None:
        source = source_of(fitted, scores)["path"] if data is None else path_of(data)
        colored = coloring(values_of_rows(color, source, shown.total, shown.numbers))
    axes = own_or_new(axes)
    draw_scores(axes, shown.scores, pair, colored, legend=legend_beside, cmap=cmap)
    return axes


def component(
    model: AnyModel,
    number: int = 1,
    *,
    kind: str | None = None,
    image_shape: Sequence[int] | None = None,
    deviations: Sequence[float] = STEPS,
    n_columns: int = 12,
    cmap: Any = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw what a component means: pre-images of points along its axis, with scores of 0 on all other components.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
        A model with pre-images: see `docs/preimages.md`.
    number : int
        The component, counted from 1.
    kind : "pictures", "curves" or "bars", optional
        By default "pictures" if the shape of a picture is known; "bars" for columns with names that are not numbers;
        and otherwise "curves". "bars" show how much each column changes from the first to the last pre-image: in its
        standard deviations, as far as the model knows them.
    image_shape : sequence of int, optional
        Shape of a row as a picture in pixels, (H, W) or (H, W, 3). By default the shape before ingest, if the dataset
        records one.
    deviations : sequence of float
        Points on the axis, in standard deviations of the scores.
    n_columns : int
        Number of columns that "bars" show at most: those that change most.
    cmap : str or Colormap, optional
        Colours of pictures, by default grey.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    SpecError
        A model without pre-images, a component that does not exist, a kind that does not suit the columns, fewer than
        two deviations, n_columns below 1, no Matplotlib, or `axes` is not one Axes.
    CorruptionError
        The model does not match its digest.

    Notes
    -----
    Pre-images that are marked as far do not correspond to anything near the data; the mean of the rows is shown.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> axes = bigkpca.plots.component(KernelPCA(3, random_state=0).fit(X), 2)
    >>> axes.get_title(), len(axes.lines)
    ('component 2', 5)
    """
    check_axes(axes)
    fitted, steps = model_of(model), _numbers(deviations)
    if len(steps) < 2:
        raise SpecError(f"deviations={deviations!r}: give at least two numbers, e.g. (-2, 0, 2)")
    j, most = _index(number, fitted.components), _count("n_columns", n_columns)
    shape = checked_shape(image_shape, fitted.columns)
    if shape is None:
        shape = recorded_shape(_fitted_path(fitted), fitted.columns)
    kind = kind_for(fitted, kind, shape)
    along = walk_along(fitted, j, steps)
    axes = own_or_new(axes, _STRIP if kind == "pictures" else None)
    draw_walk(axes, fitted, along, kind, shape, most=most, cmap=cmap)
    if kind == "curves":
        legend_beside(axes)
    axes.set_title(f"component {number}")
    return axes


def columns(
    model: AnyModel,
    data: Any = None,
    *,
    n_components: int = 3,
    n_columns: int = 20,
    cmap: Any = "PuOr",
    axes: Axes | None = None,
) -> Axes:
    """Draw how columns and scores go together: what scores explain of each column or, with rows, how columns go with
    each component.

    Without `data`, bars show the share of the variance of each column that a linear function of all scores explains,
    and marks the share that linear PCA with as many components explains (see `Captured`). With `data`, a table shows
    the correlation of each column with the scores of the leading components. Of a column of categories it shows the
    root of the share of the variance of the scores that lies between categories.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d), optional
        Rows from which correlations are computed.
    n_components : int
        With `data`: number of leading components.
    n_columns : int
        Number of columns to draw at most: those with the largest shares, or the largest correlations.
    cmap : str or Colormap
        With `data`: colours of correlations from -1 to 1.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    SpecError
        Without `data`, a model that does not know what its scores explain; rows that do not fit the model, numbers
        below 1, no Matplotlib, or `axes` is not one Axes.
    DataError, CorruptionError, IncompleteError
        As in `transform`.

    Notes
    -----
    Reads at most 20,000 rows of `data`, in evenly spaced stretches.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> kpca = KernelPCA(3, random_state=0).fit(X)
    >>> bigkpca.plots.columns(kpca, X).get_xlabel()
    'component'
    """
    check_axes(axes)
    fitted, most, r = model_of(model), _count("n_columns", n_columns), _count("n_components", n_components)
    if data is None:
        if fitted.captured is None:
            raise SpecError(
                "what the scores of this model explain of its columns is not known: pass rows as data, or fit it with "
                "calibration_rows=2000"
            )
        own = fitted.names or range(fitted.columns)
        places = fitted.variables or {_column_name(name): slice(j, j + 1) for j, name in enumerate(own)}
        axes = own_or_new(axes)
        draw_captured(axes, fitted.captured, places, most=most)
        legend_above(axes)
        return axes
    rows = _rows_of(data, fitted)
    shown = project_rows(rows, fitted, Progress())
    at, X = sampled_rows(rows, shown.numbers, Progress())
    given = rows.names or fitted.names or [_column_name(j) for j in range(fitted.columns)]
    names, values = correlations(X, shown.scores[at, :r], shown_columns(given, dataset_at(path_of(data)), rows.where))
    if not names:
        raise SpecError(f"no column of {rows.where} has numbers or categories, with which scores can be correlated")
    axes = own_or_new(axes)
    draw_correlations(axes, names, values, range(1, values.shape[1] + 1), most=most, cmap=cmap)
    axes.set_title("correlation of columns with scores")
    return axes


def drift(out: AnyPath, *, axes: Axes | None = None) -> Axes:
    """Draw the drift of the runs of a job, with its threshold.

    Parameters
    ----------
    out : path
        The output of the job.
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    SpecError
        There is no output of a job, no run of it has recorded drift, no Matplotlib, or `axes` is not one Axes.

    Notes
    -----
    Reads the records of the runs only. `docs/scheduled.md` explains drift.
    """
    check_axes(axes)
    runs = drift_of_runs(out)
    if runs is None:
        raise SpecError(f"{out} is not the output of a job: pass the path that bigkpca run writes")
    if not runs:
        raise SpecError(f"no run of {out} has recorded drift yet: run the job on new rows first (bigkpca run)")
    axes = own_or_new(axes)
    draw_drift(axes, runs)
    axes.legend()
    return axes


def unusual(
    model: AnyModel,
    data: Any = None,
    *,
    scores: AnyPath | None = None,
    flag: float | str = 0.01,
    axes: Axes | None = None,
) -> Axes:
    """Draw how rare the residuals of rows and their distances from the mean are, with the limit above which rows are
    flagged.

    Both are -log p, where p is the share of calibration rows with at least this value. The rarer of the two is compared
    with the limit, and a flagged row has its colour. Of more than 20,000 rows, those of a hexagon share a dot.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
        A model with calibration rows.
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d), optional
        Rows to draw; by default the rows that were fitted, if they are on disk.
    scores : path, optional
        In place of `data`: a feature store with flags, or the output of a job with flags. Its share is then drawn.
    flag : float or str
        The share of ordinary rows that may be flagged, such as 0.01 or "1%".
    axes : matplotlib.axes.Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. Both scales are logarithmic.

    Raises
    ------
    SpecError
        A model without calibration rows, a share that they cannot show, rows that do not fit the model or are gone,
        scores without flags, no Matplotlib, or `axes` is not one Axes.
    DataError, CorruptionError, IncompleteError
        As in `transform`.

    Notes
    -----
    Draws at most 65,536 rows of a feature store, or as many other rows as hold four million values, at most 20,000, in
    evenly spaced stretches. Source: `docs/numerics.md`, section 23.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(1000, 4))
    >>> kpca = KernelPCA(3, sigma="3 median", calibration_rows=200, random_state=0).fit(X)
    >>> bigkpca.plots.unusual(kpca, X).get_xlabel()
    'rarity of the distance'
    """
    check_axes(axes)
    fitted = model_of(model)
    if data is not None and scores is not None:
        raise SpecError("data and scores exclude each other: pass rows, or their scores")
    if scores is not None:
        rows = open_scores(fitted, scores)
        place = feature_store(scores)
        if place is None:
            raise SpecError("flags are in a feature store: pass the path that bigkpca transform --flag wrote")
        found = stored_judged_rows(place, read_scores(rows, fitted, Progress()), fitted)
    else:
        found = judged_rows(_rows_of(data, fitted), fitted, checked_flag(flag, fitted))
    axes = own_or_new(axes)
    draw_unusual(axes, found)
    legend_above(axes)
    return axes


def _rows_of(data: Any, model: Model) -> Rows:
    """These rows, or else those that were fitted. Raises SpecError if they do not fit the model, or are gone."""
    if data is None:
        kept, notes = input_rows(source_of(model, None), model)
        if kept is None:
            raise SpecError(f"{notes[0]}: pass rows (data) or their scores")
        return kept
    rows = open_rows(data)
    check_columns(rows, model)
    return rows


def _index(number: Any, r: int) -> int:
    """The position of a component that is counted from 1. Raises SpecError if it does not exist."""
    if not isinstance(number, int | np.integer) or not 1 <= number <= r:
        raise SpecError(f"there is no component {number!r}: they are counted from 1, and the last one is {r}")
    return int(number) - 1


def _count(name: str, value: Any) -> int:
    """A number of things to draw. Raises SpecError if it is below 1."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise SpecError(f"{name}={value!r}: give a number of at least 1")
    return int(value)


def _numbers(values: Any) -> list[float]:
    """These finite numbers; none if there are other values."""
    try:
        found = [float(value) for value in values]
    except (TypeError, ValueError):
        return []
    return found if np.isfinite(found).all() else []


def _column_name(name: Any) -> str:
    return name if isinstance(name, str) else f"column {name}"


def _fitted_path(model: Model) -> str | None:
    """The path of the rows that were fitted; None if they were in memory."""
    path: str | None = model.provenance.get("identity", {}).get("path")
    return path
