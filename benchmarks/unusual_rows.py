"""Unusual rows: KernelPCADetector beside detectors of scikit-learn and pyod, on digits and forest plots whose labels
they do not see; the share of ordinary rows that it flags; and its seconds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from benchmarks.common import (
    arguments,
    covertype,
    covertype_labels,
    interleaved,
    median_ratio,
    mnist,
    mnist_labels,
    seconds_of,
    standardized,
    usps,
    usps_labels,
)
from benchmarks.results import Results, Table, Target, table
from bigkpca import KernelPCA, KernelPCADetector
from bigkpca.errors import Array

_SETS = ("USPS", "MNIST", "covertype")
_TESTED = 2000  # ordinary rows, and as many unusual ones
_CONTAMINATION = 0.05
_ALPHA = 0.01
_SEEDS, _HALVES = 20, 6000  # rows that are fitted, and as many new ones
_BEHIND = 0.02  # the most that the mean AUC may be behind that of the best peer with contaminated rows
_OURS, _LARGEST = "bigkpca", 20_000  # rows that every detector can take
_ONE_ROW, _ROWS_ONE_BY_ONE = 1.0, 300  # milliseconds
Detect = Callable[[Array, Array], Array]  # from fitted and tested rows, how unusual each tested row is


class Task(NamedTuple):
    """One class against the others: rows to fit, and rows to test with their labels, 1 if unusual."""

    fitted: Array
    tested: Array
    unusual: Array


def labelled(name: str) -> tuple[Array, Array]:
    """The rows of a data set, and the class of each."""
    if name == "USPS":
        return usps(), usps_labels()
    if name == "MNIST":
        return mnist().astype(np.float32), mnist_labels()
    return standardized(covertype()).astype(np.float32), covertype_labels()


def tasks(name: str, contamination: float, most: int, classes: int) -> Iterator[Task]:
    """Each digit is ordinary in turn, and all others are unusual; each rare type of forest is unusual in turn, among
    all other types. `contamination` is the share of unusual rows among those that are fitted, of at most `most`
    ordinary ones; at most the first `classes` are tried."""
    X, y = labelled(name)
    rare = name == "covertype"
    for label in [each for each in np.unique(y) if not (rare and each in (1, 2))][:classes]:
        rng = np.random.default_rng(int(label))
        is_unusual = (y == label) == rare
        ordinary, unusual = (rng.permutation(np.flatnonzero(some)) for some in (~is_unusual, is_unusual))
        count = min(len(ordinary) // 2, most)
        more = min(int(contamination * count / (1 - contamination)), len(unusual) // 2)
        fitted = rng.permutation(np.concatenate([ordinary[:count], unusual[:more]]))
        tested = [ordinary[count : count + _TESTED], unusual[more : more + _TESTED]]
        yield Task(X[fitted], X[np.concatenate(tested)], np.repeat([0, 1], [len(each) for each in tested]))


def _kpca(size: int) -> KernelPCA | None:
    """The usual kernel PCA of the detector, or one with fewer landmarks."""
    return KernelPCA(0.9, sigma="3 median", size=size, random_state=0) if size else None


def detectors(contamination: float, size: int) -> dict[str, Detect]:
    """The detectors by name, with their defaults; pyod's only if it is installed."""

    def ours(X: Array, T: Array) -> Array:
        detector = KernelPCADetector(_kpca(size), alpha=0.02, contamination=contamination or "auto")  # for few rows
        return -detector.fit(X).score_samples(T)

    def pca(X: Array, T: Array) -> Array:
        found = PCA(0.8, svd_solver="full").fit(X)
        return ((T - found.inverse_transform(found.transform(T))) ** 2).sum(axis=1)

    found: dict[str, Detect] = {
        _OURS: ours,
        "IsolationForest": lambda X, T: -IsolationForest(random_state=0).fit(X).score_samples(T),
        "LocalOutlierFactor": lambda X, T: -LocalOutlierFactor(novelty=True).fit(X).score_samples(T),
        "OneClassSVM": lambda X, T: -OneClassSVM().fit(X).score_samples(T),
        "PCA residual, 80 %": pca,
    }
    try:
        from pyod.models.kpca import KPCA  # type: ignore[import-not-found]
    except ImportError:
        return found

    return found | {"pyod KPCA": lambda X, T: KPCA(random_state=0).fit(X).decision_function(T)}


def _accuracy(most: int, classes: int, size: int) -> tuple[Table, list[Target]]:
    """AUC and average precision of each detector, by the share of unusual rows among the fitted ones."""
    lines, targets = [], []
    for contamination, behind in ((0.0, 0.0), (_CONTAMINATION, _BEHIND)):
        known = detectors(contamination, size)
        means: dict[str, list[Array]] = {name: [] for name in known}  # AUC and precision on each data set
        for data in _SETS:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in known}
            for task in tasks(data, contamination, most, classes):
                for name, detect in known.items():
                    values = detect(task.fitted, task.tested)
                    both = roc_auc_score(task.unusual, values), average_precision_score(task.unusual, values)
                    found[name].append(both)
            for name, of_classes in found.items():
                means[name].append(np.mean(of_classes, axis=0))
                print(data, contamination, name, means[name][-1], flush=True)
        aucs = {name: float(np.mean([auc for auc, _ in pairs])) for name, pairs in means.items()}
        for name, pairs in means.items():
            cells = [f"{auc:.3f}, {precision:.3f}" for auc, precision in pairs]
            lines.append([f"{contamination:.0%}", name, *cells, f"{aucs[name]:.3f}"])
        ahead = aucs[_OURS] - max(value for name, value in aucs.items() if name != _OURS)
        what = f"mean AUC with {contamination:.0%} unusual rows among the fitted ones, less that of the best peer"
        targets.append(Target(what, ahead, "at least", -behind, ""))
    title = f"AUC and average precision, means over classes; at most {most:,} rows fitted"
    header = ["unusual among fitted", "detector", *_SETS, "mean AUC"]
    return table(title, header, lines), targets


def _false_alarms(count: int, repeats: int) -> tuple[Table, Target]:
    """The share of ordinary new rows above the limit, and how often it is within the range: in 95 % of all runs, so by
    chance less often in two of five sets of 100."""
    rng = np.random.default_rng(0)
    heavy = rng.standard_t(2, size=(20_000, 10)) @ rng.normal(size=(10, 10))
    curve = rng.uniform(0, 9, 20_000)
    roll = np.column_stack([curve * np.cos(curve), rng.uniform(0, 9, 20_000), curve * np.sin(curve)])
    sets = {name: labelled(name)[0] for name in _SETS} | {"Student t": heavy, "roll": roll}
    lines, within = [], []
    for name, X in sets.items():
        shares = []
        for seed in range(_SEEDS if repeats > 1 else 2):
            some = np.random.default_rng(seed).permutation(len(X))[: 2 * count]
            fitted, new = np.array_split(X[some], 2)
            detector = KernelPCADetector(alpha=_ALPHA).fit(fitted)
            low, high = detector.calibration_.range(_ALPHA, len(new))
            shares.append(float((detector.predict(new) < 0).mean()))
            within.append(low <= shares[-1] <= high)
        lines.append([name, f"{np.mean(shares):.2%}", f"{min(shares):.2%} to {max(shares):.2%}"])
    share = float(np.mean(within))
    title = (
        f"Share of new rows flagged with alpha = {_ALPHA:.0%}; within the range in {share:.0%} of {len(within)} runs"
    )
    target = Target("runs whose share of false alarms is within the range", share, "at least", 0.95, "")
    return table(title, ["data", "mean", "least to most"], lines), target


def _many_rows(rows: int) -> Array:
    """Rows of covertype, some of them several times, with small noise."""
    X = labelled("covertype")[0]
    X = X[np.random.default_rng(0).integers(len(X), size=rows)]
    return X + np.random.default_rng(1).normal(scale=0.01, size=X.shape).astype(np.float32)


def _speed(rows: int, size: int, repeats: int) -> tuple[Table, list[Target]]:
    """Seconds of a fit and of the statistics of the same rows, and how many times as fast ours is as each peer that
    takes so many."""
    X = _many_rows(rows)
    known = detectors(0.0, size)
    known.pop("pyod KPCA", None)
    lines, fewer = [], X[:_LARGEST]
    small = {name: seconds_of(partial(detect, fewer, fewer)) for name, detect in known.items()}
    linear = {name: detect for name, detect in known.items() if name not in ("LocalOutlierFactor", "OneClassSVM")}
    seconds = interleaved(
        repeats, **{name: partial(seconds_of, partial(detect, X, X)) for name, detect in linear.items()}
    )
    for name in known:
        large = statistics.median(seconds[name]) if name in seconds else "not run: grows with the square"
        lines.append([name, small[name], large])
    shown = table(
        f"Seconds of a fit and of the statistics of the same rows of covertype, with small noise (d = {X.shape[1]})",
        ["detector", f"{len(fewer):,} rows", f"{rows:,} rows, median of {repeats}"],
        lines,
    )
    return shown, [
        Target(f"times as fast as {name} on {rows:,} rows", median_ratio(took, seconds[_OURS]), "at least", 1)
        for name, took in seconds.items()
        if name != _OURS
    ]


def _one_row(rows: int, size: int) -> Target:
    """The median milliseconds in which `predict` takes one row."""
    X = _many_rows(min(rows, _LARGEST))
    detector = KernelPCADetector(_kpca(size)).fit(X)
    taken = [seconds_of(partial(detector.predict, X[i : i + 1])) for i in range(min(len(X), _ROWS_ONE_BY_ONE))]
    return Target("one row, median", 1e3 * statistics.median(taken), "at most", _ONE_ROW, "ms")


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=500_000, size=0, most=3000, classes=10)
    accuracy, targets = _accuracy(min(given.most, given.rows), given.classes, given.size)
    alarms, within = _false_alarms(min(_HALVES, given.rows), given.repeats)
    speed, faster = _speed(given.rows, given.size, given.repeats)
    targets += [within, *faster, _one_row(given.rows, given.size)]
    return Results((accuracy, alarms, speed), tuple(targets))


if __name__ == "__main__":
    main()
