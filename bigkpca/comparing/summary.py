"""Summarise trials: medians over seeds, and a recommendation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import median

from bigkpca.comparing.grid import MethodVariant, all_variants
from bigkpca.comparing.trial import TrialResult
from bigkpca.numerics.methods import Exact

GOOD = 0.05
"""Score error below which an approximation is good: 5 % of the norm of the exact scores."""

_LITTLE_LONGER = 1.5  # among fits within this factor of the fastest, the most accurate is recommended

_MEASURES = [field.name for field in fields(TrialResult) if field.name not in ("method", "landmarks", "size", "seed")]


@dataclass(frozen=True)
class Spread:
    """Median, least and largest value over seeds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class TrialGroup:
    """Trials of one variant at one size.

    Attributes
    ----------
    variant : MethodVariant
        Method and landmark rule.
    size, seeds : int
        Number of landmarks or features, and of fits.
    spreads : dict of Spread
        The spread of each measure of TrialResult over seeds, by name; None if not known.
    """

    variant: MethodVariant
    size: int
    seeds: int
    spreads: dict[str, Spread | None]

    def median(self, measure: str) -> float:
        """The median of a measure, NaN if not known."""
        spread = self.spreads[measure]
        return math.nan if spread is None else spread.median

    def __str__(self) -> str:
        return f"{self.variant} with {'all' if self.exact else 'size'} {self.size:,}{' rows' if self.exact else ''}"

    @property
    def exact(self) -> bool:
        """Whether this is the exact reference."""
        return self.variant.method == Exact.name


def group_trials(trials: Iterable[TrialResult]) -> tuple[TrialGroup, ...]:
    """Trials grouped by variant and size, in the order of the grid, the exact reference last."""
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
    """The spread of a measure over trials, None if it is not known."""
    values = [value for trial in members if (value := getattr(trial, measure)) is not None]
    return Spread(median(values), min(values), max(values)) if values else None


def advice(groups: Sequence[TrialGroup]) -> str:
    """The recommended variant and size, in one sentence.

    Of the fits within `GOOD`, the most accurate that takes little longer than the fastest; if none is, the most
    accurate of all; the exact method if it takes no longer than that.
    """
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
    """The recommended group, and the reason."""
    good = [group for group in approximate if group.median("score_error") <= GOOD]
    if not good:
        why = f"the most accurate; nothing came within {GOOD:.0%}, larger sizes may"
        return min(approximate, key=lambda group: group.median("score_error")), why
    time = _LITTLE_LONGER * min(group.median("seconds") for group in good)
    quick = [group for group in good if group.median("seconds") <= time]
    why = f"of the fastest that are within {GOOD:.0%}, the most accurate"
    return min(quick, key=lambda group: group.median("score_error")), why


def _second(approximate: Sequence[TrialGroup], best: TrialGroup) -> str:
    """How the best group of another method at the same size compares; empty if there is none."""
    others = [group for group in approximate if group.variant.method != best.variant.method and group.size == best.size]
    if not others:
        return ""
    other = min(others, key=lambda group: group.median("score_error"))
    return f"; {other} leaves {other.median('score_error'):.2%} in {other.median('seconds'):.3g} s"


def _cost(group: TrialGroup) -> str:
    """Median time and memory of a fit."""
    return f"{group.median('seconds'):.3g} s and {group.median('peak_mb'):.0f} MB"
