"""Medians over seeds, and one sentence of advice with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import median

from bigkpca.comparing.grid import MethodVariant, all_variants
from bigkpca.comparing.trial import TrialResult
from bigkpca.numerics.methods import Exact

GOOD = 0.05
"""Score error below which an approximation is called good: its scores miss 5 % of the exact ones' norm."""

_LITTLE_LONGER = 1.5  # times, within which accuracy decides

_MEASURES = [field.name for field in fields(TrialResult) if field.name not in ("method", "landmarks", "size", "seed")]


@dataclass(frozen=True)
class Spread:
    """Median over seeds, with the least and the most."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class TrialGroup:
    """One way at one size: the spread of each measure over seeds, None where nothing says it."""

    variant: MethodVariant
    size: int
    seeds: int
    spreads: dict[str, Spread | None]

    def median(self, measure: str) -> float:
        """The median of a measure, NaN where nothing says it."""
        spread = self.spreads[measure]
        return math.nan if spread is None else spread.median

    def __str__(self) -> str:
        return f"{self.variant} with {'all' if self.exact else 'size'} {self.size:,}{' rows' if self.exact else ''}"

    @property
    def exact(self) -> bool:
        """Whether it is the exact reference."""
        return self.variant.method == Exact.name


def group_trials(trials: Iterable[TrialResult]) -> tuple[TrialGroup, ...]:
    """One line for each way and size, in their order, the exact one last."""
    groups: dict[tuple[MethodVariant, int], list[TrialResult]] = {}
    order = {variant: number for number, variant in enumerate(all_variants())}
    for trial in trials:
        groups.setdefault((MethodVariant(trial.method, trial.landmarks), trial.size), []).append(trial)
    return tuple(
        TrialGroup(variant, size, len(members), {measure: _spread(members, measure) for measure in _MEASURES})
        for (variant, size), members in sorted(
            groups.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0][1])
        )
    )


def _spread(members: Sequence[TrialResult], measure: str) -> Spread | None:
    values = [value for trial in members if (value := getattr(trial, measure)) is not None]
    return Spread(median(values), min(values), max(values)) if values else None


def advice(groups: Sequence[TrialGroup]) -> str:
    """What to take: the fastest fit that is good, or a better one that takes little longer; the most accurate one where
    none is good, or the exact one where that costs no more."""
    approximate = [group for group in groups if not group.exact]
    if not approximate:
        return "Nothing was compared yet."
    best, why = _best(approximate)
    exact = next((group for group in groups if group.exact), None)
    if exact is not None and exact.median("seconds") <= best.median("seconds"):
        return (
            f"Take the exact method: it took {_cost(exact)}, no longer than {best} ({_cost(best)}), "
            f"whose scores are off by {best.median('score_error'):.2%}."
        )
    against = f"; exact took {exact.median('seconds'):.3g} s" if exact is not None else ""
    return (
        f"Take {best}: scores off by {best.median('score_error'):.2%}, eigenvalues by "
        f"{best.median('eigenvalue_error'):.2%}, in {_cost(best)} ({why}){against}{_second(approximate, best)}."
    )


def _best(approximate: Sequence[TrialGroup]) -> tuple[TrialGroup, str]:
    """The line to take, and why."""
    good = [group for group in approximate if group.median("score_error") <= GOOD]
    if not good:
        why = f"the most accurate; nothing came within {GOOD:.0%}, larger sizes may"
        return min(approximate, key=lambda group: group.median("score_error")), why
    time = _LITTLE_LONGER * min(group.median("seconds") for group in good)
    quick = [group for group in good if group.median("seconds") <= time]
    why = f"of the fastest that are within {GOOD:.0%}, the most accurate"
    return min(quick, key=lambda group: group.median("score_error")), why


def _second(approximate: Sequence[TrialGroup], best: TrialGroup) -> str:
    """How the best of another method compares, at the same size where it was tried."""
    others = [group for group in approximate if group.variant.method != best.variant.method and group.size == best.size]
    if not others:
        return ""
    other = min(others, key=lambda group: group.median("score_error"))
    return f"; {other} leaves {other.median('score_error'):.2%} in {other.median('seconds'):.3g} s"


def _cost(group: TrialGroup) -> str:
    return f"{group.median('seconds'):.3g} s and {group.median('peak_mb'):.0f} MB"
