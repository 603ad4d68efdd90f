"""A seed makes a case, a case makes rows and a fit."""

from dataclasses import dataclass
from functools import partial

import dask.array as da
import numpy as np
import pandas as pd
import scipy
import zarr
from scipy.spatial.distance import cdist

from bigkpca import KernelPCA, kernels

DTYPES = ("float64", "float64", "float32", "float32", "float16", "uint8", "int16", "int32", "int64")
STATIONARY = ("gaussian", "laplacian", "matern", "rational-quadratic")
RULES = ("kmeans", "uniform", "rpcholesky", "basic-patterns", "numbers")


@dataclass(frozen=True)
class Case:
    """All that makes a fit. Lengths are in medians of the distance between rows; None is the default of KernelPCA."""

    seed: int = 0
    n: int = 200
    d: int = 4
    shape: str = "blobs"
    spoils: tuple[str, ...] = ()
    unit: int = 0  # rows are multiplied by 10**unit
    dtype: str = "float64"
    kernel: str = "gaussian"
    length: float | None = 1.0
    method: str = "nystroem"
    rule: str = "auto"
    size: int | str = 50
    components: int | float | None = 5
    center: bool = True
    standardize: bool = False
    block: str | None = None
    parts: int = 1  # the first is fitted, the others are added by partial_fit, or
    merged: bool = False  # fitted with the features of the first, and all of them merged
    container: str = "array"
    refine: int = 0
    held_out: int | None = None  # rows that are sampled for likely bounds; None leaves the package's number


def case(seed):
    """The case of a seed."""
    rng = np.random.default_rng(seed)

    def one(values):
        return values[rng.integers(len(values))]

    def chance(p):
        return bool(rng.random() < p)

    n = int(rng.integers(60, 400)) if chance(0.96) else int(rng.integers(400, 1501))
    kernel, method = one(["gaussian"] * 3 + list(KERNELS)), "nystroem"
    if chance(0.4):
        waves = ["rff"] * (kernel in (*STATIONARY, "polynomial", "scaled")) + ["rff-pca"] * (kernel == "gaussian")
        method = one(["columns", "exact", *waves, *waves])
    sizes = 2 * int(rng.integers(8, 200)), "auto" if chance(0.1) else int(rng.integers(4, max(n // 2, 5)))
    size = "auto" if method == "exact" else sizes[method in ("nystroem", "columns")]
    rule = one(["auto", "auto", *RULES]) if method == "nystroem" else "auto"
    components, length = one([1, 2, 5, 5, 10, 20, 0.9, None]), float(np.exp(rng.uniform(np.log(0.05), np.log(100))))
    refine = 3 * (method == "nystroem" and isinstance(components, int) and chance(0.08))
    rows = {"n": n, "d": int(one([1, 2, 3, 5, 8, 20])), "shape": one(["blobs", "far cluster", *SHAPES])}
    rows |= {"spoils": tuple(rng.permutation(list(SPOILS))[: one([0, 0, 1, 1, 2, 3])].tolist()), "dtype": one(DTYPES)}
    fit = {"kernel": kernel, "length": None if chance(0.2) else length, "method": method, "rule": rule}
    fit |= {"size": size, "components": components, "center": chance(0.8), "standardize": chance(0.25)}
    unit, parts = int(rng.integers(-12, 13)) * chance(0.3), 1 if method == "exact" or refine else one([1, 1, 1, 2, 3])
    fit |= {"block": one([None, None, "float32", "float64"]), "refine": refine, "unit": unit, "parts": parts}
    fit |= {"held_out": int(rng.integers(64, 513)) if chance(0.5) else None}
    return Case(seed, **rows, **fit, merged=chance(0.5), container=one(["array"] * 3 + list(CONTAINERS)))


def _with_clusters(X, rng, count):
    for _ in range(count):
        few = rng.choice(len(X), max(1, round(len(X) * 10 ** rng.uniform(-4, -1))), replace=False)
        X[few] = 10 ** rng.uniform(-4, -1) * X[few] + rng.normal(size=X.shape[1]) * 10 ** rng.uniform(0.5, 4)
    return X


def _with_values(X, rng, share, columns):
    value = rng.choice([-999, -9999, 1e6, 1e10, 1e20, -3.4028234e38], p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1])
    rows, chosen = rng.random(len(X)) < share, rng.random(X.shape[1]) < columns
    rows[rng.integers(len(X))] = chosen[rng.integers(len(chosen))] = True
    return np.where(rows[:, None] & chosen, value, X)


SHAPES = {
    "blobs": lambda X, rng: X + 3 * rng.normal(size=(4, X.shape[1]))[rng.integers(0, 4, len(X))],
    "cauchy": lambda X, rng: rng.standard_cauchy(X.shape),
    "lognormal": lambda X, rng: np.exp(rng.uniform(1, 4) * X),
    "far cluster": lambda X, rng: _with_clusters(X, rng, 1),
    "far clusters": lambda X, rng: _with_clusters(X, rng, 3),
    "counts": lambda X, rng: rng.poisson(rng.uniform(0.2, 20, X.shape[1]), X.shape).astype(float),
    "few": lambda X, rng: X[rng.integers(0, rng.integers(2, 13), len(X))],
    "line": lambda X, rng: X[:, :1] * rng.normal(size=X.shape[1]),
    "giants": lambda X, rng: (
        X * np.where(rng.permutation(len(X)) < rng.integers(1, 6), 10 ** rng.uniform(2, 7), 1)[:, None]
    ),
    "hubs": lambda X, rng: X * np.where(rng.random((len(X), 1)) < 0.9, 10 ** rng.uniform(-6, -1), 1),
    "lattice": lambda X, rng: np.rint(2 * X) / 2,
    "near ties": lambda X, rng: np.eye(X.shape[1])[rng.integers(0, X.shape[1], len(X))] + 10 ** rng.uniform(-9, -2) * X,
    "one-hot": lambda X, rng: np.eye(max(X.shape[1], 2))[rng.integers(0, max(X.shape[1], 2), len(X))],
    "denormals": lambda X, rng: X * 10 ** rng.uniform(-44, -36),
    "spheres": lambda X, rng: X / np.linalg.norm(X, axis=1, keepdims=True) * rng.integers(1, 3, (len(X), 1)),
    "walk": lambda X, rng: np.cumsum(X, axis=0),
}
CONTAINERS = {
    "zarr": lambda X: zarr.array(X, chunks=(max(1, len(X) // 3), X.shape[1])),
    "dask": lambda X: da.from_array(X, chunks=(max(1, len(X) // 3), -1)),
    "sparse": lambda X: X if X.dtype == np.float16 else scipy.sparse.csr_array(X),  # which SciPy has not
    "frame": lambda X: pd.DataFrame(X, columns=[f"c{number}" for number in range(X.shape[1])]),
}
SPOILS = {
    "outlier": lambda X, rng: X * np.where(rng.permutation(X.size) > 0, 1, 10 ** rng.uniform(2, 8)).reshape(X.shape),
    "outliers": lambda X, rng: X * np.where(rng.random((len(X), 1)) < 0.03, 10 ** rng.uniform(1, 6), 1),
    "sentinel": lambda X, rng: _with_values(X, rng, 0.05 * rng.random(), 0),
    "sentinels": lambda X, rng: _with_values(X, rng, 0.05 * rng.random(), 0.5),
    "constant": lambda X, rng: np.where(rng.permutation(X.shape[1]) > 0, X, 10 ** rng.uniform(-3, 6)),
    "collinear": lambda X, rng: np.where(rng.permutation(X.shape[1]) > 0, X, X @ rng.normal(size=(X.shape[1], 1))),
    "duplicates": lambda X, rng: np.vstack([X[: len(X) // 2], X[: len(X) - len(X) // 2]]),
    "sorted": lambda X, rng: X[X[:, rng.integers(X.shape[1])].argsort()],
    "units": lambda X, rng: X * 10 ** rng.uniform(-6, 6, X.shape[1]),
    "offset": lambda X, rng: X + 10 ** rng.uniform(0, 8) * np.abs(X).mean(axis=0) * rng.choice([-1, 1], X.shape[1]),
}


def rows_of(case):
    """The rows of a case as they are stored, (n, d): clipped to what their dtype holds; integers and float16 first get
    a unit in which they vary."""
    rng, kind = np.random.default_rng([case.seed, 1]), np.dtype(case.dtype)
    X = SHAPES[case.shape](rng.normal(size=(case.n, case.d)) * rng.uniform(0.2, 2, case.d), rng)
    for spoil in case.spoils:
        X = SPOILS[spoil](X, rng)
    X *= 10.0**case.unit
    middle = float(np.median(np.abs(X - np.median(X, axis=0)))) or 1.0
    if kind.kind in "iu":
        X = X * (min(20.0, np.iinfo(kind).max / 8) / middle)
        return np.clip(np.rint(X), max(np.iinfo(kind).min, -(2**53)), min(np.iinfo(kind).max, 2**53)).astype(kind)
    return np.clip(X / middle if kind.itemsize == 2 else X, np.finfo(kind).min, np.finfo(kind).max).astype(kind)


def _of_distance(X, Y, profile, sigma):
    return profile(cdist(X, Y) / sigma)


# From a length, a slope (one over a squared norm) and a number that picks among other parameters.
KERNELS = {
    "gaussian": lambda sigma, slope, pick: kernels.Gaussian(sigma),
    "laplacian": lambda sigma, slope, pick: kernels.Laplacian(sigma),
    "matern": lambda sigma, slope, pick: kernels.Matern(sigma, [0.5, 0.8, 1.5, 2.5][pick % 4]),
    "rational-quadratic": lambda sigma, slope, pick: kernels.RationalQuadratic(sigma, [0.5, 1.0, 3.0][pick % 3]),
    "linear": lambda sigma, slope, pick: kernels.Linear(),
    "polynomial": lambda sigma, slope, pick: kernels.Polynomial(slope, 2 + pick % 2, float(pick // 2 % 2)),
    "sigmoid": lambda sigma, slope, pick: kernels.Sigmoid(slope, [-0.5, 0.0, 1.0][pick % 3]),
    "cosine": lambda sigma, slope, pick: kernels.Cosine(),
    "sum": lambda sigma, slope, pick: kernels.Gaussian(sigma) + slope * kernels.Linear(),
    "product": lambda sigma, slope, pick: kernels.Gaussian(sigma) * kernels.Matern(2 * sigma, 1.5),
    "scaled": lambda sigma, slope, pick: 1e-6 * kernels.Gaussian(sigma),
    "callable": lambda sigma, slope, pick: partial(_of_distance, profile=lambda s: np.exp(-(s**2) / 2), sigma=sigma),
    "indefinite": lambda sigma, slope, pick: partial(_of_distance, profile=lambda s: np.tanh(1 - s), sigma=sigma),
}


def kernel_of(case, X):
    """The kernel of a case on rows X: a name, or a value whose lengths are shares of medians of these rows."""
    if case.length is None and case.kernel in (*STATIONARY, "linear", "polynomial", "sigmoid", "cosine"):
        return case.kernel
    rows, length = X.astype(float), case.length or 1
    if case.standardize:
        deviations = rows.std(axis=0)
        rows = (rows - rows.mean(axis=0)) / np.where(deviations > 0, deviations, 1)
    rows = rows[np.random.default_rng([case.seed, 2]).permutation(len(rows))[:300]]
    distances = cdist(rows, rows, "cityblock" if case.kernel == "laplacian" else "euclidean")
    sigma = length * float(np.median(distances[distances > 0])) if distances.any() else 1.0
    slope = 1 / (length * (float(np.median((rows**2).sum(axis=1))) or 1.0))
    return KERNELS[case.kernel](sigma, slope, case.seed)


def estimator_of(case, X):
    """The estimator of a case on rows X, not fitted."""
    first = len(np.array_split(X, case.parts)[0])
    numbers = np.random.default_rng([case.seed, 3]).permutation(first)[: None if case.size == "auto" else case.size]
    rule = numbers if case.rule == "numbers" else case.rule
    chosen = {"kernel": kernel_of(case, X), "landmarks": rule, "dtype": case.block}
    chosen |= {"size": "auto" if case.rule == "numbers" else case.size, "random_state": case.seed % 2**31}
    chosen |= {name: getattr(case, name) for name in ("method", "center", "standardize", "refine")}
    return KernelPCA(case.components, **chosen)
