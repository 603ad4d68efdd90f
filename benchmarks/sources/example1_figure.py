"""One figure for the thesis's Figures 10 to 19: the data, the eigenvectors, and box plots of every measure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.sources.example1_claims import Found
from bigkpca.errors import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# The package's form of a method is near in colour to the thesis's form.
COLORS = {
    "Nyström (thesis)": "#1f5fa8",
    "Nyström, orthogonalised": "#5aa9e6",
    "columns": "#2f8f4e",
    "RFF (thesis)": "#b5480f",
    "RFF, orthogonal": "#f39c4a",
    "RFF-PCA (thesis)": "#5b2d90",
    "RFF-PCA, exact alpha": "#a97bd0",
    "RFF-PCA, pointwise": "#e377c2",
}
LOGARITHMIC = ("matrix error", "misclassified")
PANELS = (
    ("matrix error", "Fig. 11: matrix error"),
    ("relative accuracy", "Fig. 12: relative accuracy"),
    ("u1 not normalised", "Fig. 15: agreement of u₁, Nyström's not normalised"),
    ("u1 agreement", "the same, all normalised"),
    ("u2 not normalised", "Fig. 16: agreement of u₂, Nyström's not normalised"),
    ("u2 agreement", "the same, all normalised"),
    ("misclassified", "Fig. 17: misclassified rows"),
    ("error of lambda_1", "Fig. 18: error of λ₁"),
    ("error of lambda_2", "Fig. 19: error of λ₂"),
)
SHOWN_VECTORS = ("exact", "Nyström (thesis)", "columns", "RFF-PCA (thesis)", "RFF (thesis)", "Nyström, orthogonalised")


def draw(found: Found, plane: Array, right: Array, vectors: dict[str, Array]) -> Figure:
    """plane (n, 2), the rows' discs (n,) bool, and u1 and u2 (n, 2) by method."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(14, 17), layout="constrained")
    (top,), (bottom,) = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 3))
    _draw_data(top, plane, right, vectors)
    axes = bottom.subplots(5, 2).flat
    for axis, (measure, title) in zip(axes, PANELS, strict=False):
        _draw_boxes(axis, found, measure)
        axis.set_title(title, fontsize=10)
    last = axes[len(PANELS)]
    last.axis("off")
    handles = [Patch(facecolor=color, label=name) for name, color in COLORS.items()]
    last.legend(handles=handles, loc="center", ncols=2, frameon=False)
    return figure


def _draw_data(top: SubFigure, plane: Array, right: Array, vectors: dict[str, Array]) -> None:
    """The two columns; beside them u1, and below it u2, exact and of the methods."""
    grid = top.add_gridspec(2, 2 + len(SHOWN_VECTORS))
    axis = top.add_subplot(grid[:, :2], aspect="equal")
    _draw_discs(axis, plane[:, 0], plane[:, 1], right)
    axis.set_title("Fig. 10: the first two columns", fontsize=10)
    numbers = np.arange(len(right))
    for i in (0, 1):
        shared = None
        for j, name in enumerate(SHOWN_VECTORS):
            shared = axis = top.add_subplot(grid[i, 2 + j], sharey=shared)
            _draw_discs(axis, numbers, vectors[name][:, i], right)
            axis.axhline(0, color="black", linewidth=0.6)
            axis.set_title(f"Fig. {13 + i}: u{'₁₂'[i]}, exact" if j == 0 else name, fontsize=9)
            axis.tick_params(labelleft=j == 0, labelsize=7, bottom=False, labelbottom=False)


def _draw_discs(axis: Axes, x: Array, y: Array, right: Array) -> None:
    """One dot for each row, in the colour of its disc."""
    for side, color in ((right, "#1f5fa8"), (~right, "#c2571a")):
        axis.plot(x[side], y[side], ".", color=color, markersize=1, rasterized=True)


def _draw_boxes(axis: Axes, found: Found, measure: str) -> None:
    """A group of boxes for each size, one for each method."""
    from matplotlib.colors import to_rgba

    width = 0.9 / len(COLORS)
    for j, (name, color) in enumerate(COLORS.items()):
        places = np.arange(len(found.sizes)) + (j - (len(COLORS) - 1) / 2) * width
        line = {"color": color, "linewidth": 1}
        axis.boxplot(
            found.of(measure, name),
            positions=places,
            widths=0.8 * width,
            patch_artist=True,
            boxprops={"facecolor": to_rgba(color, 0.35), "edgecolor": color},
            medianprops={"color": color, "linewidth": 2},
            whiskerprops=line,
            capprops=line,
            flierprops={"marker": ".", "markersize": 2, "markeredgecolor": color},
        )
    if measure in LOGARITHMIC:
        axis.set_yscale("log")
    axis.set_xlim(-0.5, len(found.sizes) - 0.5)
    axis.set_xticks(range(len(found.sizes)), [f"l = {size}" for size in found.sizes])
    axis.set_xticks(np.arange(len(found.sizes) - 1) + 0.5, minor=True)
    axis.grid(axis="y", linewidth=0.3)
    axis.grid(axis="x", which="minor", linewidth=0.5)
