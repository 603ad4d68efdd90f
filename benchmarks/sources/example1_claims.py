"""What the thesis says of its Example 1, each sentence as something that the numbers can contradict; in brackets what
it does not say.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array

NYSTROEM, COLUMNS, RFF, RFF_PCA = "Nyström (thesis)", "columns", "RFF (thesis)", "RFF-PCA (thesis)"
ALL = (NYSTROEM, COLUMNS, RFF, RFF_PCA)


@dataclass(frozen=True)
class Found:
    """values (seeds, sizes, methods, measures)."""

    values: Array
    methods: tuple[str, ...]
    measures: tuple[str, ...]

    def quartiles(self, measure: str, method: str) -> Array:
        """Lower quartile, median and upper quartile by size, (3, sizes)."""
        values = self.values[:, :, self.methods.index(method), self.measures.index(measure)]
        return np.percentile(values, [25, 50, 75], axis=0)

    def quality(self, measure: str, names: Sequence[str], *, spread: bool = False) -> Array:
        """Medians by method and size with a sign such that larger is better; or the spread of the quartiles."""
        low, median, high = np.array([self.quartiles(measure, name) for name in names]).swapaxes(0, 1)
        if spread:
            return np.asarray(low - high)
        return np.asarray(median if measure == "relative accuracy" or measure.startswith("u") else -median)


Check = Callable[[Found], Array]  # whether a claim holds, at each size or step


def better(
    measure: str, first: Sequence[str], second: Sequence[str], at: slice = slice(None), *, spread: bool = False
) -> Check:
    """The median of each of `first` is better than that of each of `second`; or its spread is smaller."""

    def check(found: Found) -> Array:
        above, below = (found.quality(measure, names, spread=spread)[:, at] for names in (first, second))
        return above.min(axis=0) > below.max(axis=0)

    return check


def improves(measure: str, names: Sequence[str], *, spread: bool = False) -> Check:
    """Medians get better, or spreads smaller, with each larger size."""
    return lambda found: np.all(np.diff(found.quality(measure, names, spread=spread)) > 0, axis=0)


def at_least(measure: str, names: Sequence[str], least: float, at: slice = slice(None)) -> Check:
    """Medians reach a number."""
    return lambda found: np.all(found.quality(measure, names)[:, at] >= least, axis=0)


def alike(measure: str, first: str, second: str, at: slice) -> Check:
    """The boxes, from quartile to quartile, overlap."""

    def check(found: Found) -> Array:
        boxes = np.array([found.quartiles(measure, name)[[0, 2]][:, at] for name in (first, second)])
        return boxes[:, 0].max(axis=0) < boxes[:, 1].min(axis=0)

    return check


SMALLEST, LARGEST, SMALL = slice(0, 1), slice(-1, None), slice(0, 2)
CLAIMS: tuple[tuple[int, str, Check], ...] = (
    (11, "Nyström and columns nearer to K than both others", better("matrix error", ALL[:2], ALL[2:])),
    (11, "every method's error falls with l", improves("matrix error", ALL)),
    (11, "Nyström and columns vary least", better("matrix error", ALL[:2], ALL[2:], spread=True)),
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
    (16, "columns vary least", better("u2 not normalised", [COLUMNS], [NYSTROEM, RFF, RFF_PCA], spread=True)),
    (16, "columns have the best u2", better("u2 not normalised", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (16, "RFF-PCA has a better u2 than RFF", better("u2 not normalised", [RFF_PCA], [RFF])),
    (16, "RFF-PCA has a better u2 than Nyström", better("u2 not normalised", [RFF_PCA], [NYSTROEM])),
    (16, "(at unit length, RFF-PCA against Nyström)", better("u2 agreement", [RFF_PCA], [NYSTROEM])),
    (16, "Nyström has the worst u2", better("u2 not normalised", [COLUMNS, RFF, RFF_PCA], [NYSTROEM])),
    (16, "(at unit length, Nyström against all)", better("u2 agreement", [COLUMNS, RFF, RFF_PCA], [NYSTROEM])),
    (17, "Nyström and columns classify best", better("misclassified", ALL[:2], ALL[2:])),
    (17, "and vary least", better("misclassified", ALL[:2], ALL[2:], spread=True)),
    (17, "RFF-PCA classifies better than RFF", better("misclassified", [RFF_PCA], [RFF])),
    (18, "columns have the best lambda_1", better("error of lambda_1", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (18, "RFF-PCA is bad: behind Nyström and columns", better("error of lambda_1", ALL[:2], [RFF_PCA])),
    (18, "at 2 and 3 % RFF-PCA is like RFF", alike("error of lambda_1", RFF_PCA, RFF, SMALL)),
    (18, "all but RFF-PCA improve with l", improves("error of lambda_1", ALL[:3])),
    (18, "RFF-PCA does not", lambda found: ~improves("error of lambda_1", [RFF_PCA])(found)),
    (19, "columns have the best lambda_2", better("error of lambda_2", [COLUMNS], [NYSTROEM, RFF, RFF_PCA])),
    (19, "RFF-PCA is better than RFF and Nyström", better("error of lambda_2", [RFF_PCA], [RFF, NYSTROEM])),
)


def verdicts(found: Found) -> Iterator[list[str]]:
    """Figure, sentence, and whether it holds, or at how many of the sizes or steps."""
    for figure, sentence, check in CLAIMS:
        holds = check(found)
        said = "yes" if holds.all() else "no" if not holds.any() else f"{holds.sum()} of {len(holds)}"
        yield [f"Fig. {figure}", sentence, said]
