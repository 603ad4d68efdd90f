"""The Spanish notes' example of a kernel method (equations 3.1 to 3.4, Figures 3.2 and 3.3): the nearest mean.

    |φ(x) - c_y|² = k(x, x) - 2 mean_i k(x, x_i) + mean_ij k(x_i, x_j),  i and j over the rows of class y.

Kernel PCA that is not cut keeps differences of these distances; what scores leave out of x is `residual`, the same for
every class. The first table holds both against each other; the second has the accuracy of each kernel.
"""

from pathlib import Path

import numpy as np
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestCentroid

from benchmarks.sources.common import Lines, Table, Tables, save_panels
from benchmarks.sources.digits import TRAINING_ROWS, test_digits, training_digits
from bigkpca import KernelPCA, kernels
from bigkpca.errors import Array

KERNELS: dict[str, kernels.Kernel] = {
    "Gaussian, σ = 11": kernels.Gaussian(11.0),
    "Gaussian, σ = 5": kernels.Gaussian(5.0),
    "polynomial, degree 2": kernels.Polynomial(1 / 256, 2, 1.0),
    "polynomial, degree 5": kernels.Polynomial(1 / 256, 5, 1.0),
}
COMPARED = 600  # rows of the uncut models; with more, the last eigenvalues come close to rounding


def squared_distances(kernel: kernels.Kernel, X: Array, labels: Array, new: Array, rows: int = 500) -> Array:
    """|φ(x) - c_y|² of rows `new` (m, d) and the classes of X, (m, classes), from kernels alone."""
    members = (labels[:, None] == np.unique(labels)).astype(np.float64)
    members /= members.sum(axis=0)
    pieces = [slice(start, start + rows) for start in range(0, max(len(X), len(new)), rows)]
    X, new = X.astype(np.float64), new.astype(np.float64)
    own = sum(np.einsum("iy,iy->y", members[piece], kernel(X[piece], X) @ members) for piece in pieces if len(X[piece]))
    cross = np.concatenate([kernel(new[piece], X) @ members for piece in pieces if len(new[piece])])
    return np.asarray(kernel.diagonal(new)[:, None] - 2 * cross + own)


def accuracy(kernel: kernels.Kernel, X: Array, labels: Array, new: Array, of_new: Array) -> float:
    """Share of rows `new` whose nearest mean in feature space is that of their class."""
    nearest = squared_distances(kernel, X, labels, new).argmin(axis=1)
    return float(np.mean(np.unique(labels)[nearest] == of_new))


def comparison(X: Array, labels: Array, new: Array) -> Lines:
    """For each kernel: components, and the largest difference of squared distances by kernels and by scores."""
    for name, kernel in KERNELS.items():
        fit = KernelPCA(None, kernel=kernel, method="exact", dtype="float64").fit(X)
        Y = fit.transform(X)
        means = np.stack([Y[labels == label].mean(axis=0) for label in np.unique(labels)])
        found = pairwise_distances(fit.transform(new), means) ** 2 + fit.residual(new)[:, None]
        direct = squared_distances(kernel, X, labels, new)
        yield [name, str(fit.n_components_), f"{np.abs(found - direct).max() / direct.max():.1e}"]


def two_classes(apart: bool, rng: np.random.Generator) -> tuple[Array, Array]:
    """The notes' situations: two clouds that lie apart, or one cloud within the ring of the other."""
    labels = np.repeat([0, 1], 100)
    if apart:
        return rng.normal(size=(200, 2)) * 0.5 + np.where(labels[:, None], [1.2, 0.6], [-1.2, -0.6]), labels
    radius, angle = np.where(labels, 2.0, 0.5) + 0.15 * rng.standard_normal(200), rng.uniform(0, 2 * np.pi, 200)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), labels


def situations() -> list[tuple[str, Array, Array, kernels.Kernel]]:
    """Title, rows, labels and kernel of each panel."""
    linear, squares = kernels.Linear(), kernels.Polynomial(1.0, 2, 0.0)
    near, ring = two_classes(True, np.random.default_rng(0)), two_classes(False, np.random.default_rng(0))
    return [
        ("means apart, <x, y>", *near, linear),
        ("means coincide, <x, y>", *ring, linear),
        ("the same, <x, y>²", *ring, squares),
    ]


def main(folder: Path, rows: int = TRAINING_ROWS) -> Tables:
    X, labels = training_digits(rows)
    new, of_new = test_digits(rows)
    few = min(COMPARED, len(X))
    lines = [*comparison(X[:few], labels[:few], new[:500])]
    header = ["kernel", "components", "largest difference, relative"]
    yield Table(f"Nearest mean, {few} rows, uncut", header, lines, "equality")
    uncut = {name: accuracy(kernel, X, labels, new, of_new) for name, kernel in KERNELS.items()}
    pixels = float(NearestCentroid().fit(X, labels).score(new, of_new))
    lines = [[name, f"{share:.2%}"] for name, share in {"pixels": pixels, **uncut}.items()]
    title = f"Accuracy on {len(new)} test digits, {len(X)} training rows"
    yield Table(title, ["kernel", "accuracy"], lines)
    lines = [[title, f"{accuracy(kernel, X, y, X, y):.1%}"] for title, X, y, kernel in situations()]
    yield Table("The notes' situations", ["situation", "right"], lines, "situations")
    panels = {
        f"{title}: {line[1]}": {"class 1": X[y == 0].T, "class 2": X[y == 1].T}
        for line, (title, X, y, _) in zip(lines, situations(), strict=True)
    }
    save_panels(panels, folder, "nearest_mean", ".", aspect="equal")
