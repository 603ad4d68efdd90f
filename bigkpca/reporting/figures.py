"""Figures of a report: spectrum, trust, learning curve, scatter plots of scores, histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.certificates import FAIR, MODERATE, SMALL, SOLID
from bigkpca.numerics.display import share_at_most
from bigkpca.numerics.model import Model
from bigkpca.reporting.drawing import (
    ACCENT,
    INK,
    PALETTE,
    PAPER,
    SECOND,
    Drawing,
    axes_of,
    drawing,
    legend_above,
    plain_ticks,
    whole_ticks,
)
from bigkpca.reporting.report_data import DriftOfRun, RowLabels
from bigkpca.storage.describe import whole_gram

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKS = {"solid": "o", "fair": "^", "doubtful": "X"}
MAX_POINTS = 2000  # points of a scatter plot; more become a density plot
_MAX_COMPONENTS = 60
_BINS = (45, 23)  # hexagonal bins of a scatter plot across and up
_FONT, _STEP = 11 * 100 / 72, 8  # pixels: size of the text of a figure, and between places that a name may have


def spectrum(model: Model) -> Drawing:
    """Share of variance of each component, with its proven bounds."""
    certificate = model.certificate
    shares = 100 * model.solution.explained_variance_ratio[:_MAX_COMPONENTS]
    x = np.arange(1, len(shares) + 1)
    low, high = certificate.explained_variance_ratio_lower, certificate.explained_variance_ratio_upper
    alt = f"Share of variance of {len(x)} components, from {shares[0]:.3g}% down to {shares[-1]:.3g}%."
    with axes_of() as (figure, axes):
        axes.set_yscale("log")
        if low is not None and high is not None:
            bottom, top = 100 * low[: len(x)], 100 * high[: len(x)]
            floor = shares[shares > 0].min() / 2
            axes.bar(x, top - np.maximum(bottom, floor), 0.7, np.maximum(bottom, floor), color=ACCENT, alpha=0.3,
                     label="proven range")  # fmt: skip
            alt += f" Proven: the first is between {bottom[0]:.3g}% and {top[0]:.3g}%."
            if certificate.explained_variance_ratio_likely_upper is not None:
                likely = 100 * certificate.explained_variance_ratio_likely_upper[: len(x)]
                axes.bar(x, likely - np.maximum(bottom, floor), 0.7, np.maximum(bottom, floor), color=ACCENT, alpha=0.6,
                         label=f"range with {certificate.confidence:.0%} confidence")  # fmt: skip
                alt += f" With {certificate.confidence:.0%} confidence it is at most {likely[0]:.3g}%."
        label = "this model" if high is not None else "this model, proven at least" if low is not None else "estimate"
        axes.plot(x, shares, "o", color=INK, markersize=3.5, label=label)
        axes.set(xlabel="component", ylabel="share of variance, %", ylim=(0.7 * shares[shares > 0].min(), None))
        plain_ticks(axes.yaxis)
        whole_ticks(axes)
        legend_above(axes)
        return drawing(figure, "spectrum", alt)


def drift(runs: Sequence[DriftOfRun]) -> Drawing:
    """Drift of each run of a job, with its threshold."""
    numbers, figures = [each.run for each in runs], [each.figure for each in runs]
    above = [each for each in runs if each.figure > each.threshold]
    alt = f"Drift of {len(runs)} runs, at most {max(figures):.3f}; {len(above)} above the threshold."
    thresholds = [each.threshold for each in runs]
    top = max(1.15 * max(*figures, *thresholds), 0.1)
    with axes_of() as (figure, axes):
        axes.step(numbers, thresholds, where="mid", color=SECOND, linestyle="--", label="threshold")
        axes.plot(numbers, figures, "-o", color=ACCENT, linewidth=1, markersize=4, label="drift")
        axes.plot([each.run for each in above], [each.figure for each in above], "o", color=SECOND, markersize=6)
        axes.set(xlabel="run", ylabel="drift", xlim=(numbers[0] - 0.5, numbers[-1] + 0.5))
        axes.set(ylim=(-0.02 * top, 1.1 * top))
        whole_ticks(axes)
        legend_above(axes)
        return drawing(figure, "drift", alt)


def cumulative(model: Model) -> Drawing:
    """Cumulative share of variance of the leading components."""
    total = 100 * np.cumsum(model.solution.explained_variance_ratio)
    half = int(np.searchsorted(total, total[-1] / 2)) + 1
    alt = f"All {len(total)} components hold {total[-1]:.1f}% of the variance; the first {half} hold half of that."
    with axes_of() as (figure, axes):
        x = np.arange(len(total) + 1)
        axes.fill_between(x, np.concatenate([[0], total]), step=None, color=ACCENT, alpha=0.3, linewidth=0)
        axes.plot(x, np.concatenate([[0], total]), color=ACCENT)
        whole_ticks(axes)
        axes.annotate(f"{total[-1]:.1f}%", (x[-1], total[-1]), (-4, 6), textcoords="offset points", ha="right")
        axes.set(
            xlabel="components", ylabel="variance together, %", xlim=(0, x[-1]), ylim=(0, min(112, 1.2 * total[-1]))
        )
        return drawing(figure, "cumulative", alt)


def trust(model: Model) -> Drawing | None:
    """Residual or instability of each component, marked by its trust; None if not known, or if the model is exact."""
    certificate = model.certificate
    words = certificate.trust
    if words is None or whole_gram(model):
        return None
    if certificate.residuals is not None:
        values, borders, what = certificate.residuals, (SMALL, MODERATE), "relative residual (proven)"
    elif certificate.stability is None:
        return None
    else:
        values, borders, what = 1 - certificate.stability, (1 - SOLID, 1 - FAIR), "1 − stability (estimated)"
    values = np.maximum(values, 1e-6)
    x = np.arange(1, len(values) + 1)
    counts = [f"{words.count(word)} {word}" for word in _MARKS]
    with axes_of() as (figure, axes):
        axes.set_yscale("log")
        for word, color in zip(_MARKS, (ACCENT, INK, SECOND), strict=True):
            here = np.array([one == word for one in words])
            if here.any():
                axes.plot(x[here], values[here], _MARKS[word], color=color, markersize=5, label=word)
        for border in borders:
            axes.axhline(border, color=INK, linewidth=0.8, linestyle="--")
        whole_ticks(axes)
        axes.set(xlabel="component", ylabel=what, ylim=(None, 2 * max(values.max(), borders[1])))
        legend_above(axes)
        span = f"{what} between {values.min():.2g} and {values.max():.2g}"
        alt = f"Trust of {len(x)} components: {', '.join(counts)}; {span}."
        return drawing(figure, "trust", alt)


def learning_curve(model: Model) -> Drawing | None:
    """Share of variance out of reach of an eighth, a quarter, half and all of the landmarks; None if not known."""
    curve = model.certificate.learning_curve
    if curve is None:
        return None
    numbers, errors = curve[:, 0].astype(int), 100 * curve[:, 1]
    proven = model.certificate.relative_trace_error
    shown = [f"{error:.1f}%" for error in errors]
    if proven is not None:  # the bound exceeds the last point of the curve by the rounding error
        errors[-1], shown[-1] = 100 * proven, share_at_most(proven, 1)
    pairs = ", ".join(f"{share} with {number:,}" for number, share in zip(numbers, shown, strict=True))
    with axes_of() as (figure, axes):
        axes.set_xscale("log", base=2)
        axes.plot(numbers, errors, "-", color=ACCENT)
        axes.plot(numbers[:-1], errors[:-1], "o", color=ACCENT, markerfacecolor=PAPER, label="with fewer landmarks")
        axes.plot(numbers[-1:], errors[-1:], "o", color=ACCENT, label="this model, proven")
        for number, error, share in zip(numbers, errors, shown, strict=True):
            axes.annotate(share, (number, error), (4, 5), textcoords="offset points")
        axes.set(xlabel="landmarks", ylabel="variance out of reach, %", ylim=(0, 1.15 * errors.max() or 1))
        axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
        axes.minorticks_off()
        legend_above(axes)
        return drawing(figure, "learning-curve", f"Variance out of reach of the landmarks: {pairs}.")


def scores(Y: Array, pair: tuple[int, int], labels: RowLabels | None) -> Drawing:
    """Scatter plot of the scores Y (m, r) of two components, coloured by label; many rows share dots."""
    from matplotlib.lines import Line2D

    x, y = Y[:, pair[0]], Y[:, pair[1]]
    first, second = (number + 1 for number in pair)
    name = f"scores-{first}-{second}"
    spans = [f"component {n} runs from {v.min():.3g} to {v.max():.3g}" for n, v in ((first, x), (second, y))]
    alt = f"{len(x):,} rows: {', '.join(spans)}."
    words = ("",) if labels is None else labels.names
    codes = np.zeros(len(x), int) if labels is None else np.array([words.index(word) for word in labels.values])
    with axes_of(4.3) as (figure, axes):
        dots = _Dots(Y[:, pair], codes, np.full(len(x), 3.2)) if len(x) <= MAX_POINTS else _binned(axes, x, y, codes)
        for width in np.unique(dots.widths):
            here = dots.widths == width
            colors = ACCENT if labels is None else [PALETTE[code] for code in dots.codes[here]]
            axes.scatter(dots.at[here, 0], dots.at[here, 1], s=width**2, color=colors, linewidth=0)
        axes.set(xlabel=f"component {first}", ylabel=f"component {second}")
        if labels is not None:
            columns = max(1, min(6, int(330 / (26 + 6.5 * max(map(len, words))))))  # as many as fit, in points
            # Matplotlib fills a legend column by column; readers go line by line.
            order = [i for column in range(columns) for i in range(column, len(words), columns)]
            marks = [Line2D([], [], marker="o", linestyle="", color=PALETTE[i]) for i in order]
            axes.legend(marks, [words[i] for i in order], loc="upper center", bbox_to_anchor=(0.5, -0.18),
                        ncols=columns, handletextpad=0.1, columnspacing=1.2)  # fmt: skip
            rows = np.array([np.median(Y[codes == i][:, pair], axis=0) for i in range(len(words))])
            own = [dots.at[dots.codes == i] for i in range(len(words))]
            middles = [np.median(each, axis=0) if len(each) else row for each, row in zip(own, rows, strict=True)]
            _write_names(axes, words, np.array(middles), dots)
            medians = "; ".join(f"{word} at {a:.2g}, {b:.2g}" for word, (a, b) in zip(words, rows, strict=True))
            alt += f" Medians: {medians}."
        return drawing(figure, name, alt)


@dataclass(frozen=True)
class _Dots:
    """Dots of a scatter plot: where they are (k, 2), the codes of their labels (k,), and widths (k,) in points."""

    at: Array
    codes: Array
    widths: Array


def _binned(axes: Axes, x: Array, y: Array, codes: Array) -> _Dots:
    """A dot for each hexagonal bin of rows, of one of five widths by their number, with their most frequent code."""

    def summed(codes: Any) -> float:
        return float(len(PALETTE) * len(codes) + np.bincount(np.asarray(codes, dtype=np.intp)).argmax())

    bins = axes.hexbin(x, y, C=codes, gridsize=_BINS, reduce_C_function=summed)
    number, found = np.divmod(np.asarray(bins.get_array()).astype(int), len(PALETTE))
    at = np.asarray(bins.get_offsets())
    bins.remove()
    steps = np.ceil(5 * np.log1p(number) / np.log1p(number.max()))
    return _Dots(at, found, 2.4 + 0.9 * steps)


def _write_names(axes: Axes, words: Sequence[str], middles: Array, dots: _Dots) -> None:
    """Write words at the middles (k, 2) of their dots.

    A word that would cover another word there, or mostly dots of other labels, moves to the nearest place where at most
    a quarter of the dots that it covers are of other labels. A line then leads from its middle to it. Where there is no
    such place, it is in the legend only.
    """
    figure: Any = axes.figure
    figure.draw_without_rendering()  # lays the axes out, so that places on the page are known
    at, frame = axes.transData.transform(dots.at), axes.get_window_extent()
    radius = dots.widths[:, None] / 2 * figure.dpi / 72
    sides = [np.arange(low, high, _STEP) for low, high in (frame.intervalx, frame.intervaly)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    taken: list[tuple[Array, Array]] = []  # middles and half sizes of words

    def free(place: Array, half: Array, code: int, least: float) -> bool:
        if any((np.abs(other - place) <= half + size).all() for other, size in taken):
            return False
        below = dots.codes[(np.abs(at - place) < half + radius).all(axis=1)]
        return bool(np.count_nonzero(below == code) >= least * len(below))

    for code in np.argsort(-np.bincount(dots.codes, minlength=len(words)), kind="stable"):
        middle, half = axes.transData.transform(middles[code]), np.array([0.36 * _FONT * len(words[code]) + 5, 12.0])
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
            axes.plot(*middles[code], "o", color=INK, markersize=3)
            line = {"arrowstyle": "-", "color": INK, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
        name = axes.annotate(words[code], middles[code], (place - middle) * 72 / figure.dpi, textcoords="offset points",
                             ha="center", va="center", fontweight="bold", annotation_clip=False, arrowprops=line,
                             bbox={"boxstyle": "round,pad=0.15", "fc": PAPER, "ec": PALETTE[code]})  # fmt: skip
        name.set_in_layout(False)  # so that the axes stay where they are


def histogram(values: Array, name: str, xlabel: str) -> Drawing:
    """Histogram of values (m,), with their median and 99th percentile."""
    median, rare = np.quantile(values, [0.5, 0.99])
    with axes_of(2.8) as (figure, axes):
        axes.hist(values, bins=60, histtype="stepfilled", color=ACCENT, alpha=0.6)
        for value, word in ((median, "median"), (rare, "99 %")):
            axes.axvline(value, color=INK, linewidth=0.8, linestyle="--")
            axes.annotate(word, (value, 1), (3, -10), xycoords=("data", "axes fraction"), textcoords="offset points")
        axes.set(xlabel=xlabel, ylabel="rows")
        spread = f"median {median:.3g}, one in a hundred above {rare:.3g}, largest {values.max():.3g}"
        return drawing(figure, name, f"Histogram of {xlabel} over {len(values):,} rows: {spread}.")
