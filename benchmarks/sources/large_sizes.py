"""Example 1 with many columns or features (end of the thesis's section 4.2.3): RFF-PCA does not get there.

The thesis says, without figures, that with l of a high share of the rows Nyström, columns and RFF have very low errors,
and RFF-PCA has not, since it converges to another matrix. Here l is 10 to 80 % of the rows of `example1`. The error is
|K - K^|_F / |K|_F, and the last column is what it tends to for many more features: that of the best of rank 60, and for
RFF-PCA that of the Gaussian kernel of 50 principal axes, at rank 50 and corrected by its alpha.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.sources.common import arguments, save_figure, save_table
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
from bigkpca.errors import Array, NarrowKernelWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (0.1, 0.2, 0.4, 0.8)
SHOWN = ("Nyström (thesis)", "columns", "RFF (thesis)", "RFF-PCA (thesis)", "RFF-PCA, exact alpha")
MEASURES = ("error of K", "misclassified")


def of_axes(X: Array, K: Array, alpha: float) -> float:
    """The error of the Gaussian kernel of the leading principal axes, cut to their number and corrected by alpha."""
    axes = np.linalg.eigh(np.cov(X.T))[1][:, -AXES:]
    _, values, U = exact(X @ axes)
    F = U[:, :AXES] * np.sqrt((values[:AXES] - 1 + alpha) / alpha)
    return distance(K, F, np.zeros(len(X)))


def errors(rows: int, sizes: Sequence[int], seed: int) -> tuple[Array, Array]:
    """Of one data set: MEASURES by method and size (methods, sizes, 2), and the errors that they tend to (methods,)."""
    X, right = two_discs(rows, np.random.default_rng(seed))
    K, eigenvalues, _ = exact(X)
    norm = float(np.linalg.norm(K))

    def of(name: str, size: int) -> tuple[float, float]:
        model, Y = fitted(X, METHODS[name], size, seed)
        return distance(K, *approximation(model, X, Y)) / norm, misclassified(Y[:, 1], right)

    best = float(np.sqrt(norm**2 - np.sum(eigenvalues**2)))
    ends = [best] * 3 + [of_axes(X, K, alpha) for alpha in (printed_alpha(X), exact_alpha(X))]
    return np.array([[of(name, size) for size in sizes] for name in SHOWN]), np.array(ends) / norm


def draw(found: Array, ends: Array, sizes: Sequence[int]) -> Figure:
    """Errors over l, with what each tends to dashed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axis = figure.subplots()
    for name, values, end, colour in zip(SHOWN, found, ends, ("C0", "C1", "C2", "C3", "C4"), strict=True):
        axis.semilogx(sizes, values[:, 0], ".-", color=colour, label=name)
        axis.axhline(end, linestyle="--", linewidth=0.8, color=colour)
    axis.set_xticks(list(sizes), [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set(xlabel="l", ylabel="relative error of K")
    figure.legend(loc="outside right upper", fontsize=7)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=5000, repeats=3)
    sizes = [round(given.rows * share) for share in SHARES]
    each, started = [], time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # noise in 100 columns makes K flat
        for seed in range(given.repeats):
            each.append(errors(given.rows, sizes, seed))
            print(f"{seed + 1} of {given.repeats}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    found = np.median([one for one, _ in each], axis=0)
    ends = np.median([end for _, end in each], axis=0)
    lines = [
        [name, *(f"{error:.4f}, {wrong:.0f}" for error, wrong in values), f"{end:.4f}"]
        for name, values, end in zip(SHOWN, found, ends, strict=True)
    ]
    title = f"Relative error of K and rows misclassified by u2, {given.rows} rows, medians of {given.repeats} data sets"
    save_table(title, ["method", *(f"l = {size}" for size in sizes), "tends to"], lines, given.folder, "large_sizes")
    save_figure(draw(found, ends, sizes), given.folder, "large_sizes")


if __name__ == "__main__":
    main()
