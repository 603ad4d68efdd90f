"""Data, timing and tables for the benchmarks."""

from __future__ import annotations

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
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import mean_features, sums_of
from bigkpca.fitting.features import choose_features
from bigkpca.fitting.sample import draw_sample, scaled_columns
from bigkpca.fitting.solve import rounding_of
from bigkpca.ingesting import ingest
from bigkpca.numerics.kernels import Gaussian
from bigkpca.spec import FitSpec, resolve

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
_PRINT_PEAK = """
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""
MEDIAN_DISTANCE = 2601.0  # of MNIST rows, raw pixels 0 to 255; 10.2 with pixels in [0, 1]
USPS_MEDIAN_DISTANCE = 15.5
COVERTYPE_MEDIAN_DISTANCE = 8.26  # of standardised columns


def mnist() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The 60000 training digits, (60000, 784)."""
    with gzip.open(SHARED / "mnist" / "train-images-idx3-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)


def usps() -> np.ndarray[Any, np.dtype[np.float32]]:
    """The 9298 digits, (9298, 256), pixels in [-1, 1]."""
    return np.load(SHARED / "usps" / "usps_int16.npz")["X_milli"].astype(np.float32) / 1000


def usps_labels() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The digit of each row, (9298,)."""
    return np.load(SHARED / "usps" / "usps_int16.npz")["y"]


def covertype() -> np.ndarray[Any, np.dtype[np.int16]]:
    """Cartographic columns of forest plots, (92962, 54), in their own units."""
    return np.load(SHARED / "covertype" / "covtype_93k.npz")["X_raw"]


def some_rows(X: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """`count` rows in their order, the same ones every time."""
    return X[np.sort(np.random.default_rng(0).choice(len(X), count, replace=False))]


class Eigenpairs(NamedTuple):
    """Leading eigenvalues (r,) of a centred Gram matrix, and their eigenvectors (n, r)."""

    values: np.ndarray[Any, np.dtype[np.float64]]
    vectors: np.ndarray[Any, np.dtype[np.float64]]


def kept_eigenpairs(kept: Path, found: Callable[[], tuple[Any, Any]]) -> Eigenpairs:
    """Leading eigenpairs, found once and kept on disk as .npz."""
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez(kept, **Eigenpairs(*found())._asdict())
    with np.load(kept) as file:
        return Eigenpairs(**file)


def exact_eigenpairs(X: np.ndarray[Any, Any], sigma: float, count: int, kept: Path) -> Eigenpairs:
    """Leading eigenpairs of the centred Gram matrix, by Lanczos in float64 on the full matrix; kept on disk."""

    def found() -> tuple[Any, Any]:
        rows = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
        K = Gaussian(sigma)(rows, rows)
        means = K.mean(axis=0)
        K -= means
        K -= (means - means.mean())[:, None]
        values, vectors = eigsh(K, k=count, which="LA", tol=1e-8)
        return values[::-1], vectors[:, ::-1]

    return kept_eigenpairs(kept, found)


def repeated_dataset(folder: Path, rows: int) -> str:
    """A dataset of MNIST repeated, copy i shifted by (i mod 3, i div 3) pixels; made once in each folder."""
    digits = mnist().reshape(-1, 28, 28)
    return _repeated(
        folder / f"mnist-{rows}.zarr",
        rows,
        lambda i: np.roll(digits, (i % 3, i // 3), axis=(1, 2)).reshape(len(digits), -1),
    )


def repeated_covertype(folder: Path, rows: int) -> str:
    """A dataset of covertype repeated; made once in each folder."""
    values = covertype()
    return _repeated(folder / f"covertype-{rows}.zarr", rows, lambda i: values)


def _repeated(target: Path, rows: int, copy: Callable[[int], np.ndarray[Any, Any]]) -> str:
    """A dataset of `rows` rows, of copy(0), copy(1), ...; the raw rows stay beside it as .npy."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        raw, first = target.with_suffix(".npy"), copy(0)
        values = np.lib.format.open_memmap(raw, "w+", first.dtype, (rows, first.shape[1]))
        for i, start in enumerate(range(0, rows, len(first))):
            values[start : start + len(first)] = copy(i)[: rows - start]
        values.flush()
        del values
        ingest([raw], target)
    return str(target)


def arguments(
    description: str, argv: Sequence[str] | None, rows: int, repeats: int = 5, size: int = 1000, **own: int
) -> argparse.Namespace:
    """The options every benchmark has, and numbers of its own with their defaults."""
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
    behind for the next, meet all alike."""
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


def fit_pass(path: str, size: int, sigma: float, **options: Any) -> tuple[Rows, Callable[..., float]]:
    """The rows of a fit of `size` k-means landmarks, and its pass on an engine, over them or others: what it took in
    seconds."""
    rows = open_rows(path)
    fit, engine = resolve(FitSpec.checked(size=size, sigma=sigma, **options), rows), Engine(threads=2)
    sample = draw_sample(rows, fit, engine)
    features = choose_features(sample, scaled_columns(sample, fit, engine), fit, engine)
    shift = mean_features(features, sample.probes)
    rounding = rounding_of(features, sample.probes, shift, engine).of(features.dtype)

    def one_pass(engine: Engine, rows: Rows = rows) -> float:
        return seconds_of(lambda: sums_of(rows, features, shift, rounding, None, engine))

    return rows, one_pass


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratios of neighbouring runs."""
    return [a / b for a, b in zip(above, below, strict=True)]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of neighbouring runs."""
    return statistics.median(ratios(above, below))


def spread(values: Sequence[float]) -> str:
    """The least and the most of them."""
    return f"{as_cell(min(values))} to {as_cell(max(values))}"


def child(code: str, *argv: str) -> tuple[str, float]:
    """Run Python code in a process of its own: what it printed, and its peak resident memory in MB.

    The peak is the process's own high-water mark: the ru_maxrss of a child starts at its parent's size. RuntimeError
    if the process fails; its messages go where ours do.
    """
    run = subprocess.run([sys.executable, "-c", code + _PRINT_PEAK, *argv], stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise RuntimeError(f"a process of the benchmark ended with exit code {run.returncode}; its message is above")
    output, _, peak = run.stdout.rstrip().rpartition("\n")
    return output, int(peak) * 1024 / 1e6
