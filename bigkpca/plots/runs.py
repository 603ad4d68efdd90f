"""Figures of runs: drift over the runs of a job, and error against time over the fits of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.data.opening import path_of
from bigkpca.data.stores import AnyPath, store_of
from bigkpca.errors import SpecError
from bigkpca.numerics.methods import Exact
from bigkpca.plots.style import check_axes, ink, label_colors, legend, own_or_new, plain_ticks
from bigkpca.workflows.scheduled.records import ENDING, read_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMALLEST = 1e-6  # smaller errors are rounding, and are drawn at this value
_MARKERS = "osD^vPX*"


def drift(out: AnyPath, *, axes: Axes | None = None) -> Axes:
    """Draw the drift of the runs of a job, with its threshold, from their records: see `docs/scheduled.md`. Raises
    SpecError if no run has recorded drift.

    Parameters
    ----------
    out : path
        The output of the job.
    axes : matplotlib.axes.Axes, optional
    """
    check_axes(axes)
    found = runs_with_drift(out)
    if not found:
        raise SpecError(f"no run of {out} has recorded drift: pass the output of a job that ran again")
    runs, figures, thresholds = np.array([[each[key] for key in ("run", "figure", "threshold")] for each in found]).T
    above, top = figures > thresholds, max(1.25 * max(figures.max(), thresholds.max()), 0.1)
    axes = own_or_new(axes)
    axes.step(runs, thresholds, where="mid", color="C1", linestyle="--", label="threshold")
    axes.plot(runs, figures, "-o", color="C0", linewidth=1, markersize=4, label="drift")
    axes.plot(runs[above], figures[above], "o", color="C1", markersize=6)
    axes.set(xlabel="run", ylabel="drift", xlim=(runs[0] - 0.5, runs[-1] + 0.5), ylim=(-0.02 * top, top))
    axes.locator_params(axis="x", integer=True)
    legend(axes)
    return axes


def runs_with_drift(out: Any) -> list[dict[str, Any]]:
    """The records of the runs of a job that measured drift, oldest first; none for other output."""
    path = path_of(out)
    if path is None or not store_of(path).exists(path + ENDING):
        return []
    return [record | record["drift"] for record in read_records(path) if isinstance(record.get("drift"), dict)]


def comparison(found: Any, *, axes: Axes | None = None) -> Axes:
    """Draw the error of the scores of the fits of a comparison against their time.

    Marks are fits, and a line joins the medians over seeds of the sizes of a method. A dashed line is the time of the
    exact fit. Both scales are logarithmic.

    Parameters
    ----------
    found : Comparison
        What `bigkpca.compare` returned.
    axes : matplotlib.axes.Axes, optional
    """
    check_axes(axes)
    medians, exact = found.medians, Exact.name
    names = list(dict.fromkeys(each.method for each in medians if each.method != exact))
    axes = own_or_new(axes)
    for name, color, marker in zip(names, label_colors(len(names)), _MARKERS * len(names), strict=False):
        for fits, how in ((found.trials, {"linestyle": "none", "alpha": 0.4}), (medians, {"label": name})):
            own = [each for each in fits if each.method == name]
            y = 100 * np.maximum([each.score_error for each in own], _SMALLEST)
            axes.plot([each.seconds for each in own], y, color=color, marker=marker, markersize=5, **how)
    for each in medians:
        if each.method == exact:
            axes.axvline(each.seconds, color=ink(), linestyle="--", linewidth=1, label="exact")
    axes.set(xscale="log", yscale="log", xlabel="seconds of the fit", ylabel="score error, %")
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    legend(axes)
    return axes
