"""Medians over seeds, and one sentence of advice with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import median

from bigkpca.comparing.grid import Way, ways
from bigkpca.comparing.trial import Trial
from bigkpca.numerics.methods import Exact

GOOD = 0.05
"""Score error below which an approximation is called good: its scores miss 5 % of the exact ones' norm."""

_LITTLE_LONGER = 1.5  # times, within which accuracy decides

_MEASURES = [field.name for field in fields(Trial) if field.name not in ("method", "landmarks", "size", "seed")]


@dataclass(frozen=True)
class Spread:
    """Median over seeds, with the least and the most."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Line:
    """One way at one size: the spread of each measure over seeds, None where nothing says it."""

    way: Way
    size: int
    seeds: int
    spreads: dict[str, Spread | None]

    def median(self, measure: str) -> float:
        """The median of a measure, NaN where nothing says it."""
        spread = self.spreads[measure]
        return math.nan if spread is None else spread.median

    def __str__(self) -> str:
        return f"{self.way} with {'all' if self.exact else 'size'} {self.size:,}{' rows' if self.exact else ''}"

    @property
    def exact(self) -> bool:
        """Whether it is the exact reference."""
        return self.way.method == Exact.name


def lines(trials: Iterable[Trial]) -> tuple[Line, ...]:
    """One line for each way and size, in their order, the exact one last."""
    groups: dict[tuple[Way, int], list[Trial]] = {}
    order = {way: number for number, way in enumerate(ways())}
    for trial in trials:
        groups.setdefault((Way(trial.method, trial.landmarks), trial.size), []).append(trial)
    return tuple(
        Line(way, size, len(group), {measure: _spread(group, measure) for measure in _MEASURES})
        for (way, size), group in sorted(
            groups.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0][1])
        )
    )


def _spread(group: Sequence[Trial], measure: str) -> Spread | None:
    values = [value for trial in group if (value := getattr(trial, measure)) is not None]
    return Spread(median(values), min(values), max(values)) if values else None


def advice(found: Sequence[Line]) -> str:
    """What to take: the fastest fit that is good, or a better one that takes little longer; the most accurate one where
    none is good, or the exact one where that costs no more."""
    tried = [line for line in found if not line.exact]
    if not tried:
        return "Nothing was compared yet."
    best, why = _best(tried)
    exact = next((line for line in found if line.exact), None)
    if exact is not None and exact.median("seconds") <= best.median("seconds"):
        return (
            f"Take the exact method: it took {_cost(exact)}, no longer than {best} ({_cost(best)}), "
            f"whose scores are off by {best.median('score_error'):.2%}."
        )
    against = f"; exact took {exact.median('seconds'):.3g} s" if exact is not None else ""
    return (
        f"Take {best}: scores off by {best.median('score_error'):.2%}, eigenvalues by "
        f"{best.median('eigenvalue_error'):.2%}, in {_cost(best)} ({why}){against}{_second(tried, best)}."
    )


def _best(tried: Sequence[Line]) -> tuple[Line, str]:
    """The line to take, and why."""
    good = [line for line in tried if line.median("score_error") <= GOOD]
    if not good:
        why = f"the most accurate; nothing came within {GOOD:.0%}, larger sizes may"
        return min(tried, key=lambda line: line.median("score_error")), why
    time = _LITTLE_LONGER * min(line.median("seconds") for line in good)
    quick = [line for line in good if line.median("seconds") <= time]
    why = f"of the fastest that are within {GOOD:.0%}, the most accurate"
    return min(quick, key=lambda line: line.median("score_error")), why


def _second(tried: Sequence[Line], best: Line) -> str:
    """How the best of another method compares, at the same size where it was tried."""
    others = [line for line in tried if line.way.method != best.way.method and line.size == best.size]
    if not others:
        return ""
    other = min(others, key=lambda line: line.median("score_error"))
    return f"; {other} leaves {other.median('score_error'):.2%} in {other.median('seconds'):.3g} s"


def _cost(line: Line) -> str:
    return f"{line.median('seconds'):.3g} s and {line.median('peak_mb'):.0f} MB"
