"""The thesis's Figure 2: a picture as a matrix, and what is left of it at lower ranks.

The truncated singular value decomposition is uncentred kernel PCA of the rows with the linear kernel: scores are U_k
S_k, eigenvalues S_k², and the rows they stand for are A_k. The pictures are those of scikit-learn.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_sample_image

from benchmarks.sources.common import Table, Tables, new_figure, relative, save_figure
from bigkpca import KernelPCA
from bigkpca.errors import Array

RANKS = (200, 60, 10)
PICTURES = {"flower, few edges": "flower.jpg", "temple, many edges": "china.jpg"}


def approximated(A: Array, rank: int) -> Array:
    """A of that rank, by kernel PCA and back."""
    model = KernelPCA(rank, kernel="linear", method="exact", center=False).fit(A)
    return model.inverse_transform(model.transform(A))


def truncated(A: Array, rank: int) -> Array:
    left, values, right = np.linalg.svd(A, full_matrices=False)
    return (left[:, :rank] * values[:rank]) @ right[:rank]


def draw(pictures: dict[str, list[tuple[str, Array]]], folder: Path) -> None:
    """One line of titled pictures for each name."""
    figure = new_figure(12, 4.6)
    for axes, line in zip(figure.subplots(len(pictures), 1 + len(RANKS)), pictures.values(), strict=True):
        for axis, (title, picture) in zip(axes, line, strict=False):
            axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
            axis.set_title(title, fontsize=10)
            axis.axis("off")
    save_figure(figure, folder, "low_rank_image")


def main(folder: Path, rows: int = 427) -> Tables:
    lines, pictures = [], {}
    for name, file in PICTURES.items():
        A = load_sample_image(file)[:rows].mean(axis=2) / 255
        pictures[name] = [(f"{name}: rank {np.linalg.matrix_rank(A)}", A)]
        for rank in (rank for rank in RANKS if rank < len(A)):
            found, best = approximated(A, rank), truncated(A, rank)
            lines.append([name, rank, relative(found, A), relative(best, A), relative(found, best)])
            pictures[name].append((f"rank {rank}: error {relative(found, A):.1%}", found))
    header = ["picture", "rank", "error", "error of the SVD", "difference of the two"]
    title = f"Pictures of {len(A)} × {A.shape[1]} pixels"
    yield Table(title, header, lines)
    draw(pictures, folder)
