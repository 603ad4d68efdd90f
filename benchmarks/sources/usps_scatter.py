"""The thesis's Figures 5 and 6: digits 1, 4 and 8 of USPS by the first two components of kernel PCA, sigma 1, 5 and 10.

The two components are judged by the silhouette of the three digits, and by the share of rows that lie nearest to the
mean of their own digit.
"""

from pathlib import Path

from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestCentroid

from benchmarks.sources.common import Table, Tables, save_panels
from benchmarks.sources.digits import THESIS_DIGITS, training_digits
from bigkpca import KernelPCA

SIGMAS = (1.0, 5.0, 10.0)


def main(folder: Path, rows: int = 2199) -> Tables:
    X, labels = training_digits(rows, THESIS_DIGITS)
    found = {f"σ = {sigma:g}": KernelPCA(2, sigma=sigma, method="exact").fit_transform(X) for sigma in SIGMAS}
    found["PCA"] = PCA(2, svd_solver="full").fit_transform(X)
    lines = [
        [name, f"{silhouette_score(Y, labels):.3f}", f"{NearestCentroid().fit(Y, labels).score(Y, labels):.3f}"]
        for name, Y in found.items()
    ]
    title = f"Digits {THESIS_DIGITS} of USPS, {len(X)} rows, two components"
    yield Table(title, ["", "silhouette", "nearest mean"], lines)
    own, of_all = (KernelPCA(2, size=20, random_state=0).fit(rows).sigma_ for rows in (X, training_digits(7291)[0]))
    print(f"median length of these digits {own:.2f}, of all training digits {of_all:.2f}")
    panels = {name: {str(digit): Y[labels == digit].T for digit in THESIS_DIGITS} for name, Y in found.items()}
    save_panels(panels, folder, "usps_scatter", ".", xticks=[], yticks=[])
