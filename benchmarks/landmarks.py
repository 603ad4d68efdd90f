"""Landmark rules on three data sets: error of the leading eigenvalues against exact ones, and seconds of each fit.

Every fit reads a Zarr dataset block by block.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    COVERTYPE_MEDIAN_DISTANCE,
    MEDIAN_DISTANCE,
    USPS_MEDIAN_DISTANCE,
    arguments,
    covertype,
    exact_eigenpairs,
    mnist,
    seconds_of,
    some_rows,
    usps,
)
from benchmarks.results import Results, table
from bigkpca import KernelPCA
from bigkpca.errors import Array
from bigkpca.ingesting import ingest

COMPONENTS = 20
DATA: dict[str, tuple[Callable[[], Array], float, bool]] = {  # rows, sigma = median distance, standardize
    "MNIST": (mnist, MEDIAN_DISTANCE, False),
    "USPS": (usps, USPS_MEDIAN_DISTANCE, False),
    "covertype": (covertype, COVERTYPE_MEDIAN_DISTANCE, True),
}
WAYS: dict[str, dict[str, Any]] = {
    **{rule: {"landmarks": rule} for rule in ("uniform", "kmeans", "rpcholesky", "basic-patterns")},
    "columns (uniform)": {"method": "columns"},
}


def dataset(X: Array, path: Path) -> str:
    """The rows as a dataset on disk, made once in each folder."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = path.with_suffix(".npy")
        np.save(raw, X)
        ingest([raw], path)
    return str(path)


def standardized(X: Array) -> Array:
    """Columns of mean 0 and deviation 1; constant ones are only shifted."""
    rows = X - X.mean(axis=0, dtype=np.float64)
    deviations = rows.std(axis=0)
    return rows / np.where(deviations > 0, deviations, 1)


def measured(path: str, exact: Array, repeats: int, **options: Any) -> tuple[float, float]:
    """(mean relative error of the eigenvalues, mean over seeds; median seconds of a fit)."""
    models = [KernelPCA(COMPONENTS, random_state=seed, **options) for seed in range(repeats)]
    seconds = [seconds_of(partial(model.fit, path)) for model in models]
    errors = [float(np.abs(model.eigenvalues_ / exact - 1).mean()) for model in models]
    return statistics.mean(errors), statistics.median(seconds)


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=8000, size=400)
    sizes = (given.size // 4, given.size)
    lines = []
    for name, (load, sigma, standardize) in DATA.items():
        X = some_rows(load(), given.rows)
        path = dataset(X, given.folder / f"{name}-{given.rows}.zarr")
        seen = standardized(X) if standardize else X
        exact = exact_eigenpairs(seen, sigma, COMPONENTS, given.folder / f"exact-{name}-{given.rows}.npz").values
        for way, options in WAYS.items():
            asked = {"sigma": sigma, "standardize": standardize, **options}
            found = [measured(path, exact, given.repeats, size=size, **asked) for size in sizes]
            lines.append([name, way, *(cell for error, seconds in found for cell in (f"{error:.4f}", seconds))])
    title = f"Mean relative error of the {COMPONENTS} leading eigenvalues, {given.rows} rows, sigma = median distance"
    header = [cell for size in sizes for cell in (f"l = {size}", "seconds")]
    return Results((table(f"{title}, {given.repeats} seeds", ["data", "landmarks", *header], lines),))


if __name__ == "__main__":
    main()
