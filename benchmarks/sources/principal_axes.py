"""The proseminar's linear examples by a linear kernel: shoes (Figures 1 to 3), apple trees (2.4.1), normal data (4, 5).

Shoes: length and breadth of a foot go together, so that one component is nearly enough; the source gives no numbers,
and these are made up. Apple trees: height (m), yield (100 kg) and leaves (1000) are normal with the means and the
covariance that the source gives. Kernel PCA with k = <x, y> finds the eigenvalues of the covariance; the axes are those
of the ellipsoid, and scores are uncorrelated. Section 4's count of components stands below: d for a linear kernel, and
n - 1 for a Gaussian one.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from benchmarks.sources.common import arguments, save_figure, save_table
from bigkpca import KernelPCA
from bigkpca.errors import Array, DominantVariableWarning

MEANS = np.array([4.0, 20.0, 20.0])
COVARIANCE = np.array([[1, 9, 12.75], [9, 100, 120], [12.75, 120, 225]])
NAMES = ("height", "yield", "leaves")


def feet(n: int) -> Array:
    """Length and breadth in cm, made up."""
    rng = np.random.default_rng(0)
    length = rng.normal(26, 1.6, n)
    return np.column_stack([length, 0.38 * length + rng.normal(0, 0.25, n)])


def trees(n: int) -> Array:
    return np.random.default_rng(0).multivariate_normal(MEANS, COVARIANCE, n)


def linear(components: int | None, X: Array, **options: Any) -> KernelPCA:
    """Kernel PCA with k = <x, y>; as many landmarks as columns span all that there is."""
    asked = {"size": X.shape[1], "dtype": "float64", "random_state": 0} | options
    return KernelPCA(components, kernel="linear", **asked).fit(X)


def lines_of(shoes: Array, apples: Array) -> list[list[str]]:
    """What the source says, and what a sample gives."""
    deviations = np.sqrt(np.diag(COVARIANCE))
    correlation = COVARIANCE / np.outer(deviations, deviations)
    fit, scaled, foot = linear(None, apples), linear(None, apples, standardize=True), linear(1, shoes)
    Y = fit.transform(apples)
    uncorrelated = np.abs(np.corrcoef(Y.T) - np.eye(Y.shape[1])).max()
    flat = PCA(1).fit(shoes)
    restored = np.abs(
        foot.inverse_transform(foot.transform(shoes)) - flat.inverse_transform(flat.transform(shoes))
    ).max()
    wide = KernelPCA(None, sigma=3.0, method="exact", dtype="float64").fit(apples[:200])

    def shown(values: Array) -> str:
        return ", ".join(f"{value:.4g}" for value in values)

    return [
        [
            "correlation of height, yield; height, leaves; yield, leaves",
            shown(correlation[[0, 0, 1], [1, 2, 2]]),
            shown(np.corrcoef(apples.T)[[0, 0, 1], [1, 2, 2]]),
        ],
        [
            "eigenvalues of the covariance",
            shown(np.linalg.eigvalsh(COVARIANCE)[::-1]),
            shown(fit.eigenvalues_ / len(apples)),
        ],
        [
            "eigenvalues of the correlation",
            shown(np.linalg.eigvalsh(correlation)[::-1]),
            shown(scaled.eigenvalues_ / len(apples)),
        ],
        ["largest correlation of two scores", "0", f"{uncorrelated:.1e}"],
        ["shoes: variance of the first component", "most", f"{foot.explained_variance_ratio_[0]:.1%}"],
        ["shoes: largest difference to PCA's projection, cm", "0", f"{restored:.1e}"],
        [
            "components of 200 trees, linear and Gaussian",
            "at most 3; up to n",
            f"{linear(None, apples[:200]).n_components_}; {wide.n_components_}",
        ],
    ]


def draw(shoes: Array, apples: Array, folder: Path) -> None:
    """Feet and their axis; trees with the ellipse of two deviations; their scores, where the axes are the ellipse's."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    first, second, third = figure.subplots(1, 3)
    foot = linear(1, shoes)
    line = foot.inverse_transform(np.linspace(-6, 6, 2)[:, None])
    first.scatter(*shoes.T, s=5)
    first.plot(*line.T, "C1")
    first.set(xlabel="length of the foot, cm", ylabel="breadth, cm", title="one component")
    pair = apples[:, :2]
    fit = linear(2, pair)
    Y, deviations = fit.transform(pair), np.sqrt(fit.eigenvalues_ / len(pair))
    angle = np.linspace(0, 2 * np.pi, 200)
    ellipse = 2 * deviations * np.column_stack([np.cos(angle), np.sin(angle)])
    second.scatter(*pair.T, s=3, alpha=0.4)
    second.plot(*fit.inverse_transform(ellipse).T, "C1")
    second.set(xlabel="height, m", ylabel="yield, 100 kg", title="two deviations")
    third.scatter(*Y.T, s=3, alpha=0.4)
    third.add_patch(Ellipse((0, 0), *(4 * deviations), fill=False, color="C1"))
    third.set(xlabel="component 1", ylabel="component 2", title="along the axes")
    for axis in (first, second, third):
        axis.title.set_fontsize(10)
    save_figure(figure, folder, "principal_axes")


def main(argv: Sequence[str] | None = None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DominantVariableWarning)  # axes of different lengths are the example
        given = arguments(__doc__ or "", argv, rows=5000)
        shoes, apples = feet(min(given.rows, 200)), trees(given.rows)
        title = f"Linear examples, {given.rows} apple trees"
        save_table(title, ["what", "source", "kernel PCA"], lines_of(shoes, apples), given.folder, "principal_axes")
        draw(shoes, apples, given.folder)


if __name__ == "__main__":
    main()
