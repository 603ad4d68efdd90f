"""EKPCA's claim (Fan, Wang, Xu and Tang 2014, in the Spanish notes): few basic patterns stand for all rows.

USPS and as many rows of MNIST, 100 components. Basic patterns are compared with as many random rows and k-means
centres, and with all rows. Scores are judged by the nearest neighbour and by ridge regression on the classes; seconds
are those of `transform` of the test rows. The second table has the numbers of patterns that thresholds of the cosine
find.
"""

import statistics
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.data import MEDIAN_DISTANCE, labels, mnist
from benchmarks.sources.common import Lines, Table, Tables, landmarks_of
from benchmarks.sources.digits import TRAINING_ROWS, test_digits, training_digits
from benchmarks.timing import interleaved, median_ratio, seconds_of
from bigkpca import KernelPCA, landmarks
from bigkpca.errors import Array

COMPONENTS, SIZES, THRESHOLDS = 100, (50, 100, 200, 400, 800), (0.5, 0.7, 0.8, 0.9, 0.95)
RULES = ("basic-patterns", "uniform", "kmeans")
TEST_ROWS, RUNS = 2007, 5
Accuracy = tuple[float, float]  # by the nearest neighbour, by the linear classifier


@dataclass(frozen=True)
class Digits:
    """Training and test rows of one data set, with their labels, and the length of the kernel."""

    X: Array
    labels: Array
    new: Array
    of_new: Array
    sigma: float

    def fit(self, seed: int, **options: Any) -> KernelPCA:
        return KernelPCA(COMPONENTS, sigma=self.sigma, random_state=seed, **options).fit(self.X)

    def accuracy(self, Y: Array, of_new: Array) -> Accuracy:
        """Shares of test rows that both classifiers get right from features Y of the training rows."""
        Y, of_new = Y.astype(np.float64), of_new.astype(np.float64)
        nearest, linear = (way.fit(Y, self.labels) for way in (KNeighborsClassifier(1), RidgeClassifier(1e-3)))
        return float(nearest.score(of_new, self.of_new)), float(linear.score(of_new, self.of_new))

    def of_scores(self, fit: KernelPCA) -> Accuracy:
        return self.accuracy(fit.transform(self.X), fit.transform(self.new))


def usps_digits(rows: int) -> Digits:
    return Digits(*training_digits(rows), *test_digits(min(rows, TEST_ROWS)), sigma=11.0)


def mnist_digits(rows: int) -> Digits:
    """As many random rows of MNIST, pixels from 0 to 1."""
    X, y = mnist() / np.float32(255), labels("MNIST")
    chosen = np.random.default_rng(0).choice(len(X), rows + min(rows, TEST_ROWS), replace=False)
    train, test = chosen[:rows], chosen[rows:]
    return Digits(X[train], y[train], X[test], y[test], sigma=MEDIAN_DISTANCE / 255 / 2**0.5)


DATA = {"USPS": usps_digits, "MNIST": mnist_digits}


def against_all_rows(digits: Digits, repeats: int) -> Lines:
    """Lines of the table: accuracy of pixels, of exact kernel PCA, and of each rule and size (means over seeds)."""
    models = {"exact": digits.fit(0, method="exact")}
    found: list[tuple[str, int, Accuracy, str]] = []
    for size in (size for size in SIZES if size < len(digits.X)):
        for rule in RULES:
            fits = [digits.fit(seed, size=size, landmarks=rule) for seed in range(repeats)]
            nearest, linear = np.mean([digits.of_scores(fit) for fit in fits], axis=0)
            found.append((rule, size, (float(nearest), float(linear)), str(size)))
        models[str(size)] = fits[0]
    seconds = interleaved(RUNS, **{n: partial(seconds_of, partial(m.transform, digits.new)) for n, m in models.items()})
    yield ["pixels", "", *shown(digits.accuracy(digits.X, digits.new)), "", ""]
    every = [("all rows, exact", len(digits.X), digits.of_scores(models["exact"]), "exact"), *found]
    for name, count, accuracy, of in every:
        took = f"{statistics.median(seconds[of]):.3f}", f"{median_ratio(seconds['exact'], seconds[of]):.1f}"
        yield [name, str(count), *shown(accuracy), *took]


def shown(accuracy: Accuracy) -> list[str]:
    return [f"{share:.2%}" for share in accuracy]


def by_threshold(digits: Digits) -> Lines:
    """How many patterns each threshold finds, at most 2000."""
    for threshold in THRESHOLDS:
        rule = landmarks.BasicPatterns(threshold=threshold)
        yield [f"{threshold:g}", len(landmarks_of(digits.fit(0, size=min(2000, len(digits.X)), landmarks=rule)))]


def main(rows: int = TRAINING_ROWS, repeats: int = 3) -> Tables:
    lines, of_thresholds = [], []
    for name, load in DATA.items():
        digits = load(rows)
        lines += [[name, *line] for line in against_all_rows(digits, repeats)]
        of_thresholds += [[name, *line] for line in by_threshold(digits)]
    header = ["data", "landmarks", "number", "nearest neighbour", "linear", "seconds of transform", "times as fast"]
    title = f"{rows} training rows, {COMPONENTS} components, {repeats} seeds"
    yield Table(title, header, lines)
    yield Table("Patterns by the threshold", ["data", "threshold", "patterns"], of_thresholds, "thresholds")
