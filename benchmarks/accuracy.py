"""Eigenvalues of 20000 MNIST rows against exact ones: by landmark rule and size, and float32 against float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh

from benchmarks.common import MEDIAN_DISTANCE, arguments, mnist, table
from bigkpca.engine import Engine, Silent
from bigkpca.errors import Array
from bigkpca.numerics.kernels import Gaussian
from bigkpca.pipeline import fit_rows
from bigkpca.sources import open_rows
from bigkpca.spec import FitSpec

COMPONENTS = 50


def exact_eigenvalues(X: Array, folder: Path) -> Array:
    """The leading eigenvalues of the centred Gram matrix, by Lanczos in float64 on the full matrix; kept on disk."""
    kept = folder / f"exact-{len(X)}.npy"
    if not kept.exists():
        rows = X.astype(np.float64) - X.mean(axis=0)
        K = Gaussian(MEDIAN_DISTANCE)(rows, rows)
        means = K.mean(axis=0)
        K -= means
        K -= (means - means.mean())[:, None]
        folder.mkdir(parents=True, exist_ok=True)
        np.save(kept, eigsh(K, k=COMPONENTS, which="LA", tol=1e-8)[0][::-1])
    return np.load(kept)


def fitted(X: Array, **options: Any) -> Array:
    spec = FitSpec.checked(components=COMPONENTS, **options)
    return fit_rows(open_rows(X), spec, Engine(), Silent()).solution.eigenvalues


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=20_000, repeats=3)
    rng = np.random.default_rng(0)
    X = mnist()[np.sort(rng.choice(60_000, given.rows, replace=False))]
    exact = exact_eigenvalues(X, given.folder)
    lines = []
    for rule in ("kmeans", "uniform"):
        for size in (given.size // 2, given.size):
            errors = [
                np.abs(fitted(X, sigma=MEDIAN_DISTANCE, landmarks=rule, size=size, seed=seed) / exact - 1)
                for seed in range(given.repeats)
            ]
            lines.append([rule, size, *(f"{np.mean([e[:top].mean() for e in errors]):.2%}" for top in (20, 50))])
    title = f"Mean relative error of the leading eigenvalues, MNIST {given.rows} rows, sigma = median distance"
    table(f"{title}, {given.repeats} seeds", ["landmarks", "l", "top 20", "top 50"], lines)
    lines = []
    for sigma in (5, 10, 40, 100):
        single, double = (
            fitted(X, sigma=sigma * 255.0, size=given.size, dtype=dtype)[:20] for dtype in ("float32", "float64")
        )
        lines.append([sigma, float(np.abs(single / double - 1).max())])
    table(
        f"float32 against float64, {given.size} landmarks: largest relative difference of the 20 leading eigenvalues",
        ["sigma (pixels in [0, 1])", "difference"],
        lines,
    )


if __name__ == "__main__":
    main()
