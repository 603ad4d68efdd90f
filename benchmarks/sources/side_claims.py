"""What the sources say in passing, each as a number that can contradict it.

The thesis: columns of random features rejected for low variance (3.5.3), forms by projection (26), (40) and Theorem 5,
the ridge rewrite (12), the representer theorem (14), d > n. The Chinese summary: kernels of <x, y> are invariant under
orthogonal maps. The proseminar: the first component is monotone along the parabola.
"""

from typing import Any

import numpy as np
from scipy.special import factorial
from sklearn.decomposition import PCA
from sklearn.preprocessing import PolynomialFeatures

from benchmarks.sources.common import Lines, Table, Tables, relative
from benchmarks.sources.example1 import AXES, SIGMA, exact, misclassified, two_discs
from benchmarks.sources.polynomial_toy import DEGREES, fitted, parabola
from bigkpca import KernelPCA, kernels, measures
from bigkpca.errors import Array

SIZE, RANK = 100, 60
LEAST_VARIANCES = (0.0, 0.8)
MOST_DRAWS = 200  # times SIZE
LAMBDA = 0.1


def largest_difference(A: Array, B: Array) -> float:
    """Relative to the largest entry."""
    return float(np.abs(A - B).max() / np.abs(B).max())


def cosines(X: Array, least: float, rng: np.random.Generator, axes: Array | None = None) -> tuple[Array, float]:
    """Random features (n, SIZE) whose columns have at least this variance; the share of the drawn ones that do.

    With axes (d, d*) directions are drawn in their span, as RFF-PCA does.
    """
    kept: list[Array] = []
    drawn = 0
    while len(kept) < SIZE and drawn < MOST_DRAWS * SIZE:
        w = rng.standard_normal((SIZE, X.shape[1] if axes is None else axes.shape[1])) / SIGMA
        w = w if axes is None else w @ axes.T
        columns = np.sqrt(2) * np.cos(X @ w.T + rng.uniform(0, 2 * np.pi, SIZE))
        drawn += SIZE
        kept += list(columns.T[columns.var(axis=0) >= least])
    return np.stack(kept[:SIZE], axis=1) / np.sqrt(min(SIZE, len(kept))), len(kept) / drawn


def rejected(rows: int, repeats: int) -> Lines:
    """By least variance: the share kept, error of K, agreement of u1 and u2, rows misclassified by u2; medians."""
    names = [f"RFF, variance at least {least:g}" for least in LEAST_VARIANCES] + [f"RFF-PCA, {AXES} axes"]
    found: dict[str, list[list[float]]] = {name: [] for name in names}
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        X, right = two_discs(rows, rng)
        K, _, U = exact(X)
        axes = np.linalg.eigh(np.cov(X.T))[1][:, -AXES:]
        drawn = [cosines(X, least, np.random.default_rng(seed)) for least in LEAST_VARIANCES]
        for name, (Z, share) in zip(names, [*drawn, cosines(X, 0.0, np.random.default_rng(seed), axes)], strict=True):
            u = np.linalg.svd(Z, full_matrices=False)[0][:, :2]
            agreement = measures.vector_agreement(U[:, :2], u)
            wrong = misclassified(u[:, 1], right) / rows
            found[name].append([share, relative(Z @ Z.T, K), *map(float, agreement), wrong])
    for name, each in found.items():
        share, error, first, second, wrong = np.median(each, axis=0)
        yield [name, f"{share:.0%}", f"{error:.3f}", f"{first:.4f}", f"{second:.4f}", f"{wrong:.1%}"]


def projections(rows: int, seed: int) -> Lines:
    """Errors |K - K^|_F of the forms by projection and by spectrum, cut to RANK and not cut."""
    K = exact(two_discs(rows, np.random.default_rng(seed))[0])[0]
    size = min(SIZE, rows // 4)
    S = np.sort(np.random.default_rng(seed).choice(rows, size, replace=False))
    C, W = K[:, S], K[np.ix_(S, S)]
    U, D, _ = np.linalg.svd(C, full_matrices=False)
    values, vectors = np.linalg.eigh(W)
    for k in (min(RANK, size), size):
        of_W, at = vectors[:, -k:], values[-k:]
        found = {
            "columns, projection (26)": U[:, :k] @ (U[:, :k].T @ K),
            "Nyström, projection (40)": size / rows * (C @ of_W / at**2) @ (of_W.T @ C.T @ K),
            "columns, spectral (25), corrected": np.sqrt(rows / size) * (U[:, :k] * D[:k]) @ U[:, :k].T,
            "Nyström, spectral (39)": (C @ of_W / at) @ (C @ of_W).T,
        }
        for name, guess in found.items():
            yield [name, str(k), f"{np.linalg.norm(K - guess):.4g}", f"{relative(guess.T, guess):.1e}"]


def ridge_claims(rng: np.random.Generator) -> Lines:
    """(12), the representer theorem with more features than rows, and scores of more columns than rows."""

    def positive(n: int) -> Array:
        A = rng.standard_normal((n, n))
        return np.asarray(A @ A.T + np.eye(n))

    F, H, G = positive(60), positive(40), rng.standard_normal((40, 60))
    inverse = np.linalg.inv
    left = inverse(inverse(F) + G.T @ inverse(H) @ G) @ G.T @ inverse(H)
    apart = largest_difference(left, F @ G.T @ inverse(G @ F @ G.T + H))
    yield ["ridge rewrite (12), F 60 x 60, H 40 x 40", "largest difference", f"{apart:.1e}"]
    X, y = rng.standard_normal((40, 8)), rng.standard_normal(40)
    monomials = PolynomialFeatures(3).fit(X)
    powers = np.column_stack([monomials.powers_, 3 - monomials.powers_.sum(axis=1)])
    Z = monomials.transform(X) * np.sqrt(6 / factorial(powers).prod(axis=1))  # of (1 + <x, y>)³
    beta = np.linalg.solve(Z.T @ Z + LAMBDA * np.eye(Z.shape[1]), Z.T @ y)
    outside = relative(Z.T @ np.linalg.lstsq(Z.T, beta, rcond=None)[0], beta)
    features = f"representer theorem, {Z.shape[1]} cubic features, 40 rows"
    yield [features, "part of the minimum outside their span", f"{outside:.1e}"]
    wide = rng.standard_normal((60, 3000)) * np.linspace(1, 3, 3000)
    ours = KernelPCA(5, kernel=kernels.Linear(), method="exact", dtype="float64").fit(wide)
    theirs = PCA(5, svd_solver="full").fit_transform(wide)
    apart = largest_difference(np.abs(ours.transform(wide)), np.abs(theirs))
    yield ["d > n: 60 rows of 3000 columns", "scores by 60 x 60 and by PCA", f"{apart:.1e}"]


def invariance(rng: np.random.Generator) -> Lines:
    """Eigenvalues after an orthogonal map of the rows, by kernel and method."""
    X = rng.standard_normal((300, 10)) * np.linspace(1, 2, 10)
    turned = X @ np.linalg.qr(rng.standard_normal((10, 10)))[0]
    ways: dict[str, dict[str, Any]] = {
        "exact, <x, y>³": {"kernel": kernels.Polynomial(degree=3, gamma=0.1, coef0=0.0), "method": "exact"},
        "exact, Gaussian": {"sigma": 5.0, "method": "exact"},
        "Nyström, random rows": {"sigma": 5.0, "landmarks": "uniform", "size": 100},
        "RFF, orthogonal": {"sigma": 5.0, "method": "rff", "size": 100},
    }
    for name, options in ways.items():
        both = [KernelPCA(5, dtype="float64", random_state=0, **options).fit(rows).eigenvalues_ for rows in (X, turned)]
        yield ["unitary invariance", f"5 eigenvalues of turned rows, {name}", f"{largest_difference(*both):.1e}"]


def along_the_parabola(rows: int, repeats: int) -> Lines:
    """In how many data sets the first component is monotone along the parabola."""
    x = np.linspace(-1, 1, 201)
    for degree in DEGREES:
        fits = [fitted(parabola(rows, seed), degree) for seed in range(repeats)]
        steps = [np.diff(fit.transform(np.column_stack([x, x**2]))[:, 0]) for fit in fits]
        monotone = sum(bool(np.all(step > 0) or np.all(step < 0)) for step in steps)
        yield [f"first component, degree {degree}", "monotone", f"{monotone} of {repeats}"]


def main(rows: int = 2000, repeats: int = 30) -> Tables:
    header = ["features", "kept", "error of K", "u1", "u2", "misclassified"]
    title = f"{SIZE} random features, {rows} rows of Example 1, medians of {repeats} data sets"
    yield Table(title, header, [*rejected(rows, repeats)], "variance")
    header = ["form", "rank", "|K - K^|_F", "not symmetric"]
    yield Table(f"Forms by projection, {rows} rows of Example 1", header, [*projections(rows, 0)], "forms")
    rng = np.random.default_rng(0)
    claims = [*ridge_claims(rng), *invariance(rng), *along_the_parabola(100, repeats)]
    yield Table("In passing", ["claim", "measured", "found"], claims)
