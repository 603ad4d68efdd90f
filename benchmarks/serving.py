"""Scores of a few rows in memory, as a server computes them: KernelPCA, the light estimator of `to_sklearn`, and
scikit-learn's Nystroem + PCA."""

import statistics
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from benchmarks.data import MEDIAN_DISTANCE, mnist
from benchmarks.results import Found, Table, Target
from benchmarks.timing import interleaved, median_ratio, seconds_of, spread
from bigkpca import KernelPCA
from bigkpca.errors import Array

COMPONENTS = 50
_CALLS = {1: 200, 1000: 20}  # rows at once: calls timed in each repeat
_MOST = (("ours", 1, 0.2), ("light", 1, 0.2), ("ours", 1000, 8.0))  # milliseconds
_NAMES = {"ours": "KernelPCA.transform", "light": "KernelPCA.to_sklearn().transform"}


def one_call(model: Any, X: Array, count: int, starts: Iterator[int]) -> float:
    """Milliseconds of scoring `count` rows of X from the next start on."""
    start = next(starts)
    rows = X[start : start + count]
    return 1000 * seconds_of(lambda: model.transform(rows))


def main(rows: int = 60_000, size: int = 1000, repeats: int = 5) -> Found:
    X = mnist()[:rows].astype(np.float32)
    ours = KernelPCA(COMPONENTS, sigma=MEDIAN_DISTANCE, size=size, random_state=0).fit(X)
    nystroem = Nystroem(gamma=0.5 / MEDIAN_DISTANCE**2, n_components=size, random_state=0)
    theirs = make_pipeline(nystroem, PCA(COMPONENTS, svd_solver="covariance_eigh")).fit(X)
    models = {"ours": ours, "light": ours.to_sklearn(), "theirs": theirs}
    lines: list[list[Any]] = []
    middle: dict[tuple[str, int], float] = {}
    for count, calls in _CALLS.items():
        starts = np.random.default_rng(0).integers(len(X) - count + 1, size=repeats * calls)
        for model in models.values():
            model.transform(X[:count])  # first calls are not timed
        sides = {name: partial(one_call, model, X, count, iter(starts)) for name, model in models.items()}
        took = interleaved(len(starts), **sides)
        middle |= {(name, count): statistics.median(values) for name, values in took.items()}
        cells = [cell for name in _NAMES for cell in (middle[name, count], spread(took[name]))]
        lines.append([count, *cells, middle["theirs", count], median_ratio(took["theirs"], took["ours"])])
    title = f"transform of rows in memory, d = 784, l = {size}, {COMPONENTS} components, fitted on {rows} rows; medians"
    header = ["rows", "bigkpca, ms", "least to most", "light, ms", "least to most", "scikit-learn, ms", "times as fast"]
    yield Table(title, header, lines)
    for name, count, most in _MOST:
        yield Target(f"{_NAMES[name]}, {count} × 784, l = {size}", middle[name, count], "at most", most, "ms")
