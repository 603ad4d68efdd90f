"""Plot error against time, one line for each method variant, with the spread over seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from bigkpca.comparing.grid import MethodVariant, all_variants
from bigkpca.comparing.summary import TrialGroup
from bigkpca.errors import Array
from bigkpca.reporting.drawing import INK, PALETTE, figure_of, standalone

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS = {"score_error": "error of the scores", "eigenvalue_error": "mean error of the eigenvalues"}
_MARKERS = "osD^vPX*"
_MIN_ERROR = 1e-6  # smaller errors are rounding, and are plotted as this


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def comparison_svg(groups: Sequence[TrialGroup], data: str, reference: str) -> str:
    """An SVG file of errors of scores and of eigenvalues against seconds of the fit, on logarithmic axes.

    Each point is the median over seeds at one size; bars reach from the least to the largest value.
    """
    by_variant: dict[MethodVariant, list[TrialGroup]] = {}
    for group in groups:
        if not group.exact:
            by_variant.setdefault(group.variant, []).append(group)
    exact_seconds = next((group.median("seconds") for group in groups if group.exact), None)
    sizes = next(([f"{group.size:,}" for group in variant_groups] for variant_groups in by_variant.values()), [])
    with figure_of(10, 5.2) as figure:
        for axes, (measure, title) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
            for variant in sorted(by_variant, key=all_variants().index):
                _draw(axes, variant, by_variant[variant], measure)
            if exact_seconds is not None:
                axes.axvline(exact_seconds, color=INK, linestyle="--", linewidth=1, label="exact")
            axes.set(xscale="log", yscale="log", xlabel="seconds of the fit", title=title)
            _readable_ticks(axes)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
        points = f"{data}, sizes {', '.join(sizes)} along each line"
        figure.suptitle(f"{points}; errors against {re.split(r' [(]|, |: ', reference)[0]}", fontsize=11)
        return standalone(figure, "compare", _alt_text(by_variant, exact_seconds))


def _draw(axes: Axes, variant: MethodVariant, variant_groups: Sequence[TrialGroup], measure: str) -> None:
    """Plot one variant, from small sizes to large, with bars from the least to the largest value over seeds."""
    number = all_variants().index(variant)
    x = [group.median("seconds") for group in variant_groups]
    y, low, high = _spreads(variant_groups, measure)
    bars = [(y - low).tolist(), (high - y).tolist()]  # lists, as Matplotlib 3.10 looks for numbers in rows of arrays
    axes.errorbar(x, y, bars, color=PALETTE[number], marker=_MARKERS[number % len(_MARKERS)],
                  markersize=5, linewidth=1.5, elinewidth=1, label=str(variant))  # fmt: skip


def _spreads(variant_groups: Sequence[TrialGroup], measure: str) -> tuple[Array, Array, Array]:
    """Median, least and largest value at each size, (sizes,) each."""
    spreads = [group.spreads[measure] for group in variant_groups]
    found = np.array([(s.median, s.least, s.most) if s else (np.nan,) * 3 for s in spreads])
    return tuple(np.maximum(found, _MIN_ERROR).T)


def _readable_ticks(axes: Axes) -> None:
    """Label logarithmic axes with plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, shown in ((axes.xaxis, "{:g}"), (axes.yaxis, "{:g}%")):
        scale = 100 if axis is axes.yaxis else 1
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _, text=shown, by=scale: text.format(by * value)))
        axis.set_minor_formatter(NullFormatter())


def _alt_text(by_variant: dict[MethodVariant, list[TrialGroup]], exact_seconds: float | None) -> str:
    """The text alternative of the figure: error and time of each variant at its largest size."""
    last = [variant_groups[-1] for variant_groups in by_variant.values()]
    told = [f"{group} {group.median('score_error'):.2%} in {group.median('seconds'):.2g} s" for group in last]
    of_exact = "" if exact_seconds is None else f" The exact method took {exact_seconds:.3g} s."
    return f"Error of the scores and of the eigenvalues against time. Scores: {'; '.join(told)}.{of_exact}"
