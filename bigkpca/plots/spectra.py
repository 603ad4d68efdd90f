"""The spectrum of a model with its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.model import Model
from bigkpca.plots.style import current_colors, plain_ticks, whole_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = {"solid": "o", "fair": "^", "doubtful": "X"}


def draw_spectrum(
    axes: Axes, model: Model, *, eigenvalues: bool = False, most: int | None = None, trust: bool = True
) -> None:
    """Share of variance, in percent, or eigenvalue of each component, on a logarithmic axis, as far as they are known
    with the proven range, the range with 95 % confidence and the estimate; with a mark for its trust."""
    colors, known, solution = current_colors(), model.certificate, model.solution
    field, scale = ("eigenvalue", 1) if eigenvalues else ("explained_variance_ratio", 100)
    values = scale * (solution.eigenvalues if eigenvalues else solution.explained_variance_ratio)[:most]
    x, least = np.arange(1, len(values) + 1), values[values > 0].min()

    def bound(end: str) -> Array | None:
        found = getattr(known, f"{field}_{end}")
        return None if found is None else scale * found[:most]

    low, high, likely, estimate = map(bound, ("lower", "upper", "likely_upper", "estimate"))
    axes.set_yscale("log")
    if low is not None and high is not None:
        bottom = np.maximum(low, least / 2)
        ranges = {"proven range": (high, 0.3)}
        if likely is not None:
            ranges[f"range with {known.confidence:.0%} confidence"] = likely, 0.6
        for label, (top, alpha) in ranges.items():
            axes.bar(x, top - bottom, 0.7, bottom, color=colors.accent, alpha=alpha, label=label)
    if estimate is not None:
        axes.plot(x, estimate, "_", color=colors.second, markersize=9, label="estimate of the exact value")
    label = "this model" if high is not None else "this model, proven at least" if low is not None else "estimate"
    marks = {label: ("o", np.ones(len(x), bool))}
    if trust and known.trust is not None:
        words = np.array(known.trust[:most])
        marks = {word: (mark, words == word) for word, mark in MARKS.items() if word in words}
    for word, (mark, here) in marks.items():
        axes.plot(x[here], values[here], mark, color=colors.ink, markersize=3.5, label=word)
    name = "eigenvalue" if eigenvalues else "share of variance, %"
    axes.use_sticky_edges = False  # a bar leaves no room above a dot on its edge
    axes.set(xlabel="component", ylabel=name, ylim=(0.7 * least, None))
    plain_ticks(axes.yaxis)
    whole_ticks(axes)
