"""Fit + transform of MNIST compared with scikit-learn and a NumPy loop: time, memory and error.

bigkpca has k-means landmarks, scikit-learn and the loop have random rows. "Disk to disk" reads a Zarr dataset and
writes model and scores. All other lines start from float32 rows in memory and keep their scores there. Each run is a
separate process with its own seed. Imports, loading and a first call on a few rows are not timed.

Below, the smallest size of bigkpca that is at least as accurate as scikit-learn is compared with it: by eigenvalues, to
which bigkpca adds an estimate of the part that landmarks miss (`certificate_.estimate`), and by the angles between the
spans of the 20 leading components and of the exact ones. The mean angle is the arcsine of the root mean square of the
sines of the 20 principal angles, and the targets are for it. The smallest cosine, that of the largest angle, is the
stricter measure. The exact eigenpairs are computed once in each --folder.
"""

import json
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.data import Eigenpairs, exact_eigenpairs, kept_eigenpairs, principal_cosines, repeated_dataset
from benchmarks.results import Found, Table, Target
from benchmarks.timing import child, ratios, spread
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec

SIGMA, COMPONENTS, LEADING = 2400.0, 50, 20
# Landmarks of bigkpca as shares of the size: near those of scikit-learn in the error of eigenvalues (0.1, 0.15), the
# mean angle (0.28 to 0.3, 0.56 to 0.6, 1.3 to 1.4) and the smallest cosine (0.38, 0.75, 1.7)
SHARES = (0.1, 0.15, 0.28, 0.3, 0.38, 0.56, 0.6, 0.75, 1.3, 1.4, 1.7)
THEIR_SHARES = (1, 2, 4)  # landmarks of scikit-learn
FEATURES = (0.125, 0.25, 0.5, 0.75)  # of their features: random features of bigkpca
OURS, THEIRS, SAMPLER = "bigkpca", "scikit-learn", "scikit-learn, RBFSampler + PCA"
IN_MEMORY, DISK_TO_DISK = f"{OURS}, in memory", f"{OURS}, disk to disk"
_HELD = 12_000  # rows, up to which the full matrix is held
_RESIDUAL = 1e-5  # of the products: eigenvalues are off by about its square, and spans by itself over a gap

_DISK_TO_DISK = """
import json, shutil, sys, time
import numpy as np
import zarr
import bigkpca
data, options, model, written, size, seed, leading = sys.argv[1:]
options, few = json.loads(options), zarr.open_array(data + "/x", mode="r")[:1000]
for path in (model, written):
    shutil.rmtree(path, ignore_errors=True)
bigkpca.fit(few, model, transform=written, size=100, **options)
for path in (model, written):
    shutil.rmtree(path)
started = time.perf_counter()
fitted = bigkpca.fit(data, model, transform=written, size=int(size), random_state=int(seed), **options)
took = time.perf_counter() - started
values, estimates = fitted.solution.eigenvalues, fitted.certificate.estimate
scores = zarr.open_array(written + "/scores", mode="r")
"""

_IN_MEMORY = """
import json, sys, time
import numpy as np
data, options, size, seed, leading = sys.argv[1:]
options, size, seed = json.loads(options), int(size), int(seed)
X = np.load(data.replace(".zarr", ".npy")).astype(np.float32)
few, some = X[:1000].copy(), min(size, 100)  # for the first call, which is not timed
"""

_OURS = f"""{_IN_MEMORY}
from bigkpca import KernelPCA
KernelPCA(size=some, **options).fit_transform(few)
started = time.perf_counter()
model = KernelPCA(size=size, random_state=seed, **options)
scores = model.fit_transform(X)
took, values, estimates = time.perf_counter() - started, model.eigenvalues_, model.certificate_.estimate
"""

_SCIKIT_LEARN = f"""{_IN_MEMORY}
from sklearn import kernel_approximation
from sklearn.decomposition import PCA
Features = getattr(kernel_approximation, options["features"])
gamma, components = 0.5 / options["sigma"] ** 2, options["n_components"]
PCA(10, svd_solver="covariance_eigh").fit(Features(gamma=gamma, n_components=some).fit_transform(few))
started = time.perf_counter()
Z = Features(gamma=gamma, n_components=size, random_state=seed).fit_transform(X)
pca = PCA(components, svd_solver="covariance_eigh").fit(Z)
scores = pca.transform(Z)
took, values = time.perf_counter() - started, pca.explained_variance_ * (len(X) - 1.0)
estimates = values
"""

_NUMPY = f"""{_IN_MEMORY}
from scipy.linalg import eigh
TILE = 2048
sigma, components = options["sigma"], options["n_components"]
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
estimates = values
"""

_REPORT = f"""
print(json.dumps([took, *(each[:{LEADING}].tolist() for each in (values, estimates))]))
np.save(leading, scores[:, :{LEADING}])
"""


@dataclass(frozen=True)
class Side:
    """A program: code that is given `argv`, a size, a seed and a path, and sets `took`, `values`, `estimates` and
    `scores`."""

    name: str
    size: int
    code: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """What one run of a side took, and how wrong its leading components are.

    error, estimated : mean relative error of the eigenvalues, and of their estimates where there are any
    angle, cosine : between the span of the scores and that of the exact ones, the arcsine of the root mean square of
        the sines of the principal angles, in degrees, and the smallest cosine
    """

    seconds: float
    peak: float  # MB
    error: float
    estimated: float
    angle: float
    cosine: float


Runs = dict[Side, list[Run]]


def runs_of(sides: Sequence[Side], repeats: int, exact: Eigenpairs) -> Runs:
    """The runs of each side, in turn A B C A B C ... with one seed per turn."""
    found: Runs = {side: [] for side in sides}
    with TemporaryDirectory() as folder:
        leading = Path(folder) / "leading.npy"
        for seed in range(repeats):
            for side in sides:
                printed, peak = child(side.code + _REPORT, *side.argv, str(side.size), str(seed), str(leading))
                took, *plain_and_estimated = json.loads(printed)
                values, estimates = map(np.array, plain_and_estimated)
                better = np.where(np.isnan(estimates), values, estimates)
                error, estimated = (float(np.abs(each / exact.values - 1).mean()) for each in (values, better))
                run = Run(took, peak, error, estimated, *angle_and_cosine(np.load(leading), exact.vectors))
                found[side].append(run)
                print(f"{side.name}, {side.size}, seed {seed}: {run}", flush=True)
    return found


def angle_and_cosine(scores: Array, vectors: Array) -> tuple[float, float]:
    """The mean angle in degrees and the smallest cosine between the spans of scores and of orthonormal vectors."""
    cosines = principal_cosines(scores, vectors)
    sine = np.sqrt(max(0.0, np.mean(1 - cosines**2)))
    return float(np.degrees(np.arcsin(sine))), float(cosines[-1])


def smallest_as_accurate(allowed: float, errors: Mapping[int, float]) -> int | None:
    """The smallest size from which on all errors are at most the one allowed; None if that of the largest is not."""
    above = max((size for size, found in errors.items() if found > allowed), default=0)
    return min((size for size in errors if size > above), default=None)


def leading_eigenpairs(X: Array, path: str, sigma: float, folder: Path) -> Eigenpairs:
    """The exact leading eigenpairs of the rows X, which are also a dataset at `path`; computed once in each folder.

    Where the full matrix is too large to hold, by the exact method, until residuals are below 1e-5.
    """
    kept = folder / f"leading-{len(X)}-{sigma:g}.npz"
    if len(X) <= _HELD:
        return exact_eigenpairs(X, sigma, LEADING, kept)

    def found() -> Eigenpairs:
        spec: Any = FitSpec.checked(n_components=LEADING, sigma=sigma, method="exact", residual_tol=_RESIDUAL)
        solution = fit_rows(open_rows(path), spec, Engine()).solution
        return Eigenpairs(solution.eigenvalues, solution.components * np.sqrt(solution.eigenvalues))

    return kept_eigenpairs(kept, found)


def sides_of(folder: Path, data: str, size: int, features: int) -> list[Side]:
    """All programs, in the order in which they run."""
    written = (str(folder / "peers-model.zarr"), str(folder / "peers-scores.zarr"))

    def sides(name: str, code: str, sizes: Sequence[float], *written: str, **options: str) -> Iterator[Side]:
        argv = (data, json.dumps({"n_components": COMPONENTS, "sigma": SIGMA, **options}), *written)
        return (Side(name, 2 * round(each / 2), code, argv) for each in sizes)

    ours, theirs = ([share * size for share in shares] for shares in (SHARES, THEIR_SHARES))
    of_features = [share * features for share in FEATURES]
    return [
        *sides(DISK_TO_DISK, _DISK_TO_DISK, ours, *written, landmarks="kmeans"),
        *sides(IN_MEMORY, _OURS, ours, landmarks="kmeans"),
        *sides(THEIRS, _SCIKIT_LEARN, theirs, features="Nystroem"),
        *sides("NumPy loop", _NUMPY, theirs[:2]),
        *sides("bigkpca, rff", _OURS, of_features, method="rff"),
        *sides("bigkpca, rff-pca", _OURS, of_features, method="rff-pca"),
        *sides(SAMPLER, _SCIKIT_LEARN, [features], features="RBFSampler"),
    ]


def mean(runs: Sequence[Run], of: Callable[[Run], float]) -> float:
    return statistics.mean(map(of, runs))


def peak(runs: Sequence[Run]) -> float:
    return statistics.median(run.peak for run in runs)


FIGURES: dict[str, tuple[Callable[[Run], float], Callable[[float], str]]] = {  # of a run, smaller is better; as a cell
    "error of eigenvalues": (lambda run: run.error, "{:.3%}".format),
    "of estimates": (lambda run: run.estimated, "{:.3%}".format),
    "mean angle": (lambda run: run.angle, "{:.4f}°".format),
    "smallest cosine": (lambda run: 1 - run.cosine, lambda lost: f"{1 - lost:.7f}"),
}


def line(side: Side, runs: Sequence[Run]) -> list[Any]:
    """The line of a side in the table of all."""
    figures = [shown(mean(runs, of)) for of, shown in FIGURES.values()]
    return [side.name, side.size, statistics.median(run.seconds for run in runs), round(peak(runs)), *figures]


@dataclass(frozen=True)
class Comparison:
    """A peer at each of its sizes, beside the smallest of our sizes that is at most as wrong.

    figure : the one of FIGURES that tells how wrong
    bounds : for each of our programs, the least ratio of seconds at each size of the peer, None without a target
    """

    title: str
    peer: str
    figure: str
    bounds: Mapping[str, Sequence[float | None]]

    def compare(self, runs: Runs) -> Found:
        """The table of sizes, ratios of seconds and of memory; and the targets."""
        found: list[list[Any]] = []
        wrong, shown = FIGURES[self.figure]
        peers = [side for side in runs if side.name == self.peer]
        for name, bounds in self.bounds.items():
            ours = {side.size: side for side in runs if side.name == name}
            errors = {size: mean(runs[side], wrong) for size, side in ours.items()}
            short = name.removeprefix(f"{OURS}, ")
            for peer, bound in zip(peers, bounds, strict=True):
                allowed = mean(runs[peer], wrong)
                line = [short, peer.size, shown(allowed)]
                ratio, size = None, smallest_as_accurate(allowed, errors)
                if size is None:
                    found.append([*line, "none measured", *[""] * 4])
                else:
                    own = runs[ours[size]]
                    times = ratios([run.seconds for run in runs[peer]], [run.seconds for run in own])
                    ratio, memory = statistics.median(times), peak(own) / peak(runs[peer])
                    found.append([*line, size, shown(errors[size]), ratio, spread(times), memory])
                if bound is not None:
                    what = f"as fast as {peer.name}, size {peer.size}: {short}, {self.title.lower()}"
                    yield Target(what, ratio, "at least", bound, "times")
        header = ["what", "their size", "their figure", "our size", "our figure", "times as fast", "least to most"]
        yield Table(f"{self.title}, {self.peer}", [*header, "share of memory"], found)


COMPARISONS = (
    Comparison("By eigenvalues", THEIRS, "of estimates", {IN_MEMORY: (8, 25, 80), DISK_TO_DISK: (5, 14, 40)}),
    Comparison("By mean angle", THEIRS, "mean angle", {IN_MEMORY: (8, 16, 26), DISK_TO_DISK: (5, 11, 18)}),
    Comparison("By smallest cosine", THEIRS, "smallest cosine", dict.fromkeys((IN_MEMORY, DISK_TO_DISK), (None,) * 3)),
    Comparison("By eigenvalues", SAMPLER, "error of eigenvalues", {"bigkpca, rff": (3,), "bigkpca, rff-pca": (3,)}),
)


def main(folder: Path, rows: int = 60_000, size: int = 1000, repeats: int = 3, features: int = 2048) -> Found:
    data = repeated_dataset(folder, rows)
    X = np.load(data.replace(".zarr", ".npy"), mmap_mode="r")
    exact = leading_eigenpairs(X, data, SIGMA, folder)
    runs = runs_of(sides_of(folder, data, size, features), repeats, exact)
    for path in ("peers-model.zarr", "peers-scores.zarr"):
        shutil.rmtree(folder / path, ignore_errors=True)
    title = (
        f"MNIST, {rows} rows, {COMPONENTS} components, sigma = {SIGMA:g}, fit + transform; medians of {repeats} "
        f"interleaved runs; the {LEADING} leading components against exact ones"
    )
    yield Table(title, ["what", "size", "seconds", "peak MB", *FIGURES], [line(side, runs[side]) for side in runs])
    for comparison in COMPARISONS:
        yield from comparison.compare(runs)
