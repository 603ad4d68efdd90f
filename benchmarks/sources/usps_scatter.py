"""The thesis's Figures 5 and 6: digits 1, 4 and 8 of USPS by the first two components of kernel PCA, sigma 1, 5 and 10.

What the eye judges there is put in numbers, of the two components alone: the silhouette of the three digits (1 is far
apart, 0 is on top of each other), and how many rows lie nearest to the mean of their own digit, or have a nearest
neighbour of the same digit. PCA stands beside them, and so does the length that kernlab's sigest would give.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from benchmarks.sources.common import arguments, save_figure, save_table
from benchmarks.sources.digits import THESIS_DIGITS, first_of_each, mosaic, training_digits
from bigkpca import KernelPCA
from bigkpca.errors import Array, NarrowKernelWarning

SIGMAS = (1.0, 5.0, 10.0)
SHOWN = 14


def scores_of(X: Array) -> dict[str, tuple[Array, float]]:
    """By name: scores (n, 2), and the share of variance they explain."""
    found = {}
    for sigma in SIGMAS:
        fit = KernelPCA(2, sigma=sigma, method="exact").fit(X)
        found[f"σ = {sigma:g}"] = fit.transform(X), float(fit.explained_variance_ratio_.sum())
    pca = PCA(2, svd_solver="full").fit(X)
    found["PCA"] = pca.transform(X), float(pca.explained_variance_ratio_.sum())
    return found


def told_apart(Y: Array, labels: Array) -> list[float]:
    """Silhouette, share nearest to the mean of its own digit, share with a nearest other row of its digit."""
    nearest = KNeighborsClassifier(2).fit(Y, labels).kneighbors(Y, return_distance=False)
    other = np.where(nearest[:, 0] == np.arange(len(Y)), nearest[:, 1], nearest[:, 0])
    centroid = NearestCentroid().fit(Y, labels).score(Y, labels)
    return [float(silhouette_score(Y, labels)), float(centroid), float(np.mean(labels[other] == labels))]


def draw(X: Array, labels: Array, found: dict[str, tuple[Array, float]], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.4), layout="constrained")
    (above,), (below,) = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.5])
    shown = first_of_each(labels, SHOWN)
    mosaic(above.subplots(), [X[shown[labels[shown] == d]] for d in THESIS_DIGITS], [str(d) for d in THESIS_DIGITS])
    for axis, (name, (Y, share)) in zip(below.subplots(1, len(found)), found.items(), strict=True):
        for digit, marker in zip(THESIS_DIGITS, "osD", strict=True):
            own = Y[labels == digit]
            axis.scatter(*own.T, s=5, marker=marker, linewidths=0, alpha=0.6, label=str(digit), rasterized=True)
        axis.set_title(f"{name}  ({share:.1%} of variance)", fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    below.axes[-1].legend(markerscale=3, fontsize=8, loc="best")
    save_figure(figure, folder, "usps_scatter")


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=2199)
    X, labels = training_digits(given.rows, THESIS_DIGITS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # sigma = 1 is one of the thesis's
        found = scores_of(X)
    lines = [
        [name, *[f"{value:.3f}" for value in told_apart(Y, labels)], f"{share:.1%}"]
        for name, (Y, share) in found.items()
    ]
    header = ["", "silhouette", "nearest mean", "nearest neighbour", "variance explained"]
    title = f"Digits {THESIS_DIGITS} of USPS, {len(X)} rows, two components"
    save_table(title, header, lines, given.folder, "usps_scatter")
    own, of_all = (KernelPCA(2, size=20, random_state=0).fit(rows).sigma_ for rows in (X, training_digits(7291)[0]))
    print(f"median length of these digits {own:.2f}, of all training digits {of_all:.2f}")
    draw(X, labels, found, given.folder)


if __name__ == "__main__":
    main()
