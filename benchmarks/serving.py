"""Scores of a few rows in memory, as a server computes them: KernelPCA, the light estimator of `to_sklearn`, and
scikit-learn's Nystroem + PCA."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

from benchmarks.common import MEDIAN_DISTANCE, arguments, interleaved, median_ratio, mnist, seconds_of, spread
from benchmarks.results import Results, Target, table
from bigkpca import KernelPCA
from bigkpca.errors import Array

COMPONENTS = 50
_MOST = {1: 1.0, 1000: 20.0}  # rows at once: milliseconds
_MOST_LIGHT = 0.5  # for one row by `to_sklearn`
_CALLS = {1: 200, 1000: 20}  # timed in each repeat


def one_call(model: Any, X: Array, count: int, starts: Iterator[int]) -> float:
    """Milliseconds of scoring `count` rows of X from the next start on."""
    start = next(starts)
    rows = X[start : start + count]
    return 1000 * seconds_of(lambda: model.transform(rows))


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000)
    X = mnist()[: given.rows].astype(np.float32)
    ours = KernelPCA(COMPONENTS, sigma=MEDIAN_DISTANCE, size=given.size, random_state=0).fit(X)
    light = ours.to_sklearn()
    theirs = make_pipeline(
        Nystroem(gamma=0.5 / MEDIAN_DISTANCE**2, n_components=given.size, random_state=0),
        PCA(COMPONENTS, svd_solver="covariance_eigh"),
    ).fit(X)
    lines, measured = [], []
    for count, most in _MOST.items():
        starts = np.random.default_rng(0).integers(len(X) - count + 1, size=given.repeats * _CALLS[count])
        for model in (ours, light, theirs):
            model.transform(X[:count])  # first calls are not timed
        took = interleaved(
            len(starts),
            ours=partial(one_call, ours, X, count, iter(starts)),
            light=partial(one_call, light, X, count, iter(starts)),
            theirs=partial(one_call, theirs, X, count, iter(starts)),
        )
        middle = {name: statistics.median(values) for name, values in took.items()}
        lines.append(
            [
                *(count, middle["ours"], spread(took["ours"]), middle["light"], spread(took["light"])),
                *(middle["theirs"], median_ratio(took["theirs"], took["ours"])),
            ]
        )
        what = f"KernelPCA.transform of {count} rows in memory, l = {given.size}"
        measured.append(Target(what.replace(" 1 rows", " 1 row"), "less", most, "ms").measured(middle["ours"]))
        if count == 1:
            what = f"KernelPCA.to_sklearn().transform of 1 row in memory, l = {given.size}"
            measured.append(Target(what, "less", _MOST_LIGHT, "ms").measured(middle["light"]))
    shown = table(
        f"transform of rows in memory, d = 784, l = {given.size}, {COMPONENTS} components, fitted on {given.rows} "
        "rows; medians",
        ["rows", "bigkpca, ms", "least to most", "light, ms", "least to most", "scikit-learn, ms", "times as fast"],
        lines,
    )
    return Results((shown,), tuple(measured))


if __name__ == "__main__":
    main()
