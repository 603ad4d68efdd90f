"""Fit + transform of MNIST compared with scikit-learn, dask-ml, nystrompca and a NumPy loop: time, memory and error.

Lines marked "disk to disk" read a Zarr dataset and write model and scores; all others start from rows in memory, as
float32, and keep their scores there. Each run is a separate process, in turn A B C A B C ..., with one seed per turn;
imports and loading are not timed, nor is a first call of bigkpca and of scikit-learn's Nystroem + PCA on a few rows.
dask-ml and nystrompca are measured if they are installed. They can be in a separate folder, from which no other process
imports their dependencies: pip install --target build/peers dask-ml nystrompca. nystrompca computes kernel values one
by one in Python, which takes ten minutes for 60,000 rows, and runs once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.common import arguments, repeated_dataset, spread
from benchmarks.results import Measured, Results, Table, Target, table
from benchmarks.sides import (
    DISK_TO_DISK,
    IN_MEMORY,
    LEADING,
    Runs,
    Side,
    error,
    leading_eigenvalues,
    median_peak,
    neighbouring,
    runs_of,
    seconds,
    smallest_as_accurate,
)

SIGMA = 2400.0
COMPONENTS = 50
_OWN = (0.2, 0.25, 0.4, 0.5, 0.55, 0.8, 1, 1.5, 1.65, 2, 4)  # times --size
_ON_DISK, _IN_MEMORY = "disk to disk", "in memory"
_THEIRS = "scikit-learn"
_EQUAL_ERROR = {1: 4.0, 2: 7.0, 4: 12.0}  # times --size: least ratio of seconds
_EQUAL_SIZE = {1: 1.3, 2: 1.5, 4: 2.5}
_MEMORY = 0.5

_ESTIMATOR = f"""{IN_MEMORY}
from bigkpca import KernelPCA
KernelPCA(components, sigma=sigma, size=some).fit_transform(few)
started = time.perf_counter()
model = KernelPCA(components, sigma=sigma, size=size, random_state=seed)
scores = model.fit_transform(X)
print(json.dumps([time.perf_counter() - started, model.eigenvalues_[:20].tolist()]))
"""

_SCIKIT_LEARN = f"""{IN_MEMORY}
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
PCA(10, svd_solver="covariance_eigh").fit(Nystroem(gamma=0.5 / sigma**2, n_components=some).fit_transform(few))
started = time.perf_counter()
Z = Nystroem(gamma=0.5 / sigma**2, n_components=size, random_state=seed).fit_transform(X)
pca = PCA(components, svd_solver="covariance_eigh").fit(Z)
scores = pca.transform(Z)
print(json.dumps([time.perf_counter() - started, (pca.explained_variance_[:20] * (len(X) - 1.0)).tolist()]))
"""

_INCREMENTAL = f"""{IN_MEMORY}
from sklearn.decomposition import IncrementalPCA
from sklearn.kernel_approximation import Nystroem
started = time.perf_counter()
Z = Nystroem(gamma=0.5 / sigma**2, n_components=size, random_state=seed).fit_transform(X)
pca = IncrementalPCA(components).fit(Z)
scores = pca.transform(Z)
print(json.dumps([time.perf_counter() - started, (pca.explained_variance_[:20] * (len(X) - 1.0)).tolist()]))
"""

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
print(json.dumps([time.perf_counter() - started, (pca.explained_variance_[:20] * (len(X) - 1.0)).tolist()]))
"""

_NYSTROMPCA = f"""{IN_MEMORY}
from nystrompca import NystromKPCA
started = time.perf_counter()
model = NystromKPCA(
    n_components=components, kernel="rbf", sigma=sigma * 2**0.5, scale=False, m_subset=size, seed=seed
)
scores = model.fit_transform(X)
print(json.dumps([time.perf_counter() - started, (model.explained_variance_[:20] * len(X)).tolist()]))
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
print(json.dumps([time.perf_counter() - started, found[::-1][:20].tolist()]))
"""


def _ours(where: str) -> str:
    """What the table calls fits with k-means landmarks, from rows on disk or in memory."""
    return f"bigkpca, k-means, {where}"


def sides_of(given: argparse.Namespace, data: str) -> list[Side]:
    """Every line of the table, in the order in which they run."""

    def disk_to_disk(name: str, landmarks: str, share: float) -> Side:
        size = round(share * given.size)
        options = {"components": COMPONENTS, "sigma": SIGMA, "size": size, "landmarks": landmarks}
        written = (str(given.folder / "peers-model.zarr"), str(given.folder / "peers-scores.zarr"))
        return Side(name, size, DISK_TO_DISK, (data, *written, json.dumps(options)))

    def side(name: str, code: str, share: float, **more: Any) -> Side:
        size = round(share * given.size)
        return Side(name, size, code, (data, str(SIGMA), str(COMPONENTS), str(size)), **more)

    return [
        *(disk_to_disk(_ours(_ON_DISK), "kmeans", share) for share in _OWN),
        disk_to_disk(f"bigkpca, uniform, {_ON_DISK}", "uniform", 1),
        *(side(_ours(_IN_MEMORY), _ESTIMATOR, share) for share in _OWN),
        *(side(_THEIRS, _SCIKIT_LEARN, share) for share in _EQUAL_SIZE),
        side("scikit-learn, IncrementalPCA", _INCREMENTAL, 1),
        side("dask-ml, PCA of scikit-learn's Nystroem", _DASK_ML, 1, needs="dask_ml"),
        side("nystrompca", _NYSTROMPCA, 1, needs="nystrompca", once=True),
        *(side("NumPy loop", _NUMPY, share) for share in _EQUAL_SIZE),
    ]


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000)
    data = repeated_dataset(given.folder, given.rows)
    rows = np.load(data.replace(".zarr", ".npy"), mmap_mode="r")
    exact = leading_eigenvalues(rows, data, SIGMA, given.folder)
    runs = runs_of(sides_of(given, data), given.repeats)
    for path in ("peers-model.zarr", "peers-scores.zarr"):
        shutil.rmtree(given.folder / path, ignore_errors=True)
    title = f"MNIST, {given.rows} rows, {COMPONENTS} components, sigma = {SIGMA:g}, fit + transform"
    errors = {side: error(of_side, exact) for side, of_side in runs.items() if of_side}
    theirs = {side.size: side for side in runs if side.name == _THEIRS}
    found = table(
        f"{title}; medians of {given.repeats} interleaved runs; error: mean relative error of the {LEADING} leading "
        "eigenvalues against exact ones",
        [
            "what",
            "l",
            "seconds",
            "least to most",
            f"times as fast as scikit-learn, l = {given.size}",
            "peak MB",
            "error",
        ],
        [line(side, runs, theirs[given.size], errors) for side in runs],
    )
    tables, measured = [found], list[Measured]()
    for where in (_ON_DISK, _IN_MEMORY):
        ours = {side.size: side for side in runs if side.name == _ours(where)}
        for shown, figures in (
            at_equal_error(where, given.size, runs, errors, ours, theirs),
            at_equal_size(where, given.size, runs, ours, theirs),
        ):
            tables.append(shown)
            measured += figures
    return Results(tuple(tables), tuple(measured))


def line(side: Side, runs: Runs, peer: Side, errors: dict[Side, float]) -> list[Any]:
    """The line of a side in the table of all."""
    if not runs[side]:
        return [side.name, side.size, "not installed", "", "", "", ""]
    took = seconds(runs[side])
    faster = statistics.median(neighbouring(runs[peer], runs[side]))
    peak = round(median_peak(runs[side]))
    return [side.name, side.size, statistics.median(took), spread(took), faster, peak, f"{errors[side]:.3%}"]


def at_equal_error(
    where: str, unit: int, runs: Runs, errors: dict[Side, float], ours: dict[int, Side], theirs: dict[int, Side]
) -> tuple[Table, list[Measured]]:
    """How many times as fast the smallest size is that is as accurate as scikit-learn's, and the targets."""
    lines, measured = [], []
    for times, bound in _EQUAL_ERROR.items():
        peer = theirs[times * unit]
        size = smallest_as_accurate(errors[peer], {size: errors[side] for size, side in ours.items()})
        target = Target(
            f"{where}, as accurate as scikit-learn with l = {peer.size}: its seconds / bigkpca's",
            "more",
            bound,
            "times",
        )
        if size is None:
            lines.append([peer.size, f"{errors[peer]:.3%}", "none measured", "", "", ""])
            measured.append(target.measured(None))
            continue
        found = neighbouring(runs[peer], runs[ours[size]])
        middle = statistics.median(found)
        lines.append([peer.size, f"{errors[peer]:.3%}", size, f"{errors[ours[size]]:.3%}", middle, spread(found)])
        measured.append(target.measured(middle))
    header = ["scikit-learn, l", "error", "bigkpca, k-means, l", "error", "times as fast", "least to most"]
    return table(
        f"At equal error, {where}: the smallest l measured that is at least as accurate", header, lines
    ), measured


def at_equal_size(
    where: str, unit: int, runs: Runs, ours: dict[int, Side], theirs: dict[int, Side]
) -> tuple[Table, list[Measured]]:
    """Seconds and memory beside scikit-learn's with as many landmarks, and the targets."""
    lines, measured = [], []
    for times, bound in _EQUAL_SIZE.items():
        size = times * unit
        own, peer = runs[ours[size]], runs[theirs[size]]
        found, share = neighbouring(peer, own), median_peak(own) / median_peak(peer)
        lines.append([size, statistics.median(found), spread(found), share])
        fast = Target(f"{where}, l = {size}, scikit-learn's seconds / bigkpca's", "more", bound, "times")
        small = Target(f"{where}, l = {size}, peak memory / scikit-learn's", "less", _MEMORY, "times")
        measured += [fast.measured(statistics.median(found)), small.measured(share)]
    header = ["l", "times as fast", "least to most", "share of its memory"]
    return table(f"At equal l, {where}: bigkpca with k-means beside scikit-learn", header, lines), measured


if __name__ == "__main__":
    main()
