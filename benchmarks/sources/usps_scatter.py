"""The thesis's Figures 5 and 6: digits 1, 4 and 8 of USPS by the first two components of kernel PCA, sigma 1, 5 and 10.

The two components are judged by the silhouette of the three digits, and by the share of rows that lie nearest to the
mean of their own digit, or have a nearest neighbour of the same digit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from benchmarks.sources.common import arguments, save_panels, save_table
from benchmarks.sources.digits import THESIS_DIGITS, training_digits
from bigkpca import KernelPCA
from bigkpca.errors import Array

SIGMAS = (1.0, 5.0, 10.0)


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


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=2199)
    X, labels = training_digits(given.rows, THESIS_DIGITS)
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
    panels = {name: {str(digit): Y[labels == digit].T for digit in THESIS_DIGITS} for name, (Y, _) in found.items()}
    save_panels(panels, given.folder, "usps_scatter", ".", xticks=[], yticks=[])
