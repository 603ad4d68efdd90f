"""Flags of unusual rows beside their scores: what is stored, and whether chance explains how many rows are flagged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.data.blocks import split
from bigkpca.errors import Array, CorruptionError, SpecError
from bigkpca.numerics.calibration import COMBINED, REASONS, Calibration
from bigkpca.numerics.model import Model
from bigkpca.storage import groups, records
from bigkpca.storage.groups import NewArray

# The flags are those of the CF conventions, which xarray users know.
_FLAGS = {"flag_values": [0, 1, 2], "flag_meanings": "not_flagged residual distance"}
_STATISTIC = {"long_name": "how unusual the row is: the rarer of its residual and distance"}
ARRAYS = {
    "statistic": NewArray(np.float64, attributes=_STATISTIC),
    "flagged": NewArray(np.uint8, attributes={"long_name": "why the row is unusual", **_FLAGS}),
}
_CERTAIN = 0.9999  # probability of the range that chance explains, so that many runs raise no false warning
_SHOWN = 10  # rows that are most unusual


def check_flag(flag: float, model: Model) -> None:
    """Raise SpecError unless the model can flag rows so that this share of ordinary rows is flagged at most."""
    if not isinstance(flag, int | float):
        raise SpecError(f"flag={flag!r} is not a share of rows, such as 0.01")
    model.check_calibrated().exceeding(flag, "flag")


def flags_of(model: Model, scores: Array, residuals: Array, alpha: float) -> dict[str, Array]:
    """The `ARRAYS` of rows with these scores (n, r) and residuals (n,)."""
    calibration = model.check_calibrated()
    values = calibration.statistics(scores, residuals)
    limit = float(calibration.limits(alpha)[COMBINED])
    return {"statistic": values[COMBINED], "flagged": calibration.flags(values, limit)}


@dataclass(frozen=True)
class FlaggedShare:
    """How many rows are flagged, of how many, where at most a share `alpha` of ordinary rows is."""

    alpha: float
    rows: int
    count: int

    @property
    def share(self) -> float:
        """The share of the rows that is flagged."""
        return self.count / self.rows

    def range(self, calibration: Calibration) -> tuple[float, float]:
        """The range of the share of rows like those of the fit; chance leads out of it with a probability of 0.01 %."""
        return calibration.range(self.alpha, self.rows, _CERTAIN)

    def compared(self, calibration: Calibration) -> str:
        """The share in words, the expected one, what chance explains, and whether this is more."""
        most = self.range(calibration)[1]
        share, alpha, chance = (f"{100 * each:.3g}%" for each in (self.share, self.alpha, most))
        more = ": some rows are unlike those of the fit" if self.share > most else ""
        return (
            f"{self.count:,} of {self.rows:,} rows flagged ({share}); expected at most {alpha}, or up to {chance} by "
            f"chance{more}"
        )

    def warning(self, calibration: Calibration) -> str | None:
        """A warning if more rows are flagged than chance explains."""
        return self.compared(calibration) if self.share > self.range(calibration)[1] else None


@dataclass(frozen=True)
class FlaggedRows:
    """The flagged rows of a feature store: how many, and the numbers (k,) of the most unusual ones, most unusual first,
    with their combined statistic (k,) and reasons (k,)."""

    share: FlaggedShare
    numbers: Array
    statistic: Array
    reasons: tuple[str, ...]


def flagged_rows(path: str, most: int = _SHOWN) -> FlaggedRows | None:
    """The flagged rows of a finished feature store, read block by block; None if it has no flags."""
    about = groups.describe(path) or {}
    if about.get("flag") is None:
        return None
    records.check(about, records.OUTPUT, path)
    statistic, flagged = (groups.open_values(path, name) for name in ARRAYS)
    count, top = 0, np.empty((3, 0))  # numbers, statistic and flags
    for block in split(about["rows"], about["block_rows"]):
        values, flags = statistic[block.start : block.stop], flagged[block.start : block.stop]
        at = np.flatnonzero(flags)
        count += len(at)
        top = np.hstack([top, [block.start + at, values[at], flags[at]]])
        top = top[:, np.argsort(-top[1], kind="stable")[:most]]
    if top[2].max(initial=0) >= len(REASONS):
        raise CorruptionError(f"{path}: its array flagged has other values than its attribute flag_values")
    reasons = tuple(REASONS[code] for code in top[2].astype(int))
    return FlaggedRows(FlaggedShare(about["flag"], about["rows"], count), top[0].astype(int), top[1], reasons)
