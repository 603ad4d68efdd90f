"""Figures of rows: their scores, and how unusual they are. Each shows a bounded number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.data.opening import open_rows, path_of
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.data.stores import AnyPath, expanded, is_path
from bigkpca.errors import Array, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_rows
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import check_columns, score_rows, statistics_of_rows
from bigkpca.numerics.calibration import COMBINED, REASONS
from bigkpca.numerics.model import Model
from bigkpca.plots.style import PALETTE, check_axes, dots, ink, label_colors, legend, own_or_new, plain_ticks
from bigkpca.storage import groups
from bigkpca.storage.models import AnyModel, model_of
from bigkpca.workflows.flags import check_flag
from bigkpca.workflows.inputs import feature_store, names_of, open_labels, open_scores, unchanged

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_SCORES = 65_536  # rows shown, if their scores are given
_MOST_PROJECTED = 20_000  # rows shown, if they must be projected first
_MOST_PRODUCTS = 5e10  # rows x features x columns: a few seconds, even for models that keep all their rows
_MOST_BYTES = 128_000_000  # of rows in memory
_STRETCHES = 64  # of consecutive rows
_LEAST = 1e-3  # of the limit: smaller rarities are drawn there


def scores(
    model: AnyModel,
    data: Any = None,
    components: tuple[int, int] = (1, 2),
    *,
    scores: Any = None,
    color: Any = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw the scores of two components, a dot for each row, coloured by label or by value. Raises SpecError for rows
    that are gone, components that do not exist, and not one color for each row.

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
        Labels or values of the rows: in memory, a .npy file, a Zarr array, a dataset, or the name of an array beside
        the rows. Dates, and numbers with more than twelve distinct values, have a colour bar; of other labels, the
        rarest are "other" if there are more than twelve, and all have one colour if most rows have one of their own.
        Labels have the colours in which the style draws lines, if it has enough.
    axes : matplotlib.axes.Axes, optional

    Notes
    -----
    Draws at most 65,536 rows, in evenly spaced stretches, and at most 20,000 that it has to project first. Makes no
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
    shown = shown_scores(fitted, data, scores)
    pair = component_index(x, shown.scores.shape[1]), component_index(y, shown.scores.shape[1])
    values = None if color is None else values_of_rows(color, shown)
    axes = own_or_new(axes)
    draw_scores(axes, shown.scores, pair, values)
    return axes


def unusual(
    model: AnyModel,
    data: Any = None,
    *,
    scores: AnyPath | None = None,
    flag: float = 0.01,
    axes: Axes | None = None,
) -> Axes:
    """Draw how rare the residuals of rows and their distances from the mean are, with the limit above which rows are
    flagged.

    Both are -log p, where p is the share of calibration rows with at least this value. The rarer of the two is compared
    with the limit, and a flagged row has its colour. Raises SpecError for a model without calibration rows, a share
    that they cannot show, rows that are gone, and scores without flags.

    Parameters
    ----------
    model : Model, path of one, or fitted KernelPCA
        A model with calibration rows.
    data : path, NumPy, Dask or Zarr array, frame, or DataArray, (n, d), optional
        Rows to draw; by default the rows that were fitted, if they are on disk.
    scores : path, optional
        In place of `data`: a feature store with flags, or the output of a job with flags. Its share is then drawn.
    flag : float
        The share of ordinary rows that may be flagged.
    axes : matplotlib.axes.Axes, optional

    Notes
    -----
    Draws at most 65,536 rows of a feature store, or 20,000 other rows, in evenly spaced stretches. Source:
    `docs/numerics.md`, section 23.
    """
    check_axes(axes)
    fitted = model_of(model)
    calibration = fitted.check_calibrated()
    alpha: Any
    if scores is None:
        rows, alpha = rows_of(fitted, data), flag
        check_flag(flag, fitted)
        X = read_rows(rows, _numbers_to_project(rows, fitted), Engine())
        statistics = statistics_of_rows(ArrayRows(X), fitted, Engine()).T
        flags = calibration.flags(statistics, float(calibration.limits(alpha)[COMBINED]))
    else:
        if (place := feature_store(scores)) is None:
            raise SpecError("flags are in a feature store: pass the path that bigkpca transform --flag wrote")
        alpha = (groups.describe(place) or {}).get("flag")
        if alpha is None:
            raise SpecError(
                f"{place} has no flags: write them with bigkpca transform --flag 0.01 (flag=0.01 in Python)"
            )
        shown = shown_scores(fitted, data, scores)
        left, flags = (
            _stored_values(groups.open_values(place, name), shown.numbers) for name in ("residual", "flagged")
        )
        statistics = calibration.statistics(shown.scores, left)
    limit, parts = float(calibration.limits(alpha)[COMBINED]), calibration.rarities(statistics[:COMBINED])[:COMBINED]
    known, least = np.isfinite(parts).all(axis=0), _LEAST * limit
    at, flags = np.maximum(parts[::-1, known], least), flags[known]
    axes = own_or_new(axes)
    for code, color in enumerate(("0.5", "C1", "C0")):
        here = flags == code
        if here.any():
            word = f"flagged: {REASONS[code]}" if code else "not flagged"
            dots(axes, *at[:, here], color=color)
            axes.plot([], [], "o", color=color, label=f"{here.sum():,} {word}")
    axes.plot([least, limit, limit], [limit, limit, least], "--", color=ink(), label=f"limit for {100 * alpha:.3g}%")
    axes.set(xscale="log", yscale="log", xlabel="rarity of the distance", ylabel="rarity of the residual")
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
    legend(axes)
    return axes


@dataclass(frozen=True)
class ShownScores:
    """Scores (m, r), float64, of the rows with these ascending `numbers` (m,), of `total` rows; `source` is the path of
    the rows, if they have one."""

    total: int
    numbers: Array
    scores: Array
    source: str | None


def shown_scores(model: Model, data: Any = None, scores: Any = None, progress: Progress | None = None) -> ShownScores:
    """Some of these scores, or of the scores of these rows; by default of those that were fitted. Raises SpecError."""
    if data is not None and scores is not None:
        raise SpecError("data and scores exclude each other: pass rows, or their scores")
    engine, source = Engine(progress=progress or Progress()), model.provenance["identity"]["path"]
    if scores is not None:
        rows = open_scores(model, scores)
        if (place := feature_store(scores)) is not None:
            source = (groups.describe(place) or {})["input"]["path"]
        numbers = spread_row_numbers(rows.shape[0], min(_MOST_SCORES, _MOST_BYTES // (8 * rows.shape[1])))
        with unchanged(rows):
            found = read_rows(rows, numbers, engine)
    else:
        rows = rows_of(model, data)
        source = source if data is None else path_of(data)
        numbers = _numbers_to_project(rows, model)
        with unchanged(rows):
            found = score_rows(ArrayRows(read_rows(rows, numbers, engine)), model, engine)
    return ShownScores(rows.shape[0], numbers, found.astype(np.float64), source)


def rows_of(model: Model, data: Any = None) -> Rows:
    """These rows, or else those that were fitted. Raises SpecError if they do not fit the model, or are gone."""
    path = model.provenance["identity"]["path"]
    if data is None and path is None:
        raise SpecError("the rows were in memory and were not kept: pass rows (data) or their scores")
    rows = open_rows(path if data is None else data)
    check_columns(rows, model)
    return rows


def _numbers_to_project(rows: Rows, model: Model) -> Array:
    """The numbers of as many of these rows as are read and projected within seconds."""
    n, d = rows.shape
    most = min(_MOST_PROJECTED, max(1000, int(_MOST_PRODUCTS / (model.features.size * d))))
    return spread_row_numbers(n, min(most, max(1, _MOST_BYTES // (rows.dtype.itemsize * d))))


def spread_row_numbers(n: int, most: int) -> Array:
    """At most `most` of n row numbers, ascending: all, or 64 evenly spaced stretches, so that few chunks are read."""
    if n <= most:
        return np.arange(n)
    length = max(1, most // _STRETCHES)
    starts = np.linspace(0, n - length, min(_STRETCHES, most)).astype(np.intp)
    return np.unique(starts[:, None] + np.arange(length))


def component_index(number: Any, r: int) -> int:
    """The position of a component that is counted from 1. Raises SpecError if it does not exist."""
    if not isinstance(number, int | np.integer) or not 1 <= number <= r:
        raise SpecError(f"there is no component {number!r}: they are counted from 1, and the last one is {r}")
    return int(number) - 1


def values_of_rows(given: Any, shown: ShownScores) -> Array:
    """The labels or values (m,) of the rows that are shown: from an array of all rows in memory, from a path, or the
    name of an array beside the rows. Numbers of categories become their names. Raises SpecError if there are none, or
    not one for each row."""
    values, where, categories = (
        open_labels(expanded(given), shown.source) if is_path(given) else (np.asarray(given), "color", [])
    )
    # Rows may have been appended since, and values beside them; the earlier ones keep their numbers.
    grown = where == shown.source and values.shape > (shown.total,)
    if values.shape != (shown.total,) and not grown:
        held = f"{values.shape[0]:,} labels" if values.ndim == 1 else f"an array of shape {values.shape}"
        raise SpecError(f"{where} holds {held}, and there are {shown.total:,} rows: one label for each row is needed")
    found = _stored_values(values, shown.numbers)
    if categories:
        found = names_of(found, categories, where)
    if found.dtype.kind in "iufM" and not np.isfinite(found).any():
        raise SpecError(f"{where} has no finite value: pass numbers, labels, or nothing")
    return found.astype(str) if found.dtype.kind in "OT" else found


def _stored_values(array: Any, numbers: Array) -> Array:
    """Values (m,) of an array (n,) at ascending numbers: one read for each stretch of consecutive numbers."""
    stretches = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return np.concatenate([np.asarray(array[int(part[0]) : int(part[-1]) + 1]) for part in stretches])


def draw_scores(axes: Axes, Y: Array, pair: tuple[int, int], values: Array | None = None) -> None:
    """Scores Y (m, r) of two components, coloured by labels or values (m,), in an order in which none covers others."""
    from matplotlib.colors import to_rgba_array

    order = np.random.default_rng(0).permutation(len(Y))
    at = Y[order][:, pair].T
    axes.set(xlabel=f"component {pair[0] + 1}", ylabel=f"component {pair[1] + 1}")
    if values is None:
        dots(axes, *at, color="C0")
    elif values.dtype.kind in "iufM" and len(np.unique(values)) > len(PALETTE):
        _draw_valued(axes, at, values[order])
    else:
        codes, words = _coded(values)
        colors = label_colors(len(words))
        dots(axes, *at, color=to_rgba_array(colors)[codes[order]])
        for word, color in zip(words, colors, strict=False):
            axes.plot([], [], "o", color=color, label=word)
        legend(axes)


def _coded(values: Array) -> tuple[Array, list[str]]:
    """Codes (m,) of labels, and their names, of which the last stands for the rarest labels if there are too many. If
    most rows have labels of their own, such as identifiers, all have one code."""
    distinct, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    words, most = distinct.astype(str).tolist(), len(PALETTE)
    if len(words) <= most:
        return codes, words
    if len(words) > len(values) / 2:
        return np.zeros(len(values), np.intp), [f"{len(words):,} labels of {len(values):,} rows"]
    kept = np.sort(np.argsort(-counts, kind="stable")[: most - 1])
    renumbered = np.full(len(words), most - 1)
    renumbered[kept] = np.arange(most - 1)
    return renumbered[codes], [*(words[i] for i in kept), "other"]


def _draw_valued(axes: Axes, at: Array, values: Array) -> None:
    """Dots with a colour bar; those of rows without a value are grey."""
    import matplotlib.dates as dates

    ticks: dict[str, Any] = {}
    if values.dtype.kind == "M":
        of_dates: Any = dates  # which has no types
        values, locator = np.asarray(of_dates.date2num(values)), of_dates.AutoDateLocator()
        ticks = {"ticks": locator, "format": of_dates.ConciseDateFormatter(locator)}
    known = np.isfinite(values)
    if not known.all():
        dots(axes, *at[:, ~known], color="0.5", alpha=0.2)
    axes.figure.colorbar(dots(axes, *at[:, known], c=values[known]), ax=axes, **ticks)
