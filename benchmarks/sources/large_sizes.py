"""Example 1 with many columns or features (end of the thesis's section 4.2.3): RFF-PCA converges to another matrix.

The error is |K - K^|_F / |K|_F. The last column is what it tends to for many more features: that of the best matrix of
rank 60, and for RFF-PCA that of the Gaussian kernel of 50 principal axes, at rank 50 and corrected by its alpha.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.sources.common import Table, Tables
from benchmarks.sources.example1 import (
    AXES,
    METHODS,
    approximation,
    distance,
    exact,
    exact_alpha,
    fitted,
    misclassified,
    printed_alpha,
    two_discs,
)
from bigkpca.errors import Array

SHARES = (0.1, 0.2, 0.8)
SHOWN = ("Nyström (thesis)", "columns", "RFF (thesis)", "RFF-PCA (thesis)", "RFF-PCA, exact alpha")


def of_axes(X: Array, K: Array, alpha: float) -> float:
    """The error of the Gaussian kernel of the leading principal axes, cut to their number and corrected by alpha."""
    axes = np.linalg.eigh(np.cov(X.T))[1][:, -AXES:]
    _, values, U = exact(X @ axes)
    F = U[:, :AXES] * np.sqrt((values[:AXES] - 1 + alpha) / alpha)
    return distance(K, F, np.zeros(len(X)))


def errors(rows: int, sizes: Sequence[int], seed: int) -> tuple[Array, Array]:
    """Of one data set: error of K and rows misclassified, by method and size (methods, sizes, 2); and the errors that
    they tend to (methods,)."""
    X, right = two_discs(rows, np.random.default_rng(seed))
    K, eigenvalues, _ = exact(X)
    norm = float(np.linalg.norm(K))

    def of(name: str, size: int) -> tuple[float, float]:
        model, Y = fitted(X, METHODS[name], size, seed)
        return distance(K, *approximation(model, X, Y)) / norm, misclassified(Y[:, 1], right)

    best = float(np.sqrt(norm**2 - np.sum(eigenvalues**2)))
    ends = [best] * 3 + [of_axes(X, K, alpha) for alpha in (printed_alpha(X), exact_alpha(X))]
    return np.array([[of(name, size) for size in sizes] for name in SHOWN]), np.array(ends) / norm


def main(rows: int = 5000, repeats: int = 3) -> Tables:
    sizes = [round(rows * share) for share in SHARES]
    each = [errors(rows, sizes, seed) for seed in range(repeats)]
    found = np.median([one for one, _ in each], axis=0)
    ends = np.median([end for _, end in each], axis=0)
    lines = [
        [name, *(f"{error:.4f}, {wrong:.0f}" for error, wrong in values), f"{end:.4f}"]
        for name, values, end in zip(SHOWN, found, ends, strict=True)
    ]
    title = f"Relative error of K and rows misclassified by u2, {rows} rows, medians of {repeats} data sets"
    yield Table(title, ["method", *(f"l = {size}" for size in sizes), "tends to"], lines)
