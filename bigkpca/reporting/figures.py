"""Figures of a report, with their text alternatives: those of `bigkpca.plots`, and some more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.calibration import REASONS
from bigkpca.numerics.certificate import FAIR, MODERATE, SMALL, SOLID
from bigkpca.numerics.model import Model
from bigkpca.plots.clouds import draw_scores
from bigkpca.plots.outliers import JudgedRows, draw_unusual
from bigkpca.plots.rows import RowLabels
from bigkpca.plots.runs import DriftOfRun, draw_drift
from bigkpca.plots.spectra import MARKS, draw_spectrum
from bigkpca.plots.style import legend_above, whole_ticks
from bigkpca.reporting.drawing import ACCENT, INK, SECOND, Drawing, axes_of, drawing, legend_below
from bigkpca.storage.describe import whole_gram

MAX_POINTS = 2000  # points of a scatter plot; more become a density plot
_MAX_COMPONENTS = 60


def spectrum(model: Model) -> Drawing:
    """Share of variance of each component, with its bounds."""
    known = model.certificate
    shares = 100 * model.solution.explained_variance_ratio[:_MAX_COMPONENTS]
    alt = f"Share of variance of {len(shares)} components, from {shares[0]:.3g}% down to {shares[-1]:.3g}%."
    if known.confidence:
        bounds = known.shares(model.solution.total_variance)
        low, high = 100 * bounds.lower[0], 100 * bounds.upper[0]
        alt += (
            f" The first is at least {low:.3g}% (proven) and at most {high:.3g}% ({known.confidence:.0%} confidence)."
        )
    with axes_of() as (figure, axes):
        draw_spectrum(axes, model, most=_MAX_COMPONENTS, trust=False)
        legend_above(axes)
        return drawing(figure, "spectrum", alt)


def drift(runs: Sequence[DriftOfRun]) -> Drawing:
    """Drift of each run of a job, with its threshold."""
    above = sum(each.figure > each.threshold for each in runs)
    most = max(each.figure for each in runs)
    with axes_of() as (figure, axes):
        draw_drift(axes, runs)
        legend_above(axes)
        return drawing(figure, "drift", f"Drift of {len(runs)} runs, at most {most:.3f}; {above} above the threshold.")


def unusual(found: JudgedRows) -> Drawing:
    """Residual of rows against their distance, with the limit."""
    counts = np.bincount(found.flags, minlength=len(REASONS))
    reasons = ", ".join(f"{count:,} for their {word}" for count, word in zip(counts[1:], REASONS[1:], strict=True))
    with axes_of(4.3) as (figure, axes):
        draw_unusual(axes, found, most=MAX_POINTS)
        legend_above(axes)
        return drawing(figure, "unusual", f"Residual against distance of {len(found.flags):,} rows; flagged {reasons}.")


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
    """Residual, or sine of the angle with the exact component, of each component, marked by its trust; None if the
    model is exact."""
    certificate = model.certificate
    words = certificate.trust
    if whole_gram(model):
        return None
    if certificate.of_products:
        values, borders, what = certificate.residuals, (SMALL, MODERATE), "relative residual (proven)"
    else:
        values, borders, what = 1 - np.nan_to_num(certificate.cosine), (1 - SOLID, 1 - FAIR), "1 − cosine (estimated)"
    values = np.maximum(values, 1e-6)
    x = np.arange(1, len(values) + 1)
    counts = [f"{words.count(word)} {word}" for word in MARKS]
    with axes_of() as (figure, axes):
        axes.set_yscale("log")
        for word, color in zip(MARKS, (ACCENT, INK, SECOND), strict=True):
            here = np.array([one == word for one in words])
            if here.any():
                axes.plot(x[here], values[here], MARKS[word], color=color, markersize=5, label=word)
        for border in borders:
            axes.axhline(border, color=INK, linewidth=0.8, linestyle="--")
        whole_ticks(axes)
        axes.set(xlabel="component", ylabel=what, ylim=(None, 2 * max(values.max(), borders[1])))
        legend_above(axes)
        span = f"{what} between {values.min():.2g} and {values.max():.2g}"
        alt = f"Trust of {len(x)} components: {', '.join(counts)}; {span}."
        return drawing(figure, "trust", alt)


def scores(Y: Array, pair: tuple[int, int], labels: RowLabels | None) -> Drawing:
    """Scatter plot of the scores Y (m, r) of two components, coloured by label; many rows share dots."""
    at, (first, second) = Y[:, pair], (number + 1 for number in pair)
    spans = [
        f"component {n} runs from {v.min():.3g} to {v.max():.3g}" for n, v in zip((first, second), at.T, strict=True)
    ]
    alt = f"{len(Y):,} rows: {', '.join(spans)}."
    if labels is not None:
        rows = [np.median(at[labels.values == word], axis=0) for word in labels.names]
        medians = "; ".join(f"{word} at {a:.2g}, {b:.2g}" for word, (a, b) in zip(labels.names, rows, strict=True))
        alt += f" Medians: {medians}."
    with axes_of(4.3) as (figure, axes):
        draw_scores(axes, Y, pair, labels, legend=legend_below, most=MAX_POINTS)
        return drawing(figure, f"scores-{first}-{second}", alt)


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
