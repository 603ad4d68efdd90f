"""Hard data for kernel PCA, and what a fit says of itself held against float64 truth.

A seed makes a case, a case makes rows and a fit. `python -m tests.helpers.adversarial --cases 5000 --seed 0 --jobs 2`
counts. The truth is the Gram matrix of the rows as stored, from differences and in long doubles. Kinds of problems:

* false proven bound: a bound, a residual or the relative trace error does not hold, or a Nyström share of variance of a
  positive kernel is too large, by more than the certificate's own `rounding`. Not counted where
  IndefiniteKernelWarning said that the kernel is outside the proofs.
* silent wrong spectrum: one of the five leading eigenvalues is off by more than 5 %, nothing was warned of, and it is
  not told either: by bounds on both sides that hold the true one; where there are none, by a trust below solid, or by
  `missed` and `rounding` that are as large. A likely bound that misses is counted as such, not here too.
* likely bound missed: at most one for each fit, since all its bounds hold together as often as it says.
* solid without cosine: the scores of a solid component have cosine < 0.99 with the true eigenvectors of its rank.
* nan; unexpected error: any exception or warning that is not of bigkpca.errors.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import gamma, kv

from bigkpca import KernelPCA, kernels, landmarks
from bigkpca.errors import Array, BigKPCAError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics import spectral
from bigkpca.numerics.certificate import Certificate

DTYPES = ("float64", "float64", "float32", "float32", "float16", "uint8", "int16", "int32", "int64")
STATIONARY = ("gaussian", "laplacian", "matern", "rational-quadratic")
RULES = ("kmeans", "uniform", "rpcholesky", "rpcholesky over all", "leverage", "basic-patterns", "numbers")


@dataclass(frozen=True)
class Case:
    """All that makes a fit. Lengths are in medians of the distance between rows; None is the default of KernelPCA."""

    seed: int = 0
    n: int = 200
    d: int = 4
    shape: str = "blobs"
    spoils: tuple[str, ...] = ()
    unit: int = 0  # rows are multiplied by 10**unit
    dtype: str = "float64"
    kernel: str = "gaussian"
    length: float | None = 1.0
    method: str = "nystroem"
    rule: str = "auto"
    size: int | str = 50
    components: int | float | None = 5
    center: bool = True
    standardize: bool = False
    block: str | None = None
    parts: int = 1  # the first is fitted, the others are added by partial_fit
    refine: int = 0
    held_out: int | None = None  # rows that are sampled for likely bounds; None leaves the package's number

    def __repr__(self) -> str:
        said = {part.name: getattr(self, part.name) for part in fields(self)}
        return f"Case({', '.join(f'{key}={value!r}' for key, value in said.items() if value != getattr(Case, key))})"


def case(seed: int) -> Case:
    """The case of a seed."""
    rng = np.random.default_rng(seed)

    def one(values: Any) -> Any:
        return values[rng.integers(len(values))]

    def chance(p: float) -> bool:
        return bool(rng.random() < p)

    n = int(rng.integers(60, 400)) if chance(0.96) else int(rng.integers(400, 1501))
    kernel, method = one(["gaussian"] * 3 + list(KERNELS)), "nystroem"
    if chance(0.4):
        waves = ["rff"] * (kernel in (*STATIONARY, "polynomial", "scaled")) + ["rff-pca"] * (kernel == "gaussian")
        method = one(["columns", "exact", *waves, *waves])
    sizes = 2 * int(rng.integers(8, 200)), "auto" if chance(0.1) else int(rng.integers(4, max(n // 2, 5)))
    size = "auto" if method == "exact" else sizes[method in ("nystroem", "columns")]
    rule = one(["auto", "auto", *RULES]) if method == "nystroem" else "auto"
    components, length = one([1, 2, 5, 5, 10, 20, 0.9, None]), float(np.exp(rng.uniform(np.log(0.05), np.log(100))))
    refine = 3 * (method == "nystroem" and isinstance(components, int) and chance(0.08))
    rows: dict[str, Any] = {"n": n, "d": int(one([1, 2, 3, 5, 8, 20])), "shape": one(["blobs", "far cluster", *SHAPES])}
    rows |= {"spoils": tuple(rng.permutation(list(SPOILS))[: one([0, 0, 1, 1, 2, 3])].tolist()), "dtype": one(DTYPES)}
    fit: dict[str, Any] = {"kernel": kernel, "length": None if chance(0.2) else length, "method": method, "rule": rule}
    fit |= {"size": size, "components": components, "center": chance(0.8), "standardize": chance(0.25)}
    unit, parts = int(rng.integers(-12, 13)) * chance(0.3), 1 if method == "exact" or refine else one([1, 1, 1, 2, 3])
    fit |= {"block": one([None, None, "float32", "float64"]), "refine": refine, "unit": unit, "parts": parts}
    return Case(seed, **rows, **fit, held_out=int(rng.integers(64, 513)) if chance(0.5) else None)


def _with_clusters(X: Array, rng: np.random.Generator, count: int) -> Array:
    for _ in range(count):
        few = rng.choice(len(X), max(1, round(len(X) * 10 ** rng.uniform(-4, -1))), replace=False)
        X[few] = 10 ** rng.uniform(-4, -1) * X[few] + rng.normal(size=X.shape[1]) * 10 ** rng.uniform(0.5, 4)
    return X


def _with_values(X: Array, rng: np.random.Generator, share: float, columns: float) -> Array:
    value = rng.choice([-999, -9999, 1e6, 1e10, 1e20, -3.4028234e38], p=[0.3, 0.3, 0.1, 0.1, 0.1, 0.1])
    rows, chosen = rng.random(len(X)) < share, rng.random(X.shape[1]) < columns
    rows[rng.integers(len(X))] = chosen[rng.integers(len(chosen))] = True
    return np.where(rows[:, None] & chosen, value, X)


SHAPES = {
    "blobs": lambda X, rng: X + 3 * rng.normal(size=(4, X.shape[1]))[rng.integers(0, 4, len(X))],
    "cauchy": lambda X, rng: rng.standard_cauchy(X.shape),
    "lognormal": lambda X, rng: np.exp(rng.uniform(1, 4) * X),
    "far cluster": lambda X, rng: _with_clusters(X, rng, 1),
    "far clusters": lambda X, rng: _with_clusters(X, rng, 3),
    "counts": lambda X, rng: rng.poisson(rng.uniform(0.2, 20, X.shape[1]), X.shape).astype(float),
    "few": lambda X, rng: X[rng.integers(0, rng.integers(2, 13), len(X))],
    "line": lambda X, rng: X[:, :1] * rng.normal(size=X.shape[1]),
}
SPOILS = {
    "outlier": lambda X, rng: X * np.where(rng.permutation(X.size) > 0, 1, 10 ** rng.uniform(2, 8)).reshape(X.shape),
    "outliers": lambda X, rng: X * np.where(rng.random((len(X), 1)) < 0.03, 10 ** rng.uniform(1, 6), 1),
    "sentinel": lambda X, rng: _with_values(X, rng, 0.05 * rng.random(), 0),
    "sentinels": lambda X, rng: _with_values(X, rng, 0.05 * rng.random(), 0.5),
    "constant": lambda X, rng: np.where(rng.permutation(X.shape[1]) > 0, X, 10 ** rng.uniform(-3, 6)),
    "collinear": lambda X, rng: np.where(rng.permutation(X.shape[1]) > 0, X, X @ rng.normal(size=(X.shape[1], 1))),
    "duplicates": lambda X, rng: np.vstack([X[: len(X) // 2], X[: len(X) - len(X) // 2]]),
    "sorted": lambda X, rng: X[X[:, rng.integers(X.shape[1])].argsort()],
    "units": lambda X, rng: X * 10 ** rng.uniform(-6, 6, X.shape[1]),
    "offset": lambda X, rng: X + 10 ** rng.uniform(0, 8) * np.abs(X).mean(axis=0) * rng.choice([-1, 1], X.shape[1]),
}


def rows_of(case: Case) -> Array:
    """The rows of a case as they are stored, (n, d): clipped to what their dtype holds; integers and float16 first get
    a unit in which they vary."""
    rng, kind = np.random.default_rng([case.seed, 1]), np.dtype(case.dtype)
    X = SHAPES[case.shape](rng.normal(size=(case.n, case.d)) * rng.uniform(0.2, 2, case.d), rng)
    for spoil in case.spoils:
        X = SPOILS[spoil](X, rng)
    X *= 10.0**case.unit
    middle = float(np.median(np.abs(X - np.median(X, axis=0)))) or 1.0
    if kind.kind in "iu":
        X = X * (min(20.0, np.iinfo(kind).max / 8) / middle)
        return np.clip(np.rint(X), max(np.iinfo(kind).min, -(2**53)), min(np.iinfo(kind).max, 2**53)).astype(kind)
    return np.clip(X / middle if kind.itemsize == 2 else X, np.finfo(kind).min, np.finfo(kind).max).astype(kind)


def _of_distance(X: Array, Y: Array, profile: Callable[[Array], Array], sigma: float) -> Array:
    return profile(cdist(X, Y) / sigma)


# From a length, a slope (one over a squared norm) and a number that picks among other parameters.
KERNELS = {
    "gaussian": lambda sigma, slope, pick: kernels.Gaussian(sigma),
    "laplacian": lambda sigma, slope, pick: kernels.Laplacian(sigma),
    "matern": lambda sigma, slope, pick: kernels.Matern(sigma, [0.5, 0.8, 1.5, 2.5][pick % 4]),
    "rational-quadratic": lambda sigma, slope, pick: kernels.RationalQuadratic(sigma, [0.5, 1.0, 3.0][pick % 3]),
    "linear": lambda sigma, slope, pick: kernels.Linear(),
    "polynomial": lambda sigma, slope, pick: kernels.Polynomial(slope, 2 + pick % 2, float(pick // 2 % 2)),
    "sigmoid": lambda sigma, slope, pick: kernels.Sigmoid(slope, [-0.5, 0.0, 1.0][pick % 3]),
    "cosine": lambda sigma, slope, pick: kernels.Cosine(),
    "sum": lambda sigma, slope, pick: kernels.Gaussian(sigma) + slope * kernels.Linear(),
    "product": lambda sigma, slope, pick: kernels.Gaussian(sigma) * kernels.Matern(2 * sigma, 1.5),
    "scaled": lambda sigma, slope, pick: 1e-6 * kernels.Gaussian(sigma),
    "callable": lambda sigma, slope, pick: partial(_of_distance, profile=lambda s: np.exp(-(s**2) / 2), sigma=sigma),
    "indefinite": lambda sigma, slope, pick: partial(_of_distance, profile=lambda s: np.tanh(1 - s), sigma=sigma),
}


def kernel_of(case: Case, X: Array) -> Any:
    """The kernel of a case on rows X: a name, or a value whose lengths are shares of medians of these rows."""
    if case.length is None and case.kernel in (*STATIONARY, "linear", "polynomial", "sigmoid", "cosine"):
        return case.kernel
    rows, length = X.astype(float), case.length or 1
    if case.standardize:
        deviations = rows.std(axis=0)
        rows = (rows - rows.mean(axis=0)) / np.where(deviations > 0, deviations, 1)
    rows = rows[np.random.default_rng([case.seed, 2]).permutation(len(rows))[:300]]
    distances = cdist(rows, rows, "cityblock" if case.kernel == "laplacian" else "euclidean")
    sigma = length * float(np.median(distances[distances > 0])) if distances.any() else 1.0
    slope = 1 / (length * (float(np.median((rows**2).sum(axis=1))) or 1.0))
    return KERNELS[case.kernel](sigma, slope, case.seed)


def estimator_of(case: Case, X: Array) -> KernelPCA:
    """The estimator of a case on rows X, not fitted."""
    first = len(np.array_split(X, case.parts)[0])
    numbers = np.random.default_rng([case.seed, 3]).permutation(first)[: None if case.size == "auto" else case.size]
    rules = {"numbers": numbers, "rpcholesky over all": landmarks.RPCholesky(over="all")}
    chosen = {"kernel": kernel_of(case, X), "landmarks": rules.get(case.rule, case.rule), "dtype": case.block}
    chosen |= {"size": "auto" if case.rule == "numbers" else case.size, "random_state": case.seed % 2**31}
    chosen |= {name: getattr(case, name) for name in ("method", "center", "standardize", "refine")}
    return KernelPCA(case.components, **chosen)


def values(kernel: Any, X: Array, Y: Array, shift: Array, center: bool) -> Array:
    """k(X, Y) of long doubles; kernels of x - y subtract `shift`, which is near all rows, before they round to doubles.
    With `center` it may lack what centring takes away again."""
    if isinstance(kernel, kernels.Sum):
        return values(kernel.left, X, Y, shift, center) + values(kernel.right, X, Y, shift, center)
    if isinstance(kernel, kernels.Product):
        return values(kernel.left, X, Y, shift, False) * values(kernel.right, X, Y, shift, False)
    if isinstance(kernel, kernels.Scaled):
        return kernel.factor * values(kernel.kernel, X, Y, shift, center)
    if isinstance(kernel, kernels.Function):
        return np.asarray(kernel.function(X.astype(float), Y.astype(float)))
    if isinstance(kernel, kernels.Cosine):
        X, Y = (A / np.sqrt(np.where(A.any(axis=1), (A**2).sum(axis=1), 1))[:, None] for A in (X, Y))
    if isinstance(kernel, kernels.Linear) and center:
        X, Y = X - shift, Y - shift
    if not kernel.stationary:
        profiles = {"polynomial": lambda G: (kernel.gamma * G + kernel.coef0) ** int(kernel.degree)}
        profiles |= {"sigmoid": lambda G: np.tanh(kernel.gamma * G + kernel.coef0)}
        return profiles.get(kernel.name, np.asarray)(X @ Y.T)
    metric = "cityblock" if kernel.name == "laplacian" else "euclidean"
    s = cdist(*((A - shift).astype(float) / kernel.sigma for A in (X, Y)), metric)
    if kernel.name == "matern":
        nu, s = kernel.nu, math.sqrt(2 * kernel.nu) * s
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(s < 1e-100, 1, 2 ** (1 - nu) / gamma(nu) * s**nu * kv(nu, s))
    alpha = getattr(kernel, "alpha", 1)
    exponents = {"laplacian": -s, "gaussian": -(s**2) / 2, "rational-quadratic": -alpha * np.log1p(s**2 / (2 * alpha))}
    return np.exp(exponents[kernel.name])


@dataclass(frozen=True)
class Truth:
    """Eigenvalues (n,), descending, and eigenvectors (n, n) of Kc, or of K; its trace; how far rounding moves them."""

    values: Array
    vectors: Array
    total: float
    slack: float


def truth(kernel: Any, Z: Array, center: bool) -> Truth:
    """The truth for rows Z as the kernel sees them, long doubles."""
    K = values(kernel, Z, Z, np.median(Z, axis=0), center)
    entries = np.finfo(K.dtype).eps * np.abs(np.diag(K)).sum()
    if center:
        K = K - K.mean(axis=0)
        K = K - K.mean(axis=1)[:, None]
    found, U = np.linalg.eigh(((K + K.T) / 2).astype(float))
    slack = 64 * (len(K) * np.finfo(float).eps * np.abs(found).max() + entries)
    return Truth(found[::-1], U[:, ::-1], float(np.trace(K)), float(slack))


def remainder(kernel: Any, Z: Array, S: Array) -> tuple[Array, float]:
    """(E = K - C W+ C' of landmarks S, float64; how far rounding moves its trace). No fit has a smaller E, since none
    cuts off fewer directions of W."""
    shift = np.median(Z, axis=0)
    K, C, W = (values(kernel, A, B, shift, False).astype(float) for A, B in ((Z, Z), (Z, S), (S, S)))
    L, Q = np.linalg.eigh((W + W.T) / 2)
    kept = 1e-12 * L[-1] < L
    P = Q[:, kept] / np.sqrt(L[kept])
    F = C @ P
    entries = 64 * len(K) * np.abs(np.diag(K)).sum()
    seen_through_P = 64 * np.linalg.norm(P) * np.linalg.norm(C) * np.linalg.norm(F)
    seen_through_L = 64 * L[-1] * float((F**2).sum(axis=0) @ (1 / L[kept]))
    return K - F @ F.T, float(np.finfo(float).eps * (entries + seen_through_P + seen_through_L))


@dataclass
class Outcome:
    """What came of a case."""

    problems: list[tuple[str, str]] = field(default_factory=list)  # kind, detail
    refused: str = ""  # the error of bigkpca.errors, if there was one
    warned: frozenset[str] = frozenset()  # classes of warnings of bigkpca.errors
    checked: Counter[str] = field(default_factory=Counter)  # what was checked, and what failed


def outcome(case: Case) -> Outcome:
    """Fit, and hold all that the fit says against the truth."""
    X, found, scores = rows_of(case), Outcome(), None
    sampled = mock.patch.object(spectral, "HELD_OUT_ROWS", case.held_out or spectral.HELD_OUT_ROWS)
    with warnings.catch_warnings(record=True) as caught, sampled:
        warnings.simplefilter("always")
        try:
            estimator = estimator_of(case, X)
            first, *more = np.array_split(X, case.parts)
            estimator.fit(first)
            for part in more:
                estimator.partial_fit(part)
            scores = np.asarray(estimator.transform(X), float)
        except BigKPCAError as error:
            found.refused = f"{type(error).__name__}: {error}"
        except Exception as error:  # which is what is looked for
            found.problems.append(("unexpected error", f"{type(error).__name__}: {error}"))
    told = [each.category for each in caught if each.category.__module__ == BigKPCAError.__module__]
    found.warned = frozenset(each.__name__ for each in told)
    others = [f"{each.category.__name__}: {each.message}" for each in caught if each.category not in told]
    found.problems += [("unexpected error", other) for other in others[:1]]
    if scores is not None:
        # Threads that wait for each other, beside those of other tests, take ten times as long.
        with single_threaded_blas, np.errstate(all="ignore"):
            _judge(case, X, estimator, scores, found)
    return found


def _judge(case: Case, X: Array, estimator: KernelPCA, scores: Array, found: Outcome) -> None:
    certified, features = estimator.certificate_, estimator.model_.features
    said = {part.name: getattr(certified, part.name) for part in fields(certified)}
    said |= {"scores": scores, "eigenvalues": estimator.eigenvalues_, "ratio": estimator.explained_variance_ratio_}
    if bad := [name for name, value in said.items() if value is not None and np.isnan(value).any()]:
        found.problems.append(("nan", ", ".join(bad)))
        return
    Z = (X.astype(np.longdouble) - features.offset) / (1 if features.scale is None else features.scale)
    true = truth(estimator.kernel_, Z, case.center)
    if "IndefiniteKernelWarning" not in found.warned:
        _judge_bounds(case, Z, estimator, true, found)
    if not found.warned:
        _judge_silence(certified, estimator.eigenvalues_, true, found)
    _judge_solid(certified, scores, true, found)


def _judge_bounds(case: Case, Z: Array, estimator: KernelPCA, true: Truth, found: Outcome) -> None:
    certified, features = estimator.certificate_, estimator.model_.features
    eigenvalues, residuals = estimator.eigenvalues_, certified.residuals
    exact, slack = true.values[: len(eigenvalues)], true.slack
    share, share_slack = exact / true.total, slack / abs(true.total)
    nearest = np.abs(true.values[:, None] - eigenvalues).min(axis=0)
    claims: list[tuple[str, Any, Any, float]] = []  # name, what is at most, what, but for this much
    for name, true_ones, rounding in (("eigenvalue", exact, slack), ("explained_variance_ratio", share, share_slack)):
        claims.append((f"{name}_lower", getattr(certified, f"{name}_lower"), true_ones, rounding))
        claims.append((f"{name}_upper", true_ones, getattr(certified, f"{name}_upper"), rounding))
    claims.append(("residuals", nearest, None if residuals is None else residuals * eigenvalues, slack))
    if case.method == "nystroem" and case.kernel not in ("sigmoid", "indefinite", "callable"):
        ratio = estimator.explained_variance_ratio_ * (1 - (0 if certified.rounding is None else certified.rounding))
        claims.append(("explained_variance_ratio_", ratio, share, share_slack))
    likely, likely_upper = certified.spectral_error_likely, certified.eigenvalue_likely_upper
    missed = likely_upper is not None and bool((exact > likely_upper + slack).any())
    if case.method != "exact" and (certified.relative_trace_error is not None or likely is not None):
        E, rounding = remainder(estimator.kernel_, Z, features.landmarks.astype(np.longdouble))
        left = np.trace(E) - case.center * E.sum() / len(E)  # tr(HEH)
        claims.append(
            ("relative_trace_error", left / true.total, certified.relative_trace_error, rounding / abs(true.total))
        )
        missed |= likely is not None and bool(np.linalg.eigvalsh(E)[-1] > likely + rounding)
    for name, low, high, rounding in claims:
        excess = np.atleast_1d(0.0 if low is None or high is None else low - high - rounding)
        if (excess > 0).any():
            j = int(excess.argmax())
            low, high = np.atleast_1d(low)[j], np.atleast_1d(high)[j]
            found.problems.append(("false proven bound", f"{name}[{j}]: {low:.8g} <= {high:.8g} does not hold"))
    if likely is not None or likely_upper is not None:
        found.checked.update({"fits with likely bounds": 1, "fits whose likely bounds miss": int(missed)})
        found.problems += [("likely bound missed", "")] * missed


def _judge_silence(certified: Certificate, eigenvalues: Array, true: Truth, found: Outcome) -> None:
    lower, upper, trust = certified.eigenvalue_lower, certified.eigenvalue_upper, certified.trust
    for j in range(min(5, len(eigenvalues))):
        exact, slack, error = true.values[j], true.slack, abs(eigenvalues[j] - true.values[j])
        if lower is not None and upper is not None:
            told = lower[j] - slack <= exact <= upper[j] + slack
        else:
            shares = [each[j] for each in (certified.missed, certified.rounding) if each is not None]
            told = (trust is not None and trust[j] != "solid") or sum(shares) * eigenvalues[j] >= error - slack
        if error > 0.05 * abs(exact) + slack and not told:
            found.problems.append(("silent wrong spectrum", f"[{j}] is {eigenvalues[j]:.5g}, not {exact:.5g}"))


def _judge_solid(certified: Certificate, scores: Array, true: Truth, found: Outcome) -> None:
    words = np.resize(np.array(certified.trust or ""), scores.shape[1])
    for j in np.flatnonzero((words == "solid") & (true.values[: len(words)] > 1e4 * true.slack)):  # or it is rounding
        exact = true.values[j]
        # Eigenvectors of values within 2 % turn into each other at a touch: what can be asked for is their span.
        near = np.abs(true.values - exact) <= 0.02 * exact
        cosine = float(np.linalg.norm(true.vectors[:, near].T @ scores[:, j]) / np.linalg.norm(scores[:, j]))
        found.checked.update({"solid components": 1, "solid components that fail": int(not cosine >= 0.99)})
        if not cosine >= 0.99:
            found.problems.append(("solid without cosine", f"component {j} of {len(scores.T)} has {cosine:.3f}"))


def total(outcomes: list[Outcome]) -> Counter[str]:
    """Counts over cases: for each kind of problem the cases that have it, and what was checked."""
    counts: Counter[str] = Counter()
    for each in outcomes:
        counts.update({kind for kind, _ in each.problems})
        counts.update({"cases": 1, "refused": bool(each.refused), "warned": bool(each.warned)} | each.checked)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits of hard data, held against the truth.")
    for name, default in (("--cases", 300), ("--seed", 0), ("--jobs", 1)):
        parser.add_argument(name, type=int, default=default)
    chosen = parser.parse_args()
    seeds = range(chosen.seed, chosen.seed + chosen.cases)
    with multiprocessing.Pool(chosen.jobs) as pool:
        outcomes = pool.map(outcome, map(case, seeds), chunksize=5)
    print("\n".join(f"{name:32} {count}" for name, count in total(outcomes).items()))
    for seed, each in [pair for pair in zip(seeds, outcomes, strict=True) if pair[1].problems][:30]:
        print(f"{': '.join(each.problems[0])[:120]} ({len(each.problems)} in all): {case(seed)!r}")


if __name__ == "__main__":
    main()
