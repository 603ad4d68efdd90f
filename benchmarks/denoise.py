"""Noise removed from digits by each pre-image, beside scikit-learn and PCA, and by the size of the noise."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as TheirKernelPCA
from sklearn.model_selection import GridSearchCV

import bigkpca
from benchmarks.common import arguments, interleaved, median_ratio, seconds_of, some_rows, usps, usps_labels
from benchmarks.results import Results, Table, table
from benchmarks.sources.digits import TRAINING_ROWS, first_of_each, mosaic
from bigkpca import KernelPCA, preimages
from bigkpca.errors import Array, FewerComponentsWarning, NarrowKernelWarning, RoundingWarning

TESTED = 500
NOISE = 0.5
LEVELS = (0.25, 0.5, 0.75, 1.0)
COMPONENTS = (128, 256, 400, 1000)
SEARCHED = 6000  # training rows by which settings are chosen
LENGTHS = (0.5, 0.71, 1.0, 1.41, 2.0)  # in medians
RIDGES = (0.01, 0.1, 1.0, 10.0)
WAYS = ("denoising", "fixed-point", "ridge", "mds")


def error(found: Array, clean: Array) -> float:
    """Mean squared error over all entries."""
    return float(np.mean((np.asarray(found, np.float64) - clean) ** 2))


def chosen(train: Array, way: str, size: int) -> KernelPCA:
    """A pre-image with sigma, components and then the ridge chosen by cross-validation on training rows."""
    X = train[np.random.default_rng(0).permutation(len(train))[:SEARCHED]]
    median = bigkpca.sigma(X)["median"].sigma
    lengths = [float(f"{factor * median:.6g}") for factor in LENGTHS]
    counts = [r for r in COMPONENTS if r <= size] or [size]
    kpca = KernelPCA(size=size, preimage=way, noise=NOISE, random_state=0)
    with warnings.catch_warnings():
        for of in (NarrowKernelWarning, FewerComponentsWarning, RoundingWarning):
            warnings.simplefilter("ignore", of)  # what a setting loses by it is in its error
        best = GridSearchCV(kpca, {"sigma": lengths, "n_components": counts}, cv=3).fit(X).best_params_
        kpca, kind = clone(kpca).set_params(**best), preimages.named(way)
        if not isinstance(kind, preimages.Ridge):
            return kpca
        ridges = [replace(kind, ridge=ridge) for ridge in RIDGES]
        return kpca.set_params(**GridSearchCV(clone(kpca), {"preimage": ridges}, cv=3).fit(X).best_params_)


def their_denoising(train: Array, noisy: Array) -> Array:
    """scikit-learn at the best of the settings that were tried."""
    theirs = TheirKernelPCA(400, kernel="rbf", gamma=1e-3, alpha=5e-3, fit_inverse_transform=True, random_state=0)
    return theirs.fit(train).inverse_transform(theirs.transform(noisy))


def least_squares(train: Array, noisy: Array, noise: float) -> Array:
    """The linear map of pixels that undoes noise of this size best: Wiener's."""
    mean = train.mean(axis=0)
    covariance = np.cov(train.T)
    weights = np.linalg.solve(covariance + noise**2 * np.eye(len(covariance)), covariance)
    return mean + (noisy - mean) @ weights


def denoising(train: Array, clean: Array, size: int, repeats: int) -> tuple[Table, dict[str, KernelPCA]]:
    """Errors and seconds of every way, its settings chosen on the training rows; those settings."""
    rng = np.random.default_rng(0)
    noisy = (clean + NOISE * rng.standard_normal(clean.shape)).astype(np.float32)
    settings = {way: chosen(train, way, size) for way in WAYS}

    def ours(way: str) -> Array:
        return clone(settings[way]).fit(train).denoise(noisy)

    answers: dict[str, Callable[[], Array]] = {way: partial(ours, way) for way in WAYS}
    answers["scikit-learn"] = partial(their_denoising, train, noisy)
    seconds = interleaved(repeats, **{way: partial(seconds_of, work) for way, work in answers.items()})
    lines: list[list[Any]] = []
    for way, work in answers.items():
        shown: list[Any] = ["gamma 1e-3", 400, "alpha 5e-3"]
        if way in settings:
            kpca = settings[way]
            shown = [kpca.sigma, kpca.n_components, getattr(kpca.preimage, "ridge", "")]
        faster = median_ratio(seconds["scikit-learn"], seconds[way])
        lines.append([way, *shown, f"{error(work(), clean):.4f}", statistics.median(seconds[way]), faster])
    pca = min(
        error(model.inverse_transform(model.transform(noisy)), clean)
        for model in (PCA(r, svd_solver="full").fit(train) for r in (32, 64, 128) if r < len(train))
    )
    linear = error(least_squares(train, noisy, NOISE), clean)
    for name, value in (("PCA, best of 32, 64, 128", pca), ("least squares on pixels", linear)):
        lines.append([name, "", "", "", f"{value:.4f}", "", ""])
    header = ["pre-image", "sigma", "components", "ridge", "mean squared error", "seconds", "times as fast"]
    errors = table(
        f"Noise {NOISE} removed from {len(clean)} digits; {len(train)} training rows, {size} landmarks", header, lines
    )
    return errors, settings


def levels(train: Array, clean: Array, settings: dict[str, KernelPCA]) -> Table:
    """Errors at other sizes of the noise, with the sigma, components and ridge that were chosen for one."""
    lines = []
    for noise in LEVELS:
        noisy = (clean + noise * np.random.default_rng(1).standard_normal(clean.shape)).astype(np.float32)
        found = [
            error(clone(kpca).set_params(noise=noise).fit(train).denoise(noisy), clean) for kpca in settings.values()
        ]
        lines.append([noise, *found, error(least_squares(train, noisy, noise), clean), error(noisy, clean)])
    header = ["noise", *WAYS, "least squares on pixels", "noisy"]
    return table(f"Mean squared error by the noise, {len(train)} training rows", header, lines)


def pictures(train: Array, test: Array, folder: Path, size: int) -> Table:
    """Draws denoising.png, which is docs/preimages.png: digits, noise, PCA, and every pre-image with one setting."""
    from matplotlib.figure import Figure

    noisy = (test + NOISE * np.random.default_rng(0).standard_normal(test.shape)).astype(np.float32)
    pca = PCA(64, svd_solver="full").fit(train)
    found = {"original": test, "noisy": noisy, "PCA": pca.inverse_transform(pca.transform(noisy))}
    for way in WAYS:
        kpca = KernelPCA(min(256, size), sigma=11.0, size=size, preimage=way, noise=NOISE, random_state=0)
        found[way] = kpca.fit(train).denoise(noisy)
    errors = {name: f"{error(rows, test):.4f}" for name, rows in found.items()}
    shown = first_of_each(usps_labels()[TRAINING_ROWS:], 1)
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    names = [f"{name} {value}" if float(value) else name for name, value in errors.items()]
    mosaic(figure.subplots(), [rows[shown] for rows in found.values()], names)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "denoising.png", dpi=100, metadata={"Software": None})
    title = f"Mean squared error of all {len(test)} test digits, sigma = 11"
    return table(title, ["pre-image", "error"], [*errors.items()])


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=TRAINING_ROWS, repeats=3)
    X = usps()
    train, test = X[: min(given.rows, TRAINING_ROWS)], X[TRAINING_ROWS:]
    few, size = some_rows(test, TESTED), min(given.size, len(train))
    errors, settings = denoising(train, few, size, given.repeats)
    return Results((errors, levels(train, few, settings), pictures(train, test, given.folder, size)))


if __name__ == "__main__":
    main()
