"""Eigenvalues compared with exact ones: by landmark rule, by the estimates of the certificate, and random features.

Fits of the first table read a Zarr dataset.
"""

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import DATA, dataset, exact_eigenpairs, some_rows, standardized
from benchmarks.results import Found, Table, Target
from benchmarks.sources.common import relative
from benchmarks.timing import seconds_of
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.errors import Array

LEADING, GRAM_ROWS = 20, 2000
_NORMAL = 1.96  # standard errors to either side: 95 %
RULES: dict[str, dict[str, Any]] = {
    **{rule: {"landmarks": rule} for rule in ("uniform", "kmeans", "rpcholesky", "basic-patterns")},
    "columns (uniform)": {"method": "columns"},
}
METHODS: dict[str, dict[str, Any]] = {  # sizes are times the number of landmarks of Nyström
    "nystroem": {},
    "columns": {"method": "columns"},
    "rff": {"method": "rff", "size": 5},
    "rff-pca": {"method": "rff-pca", "size": 5},
}
FORMS: dict[str, Any] = {
    "phase": methods.RandomFeatures(form="phase"),
    "iid": methods.RandomFeatures(form="iid"),
    "orthogonal": methods.RandomFeatures(form="orthogonal"),
    "rff-pca": methods.PrincipalFeatures(),
}


def of_rules(folder: Path, rows: int, size: int, repeats: int) -> Found:
    """Errors of eigenvalues, and seconds of a fit, by data, landmark rule and size."""
    n, sizes, lines = 4 * rows // 5, (size // 4, size), []
    for name, (load, sigma, standardize) in DATA.items():
        X = some_rows(load(), n)
        path = dataset(folder / f"{name}-{n}.zarr", X)
        seen = standardized(X) if standardize else X
        exact = exact_eigenpairs(seen, sigma, LEADING, folder / f"exact-{name}-{n}.npz").values
        for rule, options in RULES.items():
            cells: list[Any] = []
            for size in sizes:
                asked = {"sigma": sigma, "standardize": standardize, "size": size, **options}
                models = [KernelPCA(LEADING, random_state=seed, **asked) for seed in range(repeats)]
                seconds = [seconds_of(partial(model.fit, path)) for model in models]
                errors = [np.abs(model.eigenvalues_ / exact - 1).mean() for model in models]
                cells += [f"{np.mean(errors):.4f}", statistics.median(seconds)]
            lines.append([name, rule, *cells])
    title = f"Mean relative error of the {LEADING} leading eigenvalues, {n} rows, sigma = median distance"
    header = ["data", "landmarks", *(cell for size in sizes for cell in (f"l = {size}", "seconds"))]
    yield Table(f"{title}, {repeats} seeds", header, lines)


def of_estimates(folder: Path, rows: int, landmarks: int, draws: int) -> Found:
    """Errors of plain and estimated eigenvalues, how often 95 % intervals contain the exact value, and the targets."""
    lines = []
    for name, (load, sigma, standardize) in DATA.items():
        X = some_rows(load(), rows)
        X = standardized(X) if standardize else X
        exact = exact_eigenpairs(X, sigma, LEADING, folder / f"exact-{name}-{len(X)}.npz").values
        for method, options in METHODS.items():
            size = landmarks * options.get("size", 1)
            seeds = range(draws if method == "nystroem" else max(draws // 10, 1))
            found = [_errors(X, exact, {**options, "sigma": sigma, "size": size}, seed) for seed in seeds]
            plain, estimated, held = np.mean(found, axis=0)
            lines.append([name, method, size, f"{plain:.3%}", f"{estimated:.3%}", f"{held:.1%}"])
            if method == "nystroem":
                where = f"{name}, l = {size}"
                what = f"{where}: error of estimated eigenvalues / plain ones"
                yield Target(what, estimated / plain, "at most", 0.125)
                what = f"{where}: intervals with the exact value"
                yield Target(what, 100 * held, "at least", 95.0, "%")
    header = ["data", "method", "size", "plain", "estimated", "95 % intervals with the exact value"]
    title = f"Mean relative error of the {LEADING} leading eigenvalues, plain and estimated, {rows} rows"
    yield Table(f"{title}, {draws} seeds (a tenth for other methods than nystroem)", header, lines)


def _errors(X: Array, exact: Array, options: dict[str, Any], seed: int) -> tuple[float, float, float]:
    """Mean relative errors of plain and estimated eigenvalues, and the share of 95 % intervals with the exact value."""
    kpca = KernelPCA(LEADING, random_state=seed, **options).fit(X)
    known = kpca.certificate_
    off = np.abs(known.estimate - exact)
    held = (off <= _NORMAL * known.standard_error)[~np.isnan(off)]
    return float(np.abs(kpca.eigenvalues_ / exact - 1).mean()), float(np.nanmean(off / exact)), float(held.mean())


def of_features(rows: int, size: int, repeats: int) -> Found:
    """Errors of the Gram matrix by the form of random features and their number."""
    found = {}
    for name in ("MNIST", "USPS"):
        X, sigma = some_rows(DATA[name].load(), rows), DATA[name].sigma
        K = kernels.Gaussian(sigma).gram(X)
        for D in (size, 4 * size):
            errors = [[_gram_error(X, K, sigma, of, D, seed) for seed in range(repeats)] for of in FORMS.values()]
            found[f"{name}, D = {D}"] = [f"{error:.4f}" for error in np.median(errors, axis=1)]
    lines = [*zip(FORMS, *found.values(), strict=True)]
    title = f"Relative Frobenius error of K, {rows} rows, sigma = median distance, median of {repeats} seeds"
    yield Table(title, ["form", *found], lines)


def _gram_error(X: Array, K: Array, sigma: float, method: Any, size: int, seed: int) -> float:
    """|K - K^|_F / |K|_F with K^ = ZZ', and for rff-pca the diagonal 1 - a_i² that its features leave."""
    model = KernelPCA(LEADING, method=method, sigma=sigma, size=size, random_state=seed).fit(X)
    Z = arrays.feature_map(model.model_, X).compute().astype(np.float64)
    approximation = Z @ Z.T
    if isinstance(method, methods.PrincipalFeatures):
        np.fill_diagonal(approximation, 1.0)
    return relative(approximation, K)


def main(folder: Path, rows: int = 10_000, size: int = 400, repeats: int = 5, draws: int = 50) -> Found:
    yield from of_rules(folder, rows, size, repeats)
    yield from of_estimates(folder, rows, size // 2, draws)
    yield from of_features(min(GRAM_ROWS, rows), size, repeats)
