"""The French lecture's starting point: objects known by their similarities alone, here words of DNA.

The lecture has a matrix of three words, whose scores must have the distances K_ii + K_jj - 2 K_ij. Beside it are 106
sequences of 57 letters, half of them promoters of E. coli, with two kernels. Accuracy is that of the nearest other
sequence and of the nearest class mean, each sequence left out in turn (of the classifier, not of the components).
"""

import csv
from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.data import SHARED
from benchmarks.sources.common import Table, Tables
from bigkpca import KernelPCA
from bigkpca.errors import Array

LECTURE = np.array([[1, 0.5, 0.5], [0.5, 1, 0.6], [0.5, 0.6, 1]])  # of the words atc, tgc and ttgc
COMPONENTS = (2, 5, 10, 20, 50)


def promoters(rows: int) -> tuple[list[str], Array]:
    """Sequences, and whether each is a promoter; of both as many."""
    with open(SHARED / "promoters" / "promoters.csv") as file:
        found = [(line["sequence"], line["label"] == "+") for line in csv.DictReader(file)]
    found = [*[each for each in found if each[1]][: rows // 2], *[each for each in found if not each[1]][: rows // 2]]
    return [sequence for sequence, _ in found], np.array([label for _, label in found])


def equal_letters(sequences: Sequence[str]) -> Array:
    """The share of places with the same letter, (n, n)."""
    letters = np.array([list(sequence) for sequence in sequences])
    return np.asarray((letters[:, None, :] == letters).mean(axis=2))


def common_words(sequences: Sequence[str], length: int = 3) -> Array:
    """The cosine of counts of words, (n, n)."""
    number = {"".join(word): i for i, word in enumerate(product("acgt", repeat=length))}
    counts = np.zeros((len(sequences), len(number)))
    for row, sequence in zip(counts, sequences, strict=True):
        for start in range(len(sequence) - length + 1):
            row[number[sequence[start : start + length]]] += 1
    counts /= np.linalg.norm(counts, axis=1)[:, None]
    return np.asarray(counts @ counts.T)


def fitted(K: Array, components: int | None = None) -> tuple[KernelPCA, Array]:
    """Kernel PCA of a matrix of similarities, and its scores."""
    fit = KernelPCA(components, kernel="precomputed", method="exact", dtype="float64").fit(K)
    return fit, fit.transform(K)


def farthest_off(K: Array, Y: Array) -> float:
    """The largest difference of squared distances, by scores and by K_ii + K_jj - 2 K_ij."""
    own = np.diag(K)
    return float(np.abs(squareform(pdist(Y, "sqeuclidean")) - (own[:, None] + own - 2 * K)).max())


def accuracies(Y: Array, labels: Array) -> list[str]:
    """Of the nearest other row, and of the nearest class mean, each row left out of its own."""
    other = KNeighborsClassifier(1).fit(Y, labels).kneighbors(return_distance=False)[:, 0]
    classes, own, counts = np.unique(labels, return_inverse=True, return_counts=True)
    apart = np.stack([np.linalg.norm(Y - Y[labels == label].mean(axis=0), axis=1) for label in classes], axis=1)
    # Without a row, the mean of n rows is n / (n - 1) times as far from it.
    apart[np.arange(len(Y)), own] *= (counts / (counts - 1))[own]
    return [f"{np.mean(found):.1%}" for found in (labels[other] == labels, apart.argmin(axis=1) == own)]


def main(rows: int = 106) -> Tables:
    sequences, labels = promoters(rows)
    fit, words = fitted(LECTURE)
    lines = [["the lecture's words", str(fit.n_components_), f"{farthest_off(LECTURE, words):.1e}", "", "", ""]]
    for name, K in {"equal letters": equal_letters(sequences), "words of three": common_words(sequences)}.items():
        fit, Y = fitted(K)
        apart = f"{farthest_off(K, Y):.1e}"
        for components in (*(r for r in COMPONENTS if r < fit.n_components_), fit.n_components_):
            share = f"{fit.explained_variance_ratio_[:components].sum():.1%}"
            lines.append([name, str(components), apart, share, *accuracies(Y[:, :components], labels)])
    header = ["similarity", "components", "distances off by", "variance", "nearest neighbour", "nearest mean"]
    yield Table(f"Similarities of DNA, {len(labels)} sequences", header, lines)
