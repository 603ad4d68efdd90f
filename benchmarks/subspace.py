"""k-means landmarks in the leading principal subspace, compared with centres of whole rows: angles, bounds, seconds."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import eigsh
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from benchmarks.common import arguments, covertype, interleaved, mnist, seconds_of, some_rows, standardized, usps
from benchmarks.flights import flights
from benchmarks.results import Results, Target, table
from bigkpca import KernelPCA, kernels, landmarks
from bigkpca.errors import Array
from bigkpca.numerics.bandwidth import pair_distances

COMPONENTS, _FEWEST = 20, 15  # that are compared: as many as are followed by the widest gap
_PER_LANDMARK = 2  # rows, at least
_MOST = {"mean sine": 1.05, "upper bounds": 1.05, "seconds": 1.02}  # times those of whole rows

Settings = tuple[str, Array, str, kernels.Kernel, int]  # data, rows, length of the kernel, kernel, landmarks


class Found(NamedTuple):
    """Of a fit: the axes of its subspace, 0 without one; the root mean square of the sines of the angles between the
    spans of its leading scores and of exact ones; the sum of its upper bounds."""

    axes: int
    sine: float
    upper: float


def settings(given: Any) -> Iterator[Settings]:
    """Six data sets with half, once and twice the median length of a Gaussian kernel, and once that of others."""
    data: dict[str, Callable[[], Array]] = {
        "MNIST": mnist,
        "USPS": usps,
        "covertype": lambda: standardized(covertype()),
        "flights": lambda: standardized(flights(given.folder, given.rows)[1]),
        "digits": lambda: load_digits().data,
        "breast cancer": lambda: standardized(load_breast_cancer().data),
        "diabetes": lambda: standardized(load_diabetes().data),
    }
    for name, load in data.items():
        whole = load()
        X = some_rows(whole, min(given.rows, len(whole))).astype(np.float32)
        median = float(np.sqrt(np.median(pair_distances(X, "sqeuclidean", np.random.default_rng(0))[0]) / 2))
        scale = 1 / float(np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1)))
        sizes = [size for size in (100, 300, given.size, 3 * given.size // 2) if _PER_LANDMARK * size <= len(X)]
        tried: list[tuple[str, kernels.Kernel]] = [
            (f"{times:g} sigma", kernels.Gaussian(times * median)) for times in (0.5, 1, 2)
        ]
        if X.shape[1] > 2 * COMPONENTS:
            tried += [
                ("1 sigma", kernels.Matern(median, nu=1.5)),
                ("1 sigma", kernels.RationalQuadratic(median)),
                ("degree 3", kernels.Polynomial(scale, degree=3)),
            ]
        for (length, kernel), size in product(tried, sizes):
            yield name, X, length, kernel, size


def exact(X: Array, kernel: kernels.Kernel) -> Array:
    """The leading eigenvectors (n, r) of the centred Gram matrix, so many that the next one mixes little with them."""
    rows = X.astype(np.float64) - (X.mean(axis=0) if kernel.stationary else 0)
    K = kernel(rows, rows)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    values, U = eigsh(K, k=COMPONENTS + 1, which="LA")
    ratios = values[:-1] / values[1:]  # ascending: of each eigenvalue to the one before it
    return np.asarray(U[:, 1 + np.argmin(ratios[: COMPONENTS + 1 - _FEWEST]) :])


def fitted(X: Array, kernel: kernels.Kernel, size: int, U: Array, seed: int, subspace: bool) -> Found:
    """What a fit finds of the eigenvectors U (n, r)."""
    rule = landmarks.KMeans(subspace=subspace)
    kpca = KernelPCA(COMPONENTS, kernel=kernel, size=size, landmarks=rule, random_state=seed)
    scores = kpca.fit(X).transform(X)[:, : U.shape[1]]
    Q = np.linalg.qr(scores.astype(np.float64))[0]
    cosines = np.linalg.svd(U.T @ Q)[1]
    axes = getattr(kpca.model_.features, "axes", np.empty((0, 0))).shape[1]
    sine = np.sqrt(np.mean(np.maximum(1 - cosines**2, 1e-12)))
    return Found(axes, float(sine), float(kpca.certificate_.upper.sum()))


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=10_000, repeats=5)
    lines, ratios = [], []
    known: tuple[Any, Array] = (None, np.empty(0))
    for name, X, length, kernel, size in settings(given):
        if known[0] != (name, kernel):
            known = (name, kernel), exact(X, kernel)
        found: dict[bool, list[Found]] = {True: [], False: []}

        def fit(subspace: bool, made: Any, found: Any = found) -> float:
            return seconds_of(lambda: found[subspace].append(made(seed=len(found[subspace]), subspace=subspace)))

        made = partial(fitted, X, kernel, size, known[1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds = interleaved(given.repeats, inside=partial(fit, True, made), whole=partial(fit, False, made))
        inside, whole = (np.mean(found[each], axis=0) for each in (True, False))
        took = float(np.median(np.divide(seconds["inside"], seconds["whole"])))
        angle, bound = inside[1] / whole[1], inside[2] / whole[2]
        lines.append([name, type(kernel).__name__, length, size, int(inside[0]), whole[1], angle, bound, took])
        print(*(f"{each:.4g}" if isinstance(each, float) else each for each in lines[-1]), flush=True)
        if inside[0]:
            ratios.append((angle, bound, took))
    header = ["data", "kernel", "length", "l", "axes", "sine", "sines", "upper bounds", "seconds"]
    title = f"Landmarks in the principal subspace / of whole rows, {given.rows} rows, {given.repeats} seeds"
    worst: list[float | None] = [None] * 3  # where no fit has a subspace
    if ratios:
        worst = np.max(ratios, axis=0).tolist()
        means = np.exp(np.mean(np.log(ratios), axis=0)).tolist()
        lines.append(["all with a subspace", "", "", "", "", "geometric mean", *means])
        lines.append(["", "", "", "", "", "largest", *worst])
    targets = tuple(
        Target(f"landmarks in the principal subspace, worst of all settings: {what}", value, "at most", most)
        for (what, most), value in zip(_MOST.items(), worst, strict=True)
    )
    return Results((table(title, header, lines),), targets)


if __name__ == "__main__":
    main()
