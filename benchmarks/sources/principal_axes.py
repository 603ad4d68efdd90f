"""The proseminar's linear examples by a linear kernel: shoes (Figures 1 to 3), apple trees (2.4.1), normal data (4, 5).

The numbers of shoes are made up. Apple trees have the means and the covariance that the source gives for height (m),
yield (100 kg) and leaves (1000). Section 4's count of components is checked, too.
"""

from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from benchmarks.sources.common import Lines, Table, Tables, save_panels
from bigkpca import KernelPCA
from bigkpca.errors import Array

MEANS = np.array([4.0, 20.0, 20.0])
COVARIANCE = np.array([[1, 9, 12.75], [9, 100, 120], [12.75, 120, 225]])


def feet(n: int) -> Array:
    """Length and breadth in cm, made up."""
    rng = np.random.default_rng(0)
    length = rng.normal(26, 1.6, n)
    return np.column_stack([length, 0.38 * length + rng.normal(0, 0.25, n)])


def trees(n: int) -> Array:
    return np.random.default_rng(0).multivariate_normal(MEANS, COVARIANCE, n)


def linear(components: int | None, X: Array) -> KernelPCA:
    """Kernel PCA with k = <x, y>; as many landmarks as columns span all that there is."""
    return KernelPCA(components, kernel="linear", size=X.shape[1], dtype="float64", random_state=0).fit(X)


def lines_of(shoes: Array, apples: Array) -> Lines:
    """What the source says, and what a sample gives."""
    deviations = np.sqrt(np.diag(COVARIANCE))
    correlation = COVARIANCE / np.outer(deviations, deviations)

    def shown(values: Array) -> str:
        return ", ".join(f"{value:.4g}" for value in values)

    def of_pairs(R: Array) -> str:
        return shown(R[[0, 0, 1], [1, 2, 2]])

    pairs = "correlation of height, yield; height, leaves; yield, leaves"
    yield [pairs, of_pairs(correlation), of_pairs(np.corrcoef(apples.T))]
    right, found = np.linalg.eigvalsh(COVARIANCE)[::-1], linear(None, apples).eigenvalues_ / len(apples)
    yield ["eigenvalues of the covariance", shown(right), shown(found)]
    foot, flat = linear(1, shoes), PCA(1).fit(shoes)
    yield ["shoes: variance of the first component", "most", f"{foot.explained_variance_ratio_[0]:.1%}"]
    ours, theirs = (each.inverse_transform(each.transform(shoes)) for each in (foot, flat))
    yield ["shoes: largest difference to PCA's projection, cm", "0", f"{np.abs(ours - theirs).max():.1e}"]
    wide = KernelPCA(None, sigma=3.0, method="exact", dtype="float64").fit(apples[:200])
    counts = f"{linear(None, apples[:200]).n_components_}; {wide.n_components_}"
    yield ["components of 200 trees, linear and Gaussian", "at most 3; up to n", counts]


def main(folder: Path, rows: int = 5000) -> Tables:
    shoes, apples = feet(min(rows, 200)), trees(rows)
    title = f"Linear examples, {rows} apple trees"
    yield Table(title, ["what", "source", "kernel PCA"], [*lines_of(shoes, apples)])
    foot, pair = linear(1, shoes), linear(2, apples[:, :2])
    axis = foot.inverse_transform(np.linspace(-6, 6, 2)[:, None])
    Y, angle = pair.transform(apples[:, :2]), np.linspace(0, 2 * np.pi, 200)
    deviations = np.sqrt(pair.eigenvalues_ / len(Y))
    ellipse = 2 * deviations * np.column_stack([np.cos(angle), np.sin(angle)])
    panels = {
        "feet and one component, cm": {"feet": shoes.T, "component": axis.T},
        "height and yield": {"trees": apples[:, :2].T, "two deviations": pair.inverse_transform(ellipse).T},
        "the same, scores": {"trees": Y.T, "two deviations": ellipse.T},
    }
    save_panels(panels, folder, "principal_axes", ".")
