"""Unusual rows: KernelPCADetector beside detectors of scikit-learn and pyod, on digits and forest plots whose labels
they do not see; and its seconds."""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from benchmarks.data import covertype, labels, mnist, standardized, usps
from benchmarks.results import Found, Table, Target
from benchmarks.timing import interleaved, median_ratio, seconds_of
from bigkpca import KernelPCA, KernelPCADetector
from bigkpca.errors import Array

_MOST, _TESTED = 3000, 2000  # ordinary rows that are fitted and tested, and as many unusual ones tested
_AHEAD = {0.0: 0.0, 0.05: -0.02}  # by unusual rows among the fitted: the least lead of the AUC over the best peer
_OURS, _LARGEST = "bigkpca", 20_000  # rows that every detector can take
_OF_MANY = (_OURS, "IsolationForest", "PCA residual, 80 %")  # time grows with the number of rows, not its square
_SETS: dict[str, Callable[[], Array]] = {
    "USPS": usps,
    "MNIST": lambda: mnist().astype(np.float32),
    "covertype": lambda: standardized(covertype()).astype(np.float32),
}
Detect = Callable[[Array, Array], Array]  # from fitted and tested rows, how unusual each tested row is


class Task(NamedTuple):
    """One class against the others: rows to fit, and rows to test with their labels, 1 if unusual."""

    fitted: Array
    tested: Array
    unusual: Array


def tasks(name: str, contamination: float, most: int, classes: int) -> Iterator[Task]:
    """Each digit is ordinary in turn, and all others are unusual; each rare type of forest is unusual in turn, among
    all other types. `contamination` is the share of unusual rows among those that are fitted, of at most `most`
    ordinary ones; at most the first `classes` are tried."""
    X, y = _SETS[name](), labels(name)
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


def detectors(contamination: float, size: int) -> dict[str, Detect]:
    """The detectors by name, with their defaults, ours with fewer landmarks if a size is given; pyod's only if it is
    installed."""

    def ours(X: Array, T: Array) -> Array:
        kpca = KernelPCA(0.9, sigma="3 median", size=size, random_state=0) if size else None
        detector = KernelPCADetector(kpca, alpha=0.02, contamination=contamination or "auto")  # for few rows
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


def accuracy(most: int, classes: int, size: int) -> Found:
    """The AUC of each detector, by the share of unusual rows among the fitted ones."""
    lines = []
    for contamination, least in _AHEAD.items():
        known = detectors(contamination, size)
        found = []  # by data set, the means over classes of each detector
        for data in _SETS:
            each = [
                [roc_auc_score(task.unusual, detect(task.fitted, task.tested)) for detect in known.values()]
                for task in tasks(data, contamination, most, classes)
            ]
            found.append(np.mean(each, axis=0))
        means = dict(zip(known, np.mean(found, axis=0).tolist(), strict=True))
        for name, *aucs in zip(known, *found, means.values(), strict=True):
            lines.append([f"{contamination:.0%}", name, *(f"{auc:.3f}" for auc in aucs)])
        ahead = means.pop(_OURS) - max(means.values())
        what = f"mean AUC with {contamination:.0%} unusual rows among the fitted ones, less that of the best peer"
        yield Target(what, ahead, "at least", least)
    title = f"AUC, means over classes; at most {most:,} rows fitted"
    yield Table(title, ["unusual among fitted", "detector", *_SETS, "mean"], lines)


def speed(rows: int, size: int, repeats: int) -> Found:
    """Seconds of a fit and of the statistics of the same rows, and how many times as fast ours is as each peer that
    takes so many."""
    X = _SETS["covertype"]()
    X = X[np.random.default_rng(0).integers(len(X), size=rows)]
    X = X + np.random.default_rng(1).normal(scale=0.01, size=X.shape).astype(np.float32)
    known, fewer = detectors(0.0, size), X[:_LARGEST]
    known.pop("pyod KPCA", None)
    small = {name: seconds_of(partial(detect, fewer, fewer)) for name, detect in known.items()}
    seconds = interleaved(repeats, **{name: partial(seconds_of, partial(known[name], X, X)) for name in _OF_MANY})
    large = {name: statistics.median(took) for name, took in seconds.items()}
    yield Table(
        f"Seconds of a fit and of the statistics of the same rows of covertype, with small noise (d = {X.shape[1]})",
        ["detector", f"{len(fewer):,} rows", f"{rows:,} rows, median of {repeats}"],
        [[name, small[name], large.get(name, "not run: grows with the square")] for name in known],
    )
    for name in _OF_MANY[1:]:
        times = median_ratio(seconds[name], seconds[_OURS])
        yield Target(f"times as fast as {name} on {rows:,} rows", times, "at least", 1)


def main(rows: int = 500_000, size: int = 0, repeats: int = 5, classes: int = 10) -> Found:
    yield from accuracy(min(_MOST, rows), classes, size)
    yield from speed(rows, size, repeats)
