"""Random features: error of the Gram matrix by form and number of features; time and memory of very many features."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.common import (
    MEDIAN_DISTANCE,
    USPS_MEDIAN_DISTANCE,
    arguments,
    child,
    mnist,
    repeated_dataset,
    some_rows,
    table,
    usps,
)
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.spec import FitSpec

COMPONENTS, GRAM_ROWS = 50, 2000
FORMS: dict[str, Any] = {
    "phase": methods.RandomFeatures(form="phase"),
    "iid": methods.RandomFeatures(form="iid"),
    "orthogonal": methods.RandomFeatures(form="orthogonal"),
    "qmc": methods.RandomFeatures(form="qmc"),
    "rff-pca": methods.PrincipalFeatures(),
}
_FIT = """
import sys, time
from bigkpca import KernelPCA
data, sigma, components, size = sys.argv[1:]
model = KernelPCA(
    int(components), method="rff", solver="randomized", sigma=float(sigma), size=int(size), random_state=0
)
started = time.perf_counter()
model.fit(data)
print(time.perf_counter() - started)
"""


def gram_error(X: Array, K: Array, sigma: float, method: Any, size: int, seed: int) -> float:
    """|K - K^|_F / |K|_F with K^ = ZZ', and for rff-pca the diagonal 1 - a_i² that its features leave."""
    model = KernelPCA(COMPONENTS, method=method, sigma=sigma, size=size, random_state=seed).fit(X)
    Z = arrays.feature_map(model.model_, X).compute().astype(np.float64)
    approximation = Z @ Z.T
    if isinstance(method, methods.PrincipalFeatures):
        np.fill_diagonal(approximation, 1.0)
    return float(np.linalg.norm(K - approximation) / np.linalg.norm(K))


def errors_by_form(rows: int, sizes: Sequence[int], repeats: int) -> list[list[str]]:
    """A line for each form: its name, then the median error for each data set and number of features."""
    columns = []
    for values, sigma in ((mnist(), MEDIAN_DISTANCE), (usps(), USPS_MEDIAN_DISTANCE)):
        X = some_rows(values, rows)
        K = kernels.Gaussian(sigma).gram(X)
        for size in sizes:
            found = [
                statistics.median(gram_error(X, K, sigma, method, size, seed) for seed in range(repeats))
                for method in FORMS.values()
            ]
            columns.append([f"{error:.4f}" for error in found])
    return [[name, *line] for name, line in zip(FORMS, zip(*columns, strict=True), strict=True)]


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=60_000, size=20_000)
    rows, sizes = min(GRAM_ROWS, given.rows), (given.size // 50, given.size * 4 // 50)
    title = f"Relative Frobenius error of K, {rows} rows, sigma = median distance, median of {given.repeats} seeds"
    header = [f"{name}, D = {size}" for name in ("MNIST", "USPS") for size in sizes]
    table(title, ["form", *header], errors_by_form(rows, sizes, given.repeats))

    data = repeated_dataset(given.folder, given.rows)
    printed, peak = child(_FIT, data, str(MEDIAN_DISTANCE), str(COMPONENTS), str(given.size))
    spec = FitSpec.checked(
        method="rff", solver="randomized", components=COMPONENTS, sigma=MEDIAN_DISTANCE, size=given.size
    )
    planned = plan_fit(open_rows(data), spec, Engine().threads).peak_bytes / 1e6
    table(
        f"MNIST {given.rows} rows, {given.size} random features, {COMPONENTS} components, solver='randomized'",
        ["seconds", "peak MB", "planned MB", "D x D matrix, MB"],
        [[float(printed), round(peak), round(planned), f"{8 * given.size**2 / 1e6:.0f}"]],
    )


if __name__ == "__main__":
    main()
