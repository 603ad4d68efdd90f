"""The thesis's Figure 4: contours of the first component of two groups, whose sign separates them.

Two normal groups about (1, 1) and (-1, -1), with covariance 0.1 I; Gaussian kernel, centred, exact. The thesis states
neither the number of rows nor sigma.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sources.common import Table, Tables, new_figure, save_figure
from bigkpca import KernelPCA
from bigkpca.errors import Array

SIGMAS: tuple[float | str, ...] = (0.1, 0.2, 0.5, 1.0, "median", 5.0)
DRAWN: tuple[float | str, ...] = (0.2, 1.0, 5.0)


def two_groups(rows: int, seed: int) -> tuple[Array, Array]:
    """Rows (n, 2), and which group each is of, (n,) bool."""
    right = np.arange(rows) < rows // 2
    noise = np.sqrt(0.1) * np.random.default_rng(seed).standard_normal((rows, 2))
    return np.where(right, 1, -1)[:, None] + noise, right


def first_component(X: Array, sigma: float | str) -> KernelPCA:
    return KernelPCA(1, sigma=sigma, method="exact", random_state=0).fit(X)


def line_of(sigma: float | str, samples: Sequence[tuple[Array, Array]]) -> list[Any]:
    """Over data sets: sigma, rows whose sign does not tell their group (median, most), and the correlation of the
    component with x + y."""
    found = []
    for X, right in samples:
        model = first_component(X, sigma)
        y = model.transform(X)[:, 0]
        wrong = np.count_nonzero((y > 0) != right)
        linear = abs(np.corrcoef(y, X.sum(axis=1))[0, 1])
        found.append([model.sigma_, min(wrong, len(X) - wrong), linear])
    middle = np.median(found, axis=0)
    return [f"{sigma}", float(middle[0]), int(middle[1]), int(np.max(found, axis=0)[1]), float(middle[2])]


def draw(X: Array, right: Array, folder: Path) -> None:
    """Contours of the first component, one panel for each sigma."""
    ticks = np.linspace(-2.3, 2.3, 120)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    figure = new_figure(13, 4.4)
    for axis, sigma in zip(figure.subplots(1, len(DRAWN)), DRAWN, strict=True):
        y = first_component(X, sigma).transform(grid).reshape(len(ticks), len(ticks))
        axis.contourf(ticks, ticks, y, levels=np.linspace(-1, 1, 16) * np.abs(y).max(), cmap="RdBu_r")
        axis.contour(ticks, ticks, y, levels=[0], colors="black")
        for side, mark in ((right, "o"), (~right, "^")):
            axis.plot(*X[side].T, mark, color="white", markeredgecolor="black", markersize=4)
        axis.set(title=f"first component, σ = {sigma}", aspect="equal")
    save_figure(figure, folder, "contours")


def main(folder: Path, rows: int = 200, repeats: int = 30) -> Tables:
    samples = [two_groups(rows, seed) for seed in range(repeats)]
    header = ["asked", "sigma", "wrong sides, median", "most", "correlation with x + y"]
    title = f"First component of two groups, {rows} rows, {repeats} data sets"
    lines = [line_of(sigma, samples) for sigma in SIGMAS]
    draw(*samples[0], folder)
    yield Table(title, header, lines)
