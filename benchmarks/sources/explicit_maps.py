"""Maps that the sources write out, against the kernels that stand for them: kernel PCA is PCA of the mapped rows.

For each: components that are not zero, how far eigenvalues and distances between scores are from those of PCA, as a
part of them; and the share of rows of two rings that a linear classifier separates, before and after.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.linear_model import LogisticRegression

from benchmarks.sources.common import Table, Tables, save_panels
from bigkpca import KernelPCA, kernels
from bigkpca.errors import Array

Map = Callable[[Array], Array]


def paraboloid(X: Array) -> Array:
    return np.column_stack([X, (X**2).sum(axis=1)])


def squares(X: Array) -> Array:
    return np.column_stack([X[:, 0] ** 2, np.sqrt(2) * X[:, 0] * X[:, 1], X[:, 1] ** 2])


def with_squares(X: Array) -> Array:
    return np.column_stack([X**2, X])


def cubic(X: Array) -> Array:
    """The ten cubic monomials of three columns, as the summary lists them."""
    return np.column_stack([X[:, i].prod(axis=1) for i in _TRIPLES])


def weighted_cubic(X: Array) -> Array:
    """The same, each with the root of how often it occurs in the third power of a sum."""
    counts = [factorial(3) / np.prod([factorial(i.count(column)) for column in set(i)]) for i in _TRIPLES]
    return np.asarray(cubic(X) * np.sqrt(counts))


_TRIPLES = [list(i) for i in combinations_with_replacement(range(3), 3)]


@dataclass(frozen=True)
class Case:
    """A map, the kernel that a source puts in its place, and the rows it is tried on."""

    name: str
    map: Map
    kernel: Any
    rows: Array
    labels: Array


def inner_products(of: Map) -> kernels.Function:
    return kernels.Function(lambda X, Y: of(X) @ of(Y).T)


def two_rings(n: int, columns: int = 2) -> tuple[Array, Array]:
    """Rows about the origin at distances of 0.5 and 2, (n, columns), and which of them, (n,)."""
    rng = np.random.default_rng(0)
    outer = np.arange(n) % 2
    directions = rng.standard_normal((n, columns))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    return directions * (np.where(outer, 2.0, 0.5) + 0.1 * rng.standard_normal(n))[:, None], outer


def cases(n: int) -> list[Case]:
    rings, labels = two_rings(n)
    balls = two_rings(n, 3)
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    circle = np.column_stack([1 + 2 * np.cos(angle), 1 + 2 * np.sin(angle)])
    return [
        Case("(x1, x2, x1² + x2²)", paraboloid, inner_products(paraboloid), rings, labels),
        Case("(x1², √2 x1 x2, x2²)", squares, kernels.Polynomial(1.0, 2, 0.0), rings, labels),
        Case("(x², x, y, y²), two rings", with_squares, inner_products(with_squares), rings, labels),
        Case("(x², x, y, y²), the circle", with_squares, inner_products(with_squares), circle, np.arange(n) % 2),
        Case("cubic monomials, <x, y>³", cubic, kernels.Polynomial(1.0, 3, 0.0), *balls),
        Case("weighted monomials, <x, y>³", weighted_cubic, kernels.Polynomial(1.0, 3, 0.0), *balls),
    ]


def line(case: Case) -> list[str]:
    """The kernel's components against those of the map."""
    fit = KernelPCA(None, kernel=case.kernel, method="exact", dtype="float64").fit(case.rows)
    mapped = case.map(case.rows)
    Y = fit.transform(case.rows)
    expected = np.linalg.svd(mapped - mapped.mean(axis=0), compute_uv=False)[: fit.n_components_] ** 2
    apart = np.abs(fit.eigenvalues_ / expected - 1).max()
    distances = np.abs(pdist(Y) - pdist(mapped)).max() / pdist(mapped).max()
    before, after = (
        LogisticRegression(C=1e4, max_iter=5000).fit(Z, case.labels).score(Z, case.labels)
        for Z in (case.rows, Y / Y.std())
    )
    counts = [case.name, str(mapped.shape[1]), str(fit.n_components_)]
    return [*counts, f"{apart:.1e}", f"{distances:.1e}", f"{before:.0%}", f"{after:.0%}"]


def main(folder: Path, rows: int = 400) -> Tables:
    every = cases(rows)
    header = ["map", "dimensions", "components", "eigenvalues", "distances", "told apart: rows", "scores"]
    yield Table(f"Kernels against maps, {rows} rows", header, list(map(line, every)))
    rings = every[0]
    Y = KernelPCA(3, kernel=rings.kernel, method="exact", dtype="float64").fit_transform(rings.rows)
    height = int(np.abs([np.corrcoef(y, rings.labels)[0, 1] for y in Y.T]).argmax())
    views = {"rows": rings.rows, "scores": Y[:, [height - 1, height]]}
    panels = {
        title: {f"ring {label + 1}": view[rings.labels == label].T for label in (0, 1)} for title, view in views.items()
    }
    save_panels(panels, folder, "explicit_maps", ".")
