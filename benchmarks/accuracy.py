"""Eigenvalues compared with exact ones: by landmark rule and size, estimated from sampled rows, and in float32."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.common import (
    COVERTYPE_MEDIAN_DISTANCE,
    MEDIAN_DISTANCE,
    USPS_MEDIAN_DISTANCE,
    arguments,
    covertype,
    exact_eigenvalues,
    mnist,
    some_rows,
    usps,
)
from benchmarks.results import Measured, Results, Table, Target, table
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array, RoundingWarning
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec

COMPONENTS = 50
LEADING, FEW_LANDMARKS = 20, 200  # of the table of estimates


def fitted(X: Array, **options: Any) -> Model:
    spec = FitSpec.checked(components=COMPONENTS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoundingWarning)  # which is what the second table measures
        return fit_rows(open_rows(X), spec, Engine())


def eigenvalues(X: Array, **options: Any) -> Array:
    return fitted(X, **options).solution.eigenvalues


def of_estimates(given: argparse.Namespace) -> tuple[Table, tuple[Measured, ...]]:
    """The errors of eigenvalues and of their estimates, and how often the intervals of these hold the exact one."""
    columns = covertype().astype(np.float32)
    standard = (columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-9)
    lines, measured = [], []
    for name, X, sigma in (
        ("mnist", mnist(), MEDIAN_DISTANCE),
        ("usps", usps(), USPS_MEDIAN_DISTANCE),
        ("covertype", standard, COVERTYPE_MEDIAN_DISTANCE),
    ):
        X = some_rows(X, min(given.rows, len(X)))
        exact = exact_eigenvalues(X, sigma, COMPONENTS, given.folder / f"exact-{name}-{len(X)}.npy")[:LEADING]
        plain, estimated, held = [], [], []
        for seed in range(3 * given.repeats):
            model = fitted(X, sigma=sigma, size=FEW_LANDMARKS, seed=seed)
            found = model.certificate
            assert found.eigenvalue_estimate is not None
            assert found.eigenvalue_standard_error is not None
            estimate, error = found.eigenvalue_estimate[:LEADING], found.eigenvalue_standard_error[:LEADING]
            plain.append(np.mean(np.abs(model.solution.eigenvalues[:LEADING] / exact - 1)))
            estimated.append(np.mean(np.abs(estimate / exact - 1)))
            held.append(np.mean(np.abs(estimate - exact) <= 1.96 * error))
        ratio, coverage = np.median(estimated) / np.median(plain), float(np.mean(held))
        lines.append([name, len(X), f"{np.median(plain):.3%}", f"{np.median(estimated):.3%}", ratio, f"{coverage:.1%}"])
        target = Target(f"{name}, {FEW_LANDMARKS} landmarks: error of estimates / of eigenvalues", "less", 1 / 8, "")
        measured.append(target.measured(ratio))
        measured.append(
            Target(f"{name}: 95 % intervals that hold the exact eigenvalue", "more", 0.95, "").measured(coverage)
        )
    title = f"Mean relative error of {LEADING} eigenvalues and of their estimates, {FEW_LANDMARKS} landmarks"
    header = ["data", "rows", "of eigenvalues", "of estimates", "ratio", "95% intervals hold"]
    return table(f"{title}; medians of {3 * given.repeats} seeds", header, lines), tuple(measured)


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=20_000, repeats=3)
    X = some_rows(mnist(), given.rows)
    exact = exact_eigenvalues(X, MEDIAN_DISTANCE, COMPONENTS, given.folder / f"exact-mnist-{given.rows}.npy")
    lines = []
    for rule in ("kmeans", "uniform"):
        for size in (given.size // 2, given.size):
            found = [
                np.abs(eigenvalues(X, sigma=MEDIAN_DISTANCE, landmarks=rule, size=size, seed=seed) / exact - 1)
                for seed in range(given.repeats)
            ]
            lines.append([rule, size, *(f"{np.mean([e[:top].mean() for e in found]):.2%}" for top in (20, 50))])
    title = f"Mean relative error of the leading eigenvalues, MNIST {given.rows} rows, sigma = median distance"
    errors = table(f"{title}, {given.repeats} seeds", ["landmarks", "l", "top 20", "top 50"], lines)
    lines = []
    for sigma in (5, 10, 40, 100):
        single, double = (
            eigenvalues(X, sigma=sigma * 255.0, size=given.size, dtype=dtype)[:LEADING]
            for dtype in ("float32", "float64")
        )
        lines.append([sigma, float(np.abs(single / double - 1).max())])
    precisions = table(
        f"float32 against float64, {given.size} landmarks: largest relative difference of the 20 leading eigenvalues",
        ["sigma (pixels in [0, 1])", "difference"],
        lines,
    )
    estimates, measured = of_estimates(given)
    return Results((errors, estimates, precisions), measured)


if __name__ == "__main__":
    main()
