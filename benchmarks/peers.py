"""Fit + transform of MNIST compared with scikit-learn, dask-ml, nystrompca and a NumPy loop: time, memory and error.

Lines marked "disk to disk" read a Zarr dataset and write model and scores; all others start from rows in memory, as
float32, and keep their scores there. Each run is a separate process, in turn A B C A B C ..., with one seed per turn;
imports and loading are not timed, nor is a first call of bigkpca and of scikit-learn's Nystroem + PCA on a few rows.
dask-ml and nystrompca are measured if they are installed. They can be in a separate folder, from which no other process
imports their dependencies: pip install --target build/peers dask-ml nystrompca. nystrompca computes kernel values one
by one in Python, which takes ten minutes for 60,000 rows, and runs once.

Two tables compare the smallest sizes of bigkpca, of those measured, that are at least as accurate as scikit-learn's:
by eigenvalues, for which bigkpca estimates the part that landmarks miss (`certificate_.estimate`), and by
scores, for which the cosine counts between the spans of the leading components and of exact ones. The exact eigenpairs
are computed once in each --folder, by bigkpca's exact method.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import arguments, repeated_dataset, spread
from benchmarks.results import Measured, Results, Table, Target, table
from benchmarks.sides import (
    DISK_TO_DISK,
    FITTED,
    IN_MEMORY,
    LEADING,
    PCA_FITTED,
    Run,
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

SIGMA = 2400.0
COMPONENTS = 50
_OWN = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1, 1.25, 1.5, 1.65, 2, 4)  # times --size
_TIMES = (1, 2, 4)  # --size: landmarks of scikit-learn
_ON_DISK, _IN_MEMORY = "disk to disk", "in memory"
_THEIRS = "scikit-learn"
_MEMORY = 0.5

_ESTIMATOR = f"""{IN_MEMORY}
from bigkpca import KernelPCA
KernelPCA(components, sigma=sigma, size=some).fit_transform(few)
started = time.perf_counter()
model = KernelPCA(components, sigma=sigma, size=size, random_state=seed)
scores = model.fit_transform(X)
{FITTED}"""

_SCIKIT_LEARN = f"""{IN_MEMORY}
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
PCA(10, svd_solver="covariance_eigh").fit(Nystroem(gamma=0.5 / sigma**2, n_components=some).fit_transform(few))
started = time.perf_counter()
Z = Nystroem(gamma=0.5 / sigma**2, n_components=size, random_state=seed).fit_transform(X)
pca = PCA(components, svd_solver="covariance_eigh").fit(Z)
scores = pca.transform(Z)
{PCA_FITTED}"""

_INCREMENTAL = f"""{IN_MEMORY}
from sklearn.decomposition import IncrementalPCA
from sklearn.kernel_approximation import Nystroem
started = time.perf_counter()
Z = Nystroem(gamma=0.5 / sigma**2, n_components=size, random_state=seed).fit_transform(X)
pca = IncrementalPCA(components).fit(Z)
scores = pca.transform(Z)
{PCA_FITTED}"""

_DASK_ML = f"""{IN_MEMORY}
import dask.array
from dask_ml.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
chunk = max(len(X) // 6, size)  # its PCA needs chunks that are taller than wide
started = time.perf_counter()
features = Nystroem(gamma=0.5 / sigma**2, n_components=size, random_state=seed).fit(X)
blocks = dask.array.from_array(X, chunks=(chunk, -1))
Z = blocks.map_blocks(features.transform, dtype=np.float32, chunks=(blocks.chunks[0], (size,))).persist()
pca = PCA(components, svd_solver="tsqr").fit(Z)
scores = pca.transform(Z).compute()
{PCA_FITTED}"""

_NYSTROMPCA = f"""{IN_MEMORY}
from nystrompca import NystromKPCA
started = time.perf_counter()
model = NystromKPCA(
    n_components=components, kernel="rbf", sigma=sigma * 2**0.5, scale=False, m_subset=size, seed=seed
)
scores = model.fit_transform(X)
took, values = time.perf_counter() - started, model.explained_variance_ * len(X)
"""

_NUMPY = f"""{IN_MEMORY}
from scipy.linalg import eigh
TILE = 2048
started = time.perf_counter()
landmarks = X[np.random.default_rng(seed).choice(len(X), size, replace=False)]
origin = landmarks.mean(axis=0)  # distances of rows far from 0 lose digits in float32
landmarks -= origin
lengths = np.einsum("ij,ij->i", landmarks, landmarks)

def kernel(rows):
    K = rows @ landmarks.T
    K *= 2
    K -= np.einsum("ij,ij->i", rows, rows)[:, None]
    K -= lengths
    K *= 0.5 / sigma**2
    return np.exp(np.minimum(K, 0, out=K), out=K)

values, vectors = eigh(kernel(landmarks).astype(np.float64))
kept = values > 1e-6 * values[-1]
to_features = vectors[:, kept] / np.sqrt(values[kept])
total, square = np.zeros(size), np.zeros((size, size))
for start in range(0, len(X), TILE):
    K = kernel(X[start : start + TILE] - origin)
    total += K.sum(axis=0, dtype=np.float64)
    square += K.T @ K
square -= np.outer(total, total / len(X))
found, axes = eigh(to_features.T @ square @ to_features)
projection = (to_features @ axes[:, ::-1][:, :components]).astype(np.float32)
mean = (total / len(X)).astype(np.float32) @ projection
scores = np.empty((len(X), components), np.float32)
for start in range(0, len(X), TILE):
    scores[start : start + TILE] = kernel(X[start : start + TILE] - origin) @ projection - mean
took, values = time.perf_counter() - started, found[::-1]
"""


def _ours(where: str) -> str:
    """What the table calls fits with k-means landmarks, from rows on disk or in memory."""
    return f"bigkpca, k-means, {where}"


def sides_of(given: argparse.Namespace, data: str) -> list[Side]:
    """Every line of the table, in the order in which they run."""

    def disk_to_disk(name: str, landmarks: str, share: float) -> Side:
        size = round(share * given.size)
        options = {"n_components": COMPONENTS, "sigma": SIGMA, "size": size, "landmarks": landmarks}
        written = (str(given.folder / "peers-model.zarr"), str(given.folder / "peers-scores.zarr"))
        return Side(name, size, DISK_TO_DISK, (data, *written, json.dumps(options)))

    def side(name: str, code: str, share: float, **more: Any) -> Side:
        size = round(share * given.size)
        return Side(name, size, code, (data, str(SIGMA), str(COMPONENTS), str(size)), **more)

    return [
        *(disk_to_disk(_ours(_ON_DISK), "kmeans", share) for share in _OWN),
        disk_to_disk(f"bigkpca, uniform, {_ON_DISK}", "uniform", 1),
        *(side(_ours(_IN_MEMORY), _ESTIMATOR, share) for share in _OWN),
        *(side(_THEIRS, _SCIKIT_LEARN, share) for share in _TIMES),
        side("scikit-learn, IncrementalPCA", _INCREMENTAL, 1),
        side("dask-ml, PCA of scikit-learn's Nystroem", _DASK_ML, 1, needs="dask_ml"),
        side("nystrompca", _NYSTROMPCA, 1, needs="nystrompca", once=True),
        *(side("NumPy loop", _NUMPY, share) for share in _TIMES),
    ]


@dataclass(frozen=True)
class Comparison:
    """Sizes of ours beside those of scikit-learn: the smallest one whose leading components are at most as wrong, or
    the same size.

    title, equal : what the table and the targets say is equal
    wrong, shown : how wrong runs are, and how the table shows it
    bounds : for each place, the least ratio of seconds for each of `_TIMES`
    """

    title: str
    equal: str
    wrong: Callable[[Sequence[Run]], float]
    shown: Callable[[float], str]
    bounds: Mapping[str, Sequence[float]]
    same_size: bool = False

    def size(self, peer: Side, runs: Runs, ours: Mapping[int, Side]) -> int | None:
        """The size of ours that is compared with a peer; None if none that was measured is as accurate."""
        if self.same_size:
            return peer.size
        return smallest_as_accurate(
            self.wrong(runs[peer]), {size: self.wrong(runs[side]) for size, side in ours.items()}
        )


def _lost(runs: Sequence[Run]) -> float:
    return 1 - mean(runs, lambda run: run.cosine)


def _cosine(lost: float) -> str:
    return f"{1 - lost:.7f}"


COMPARISONS = (
    Comparison(
        "By eigenvalues: error of estimates, of scikit-learn's eigenvalues",
        "as accurate by eigenvalues as scikit-learn with",
        lambda runs: mean(runs, lambda run: run.estimated),
        "{:.3%}".format,
        {_IN_MEMORY: (7.0, 22.0, 60.0), _ON_DISK: (5.0, 14.0, 40.0)},
    ),
    Comparison(
        "By scores: smallest cosine",
        "as accurate by scores as scikit-learn with",
        _lost,
        _cosine,
        {_IN_MEMORY: (5.0, 9.0, 16.0), _ON_DISK: (3.5, 6.0, 11.0)},
    ),
    Comparison(
        "At equal l: smallest cosine",
        "of scikit-learn's",
        _lost,
        _cosine,
        dict.fromkeys((_IN_MEMORY, _ON_DISK), (1.3, 1.5, 2.5)),
        same_size=True,
    ),
)


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000)
    data = repeated_dataset(given.folder, given.rows)
    rows = np.load(data.replace(".zarr", ".npy"), mmap_mode="r")
    exact = leading_eigenpairs(rows, data, SIGMA, given.folder)
    runs = runs_of(sides_of(given, data), given.repeats, exact)
    for path in ("peers-model.zarr", "peers-scores.zarr"):
        shutil.rmtree(given.folder / path, ignore_errors=True)
    peer = next(side for side in runs if side.name == _THEIRS and side.size == given.size)
    found = table(
        f"MNIST, {given.rows} rows, {COMPONENTS} components, sigma = {SIGMA:g}, fit + transform; medians of "
        f"{given.repeats} interleaved runs; the {LEADING} leading components against exact ones",
        [
            "what",
            "l",
            "seconds",
            "least to most",
            f"times as fast as scikit-learn, l = {given.size}",
            "peak MB",
            "error of eigenvalues",
            "of estimates",
            "smallest cosine",
        ],
        [line(side, runs, peer) for side in runs],
    )
    compared = [compare(each, runs) for each in COMPARISONS]
    return Results((found, *(shown for shown, _ in compared)), tuple(each for _, more in compared for each in more))


def line(side: Side, runs: Runs, peer: Side) -> list[Any]:
    """The line of a side in the table of all."""
    of_side = runs[side]
    if not of_side:
        return [side.name, side.size, "not installed", *[""] * 6]
    errors = [f"{mean(of_side, of):.3%}" for of in (lambda run: run.error, lambda run: run.estimated)]
    return [
        side.name,
        side.size,
        statistics.median(seconds(of_side)),
        spread(seconds(of_side)),
        statistics.median(neighbouring(runs[peer], of_side)),
        round(median_peak(of_side)),
        *errors,
        _cosine(_lost(of_side)),
    ]


def compare(comparison: Comparison, runs: Runs) -> tuple[Table, list[Measured]]:
    """A table of ratios of seconds and memory, in memory and from disk to disk, and the targets."""
    lines, measured = [], list[Measured]()
    for where, bounds in comparison.bounds.items():
        ours = {side.size: side for side in runs if side.name == _ours(where)}
        peers = [side for side in runs if side.name == _THEIRS]
        for peer, bound in zip(peers, bounds, strict=True):
            size, named = comparison.size(peer, runs, ours), f"{comparison.equal} l = {peer.size}"
            fast = Target(f"{where}, {named}: its seconds / bigkpca's", "more", bound, "times")
            wrong = comparison.shown(comparison.wrong(runs[peer]))
            if size is None:
                lines.append([where, peer.size, wrong, "none measured", *[""] * 4])
                measured.append(fast.measured(None))
                continue
            own = runs[ours[size]]
            found, memory = neighbouring(runs[peer], own), median_peak(own) / median_peak(runs[peer])
            middle, reached = statistics.median(found), comparison.shown(comparison.wrong(own))
            lines.append([where, peer.size, wrong, size, reached, middle, spread(found), memory])
            measured.append(fast.measured(middle))
            if comparison.same_size:
                small = Target(f"{where}, {named}: peak memory / its", "less", _MEMORY, "times")
                measured.append(small.measured(memory))
    measure = comparison.title.split(": ")[1]
    header = ["where", "scikit-learn, l", measure, "bigkpca, l", measure, "times as fast", "least to most"]
    return table(comparison.title, [*header, "share of its memory"], lines), measured


if __name__ == "__main__":
    main()
