"""Eigenvalues of 20000 MNIST rows compared with exact ones: by landmark rule and size, and float32 against float64."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.common import MEDIAN_DISTANCE, arguments, exact_eigenvalues, mnist, some_rows
from benchmarks.results import Results, table
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array, RoundingWarning
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec

COMPONENTS = 50


def fitted(X: Array, **options: Any) -> Array:
    spec = FitSpec.checked(components=COMPONENTS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoundingWarning)  # which is what the second table measures
        return fit_rows(open_rows(X), spec, Engine()).solution.eigenvalues


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=20_000, repeats=3)
    X = some_rows(mnist(), given.rows)
    exact = exact_eigenvalues(X, MEDIAN_DISTANCE, COMPONENTS, given.folder / f"exact-{given.rows}.npy")
    lines = []
    for rule in ("kmeans", "uniform"):
        for size in (given.size // 2, given.size):
            found = [
                np.abs(fitted(X, sigma=MEDIAN_DISTANCE, landmarks=rule, size=size, seed=seed) / exact - 1)
                for seed in range(given.repeats)
            ]
            lines.append([rule, size, *(f"{np.mean([e[:top].mean() for e in found]):.2%}" for top in (20, 50))])
    title = f"Mean relative error of the leading eigenvalues, MNIST {given.rows} rows, sigma = median distance"
    errors = table(f"{title}, {given.repeats} seeds", ["landmarks", "l", "top 20", "top 50"], lines)
    lines = []
    for sigma in (5, 10, 40, 100):
        single, double = (
            fitted(X, sigma=sigma * 255.0, size=given.size, dtype=dtype)[:20] for dtype in ("float32", "float64")
        )
        lines.append([sigma, float(np.abs(single / double - 1).max())])
    precisions = table(
        f"float32 against float64, {given.size} landmarks: largest relative difference of the 20 leading eigenvalues",
        ["sigma (pixels in [0, 1])", "difference"],
        lines,
    )
    return Results((errors, precisions))


if __name__ == "__main__":
    main()
