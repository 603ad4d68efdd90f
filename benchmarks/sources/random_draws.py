"""The thesis's methods by their formulas: what a draw is, what it may change, and draws that look at K.

Formulas of scores: (18), 3.2.3, 3.3.3, (24), Theorem 1. Forms (5) to (8) of the picture of `low_rank_image`, K = AA'.
Johnson and Lindenstrauss (3.1) on rows of Example 1 in feature space. Concentration (B.1) of g = |A'A - C_A C_A'|:
(71) bounds its change by an exchange of one row, (72) its mean, and Theorem 7 its tail. Draws that look at K: adaptive
sampling (Kumar, Mohri and Talwalkar 2012) and greedy column subset selection (Farahat, Ghodsi and Kamel 2013).
"""

from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import hypergeom
from sklearn.datasets import load_digits, load_sample_image
from sklearn.random_projection import johnson_lindenstrauss_min_dim

from benchmarks.sources.common import Table, Tables, landmarks_of, medians, relative
from benchmarks.sources.example1 import SIGMA, two_discs
from benchmarks.sources.low_rank_image import truncated
from bigkpca import KernelPCA, arrays, kernels, methods
from bigkpca.errors import Array

EPSILON, DELTA = 0.5, 0.05
DRAWS, MOST_ROWS = 100, 500
POPULATION, DRAWN = 1000, 100  # half of it ones
ROUNDS, COMPONENTS = 10, 20
OF_DIGITS = kernels.Gaussian(34.7)  # the median length


def formulas(rows: int, seed: int) -> dict[str, float]:
    """Relative differences between scores of the package and the formulas of the thesis, up to signs."""
    X, size, r = load_digits().data[:rows], rows // 4, 5
    common: dict[str, Any] = {"dtype": "float64", "random_state": seed}
    drawn: dict[str, Any] = {"landmarks": "uniform", "size": size, "center": False, **common}

    def leading(K: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(K)
        return values[::-1][:r], vectors[:, ::-1][:, :r]

    def apart(fit: KernelPCA, values: Array, vectors: Array) -> float:
        return relative(np.abs(fit.transform(X)), np.abs(vectors * np.sqrt(values)))

    H = np.eye(len(X)) - 1 / len(X)
    exact = KernelPCA(r, kernel=OF_DIGITS, method="exact", **common).fit(X)
    columns = KernelPCA(r, kernel=OF_DIGITS, method="columns", **drawn).fit(X)
    U, D, _ = np.linalg.svd(OF_DIGITS(X, landmarks_of(columns)), full_matrices=False)
    nystroem = KernelPCA(r, kernel=OF_DIGITS, method=methods.Nystroem(form="thesis"), **drawn).fit(X)
    values, vectors = leading(OF_DIGITS.gram(landmarks_of(nystroem)))
    extended = np.sqrt(size / len(X)) * OF_DIGITS(X, landmarks_of(nystroem)) @ vectors / values
    features = KernelPCA(r, kernel=OF_DIGITS, method=methods.RandomFeatures(form="phase"), size=size, **common).fit(X)
    Z = H @ arrays.feature_map(features.model_, X).compute()
    few = np.random.default_rng(seed).standard_normal((len(X), 10))  # XX' has rank 10
    of_few = KernelPCA(None, kernel="linear", method=methods.Nystroem(form="thesis"), **drawn).fit_transform(few)
    return {
        "exact, (18) and (20)": apart(exact, *leading(H @ OF_DIGITS.gram(X) @ H)),
        "columns, 3.2.3": apart(columns, np.sqrt(len(X) / size) * D[:r], U[:, :r]),
        "Nyström, 3.3.3": apart(nystroem, len(X) / size * values, extended),
        "RFF, PCA of Z (24)": apart(features, *leading(Z @ Z.T)),
        "K of rank 10, Theorem 1": relative(of_few @ of_few.T, few @ few.T),
    }


def forms(A: Array, size: int, rank: int, seed: int) -> dict[str, float]:
    """Relative differences between the forms of K = AA', and of what they leave of A."""
    K = A @ A.T
    U, D, V = np.linalg.svd(A, full_matrices=False)
    U, D, V = U[:, :rank], D[:rank], V[:rank].T
    five = (U * D**2) @ U.T
    method = methods.Nystroem(form="thesis", rank=rank)
    options: dict[str, Any] = {"landmarks": "uniform", "size": size, "center": False, "dtype": "float64"}
    fit = KernelPCA(rank, kernel="linear", method=method, random_state=seed, **options).fit(A)
    drawn, Y = landmarks_of(fit), fit.transform(A)
    values, vectors = np.linalg.eigh(drawn @ drawn.T)
    values, vectors = values[-rank:], vectors[:, -rank:]
    of_K = np.sqrt(size / len(A)) * A @ drawn.T @ vectors / values
    six, seven = (of_K * values * len(A) / size) @ of_K.T, of_K @ (of_K.T @ K)
    of_drawn = np.linalg.svd(drawn, full_matrices=False)[2][:rank].T
    eight = (A @ of_drawn) @ (A @ of_drawn).T
    return {
        "three forms, exact vectors": max(relative(U @ (U.T @ K), five), relative((A @ V) @ (A @ V).T, five)),
        "(6) and (8), drawn rows": relative(six, eight),
        "scores ZZ' and (8)": relative(Y @ Y.T, eight),
        "error of K: best": relative(five, K),
        "error of K: (6) and (8)": relative(eight, K),
        "error of K: (7)": relative(seven, K),
        "error of the picture: best": relative(truncated(A, rank), A),
        "error of the picture: (8)": relative(A @ of_drawn @ of_drawn.T, A),
    }


def of_example(rows: int, seed: int) -> tuple[Array, Array, Array]:
    """Rows of Example 1, K, and A with K = AA'."""
    X = two_discs(rows, np.random.default_rng(seed))[0]
    K = kernels.Gaussian(SIGMA).gram(X)
    values, vectors = np.linalg.eigh(K)
    return X, K, vectors * np.sqrt(np.maximum(values, 0))


def needed_dimensions(rows: int) -> int:
    """Of Dasgupta and Gupta, 4 log n / (epsilon² / 2 - epsilon³ / 3)."""
    return int(johnson_lindenstrauss_min_dim(rows, eps=EPSILON))


def distances(rows: int, seed: int) -> dict[str, tuple[float, float]]:
    """By map to `needed_dimensions`: the largest relative error of a squared distance, and the error of K."""
    X, K, A = of_example(rows, seed)
    size = needed_dimensions(rows)
    exact = pdist(A, "sqeuclidean")
    mapped = {"random directions": A @ np.random.default_rng(seed).standard_normal((len(A), size)) / np.sqrt(size)}
    options: dict[str, Any] = {"sigma": SIGMA, "center": False, "dtype": "float64", "random_state": seed}
    ways: dict[str, dict[str, Any]] = {
        "RFF (thesis)": {"method": methods.RandomFeatures(form="phase"), "size": size},
        "Nyström": {"landmarks": "uniform", "size": min(size, rows)},
    }
    mapped |= {name: KernelPCA(None, **options, **way).fit_transform(X) for name, way in ways.items()}
    return {
        name: (float(np.abs(pdist(Z, "sqeuclidean") / exact - 1).max()), relative(Z @ Z.T, K))
        for name, Z in mapped.items()
    }


def tail_bound(epsilon: Array, drawn: int, left: int, change: float) -> Array:
    """Theorem 7."""
    factor = drawn * left / (drawn + left - 0.5) / (1 - 1 / (2 * max(drawn, left)))
    return np.asarray(np.exp(-2 * epsilon**2 / (factor * change**2)))


def bounded_deviation(drawn: int, left: int, change: float) -> float:
    """epsilon at which Theorem 7 is DELTA."""
    at_one = -np.log(tail_bound(np.array(1.0), drawn, left, change))
    return float(np.sqrt(np.log(1 / DELTA) / at_one))


def least_of_theorem() -> float:
    """The least ratio of Theorem 7's bound to the tail of the mean of DRAWN of POPULATION numbers."""
    counts = np.arange(POPULATION // 2 * DRAWN // POPULATION + 1, DRAWN + 1)
    tail = hypergeom(POPULATION, POPULATION // 2, DRAWN).sf(counts - 1)
    seen = tail > 1e-12
    bound = tail_bound(counts / DRAWN - 0.5, DRAWN, POPULATION - DRAWN, 1 / DRAWN)
    return float(np.min(bound[seen] / tail[seen]))


def deviations(rows: int, seed: int) -> dict[str, tuple[float, float]]:
    """What (71), (72) and Theorem 7 bound for a tenth of the rows, found in DRAWS draws, and the bound."""
    _, K, A = of_example(rows, seed)
    size = rows // 10
    whole = A.T @ A

    def g(S: Array) -> tuple[float, float]:
        left = whole - rows / size * A[S].T @ A[S]
        ends = np.linalg.eigvalsh(left)[[0, -1]]
        return float(np.abs(ends).max()), float(np.linalg.norm(left))

    rng = np.random.default_rng(seed)
    found, changes = [], []
    for _ in range(DRAWS):
        order = rng.permutation(rows)
        S, rest = order[:size], order[size:]
        i, j = np.unravel_index(K[np.ix_(S, rest)].argmin(), (size, rows - size))  # the two farthest apart
        exchanged = S.copy()
        exchanged[i] = rest[j]
        found.append(g(S))
        changes.append(abs(found[-1][0] - g(exchanged)[0]))
    of_norm, of_frobenius = np.array(found).T
    change = 2 * rows / size * float(np.sqrt(2 - 2 * K.min()))
    mean_bound = rows / np.sqrt(size)
    deviation = float(np.quantile(of_norm, 1 - DELTA) - of_norm.mean())
    return {
        "(71), change by one row": (max(changes), change),
        "(72), mean of the norm": (float(of_norm.mean()), mean_bound),
        "(72), mean of the Frobenius norm": (float(of_frobenius.mean()), mean_bound),
        "Theorem 7 with (71), deviation": (deviation, bounded_deviation(size, rows - size, change)),
    }


def adaptive(K: Array, size: int, rng: np.random.Generator) -> Array:
    """Numbers of columns drawn in rounds, in proportion to the squared norms of what the earlier ones leave."""
    S = rng.choice(len(K), size // ROUNDS, replace=False)
    while len(S) < size:
        Q = np.linalg.qr(K[:, S])[0]
        weights = np.sum((K - Q @ (Q.T @ K)) ** 2, axis=0)
        weights[S] = 0
        count = min(size // ROUNDS, size - len(S))
        S = np.append(S, rng.choice(len(K), count, replace=False, p=weights / weights.sum()))
    return S


def greedy(K: Array, size: int) -> Array:
    """Numbers of columns, each the one that reduces the error of projecting K onto all of them most."""
    G = K @ K
    gains, norms = np.sum(G**2, axis=0), np.diag(G).copy()  # of column j: |G_j|² / G_jj
    basis, S = np.zeros((len(K), size)), np.zeros(size, dtype=int)
    for step in range(size):
        S[step] = np.argmax(np.where(np.isin(np.arange(len(K)), S[:step]), -1, gains / np.maximum(norms, 1e-9)))
        earlier = basis[:, :step]
        v = G[:, S[step]] - earlier @ earlier[S[step]]
        v /= np.sqrt(v[S[step]])
        gains += -2 * v * (G @ v - earlier @ (earlier.T @ v)) + (v @ v) * v**2
        norms -= v**2
        basis[:, step] = v
    return S


def choices(rows: int, size: int, seed: int) -> dict[str, tuple[float, float]]:
    """By choice of landmarks among digits: mean relative error of the leading eigenvalues, and tr(E) / tr(K)."""
    X = load_digits().data[:rows]
    options: dict[str, Any] = {"kernel": OF_DIGITS, "dtype": "float64", "random_state": seed}
    exact = KernelPCA(COMPONENTS, method="exact", **options).fit(X)
    K = OF_DIGITS.gram(X)
    chosen: dict[str, Any] = {
        "uniform": "uniform",
        "adaptive (Kumar et al.)": adaptive(K, size, np.random.default_rng(seed)),
        "greedy (Farahat et al.)": greedy(K, size),
        "RPCholesky": "rpcholesky",
        "k-means": "kmeans",
    }
    found = {}
    for name, landmarks in chosen.items():
        fit = KernelPCA(COMPONENTS, landmarks=landmarks, size=size, **options).fit(X)
        C, W = OF_DIGITS(X, landmarks_of(fit)), OF_DIGITS.gram(landmarks_of(fit))
        left = 1 - np.sum(C * np.linalg.solve(W, C.T).T) / len(X)
        missed = np.mean(1 - fit.eigenvalues_ / exact.eigenvalues_[: fit.n_components_])
        found[name] = float(missed), float(left)
    return found


def measured(rows: int, repeats: int) -> list[list[str]]:
    """Lines of the table, medians over seeds."""
    few, size, seeds = min(rows, MOST_ROWS), min(100, rows // 4), range(repeats)
    A = load_sample_image("flower.jpg").mean(axis=2)[:rows] / 255
    of_formulas = medians([formulas(rows, seed) for seed in seeds])
    of_forms = medians([forms(A, len(A) // 2, min(60, len(A) // 4), seed) for seed in seeds])
    of_distances = medians([distances(few, seed) for seed in seeds])
    of_draws = medians([deviations(few, seed) for seed in seeds])
    of_choices = medians([choices(rows, size, seed) for seed in seeds])
    in_fewer = f"{few} rows in {needed_dimensions(few)} dimensions"
    return [
        *(["scores", x, f"{found:.1e}", ""] for x, found in of_formulas.items()),
        *(["forms of a picture", x, f"{found:.2g}", ""] for x, found in of_forms.items()),
        *(
            ["Johnson-Lindenstrauss", f"{in_fewer}, {x}", f"{most:.3f}; error of K {error:.3f}", f"{EPSILON:g}"]
            for x, (most, error) in of_distances.items()
        ),
        *([f"{few // 10} of {few} rows", x, f"{found:.3g}", f"{bound:.3g}"] for x, (found, bound) in of_draws.items()),
        ["Theorem 7", "mean of zeros and ones: least bound / tail", f"{least_of_theorem():.3g}", "at least 1"],
        *(
            ["choice of columns", f"{size} of {rows} digits, {x}", f"eigenvalues {error:.4f}; trace {left:.4f}", ""]
            for x, (error, left) in of_choices.items()
        ),
    ]


def main(rows: int = 1797, repeats: int = 10) -> Tables:
    lines = measured(rows, repeats)
    title = f"Draws, medians of {repeats} seeds"
    yield Table(title, ["what", "measured", "found", "bound"], lines)
