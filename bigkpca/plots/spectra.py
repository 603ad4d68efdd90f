"""The spectrum of a model with its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigkpca.numerics.model import Model
from bigkpca.plots.style import current_colors, plain_ticks, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = {"solid": "o", "fair": "^", "doubtful": "X"}


def draw_spectrum(
    axes: Axes, model: Model, *, eigenvalues: bool = False, most: int | None = None, trust: bool = True
) -> None:
    """Share of variance, in percent, or eigenvalue of each component, on a logarithmic axis, as far as they are known
    with the range from what is proven to 95 % confidence, and the estimate; with a mark for its trust."""
    colors, known, solution = current_colors(), model.certificate, model.solution
    shares, scale = known.shares(solution.total_variance), 1 if eigenvalues else 100
    values = scale * (solution.eigenvalues if eigenvalues else solution.explained_variance_ratio)[:most]
    bounds = (known.lower, known.upper, known.estimate) if eigenvalues else shares
    low, high, estimate = (scale * each[:most] for each in bounds)
    x, least = np.arange(1, len(values) + 1), values[values > 0].min()
    axes.set_yscale("log")
    if known.confidence:
        bottom = np.maximum(low, least / 2)
        label = f"from what is proven to {known.confidence:.0%} confidence"
        axes.bar(x, high - bottom, 0.7, bottom, color=colors.accent, alpha=0.4, label=label)
    if not np.isnan(estimate).all():
        axes.plot(x, estimate, "_", color=colors.second, markersize=9, label="estimate of the exact value")
    marks = {"this model": ("o", np.ones(len(x), bool))}
    if trust:
        words = np.array(known.trust[:most])
        marks = {word: (mark, words == word) for word, mark in MARKS.items() if word in words}
    for word, (mark, here) in marks.items():
        axes.plot(x[here], values[here], mark, color=colors.ink, markersize=3.5, label=word)
    name = "eigenvalue" if eigenvalues else "share of variance, %"
    axes.use_sticky_edges = False  # a bar leaves no room above a dot on its edge
    axes.set(xlabel="component", ylabel=name, ylim=(0.7 * least, None))
    plain_ticks(axes.yaxis)
    whole_ticks(axes)
