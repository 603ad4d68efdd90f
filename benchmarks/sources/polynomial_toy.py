"""The toy of Schölkopf, Smola and Müller (1998): a noisy parabola and polynomial kernels of degree 1 to 4.

x is uniform on (-1, 1), y = x² + noise of deviation 0.2, the kernel <x, y>^degree, centred. The second table has what
the listing's centring, K - 2 1K + 1K1 with 1 a matrix of ones, makes of its own rows, with noise 0.1 and x on a grid.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sources.common import Table, Tables, new_figure, save_figure
from bigkpca import KernelPCA, kernels
from bigkpca.errors import Array

DEGREES, COMPONENTS = (1, 2, 3, 4), 3


def parabola(rows: int, seed: int) -> Array:
    """Rows (n, 2)."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, rows)
    return np.column_stack([x, x**2 + 0.2 * rng.standard_normal(rows)])


def fitted(X: Array, degree: int) -> KernelPCA:
    """As many components as there are: x and y have degree + 1 monomials of the degree."""
    kernel = kernels.Polynomial(degree=degree, gamma=1.0, coef0=0.0)
    return KernelPCA(min(COMPONENTS, degree + 1), kernel=kernel, method="exact", dtype="float64").fit(X)


def shares(X: Array, degree: int) -> Array:
    """Eigenvalues over the trace, (3,): zero where there are fewer."""
    found = fitted(X, degree).explained_variance_ratio_
    return np.pad(found, (0, COMPONENTS - len(found)))


def listings(rows: int, seed: int) -> tuple[Array, int, Array]:
    """Of the listing's rows and degree 1: the two largest eigenvalues / n that its centring gives, how many it keeps as
    positive, and the two right ones."""
    x = np.linspace(-1, 1, rows)
    X = np.column_stack([x, x**2 + 0.1 * np.random.default_rng(seed).standard_normal(rows)])
    K, ones = kernels.Polynomial(degree=1, gamma=1.0, coef0=0.0).gram(X), np.ones((rows, rows))
    values = np.linalg.eigvals(K - 2 * ones @ K + ones @ K @ ones).real
    kept = np.sort(values[values > 0])[::-1]
    return kept[:2] / rows, len(kept), fitted(X, 1).eigenvalues_ / rows


def draw(X: Array, folder: Path) -> None:
    """Rows and lines of equal value: a line of panels for each component, a column for each degree."""
    across, up = np.linspace(-1.1, 1.1, 100), np.linspace(-0.6, 1.6, 100)
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    figure = new_figure(12, 9)
    panels = figure.subplots(COMPONENTS, len(DEGREES), sharex=True, sharey=True, subplot_kw={"aspect": "equal"})
    for column, degree in zip(panels.T, DEGREES, strict=True):
        model = fitted(X, degree)
        values = model.transform(grid).reshape(len(up), len(across), -1)
        for i, axis in enumerate(column):
            axis.plot(*X.T, ".", markersize=3)
            axis.set_title(f"degree {degree}, component {i + 1}", fontsize=9)
            if i < values.shape[-1]:
                axis.contour(across, up, values[:, :, i], levels=20, colors="black", linewidths=0.6)
    save_figure(figure, folder, "polynomial_toy")


def main(folder: Path, rows: int = 100, repeats: int = 30) -> Tables:
    lines: list[list[Any]] = []
    for degree in DEGREES:
        found = [shares(parabola(rows, seed), degree) for seed in range(repeats)]
        lines.append([f"degree {degree}", "", *np.median(found, axis=0).tolist()])
    header = ["", "kept", *(f"component {i + 1}" for i in range(COMPONENTS))]
    title = f"Eigenvalues over their sum, {rows} rows, medians of {repeats} data sets"
    yield Table(title, header, lines)
    theirs, kept, right = listings(rows, seed=0)
    lines = [["listing", kept, *theirs.tolist()], ["centred right", len(right), *right.tolist()]]
    title = "The listing's data, degree 1: eigenvalues / n"
    yield Table(title, header[:-1], lines, "listing")
    draw(parabola(rows, seed=0), folder)
