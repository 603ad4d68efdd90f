"""Random features: error of the Gram matrix by form and number; time beside scikit-learn; very many features."""

from __future__ import annotations

import argparse
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
    spread,
    usps,
)
from benchmarks.results import Measured, Results, Table, Target, table
from benchmarks.sides import (
    FITTED,
    IN_MEMORY,
    LEADING,
    PCA_FITTED,
    Runs,
    Side,
    leading_eigenpairs,
    mean,
    median_peak,
    neighbouring,
    runs_of,
    seconds,
    smallest_as_accurate,
)
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.spec import FitSpec

COMPONENTS, GRAM_ROWS = 50, 2000
FORMS: dict[str, Any] = {
    "phase": methods.RandomFeatures(form="phase"),
    "iid": methods.RandomFeatures(form="iid"),
    "orthogonal": methods.RandomFeatures(form="orthogonal"),
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
_RBF_SAMPLER = f"""{IN_MEMORY}
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import RBFSampler
PCA(10, svd_solver="covariance_eigh").fit(RBFSampler(gamma=0.5 / sigma**2, n_components=some).fit_transform(few))
started = time.perf_counter()
Z = RBFSampler(gamma=0.5 / sigma**2, n_components=size, random_state=seed).fit_transform(X)
pca = PCA(components, svd_solver="covariance_eigh").fit(Z)
scores = pca.transform(Z)
{PCA_FITTED}"""
_OURS = f"""{IN_MEMORY.replace("data, sigma", "method, data, sigma")}
from bigkpca import KernelPCA
KernelPCA(components, method=method, sigma=sigma, size=some).fit_transform(few)
started = time.perf_counter()
model = KernelPCA(components, method=method, sigma=sigma, size=size, random_state=seed)
scores = model.fit_transform(X)
{FITTED}"""
_SHARES = (0.125, 0.25, 0.375, 0.4375, 0.5, 0.75, 1)  # of the features of scikit-learn: ours
_METHODS = ("rff", "rff-pca")


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


def beside_scikit_learn(given: argparse.Namespace, data: str) -> tuple[Table, list[Measured]]:
    """fit + transform in memory beside RBFSampler + PCA, and the targets at equal error of the leading eigenvalues."""
    sizes = [2 * round(share * given.features / 2) for share in _SHARES]
    asked = (data, str(MEDIAN_DISTANCE), str(COMPONENTS))
    ours = {
        method: {size: Side(f"bigkpca, {method}", size, _OURS, (method, *asked, str(size))) for size in sizes}
        for method in _METHODS
    }
    peer = Side("scikit-learn, RBFSampler + PCA", given.features, _RBF_SAMPLER, (*asked, str(given.features)))
    rows = np.load(data.replace(".zarr", ".npy"), mmap_mode="r")
    exact = leading_eigenpairs(rows, data, MEDIAN_DISTANCE, given.folder)
    sides = [*(side for of_method in ours.values() for side in of_method.values()), peer]
    runs = runs_of(sides, given.repeats, exact)
    errors = {side: mean(of_side, lambda run: run.error) for side, of_side in runs.items()}
    lines = []
    for side, of_side in runs.items():
        faster, took = neighbouring(runs[peer], of_side), statistics.median(seconds(of_side))
        cells = [took, statistics.median(faster), spread(faster), round(median_peak(of_side)), f"{errors[side]:.2%}"]
        lines.append([side.name, side.size, *cells])
    shown = table(
        f"MNIST, {given.rows} rows, {COMPONENTS} components, sigma = median distance, fit + transform in memory; "
        f"medians of {given.repeats} interleaved runs; error: mean relative error of the {LEADING} leading eigenvalues",
        ["what", "D", "seconds", "times as fast", "least to most", "peak MB", "error"],
        lines,
    )
    return shown, [_at_equal_error(runs, errors, of_method, peer, method) for method, of_method in ours.items()]


def _at_equal_error(runs: Runs, errors: dict[Side, float], ours: dict[int, Side], peer: Side, method: str) -> Measured:
    """How much faster a method is with the fewest features, of those measured, that are as accurate as the peer's."""
    target = Target(
        f"{method}, as accurate as RBFSampler + PCA with D = {peer.size}: its seconds / bigkpca's", "more", 3.0, "times"
    )
    chosen = smallest_as_accurate(errors[peer], {size: errors[side] for size, side in ours.items()})
    return target.measured(None if chosen is None else statistics.median(neighbouring(runs[peer], runs[ours[chosen]])))


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000, size=20_000, features=2048)
    rows, sizes = min(GRAM_ROWS, given.rows), (given.size // 50, given.size * 4 // 50)
    title = f"Relative Frobenius error of K, {rows} rows, sigma = median distance, median of {given.repeats} seeds"
    header = [f"{name}, D = {size}" for name in ("MNIST", "USPS") for size in sizes]
    by_form = table(title, ["form", *header], errors_by_form(rows, sizes, given.repeats))

    data = repeated_dataset(given.folder, given.rows)
    beside, as_fast = beside_scikit_learn(given, data)
    printed, peak = child(_FIT, data, str(MEDIAN_DISTANCE), str(COMPONENTS), str(given.size))
    spec = FitSpec.checked(
        method="rff", solver="randomized", n_components=COMPONENTS, sigma=MEDIAN_DISTANCE, size=given.size
    )
    planned = plan_fit(open_rows(data), spec, Engine().threads).peak_bytes / 1e6
    many = table(
        f"MNIST {given.rows} rows, {given.size} random features, {COMPONENTS} components, solver='randomized'",
        ["seconds", "peak MB", "planned MB", "D x D matrix, MB"],
        [[float(printed), round(peak), round(planned), f"{8 * given.size**2 / 1e6:.0f}"]],
    )
    return Results((by_form, beside, many), tuple(as_fast))


if __name__ == "__main__":
    main()
