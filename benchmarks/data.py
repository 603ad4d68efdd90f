"""The data of the benchmarks, and their exact eigenpairs."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse.linalg import eigsh

from bigkpca.errors import Array
from bigkpca.ingesting import ingest
from bigkpca.numerics.kernels import Gaussian, Kernel

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
_FILES = {"USPS": SHARED / "usps" / "usps_int16.npz", "covertype": SHARED / "covertype" / "covtype_93k.npz"}
MEDIAN_DISTANCE = 2601.0  # of MNIST rows, raw pixels 0 to 255; 10.2 with pixels in [0, 1]


def _mnist(name: str, start: int) -> Array:
    with gzip.open(SHARED / "mnist" / f"{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=start)


def mnist(part: str = "train") -> Array:
    """The 60,000 training digits, or with "t10k" the 10,000 test digits, (n, 784), uint8."""
    return _mnist(f"{part}-images-idx3", 16).reshape(-1, 784)


def usps() -> Array:
    """The 9298 digits, (9298, 256), pixels in [-1, 1]."""
    return np.load(_FILES["USPS"])["X_milli"].astype(np.float32) / 1000


def covertype() -> Array:
    """Cartographic columns of forest plots, (92962, 54), in their own units."""
    return np.load(_FILES["covertype"])["X_raw"]


def labels(name: str, part: str = "train") -> Array:
    """The digit of each row of "MNIST" or "USPS", or the type of forest of each plot of "covertype", (n,)."""
    return _mnist(f"{part}-labels-idx1", 8) if name == "MNIST" else np.load(_FILES[name])["y"]


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
    """`count` rows in their order, the same ones every time; all rows if there are no more."""
    return X[np.sort(np.random.default_rng(0).choice(len(X), min(count, len(X)), replace=False))]


def standardized(X: Array) -> Array:
    """Columns of mean 0 and deviation 1; constant ones are only shifted."""
    rows = X - X.mean(axis=0, dtype=np.float64)
    deviations = rows.std(axis=0)
    return rows / np.where(deviations > 0, deviations, 1)


class Eigenpairs(NamedTuple):
    """Leading eigenvalues (r,) of a centred Gram matrix, and their eigenvectors (n, r)."""

    values: Array
    vectors: Array


def kept_eigenpairs(kept: Path, found: Callable[[], Eigenpairs]) -> Eigenpairs:
    """Leading eigenpairs, computed once and kept on disk as .npz."""
    if not kept.exists():
        np.savez(kept, **found()._asdict())
    with np.load(kept) as file:
        return Eigenpairs(**file)


def leading_eigenpairs(X: Array, kernel: Kernel, count: int) -> Eigenpairs:
    """Leading eigenpairs of the centred Gram matrix, by Lanczos in float64 on the full matrix."""
    rows = X.astype(np.float64)
    if kernel.stationary:
        rows -= rows.mean(axis=0)
    K = kernel(rows, rows)
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    values, vectors = eigsh(K, k=count, which="LA", tol=1e-8)
    return Eigenpairs(values[::-1], vectors[:, ::-1])


def exact_eigenpairs(X: Array, sigma: float, count: int, kept: Path) -> Eigenpairs:
    """Leading eigenpairs of the Gaussian kernel; kept on disk."""
    return kept_eigenpairs(kept, lambda: leading_eigenpairs(X, Gaussian(sigma), count))


def principal_cosines(scores: Array, vectors: Array) -> Array:
    """Descending cosines of the principal angles between the spans of the columns of scores (n, r) and of orthonormal
    vectors (n, r)."""
    Q, _ = np.linalg.qr(scores.astype(np.float64))
    return np.linalg.svd(Q.T @ vectors, compute_uv=False)


def dataset(path: Path, rows: Array | Callable[[], Array]) -> str:
    """Rows as a dataset on disk, made once in each folder; the raw rows stay beside it as .npy."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path.with_suffix(".npy"), rows() if callable(rows) else rows)
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
    return dataset(folder / f"mnist-{rows}.zarr", lambda: repeated_digits(0, rows))


def repeated_covertype(folder: Path, rows: int) -> str:
    """A dataset of covertype repeated."""
    return dataset(folder / f"covertype-{rows}.zarr", lambda: np.resize(covertype(), (rows, 54)))
