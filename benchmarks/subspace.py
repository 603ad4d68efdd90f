"""k-means landmarks in the leading principal subspace, compared with centres of whole rows: angles, bounds, seconds."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from benchmarks.data import covertype, leading_eigenpairs, mnist, principal_cosines, some_rows, standardized, usps
from benchmarks.flights import flights
from benchmarks.results import Found, Table, Target
from benchmarks.timing import interleaved, median_ratio, seconds_of
from bigkpca import KernelPCA, kernels, landmarks
from bigkpca.errors import Array
from bigkpca.numerics.bandwidth import pair_distances

COMPONENTS, _FEWEST = 20, 15  # that are compared: as many as are followed by the widest gap
_PER_LANDMARK = 2  # rows, at least
_MOST = {"mean sine": 1.05, "upper bounds": 1.05, "seconds": 1.02}  # times those of whole rows

Settings = tuple[str, Array, str, kernels.Kernel, Array, int]  # data, rows, length, kernel, eigenvectors, landmarks


class Figures(NamedTuple):
    """Of a fit: the axes of its subspace, 0 without one; the root mean square of the sines of the angles between the
    spans of its leading scores and of exact ones; the sum of its upper bounds."""

    axes: int
    sine: float
    upper: float


def settings(folder: Path, rows: int, most: int) -> Iterator[Settings]:
    """Six data sets with half, once and twice the median length of a Gaussian kernel, and once that of others."""
    data: dict[str, Callable[[], Array]] = {
        "MNIST": mnist,
        "USPS": usps,
        "covertype": lambda: standardized(covertype()),
        "flights": lambda: standardized(flights(folder, rows)[1]),
        "digits": lambda: load_digits().data,
        "breast cancer": lambda: standardized(load_breast_cancer().data),
        "diabetes": lambda: standardized(load_diabetes().data),
    }
    for name, load in data.items():
        X = some_rows(load(), rows).astype(np.float32)
        median = float(np.sqrt(np.median(pair_distances(X, "sqeuclidean", np.random.default_rng(0))[0]) / 2))
        scale = 1 / float(np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1)))
        sizes = [size for size in (100, 300, most, 3 * most // 2) if _PER_LANDMARK * size <= len(X)]
        tried: list[tuple[str, kernels.Kernel]] = [
            (f"{times:g} sigma", kernels.Gaussian(times * median)) for times in (0.5, 1, 2)
        ]
        if X.shape[1] > 2 * COMPONENTS:
            tried += [
                ("1 sigma", kernels.Matern(median, nu=1.5)),
                ("1 sigma", kernels.RationalQuadratic(median)),
                ("degree 3", kernels.Polynomial(scale, degree=3)),
            ]
        for length, kernel in tried:
            U = exact(X, kernel)
            for size in sizes:
                yield name, X, length, kernel, U, size


def exact(X: Array, kernel: kernels.Kernel) -> Array:
    """The leading eigenvectors (n, r) of the centred Gram matrix, so many that the next one mixes little with them."""
    values, U = leading_eigenpairs(X, kernel, COMPONENTS + 1)
    ratios = values[1:] / values[:-1]  # of each eigenvalue to the one before it
    return U[:, : _FEWEST + np.argmin(ratios[_FEWEST - 1 :])]


def fitted(X: Array, kernel: kernels.Kernel, size: int, U: Array, seed: int, subspace: bool) -> Figures:
    """What a fit finds of the eigenvectors U (n, r)."""
    rule = landmarks.KMeans(subspace=subspace)
    kpca = KernelPCA(COMPONENTS, kernel=kernel, size=size, landmarks=rule, random_state=seed)
    cosines = principal_cosines(kpca.fit(X).transform(X)[:, : U.shape[1]], U)
    axes = getattr(kpca.model_.features, "axes", np.empty((0, 0))).shape[1]
    sine = np.sqrt(np.mean(np.maximum(1 - cosines**2, 1e-12)))
    return Figures(axes, float(sine), float(kpca.certificate_.upper.sum()))


def main(folder: Path, rows: int = 10_000, size: int = 1000, repeats: int = 5) -> Found:
    lines, ratios = [], []
    for name, X, length, kernel, U, count in settings(folder, rows, size):
        found: dict[bool, list[Figures]] = {True: [], False: []}

        def fit(subspace: bool, made: Any, found: Any = found) -> float:
            return seconds_of(lambda: found[subspace].append(made(seed=len(found[subspace]), subspace=subspace)))

        made = partial(fitted, X, kernel, count, U)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = interleaved(repeats, inside=partial(fit, True, made), whole=partial(fit, False, made))
        inside, whole = (np.mean(found[each], axis=0) for each in (True, False))
        took = median_ratio(seconds["inside"], seconds["whole"])
        angle, bound = inside[1] / whole[1], inside[2] / whole[2]
        lines.append([name, type(kernel).__name__, length, count, int(inside[0]), whole[1], angle, bound, took])
        print(*(f"{each:.4g}" if isinstance(each, float) else each for each in lines[-1]), flush=True)
        if inside[0]:
            ratios.append((angle, bound, took))
    header = ["data", "kernel", "length", "l", "axes", "sine", "sines", "upper bounds", "seconds"]
    title = f"Landmarks in the principal subspace / of whole rows, {rows} rows, {repeats} seeds"
    worst: list[float | None] = [None] * 3  # where no fit has a subspace
    if ratios:
        worst = np.max(ratios, axis=0).tolist()
        means = np.exp(np.mean(np.log(ratios), axis=0)).tolist()
        lines.append(["all with a subspace", "", "", "", "", "geometric mean", *means])
        lines.append(["", "", "", "", "", "largest", *worst])
    yield Table(title, header, lines)
    for (what, most), value in zip(_MOST.items(), worst, strict=True):
        yield Target(f"landmarks in the principal subspace, worst of all settings: {what}", value, "at most", most)
