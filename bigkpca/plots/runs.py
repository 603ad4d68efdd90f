"""Drift over the runs of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from bigkpca.data.opening import path_of
from bigkpca.data.stores import store_of
from bigkpca.plots.style import current_colors, whole_ticks
from bigkpca.storage.runs import ENDING, read_records

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class DriftOfRun:
    """How far the new rows of a scheduled run were from those of the fit."""

    run: int
    finished: str  # UTC, ISO 8601
    figure: float
    threshold: float
    outside: int
    rows: int


def drift_of_runs(out: Any) -> tuple[DriftOfRun, ...] | None:
    """The drift of each run of the job with this output, oldest first; None if it is not the output of a job."""
    path = None if out is None else path_of(out)
    if path is None or not store_of(path).exists(path + ENDING):
        return None
    names = [each.name for each in fields(DriftOfRun)]
    found = [{**record, **record["drift"]} for record in read_records(path) if isinstance(record.get("drift"), dict)]
    return tuple(DriftOfRun(*(each[name] for name in names)) for each in found)


def draw_drift(axes: Axes, runs: Sequence[DriftOfRun]) -> None:
    """Drift of each run with its threshold; runs above it stand out."""
    colors = current_colors()
    numbers, figures, thresholds = zip(*((each.run, each.figure, each.threshold) for each in runs), strict=True)
    above = [each for each in runs if each.figure > each.threshold]
    top = max(1.15 * max(*figures, *thresholds), 0.1)
    axes.step(numbers, thresholds, where="mid", color=colors.second, linestyle="--", label="threshold")
    axes.plot(numbers, figures, "-o", color=colors.accent, linewidth=1, markersize=4, label="drift")
    axes.plot([each.run for each in above], [each.figure for each in above], "o", color=colors.second, markersize=6)
    axes.set(xlabel="run", ylabel="drift", xlim=(numbers[0] - 0.5, numbers[-1] + 0.5), ylim=(-0.02 * top, 1.1 * top))
    whole_ticks(axes)
