"""What the thesis says of its Example 1, each sentence as something that the numbers can contradict; in brackets what
it does not say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array

NYSTROEM, COLUMNS, RFF, RFF_PCA = "Nyström (thesis)", "columns", "RFF (thesis)", "RFF-PCA (thesis)"
ALL = (NYSTROEM, COLUMNS, RFF, RFF_PCA)


@dataclass(frozen=True)
class Found:
    """values (seeds, sizes, methods, measures)."""

    values: Array
    sizes: Sequence[int]
    methods: tuple[str, ...]
    measures: tuple[str, ...]

    def of(self, measure: str, method: str) -> Array:
        """(seeds, sizes)."""
        return self.values[:, :, self.methods.index(method), self.measures.index(measure)]

    def median(self, measure: str, method: str) -> Array:
        """(sizes,)."""
        return np.median(self.of(measure, method), axis=0)

    def spread(self, measure: str, method: str) -> Array:
        """Between the quartiles, (sizes,)."""
        low, high = np.percentile(self.of(measure, method), [25, 75], axis=0)
        return high - low


Verdict = tuple[Array, list[tuple[str, Array]]]  # whether it holds at each size; the series compared
Check = Callable[[Found], Verdict]


def higher_is_better(measure: str) -> bool:
    return measure == "relative accuracy" or measure.startswith("u")


def better(measure: str, first: Sequence[str], second: Sequence[str], at: slice = slice(None)) -> Check:
    """The median of each of `first` is better than that of each of `second`."""

    def check(found: Found) -> Verdict:
        sign = 1 if higher_is_better(measure) else -1
        series = [(name, found.median(measure, name)[at]) for name in (*first, *second)]
        above = sign * np.array([values for _, values in series[: len(first)]])
        below = sign * np.array([values for _, values in series[len(first) :]])
        return above.min(axis=0) > below.max(axis=0), series

    return check


def steadier(measure: str, first: Sequence[str], second: Sequence[str]) -> Check:
    """Half of the repetitions of `first` lie closer together than of `second`."""

    def check(found: Found) -> Verdict:
        series = [(name, found.spread(measure, name)) for name in (*first, *second)]
        values = np.array([values for _, values in series])
        return values[: len(first)].max(axis=0) < values[len(first) :].min(axis=0), series

    return check


def improves(measure: str, names: Sequence[str], *, spread: bool = False) -> Check:
    """Medians get better, or spreads smaller, with each larger size: as many answers as steps."""

    def check(found: Found) -> Verdict:
        sign = 1 if higher_is_better(measure) and not spread else -1
        series = [(name, (found.spread if spread else found.median)(measure, name)) for name in names]
        return np.all([np.diff(sign * values) > 0 for _, values in series], axis=0), series

    return check


def at_least(measure: str, names: Sequence[str], least: float, at: slice = slice(None)) -> Check:
    """Medians reach a number."""

    def check(found: Found) -> Verdict:
        series = [(name, found.median(measure, name)[at]) for name in names]
        return np.all([values >= least for _, values in series], axis=0), series

    return check


def alike(measure: str, first: str, second: str, at: slice) -> Check:
    """The boxes, from quartile to quartile, overlap."""

    def check(found: Found) -> Verdict:
        boxes = [np.percentile(found.of(measure, name), [25, 75], axis=0)[:, at] for name in (first, second)]
        below, above = np.max([low for low, _ in boxes], axis=0), np.min([high for _, high in boxes], axis=0)
        return below < above, [(name, found.median(measure, name)[at]) for name in (first, second)]

    return check


SMALLEST, LARGEST, SMALL = slice(0, 1), slice(-1, None), slice(0, 2)
CLAIMS: tuple[tuple[int, str, Check], ...] = (
    (11, "Nyström and columns nearer to K than both others", better("matrix error", ALL[:2], ALL[2:])),
    (11, "every method's error falls with l", improves("matrix error", ALL)),
    (11, "Nyström and columns vary least", steadier("matrix error", ALL[:2], ALL[2:])),
    (11, "RFF-PCA nearer to K than RFF", better("matrix error", [RFF_PCA], [RFF])),
    (11, "at 10 % RFF is very like RFF-PCA", alike("matrix error", RFF, RFF_PCA, LARGEST)),
    (12, "Nyström and columns more accurate than both others", better("relative accuracy", ALL[:2], ALL[2:])),
    (12, "Nyström is the most accurate", better("relative accuracy", [NYSTROEM], ALL[1:])),
    (13, "at 2 % RFF has the worst u1", better("u1 agreement", [NYSTROEM, COLUMNS, RFF_PCA], [RFF], SMALLEST)),
    (14, "at 2 % Nyström and columns show the jump best", better("misclassified", ALL[:2], ALL[2:], SMALLEST)),
    (14, "at 2 % RFF shows it worst", better("misclassified", [RFF_PCA], [RFF], SMALLEST)),
    (15, "every u1 is close to one", at_least("u1 not normalised", ALL, 0.95)),
    (15, "the spread of u1 falls with l", improves("u1 not normalised", ALL, spread=True)),
    (15, "RFF-PCA has a better u1 than RFF", better("u1 not normalised", [RFF_PCA], [RFF])),
    (15, "RFF-PCA has a better u1 than Nyström", better("u1 not normalised", [RFF_PCA], [NYSTROEM])),
    (15, "(at unit length, RFF-PCA against Nyström)", better("u1 agreement", [RFF_PCA], [NYSTROEM])),
    (15, "columns have the best u1", better("u1 not normalised", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (16, "columns' u2 is close to one at 2 %", at_least("u2 not normalised", [COLUMNS], 0.95, SMALLEST)),
    (16, "columns vary least", steadier("u2 not normalised", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (16, "columns have the best u2", better("u2 not normalised", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (16, "RFF-PCA has a better u2 than RFF", better("u2 not normalised", [RFF_PCA], [RFF])),
    (16, "RFF-PCA has a better u2 than Nyström", better("u2 not normalised", [RFF_PCA], [NYSTROEM])),
    (16, "(at unit length, RFF-PCA against Nyström)", better("u2 agreement", [RFF_PCA], [NYSTROEM])),
    (16, "Nyström has the worst u2", better("u2 not normalised", [COLUMNS, RFF, RFF_PCA], [NYSTROEM])),
    (16, "(at unit length, Nyström against all)", better("u2 agreement", [COLUMNS, RFF, RFF_PCA], [NYSTROEM])),
    (17, "Nyström and columns classify best", better("misclassified", ALL[:2], ALL[2:])),
    (17, "and vary least", steadier("misclassified", ALL[:2], ALL[2:])),
    (17, "RFF-PCA classifies better than RFF", better("misclassified", [RFF_PCA], [RFF])),
    (18, "columns have the best lambda_1", better("error of lambda_1", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (18, "RFF-PCA is bad: behind Nyström and columns", better("error of lambda_1", ALL[:2], [RFF_PCA])),
    (18, "at 2 and 3 % RFF-PCA is like RFF", alike("error of lambda_1", RFF_PCA, RFF, SMALL)),
    (18, "all but RFF-PCA improve with l", improves("error of lambda_1", ALL[:3])),
    (18, "RFF-PCA does not", lambda found: _negated(improves("error of lambda_1", [RFF_PCA])(found))),
    (19, "columns have the best lambda_2", better("error of lambda_2", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (19, "RFF-PCA is better than RFF and Nyström", better("error of lambda_2", [RFF_PCA], [RFF, NYSTROEM])),
)


def _negated(verdict: Verdict) -> Verdict:
    return ~verdict[0], verdict[1]


def verdicts(found: Found) -> list[list[str]]:
    """Figure, sentence, whether it holds (at how many of the sizes or steps), and the numbers at both ends."""
    lines = []
    for figure, sentence, check in CLAIMS:
        holds, series = check(found)
        said = "yes" if holds.all() else "no" if not holds.any() else f"{holds.sum()} of {len(holds)}"
        numbers = "; ".join(f"{name} {_ends(values)}" for name, values in series)
        lines.append([f"Fig. {figure}", sentence, said, numbers])
    return lines


def _ends(values: Array) -> str:
    return " to ".join(f"{value:.4g}" for value in dict.fromkeys((values[0], values[-1])))
