"""Data, exact eigenpairs and timing for the benchmarks."""

import argparse
import gzip
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import eigsh

from benchmarks.results import as_cell
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import mean_features, sums_of
from bigkpca.fitting.features import choose_features
from bigkpca.fitting.sample import draw_sample, scaled_columns
from bigkpca.fitting.solve import rounding_of
from bigkpca.ingesting import ingest
from bigkpca.numerics.kernels import Gaussian
from bigkpca.spec import FitSpec, resolve

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
MEDIAN_DISTANCE = 2601.0  # of MNIST rows, raw pixels 0 to 255; 10.2 with pixels in [0, 1]
COMMAND = "import sys; from bigkpca.cli import main; main(sys.argv[1:], standalone_mode=False)"
_PRINT_PEAK = """
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def _mnist(name: str, start: int) -> Array:
    with gzip.open(SHARED / "mnist" / f"{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=start)


def mnist(part: str = "train") -> Array:
    """The 60,000 training digits, or with "t10k" the 10,000 test digits, (n, 784), uint8."""
    return _mnist(f"{part}-images-idx3", 16).reshape(-1, 784)


def mnist_labels(part: str = "train") -> Array:
    """The digit of each row of a part, (n,)."""
    return _mnist(f"{part}-labels-idx1", 8)


def usps() -> Array:
    """The 9298 digits, (9298, 256), pixels in [-1, 1]."""
    return np.load(SHARED / "usps" / "usps_int16.npz")["X_milli"].astype(np.float32) / 1000


def usps_labels() -> Array:
    """The digit of each row, (9298,)."""
    return np.load(SHARED / "usps" / "usps_int16.npz")["y"]


def covertype() -> Array:
    """Cartographic columns of forest plots, (92962, 54), in their own units."""
    return np.load(SHARED / "covertype" / "covtype_93k.npz")["X_raw"]


def covertype_labels() -> Array:
    """The type of forest of each plot, (92962,)."""
    return np.load(SHARED / "covertype" / "covtype_93k.npz")["y"]


class Data(NamedTuple):
    """Rows, sigma = their median distance, and whether columns are standardised."""

    load: Callable[[], Array]
    sigma: float
    standardize: bool = False


DATA = {
    "MNIST": Data(mnist, MEDIAN_DISTANCE),
    "USPS": Data(usps, 15.5),
    "covertype": Data(covertype, 8.26, standardize=True),
}


def some_rows(X: Array, count: int) -> Array:
    """`count` rows in their order, the same ones every time."""
    return X[np.sort(np.random.default_rng(0).choice(len(X), count, replace=False))]


def standardized(X: Array) -> Array:
    """Columns of mean 0 and deviation 1; constant ones are only shifted."""
    rows = X - X.mean(axis=0, dtype=np.float64)
    deviations = rows.std(axis=0)
    return rows / np.where(deviations > 0, deviations, 1)


class Eigenpairs(NamedTuple):
    """Leading eigenvalues (r,) of a centred Gram matrix, and their eigenvectors (n, r)."""

    values: Array
    vectors: Array


def kept_eigenpairs(kept: Path, found: Callable[[], tuple[Array, Array]]) -> Eigenpairs:
    """Leading eigenpairs, computed once and kept on disk as .npz."""
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, **Eigenpairs(*found())._asdict())
    with np.load(kept) as file:
        return Eigenpairs(**file)


def exact_eigenpairs(X: Array, sigma: float, count: int, kept: Path) -> Eigenpairs:
    """Leading eigenpairs of the centred Gram matrix, by Lanczos in float64 on the full matrix; kept on disk."""

    def found() -> tuple[Array, Array]:
        rows = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
        K = Gaussian(sigma)(rows, rows)
        means = K.mean(axis=0)
        K -= means
        K -= (means - means.mean())[:, None]
        values, vectors = eigsh(K, k=count, which="LA", tol=1e-8)
        return values[::-1], vectors[:, ::-1]

    return kept_eigenpairs(kept, found)


def dataset(X: Array, path: Path) -> str:
    """The rows as a dataset on disk, made once in each folder; the raw rows stay beside it as .npy."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path.with_suffix(".npy"), X)
        ingest([path.with_suffix(".npy")], path)
    return str(path)


def repeated_digits(first: int, rows: int) -> Array:
    """Rows `first` to `first` + `rows` of MNIST repeated; copy i is shifted by (i mod 3, i div 3) pixels."""
    digits = mnist().reshape(-1, 28, 28)
    values = np.empty((rows, 784), np.uint8)
    start = 0
    while start < rows:
        copy, begin = divmod(first + start, len(digits))
        shifted = np.roll(digits[begin : begin + rows - start], (copy % 3, copy // 3), axis=(1, 2))
        values[start : start + len(shifted)] = shifted.reshape(len(shifted), 784)
        start += len(shifted)
    return values


def repeated_dataset(folder: Path, rows: int) -> str:
    """A dataset of MNIST repeated."""
    path = folder / f"mnist-{rows}.zarr"
    return str(path) if path.exists() else dataset(repeated_digits(0, rows), path)


def repeated_covertype(folder: Path, rows: int) -> str:
    """A dataset of covertype repeated."""
    path, values = folder / f"covertype-{rows}.zarr", covertype()
    return str(path) if path.exists() else dataset(np.resize(values, (rows, values.shape[1])), path)


def arguments(
    description: str, argv: Sequence[str] | None, rows: int, repeats: int = 5, size: int = 1000, **own: int
) -> argparse.Namespace:
    """The options of every benchmark, and numbers of its own with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, default=rows)
    parser.add_argument("--size", type=int, default=size, help="landmarks or random features")
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--folder", type=Path, default=Path("build") / "benchmarks", help="where data are made")
    for name, default in own.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(argv)


def interleaved(repeats: int, **sides: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of each side, measured in turn A B B A A B ... so that a drift of the machine, and what one side leaves
    behind for the next, affect all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(repeats):
        for name in reversed(sides) if number % 2 else sides:
            seconds[name].append(sides[name]())
    return seconds


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def fit_pass(path: str, size: int, sigma: float, **options: Any) -> tuple[Rows, Callable[[Engine], float]]:
    """The rows of a fit of `size` k-means landmarks, and the seconds of its pass on an engine."""
    rows = open_rows(path)
    fit, engine = resolve(FitSpec.checked(size=size, sigma=sigma, **options), rows), Engine(threads=2)
    sample = draw_sample(rows, fit, engine)
    features = choose_features(sample, scaled_columns(sample, fit, engine), fit, engine)
    shift = mean_features(features, sample.probes.X)
    rounding = rounding_of(features, sample.probes.X, shift, engine).of(features.dtype)
    return rows, lambda engine: seconds_of(lambda: sums_of(rows, features, shift, rounding, None, engine))


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratios of neighbouring runs."""
    return [a / b for a, b in zip(above, below, strict=True)]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of neighbouring runs."""
    return statistics.median(ratios(above, below))


def spread(values: Sequence[float]) -> str:
    """The least and the most of the values."""
    return f"{as_cell(min(values))} to {as_cell(max(values))}"


def child(code: str, *argv: str) -> tuple[str, float]:
    """Run Python code in a process of its own: what it printed, and its peak resident memory in MB.

    The peak is the process's own high-water mark: the ru_maxrss of a child starts at its parent's size. RuntimeError
    if the process fails; its messages go to the standard error of this process.
    """
    run = subprocess.run([sys.executable, "-c", code + _PRINT_PEAK, *argv], stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise RuntimeError(f"a process of the benchmark ended with exit code {run.returncode}; its message is above")
    output, _, peak = run.stdout.rstrip().rpartition("\n")
    return output, int(peak) * 1024 / 1e6
