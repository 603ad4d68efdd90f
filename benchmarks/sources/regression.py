"""Regression on components (the Spanish notes): y ~ x against y ~ x + x², without writing x² down.

y = x + x² + noise, x is uniform on (-2, 2), the deviation of the noise is 0.1. The two components of (1 + <x, y>)²
span x and x². R² is that of the fitted rows and of as many new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from benchmarks.sources.common import arguments, save_table
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


def regressors(x: Array, new: Array) -> dict[str, tuple[Array, Array]]:
    """What y is regressed on, for x and for new x, by name."""
    found = {name: (x ** np.arange(1, powers + 1), new ** np.arange(1, powers + 1)) for name, powers in BY_HAND.items()}
    for name, (components, options) in SCORES.items():
        model = KernelPCA(components, method="exact", dtype="float64", random_state=0, **options).fit(x)
        found[name] = model.transform(x), model.transform(new)
    return found


def shares(n: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """By regressors: R² of the rows and of new rows, and the largest difference to the values of y ~ x + x²."""
    rng = np.random.default_rng(seed)
    (x, y), (new, of_new) = drawn(n, rng), drawn(n, rng)
    of_each = regressors(x, new)
    fits = {name: LinearRegression().fit(Z, y) for name, (Z, _) in of_each.items()}
    expected = fits["y ~ x + x²"].predict(of_each["y ~ x + x²"][0])
    return {
        name: (fit.score(Z, y), fit.score(of_each[name][1], of_new), float(np.abs(fit.predict(Z) - expected).max()))
        for (name, fit), (Z, _) in zip(fits.items(), of_each.values(), strict=True)
    }


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=200, repeats=30)
    found = [shares(given.rows, seed) for seed in range(given.repeats)]
    lines = []
    for name in found[0]:
        each = np.array([one[name] for one in found])
        (of_rows, of_new, _), apart = np.median(each, axis=0), each[:, 2].max()
        reach = f"{each[:, 0].min():.3f} to {each[:, 0].max():.3f}"
        lines.append([name, f"{of_rows:.3f}", reach, f"{of_new:.3f}", f"{apart:.1e}"])
    header = ["regressors", "R²", "least to most", "R², new rows", "difference to y ~ x + x²"]
    title = f"Component regression, {given.rows} rows, medians of {given.repeats} data sets"
    save_table(title, header, lines, given.folder, "regression")
