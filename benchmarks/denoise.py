"""Pre-images: noise removed from digits, next to scikit-learn and PCA; the thesis's grid; labels kept; throughput."""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as TheirKernelPCA
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier

import bigkpca
from benchmarks.common import (
    MEDIAN_DISTANCE,
    arguments,
    child,
    interleaved,
    median_ratio,
    repeated_dataset,
    seconds_of,
    usps,
    usps_labels,
)
from benchmarks.results import Results, Table, table
from bigkpca import KernelPCA, preimages
from bigkpca.errors import FewerComponentsWarning, NarrowKernelWarning

TRAINING_ROWS = 7291
TESTED = 500
NOISE = 0.5
LEVELS = (0.25, 0.5, 0.75, 1.0)
COMPONENTS = (128, 256, 400, 1000)
SEARCHED = 6000  # training rows by which settings are chosen
LENGTHS = (0.5, 0.71, 1.0, 1.41, 2.0)  # in medians
RIDGES = (0.01, 0.1, 1.0, 10.0)
WAYS = ("denoising", "fixed-point", "ridge", "mds")
THESIS_SIGMAS, THESIS_COMPONENTS, THESIS_DIGITS = (1.0, 5.0, 10.0, 20.0, 50.0), (13, 26, 64, 128, 256), (1, 4, 8)

_STREAM = """
import json, sys, time
import bigkpca
data, model, out = sys.argv[1:]
started = time.perf_counter()
bigkpca.denoise(model, data, out, overwrite=True)
print(json.dumps(time.perf_counter() - started))
"""

Rows = np.ndarray[Any, Any]


def error(found: Rows, clean: Rows) -> float:
    """Mean squared error over all entries."""
    return float(np.mean((np.asarray(found, np.float64) - clean) ** 2))


@dataclass(frozen=True)
class Setting:
    """The sigma, number of components and ridge of a pre-image; None for one without a ridge."""

    sigma: float
    components: int
    ridge: float | None


def chosen(train: Rows, way: str, size: int, noise: float) -> Setting:
    """sigma, components and then the ridge by cross-validation on training rows."""
    X = train[np.random.default_rng(0).permutation(len(train))[:SEARCHED]]
    median = bigkpca.sigma(X)["median"].sigma
    lengths = [float(f"{factor * median:.6g}") for factor in LENGTHS]
    counts = [r for r in COMPONENTS if r <= size] or [size]
    kpca = KernelPCA(size=size, preimage=way, noise=noise, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # a length that is too short has a large error
        warnings.simplefilter("ignore", FewerComponentsWarning)
        best = GridSearchCV(kpca, {"sigma": lengths, "n_components": counts}, cv=3).fit(X).best_params_
        kind: Any = preimages.named(way)
        if not isinstance(kind, preimages.Ridge):
            return Setting(best["sigma"], best["n_components"], None)
        ridges = [replace(kind, ridge=ridge) for ridge in RIDGES]
        found = GridSearchCV(clone(kpca).set_params(**best), {"preimage": ridges}, cv=3).fit(X).best_params_
    return Setting(best["sigma"], best["n_components"], found["preimage"].ridge)


def estimator(way: str, setting: Setting, size: int, noise: float) -> KernelPCA:
    """The way with the settings that were chosen."""
    value: Any = preimages.named(way)
    if setting.ridge is not None:
        value = replace(value, ridge=setting.ridge)
    return KernelPCA(setting.components, sigma=setting.sigma, size=size, preimage=value, noise=noise, random_state=0)


def their_denoising(train: Rows, noisy: Rows) -> Rows:
    """scikit-learn at the best of the settings that were tried."""
    theirs = TheirKernelPCA(400, kernel="rbf", gamma=1e-3, alpha=5e-3, fit_inverse_transform=True, random_state=0)
    return theirs.fit(train).inverse_transform(theirs.transform(noisy))


def least_squares(train: Rows, noisy: Rows, noise: float) -> Rows:
    """The linear map of pixels that undoes noise of this size best: Wiener's."""
    mean = train.mean(axis=0)
    covariance = np.cov(train.T)
    weights = np.linalg.solve(covariance + noise**2 * np.eye(len(covariance)), covariance)
    return mean + (noisy - mean) @ weights


def denoising(train: Rows, clean: Rows, size: int, repeats: int) -> tuple[Table, dict[str, Setting]]:
    """Errors and seconds of every way, its settings chosen on the training rows; those settings."""
    rng = np.random.default_rng(0)
    noisy = (clean + NOISE * rng.standard_normal(clean.shape)).astype(np.float32)
    settings = {way: chosen(train, way, size, NOISE) for way in WAYS}

    def ours(way: str) -> Rows:
        return estimator(way, settings[way], size, NOISE).fit(train).denoise(noisy)

    answers: dict[str, Callable[[], Rows]] = {way: partial(ours, way) for way in WAYS}
    answers["scikit-learn"] = partial(their_denoising, train, noisy)
    seconds = interleaved(repeats, **{way: partial(seconds_of, work) for way, work in answers.items()})
    lines = []
    for way, work in answers.items():
        setting = settings.get(way)
        shown = (
            ["gamma 1e-3", 400, "alpha 5e-3"]
            if setting is None
            else [setting.sigma, setting.components, setting.ridge or ""]
        )
        faster = median_ratio(seconds["scikit-learn"], seconds[way])
        lines.append([way, *shown, f"{error(work(), clean):.4f}", statistics.median(seconds[way]), faster])
    pca = min(
        error(model.inverse_transform(model.transform(noisy)), clean)
        for model in (PCA(r, svd_solver="full").fit(train) for r in (32, 64, 128) if r < len(train))
    )
    lines.append(["PCA, best of 32, 64, 128", "", "", "", f"{pca:.4f}", "", ""])
    lines.append(
        ["least squares on pixels", "", "", "", f"{error(least_squares(train, noisy, NOISE), clean):.4f}", "", ""]
    )
    header = ["pre-image", "sigma", "components", "ridge", "mean squared error", "seconds", "times as fast"]
    errors = table(
        f"Noise {NOISE} removed from {len(clean)} digits; {len(train)} training rows, {size} landmarks", header, lines
    )
    return errors, settings


def levels(train: Rows, clean: Rows, size: int, settings: dict[str, Setting]) -> Table:
    """Errors at other sizes of the noise, with the sigma, components and ridge that were chosen for one."""
    lines = []
    for noise in LEVELS:
        noisy = (clean + noise * np.random.default_rng(1).standard_normal(clean.shape)).astype(np.float32)
        found = [error(estimator(way, settings[way], size, noise).fit(train).denoise(noisy), clean) for way in WAYS]
        lines.append([noise, *found, error(least_squares(train, noisy, noise), clean), error(noisy, clean)])
    header = ["noise", *WAYS, "least squares on pixels", "noisy"]
    return table(f"Mean squared error by the noise, {len(train)} training rows", header, lines)


def thesis_grid(X: Rows, size: int) -> Table:
    """Pre-images of every row by sigma and components, from scores alone; the thesis's form from random starts."""
    lines = []
    components = [r for r in THESIS_COMPONENTS if r <= min(size, X.shape[1])]
    for sigma in THESIS_SIGMAS:
        errors, apart, failed = [], [], []
        for r in components:
            fit = KernelPCA(r, sigma=sigma, size=size, preimage="fixed-point", random_state=0).fit(X)
            Y, pca = fit.transform(X), PCA(r, svd_solver="full").fit(X)
            found, flat = fit.inverse_transform(Y), pca.inverse_transform(pca.transform(X))
            errors.append(error(found, X))
            apart.append(float(np.linalg.norm(found - flat) / np.linalg.norm(flat)))
            failed.append(_thesis_failures(fit, X, Y))
        rises = sum(after > before * (1 + 1e-6) for before, after in pairwise(errors))
        lines.append([sigma, *[f"{each:.4f}" for each in errors], rises, f"{max(apart):.2%}", f"{np.mean(failed):.0%}"])
    header = ["sigma", *[f"r = {r}" for r in components], "rises", "furthest from PCA's", "thesis's form fails"]
    return table(
        f"Pre-images of {len(X)} digits {THESIS_DIGITS} by sigma and components: mean squared error", header, lines
    )


def _thesis_failures(fit: KernelPCA, X: Rows, Y: Rows) -> float:
    """Share of rows where 30 steps from a random start leave the numbers, or end further off than the mean row."""
    model = fit.model_
    way = preimages.FixedPoint(mean_term=False, iterations=30)
    decode = preimages.reconstructing(way.decoder(model.fitted, X[:0]), model.features, model.solution, len(X))
    found = decode(Y, np.random.default_rng(0).uniform(-1, 1, (len(X), X.shape[1])).astype(np.float32))
    worse = np.sum((found.rows - X) ** 2, axis=1) > np.sum((X - X.mean(axis=0)) ** 2, axis=1)
    return float(np.mean(found.far | worse))


def labels_kept(train: Rows, test: Rows, size: int) -> Table:
    """Share of clean digits whose pre-image of 26 scores has the nearest training digit's label that the digit has."""
    nearest = KNeighborsClassifier(1).fit(train, usps_labels()[: len(train)])
    own = nearest.predict(test)

    def kept(found: Rows) -> str:
        return f"{np.mean(nearest.predict(found) == own):.1%}"

    lines = []
    for way in WAYS:
        fit = KernelPCA(26, sigma=10.0, size=size, preimage=way, noise=0.1, random_state=0).fit(train)
        lines.append([way, kept(fit.inverse_transform(fit.transform(test)))])
    pca = PCA(26, svd_solver="full").fit(train)
    lines.append(["PCA", kept(pca.inverse_transform(pca.transform(test)))])
    return table(f"Labels kept, 26 components, sigma 10, {len(test)} clean test digits", ["pre-image", "kept"], lines)


def throughput(folder: Any, rows: int, size: int) -> Table:
    """Rows per second and peak memory of denoising MNIST from disk to disk."""
    data = repeated_dataset(folder, rows)
    lines = []
    for way in ("denoising", "ridge", "fixed-point"):
        model, out = folder / f"denoise-{way}.zarr", folder / "denoised.zarr"
        if not model.exists():
            noise = 64.0 if way == "denoising" else None
            KernelPCA(256, sigma=MEDIAN_DISTANCE, size=size, preimage=way, noise=noise, random_state=0).fit(data).save(
                model
            )
        printed, peak = child(_STREAM, data, str(model), str(out))
        seconds = json.loads(printed)
        lines.append([way, rows, round(seconds, 1), round(rows / seconds), round(peak)])
    return table(
        f"Denoising MNIST from disk to disk, {size} landmarks",
        ["pre-image", "rows", "seconds", "rows/s", "peak MB"],
        lines,
    )


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000, repeats=3)
    X = usps()
    train = X[: min(given.rows, TRAINING_ROWS)]
    test = X[TRAINING_ROWS:]
    few = test[np.sort(np.random.default_rng(0).choice(len(test), TESTED, replace=False))]
    size = min(given.size, len(train))
    errors, settings = denoising(train, few, size, given.repeats)
    by_noise = levels(train, few, size, settings)
    most = min(1500, len(train))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # sigma = 1 is one of the thesis's
        grid = thesis_grid(train[np.isin(usps_labels()[: len(train)], THESIS_DIGITS)], most)
    kept = labels_kept(train, test, most)
    return Results((errors, by_noise, grid, kept, throughput(given.folder, given.rows, given.size)))


if __name__ == "__main__":
    main()
