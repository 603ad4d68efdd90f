"""Figures of a report: spectrum, trust, learning curve, scatter plots of scores, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_NAMED: dict[str, Any] = {  # how names stand at points of a map
    "ha": "center",
    "va": "center",
    "fontweight": "bold",
    "annotation_clip": False,
    "bbox": {"boxstyle": "round,pad=0.15", "fc": PAPER, "ec": "none", "alpha": 0.85},
}
_FONT, _LINE = 11 * 100 / 72, 22.0  # pixels of a figure: size of its text, height of a line with its frame


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
    """Scatter plot of the scores Y (m, r) of two components, coloured by label; a density plot for many rows."""
    from matplotlib.lines import Line2D

    x, y = Y[:, pair[0]], Y[:, pair[1]]
    first, second = (number + 1 for number in pair)
    name = f"scores-{first}-{second}"
    spans = [f"component {n} runs from {v.min():.3g} to {v.max():.3g}" for n, v in ((first, x), (second, y))]
    alt = f"{len(x):,} rows: {', '.join(spans)}."
    codes = None if labels is None else np.array([labels.names.index(word) for word in labels.values])
    with axes_of(4.3) as (figure, axes):
        if len(x) > MAX_POINTS:
            _density(axes, x, y, codes)
        else:
            axes.scatter(x, y, s=10, color=ACCENT if codes is None else [PALETTE[code] for code in codes], linewidth=0)
        if labels is not None and codes is not None:
            columns = 5 if max(map(len, labels.names)) < 8 else 2
            # Matplotlib fills a legend column by column; readers go line by line.
            order = [i for column in range(columns) for i in range(column, len(labels.names), columns)]
            marks = [Line2D([], [], marker="o", linestyle="", color=PALETTE[i]) for i in order]
            axes.legend(marks, [labels.names[i] for i in order], loc="upper center", bbox_to_anchor=(0.5, -0.18),
                        ncols=columns, handletextpad=0.1)  # fmt: skip
            middles = {name: (x[codes == i], y[codes == i]) for i, name in enumerate(labels.names)}
            at = {word: (float(np.median(xs)), float(np.median(ys))) for word, (xs, ys) in middles.items()}
            _write_apart(axes, {word: at[word] for word in sorted(at, key=lambda word: -len(middles[word][0]))})
            alt += " Middles: " + "; ".join(
                f"{word} at {np.median(xs):.2g}, {np.median(ys):.2g}" for word, (xs, ys) in middles.items()
            ) + "."  # fmt: skip
        axes.set(xlabel=f"component {first}", ylabel=f"component {second}")
        return drawing(figure, name, alt)


def _write_apart(axes: Axes, words: Mapping[str, tuple[float, float]]) -> None:
    """Write words at these points of the data, or a little above or below, so that none covers another: the first ones
    have the first choice, and one without a free place nearby is left to the legend.
    """
    figure: Any = axes.figure
    figure.draw_without_rendering()  # lays the axes out, so that places on the page are known
    taken: list[tuple[float, float, float]] = []  # middle of a word on the page, and half its width
    for word, point in words.items():
        x, y = axes.transData.transform(point)
        half = 0.36 * _FONT * len(word)
        for step in (0, 1, -1, 2, -2, 3, -3):
            moved = y + step * _LINE
            if all(abs(x - other) > half + width or abs(moved - height) > _LINE for other, height, width in taken):
                taken.append((x, moved, half))
                shift = (0, step * _LINE * 72 / figure.dpi)
                axes.annotate(word, point, shift, textcoords="offset points", **_NAMED)
                break


def _density(axes: Axes, x: Array, y: Array, codes: Array | None) -> None:
    """Hexagonal bins, more opaque the more rows they hold, in the colour of their most frequent label."""
    from matplotlib.colors import to_rgba_array

    def most_frequent(codes: Any) -> float:
        return float(np.bincount(np.asarray(codes, dtype=np.intp)).argmax())

    bins = axes.hexbin(x, y, gridsize=45, mincnt=1, linewidths=0)
    counts = np.asarray(bins.get_array())
    colors = to_rgba_array([ACCENT] * len(counts))
    if codes is not None:
        most = axes.hexbin(x, y, C=codes, gridsize=45, reduce_C_function=most_frequent)
        colors = to_rgba_array([PALETTE[int(code)] for code in np.asarray(most.get_array())])
        most.remove()
    colors[:, 3] = 0.4 + 0.6 * np.log1p(counts) / np.log1p(counts.max())
    bins.set_array(None)
    bins.set_facecolor(colors.tolist())
    bins.set_edgecolor("none")


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
