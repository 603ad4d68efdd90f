"""Unusual rows: their residual against their distance, with the limit above which they are flagged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.errors import Array, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import statistics_of_rows
from bigkpca.numerics.calibration import COMBINED, REASONS
from bigkpca.numerics.model import Model
from bigkpca.plots.clouds import MOST_DOTS, dots_of, scatter
from bigkpca.plots.rows import ShownScores, manifest_of, sampled_rows, spread_row_numbers, stored_values
from bigkpca.plots.style import current_colors, plain_ticks
from bigkpca.storage import groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAST = 1e-3  # of the limit: smaller values are drawn there


@dataclass(frozen=True)
class JudgedRows:
    """How rare the residuals and the distances of rows are, parts (2, m), their flags (m,), and the limit of the larger
    of the two for a share `alpha` of ordinary rows."""

    parts: Array
    flags: Array
    alpha: float
    limit: float


def judged_rows(rows: Rows, model: Model, alpha: float) -> JudgedRows:
    """As many of these rows as hold four million values, at most 20,000."""
    numbers = spread_row_numbers(rows.shape[0], MOST_DOTS)
    X = sampled_rows(rows, numbers, Progress())[1]
    calibration = model.check_calibrated()
    values = statistics_of_rows(ArrayRows(X, names=rows.names), model, Engine()).T
    limit = float(calibration.limits(alpha)[COMBINED])
    return JudgedRows(
        calibration.rarities(values[:COMBINED])[:COMBINED], calibration.flags(values, limit), alpha, limit
    )


def stored_judged_rows(path: str, shown: ShownScores, model: Model) -> JudgedRows:
    """The rows whose scores are shown, from their feature store. Raises SpecError if that has no flags."""
    alpha, calibration = manifest_of(path).get("flag"), model.check_calibrated()
    if alpha is None:
        raise SpecError(f"{path} has no flags: write them with bigkpca transform --flag 1% (flag=0.01 in Python)")
    left, flags = (stored_values(groups.open_values(path, name), shown.numbers) for name in ("residual", "flagged"))
    parts = calibration.rarities(calibration.statistics(shown.scores, left)[:COMBINED])[:COMBINED]
    return JudgedRows(parts, flags, alpha, float(calibration.limits(alpha)[COMBINED]))


def draw_unusual(axes: Axes, found: JudgedRows, *, most: int = MOST_DOTS) -> None:
    """How rare the residual of rows is against how rare their distance is, on logarithmic axes.

    Flagged rows are beyond the line where one of the two is the limit, in the colour of the rarer one. Of more than
    `most` rows, those of a hexagon share a dot.
    """
    colors, least = current_colors(), _LEAST * found.limit
    shown = np.isfinite(found.parts).all(axis=0)
    at, flags = np.maximum(found.parts[::-1, shown].T, least), found.flags[shown]
    for code, color in enumerate((colors.ink, colors.second, colors.accent)):
        here, alpha = np.log10(at[flags == code]), None if code else 0.35
        if len(here):
            dots = dots_of(axes, here, np.zeros(len(here)), most, np.mean)
            scatter(axes, replace(dots, at=10**dots.at), color, alpha)
            word = f"flagged: {REASONS[code]}" if code else "not flagged"
            axes.plot([], [], "o", color=color, alpha=alpha, label=f"{len(here):,} {word}")
    corner = [least, found.limit, found.limit]
    axes.plot(corner, corner[::-1], "--", color=colors.ink, label=f"limit for {100 * found.alpha:.3g}%")
    low, high = np.vstack([at, np.full((1, 2), found.limit)]).min(axis=0), at.max(axis=0, initial=found.limit)
    axes.set(xscale="log", yscale="log", xlabel="rarity of the distance", ylabel="rarity of the residual")
    axes.set(xlim=(low[0] / 1.3, 1.6 * high[0]), ylim=(low[1] / 1.3, 1.6 * high[1]))
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
