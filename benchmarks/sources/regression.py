"""Regression on components (the Spanish notes): y ~ x against y ~ x + x², without writing x² down.

y = x + x² + noise, x is uniform on (-2, 2), the deviation of the noise is 0.1. The two components of (1 + <x, y>)²
span x and x².
"""

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from benchmarks.sources.common import Table, Tables
from bigkpca import KernelPCA, kernels
from bigkpca.errors import Array

HALF_WIDTH, NOISE = 2.0, 0.1
SQUARE = kernels.Polynomial(gamma=1.0, degree=2, coef0=1.0)
BY_HAND = {"y ~ x": 1, "y ~ x + x²": 2}  # powers of x
SCORES: dict[str, tuple[int, dict[str, Any]]] = {
    "<x, y>, 1 component": (1, {"kernel": "linear"}),
    "(1 + <x, y>)², 1 component": (1, {"kernel": SQUARE}),
    "(1 + <x, y>)², 2 components": (2, {"kernel": SQUARE}),
    "Gaussian, 2 components": (2, {}),
    "Gaussian, 4 components": (4, {}),
    "Gaussian, 6 components": (6, {}),
}


def drawn(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """x (n, 1) and y (n,)."""
    x = rng.uniform(-HALF_WIDTH, HALF_WIDTH, (n, 1))
    return x, (x + x**2)[:, 0] + NOISE * rng.standard_normal(n)


def regressors(x: Array) -> dict[str, Array]:
    """What y is regressed on, by name."""
    found = {name: x ** np.arange(1, powers + 1) for name, powers in BY_HAND.items()}
    for name, (components, options) in SCORES.items():
        found[name] = KernelPCA(components, method="exact", dtype="float64", **options).fit_transform(x)
    return found


def shares(n: int, seed: int) -> dict[str, tuple[float, float]]:
    """By regressors: R², and the largest difference to the values of y ~ x + x²."""
    x, y = drawn(n, np.random.default_rng(seed))
    fits = {name: (Z, LinearRegression().fit(Z, y)) for name, Z in regressors(x).items()}
    values = {name: fit.predict(Z) for name, (Z, fit) in fits.items()}
    return {
        name: (fit.score(Z, y), float(np.abs(values[name] - values["y ~ x + x²"]).max()))
        for name, (Z, fit) in fits.items()
    }


def main(rows: int = 200, repeats: int = 30) -> Tables:
    found = [shares(rows, seed) for seed in range(repeats)]
    lines = []
    for name in found[0]:
        R2, apart = np.transpose([one[name] for one in found])
        lines.append([name, f"{np.median(R2):.3f}", f"{apart.max():.1e}"])
    header = ["regressors", "R²", "difference to y ~ x + x²"]
    title = f"Component regression, {rows} rows, medians of {repeats} data sets"
    yield Table(title, header, lines)
