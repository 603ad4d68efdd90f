"""Eigenvalues compared with exact ones: by landmark rule and size, estimates and plain ones, float32 and float64."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.common import MEDIAN_DISTANCE, arguments, exact_eigenpairs, mnist, some_rows
from benchmarks.landmarks import DATA, standardized
from benchmarks.results import Measured, Results, Table, Target, table
from benchmarks.sides import LEADING
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array, RoundingWarning
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec

COMPONENTS = 50


_ESTIMATES = 0.125  # of the error of the plain eigenvalues
_NORMAL = 1.96  # standard errors to either side: 95 %


def fitted(X: Array, **options: Any) -> Model:
    """A model of rows in memory."""
    spec = FitSpec.checked(n_components=COMPONENTS, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoundingWarning)  # which is what the second table measures
        return fit_rows(open_rows(X), spec, Engine())


METHODS: dict[str, dict[str, Any]] = {  # sizes are times the number of landmarks of Nyström
    "nystroem": {},
    "columns": {"method": "columns"},
    "rff": {"method": "rff", "size": 5},
    "rff-pca": {"method": "rff-pca", "size": 5},
}


def estimates(given: argparse.Namespace) -> tuple[Table, list[Measured]]:
    """Errors of estimated and plain eigenvalues of three data sets, how often 95 % intervals hold, and the targets."""
    lines, measured = [], list[Measured]()
    for name, (load, sigma, standardize) in DATA.items():
        values = load()
        X = some_rows(values, min(given.rows // 2, len(values)))
        X = standardized(X) if standardize else X
        exact = exact_eigenpairs(X, sigma, LEADING, given.folder / f"exact-{name}-{len(X)}-{LEADING}.npz").values
        for method, options in METHODS.items():
            size = given.size // 5 * options.get("size", 1)
            draws = given.draws if method == "nystroem" else max(given.draws // 10, 1)
            plain, better, held = np.mean(
                [
                    _errors(exact, fitted(X, sigma=sigma, random_state=seed, **options | {"size": size}))
                    for seed in range(draws)
                ],
                axis=0,
            )
            lines.append([name, method, size, f"{plain:.3%}", f"{better:.3%}", f"{held:.1%}"])
            if method != "nystroem":
                continue
            where = f"{name}, {len(X)} rows, l = {size}"
            error = Target(f"{where}: error of estimated eigenvalues / plain ones", "less", _ESTIMATES, "times")
            measured.append(error.measured(better / plain))
            measured.append(Target(f"{where}: 95 % intervals that hold", "more", 95.0, "%").measured(100 * held))
    header = ["data", "method", "size", "plain", "estimated", "95 % intervals that hold"]
    title = f"Mean relative error of the {LEADING} leading eigenvalues, plain and estimated, {given.draws} seeds"
    return table(f"{title} (a tenth for other methods than nystroem)", header, lines), measured


def _errors(exact: Array, model: Model) -> tuple[float, float, float]:
    """Mean relative errors of plain and estimated eigenvalues, and the share of 95 % intervals that hold."""
    values, known = model.solution.eigenvalues[:LEADING], model.certificate
    found, deviation = known.estimate[:LEADING], known.standard_error[:LEADING]
    off = np.abs(found - exact)
    return (
        float(np.abs(values / exact - 1).mean()),
        float(np.nanmean(off / exact)),
        float(np.mean((off <= _NORMAL * deviation)[~np.isnan(off)])),
    )


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=20_000, repeats=3, draws=100)
    X = some_rows(mnist(), given.rows)
    exact = exact_eigenpairs(X, MEDIAN_DISTANCE, COMPONENTS, given.folder / f"exact-{given.rows}.npz").values
    lines = []
    for rule in ("kmeans", "uniform"):
        for size in (given.size // 2, given.size):
            found = [
                np.abs(model.solution.eigenvalues / exact - 1)
                for model in (
                    fitted(X, sigma=MEDIAN_DISTANCE, landmarks=rule, size=size, random_state=seed)
                    for seed in range(given.repeats)
                )
            ]
            lines.append([rule, size, *(f"{np.mean([e[:top].mean() for e in found]):.2%}" for top in (20, 50))])
    title = f"Mean relative error of the leading eigenvalues, MNIST {given.rows} rows, sigma = median distance"
    errors = table(f"{title}, {given.repeats} seeds", ["landmarks", "l", "top 20", "top 50"], lines)
    lines = []
    for sigma in (5, 10, 40, 100):
        single, double = (
            fitted(X, sigma=sigma * 255.0, size=given.size, dtype=dtype).solution.eigenvalues[:20]
            for dtype in ("float32", "float64")
        )
        lines.append([sigma, float(np.abs(single / double - 1).max())])
    precisions = table(
        f"float32 against float64, {given.size} landmarks: largest relative difference of the 20 leading eigenvalues",
        ["sigma (pixels in [0, 1])", "difference"],
        lines,
    )
    estimated, measured = estimates(given)
    return Results((errors, precisions, estimated), tuple(measured))


if __name__ == "__main__":
    main()
