"""Noise removed from digits by each pre-image, by the size of the noise, beside scikit-learn and PCA."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as TheirKernelPCA
from sklearn.model_selection import GridSearchCV

import bigkpca
from benchmarks.data import labels, some_rows, usps
from benchmarks.results import Found, Table
from benchmarks.sources.common import new_figure
from benchmarks.sources.digits import TRAINING_ROWS, first_of_each, mosaic
from bigkpca import KernelPCA, preimages
from bigkpca.errors import Array, FewerComponentsWarning, NarrowKernelWarning, RoundingWarning

TESTED = 500
NOISE = 0.5  # at which settings are chosen
LEVELS = (0.25, 0.5, 1.0)
COMPONENTS = (128, 256, 400, 1000)
SEARCHED = 6000  # training rows by which settings are chosen
LENGTHS = (0.5, 0.71, 1.0, 1.41, 2.0)  # in medians
RIDGES = (0.01, 0.1, 1.0, 10.0)
WAYS = ("denoising", "fixed-point", "ridge", "mds")


def error(found: Array, clean: Array) -> float:
    """Mean squared error over all entries."""
    return float(np.mean((np.asarray(found, np.float64) - clean) ** 2))


def with_noise(clean: Array, noise: float) -> Array:
    return (clean + noise * np.random.default_rng(1).standard_normal(clean.shape)).astype(np.float32)


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


def restored(model: Any, train: Array, noisy: Array) -> Array:
    """Rows without their noise by a model of scikit-learn's kind."""
    return model.fit(train).inverse_transform(model.transform(noisy))


def least_squares(train: Array, noisy: Array, noise: float) -> Array:
    """The linear map of pixels that undoes noise of this size best: Wiener's."""
    mean = train.mean(axis=0)
    covariance = np.cov(train.T)
    weights = np.linalg.solve(covariance + noise**2 * np.eye(len(covariance)), covariance)
    return mean + (noisy - mean) @ weights


def denoising(train: Array, clean: Array, size: int) -> Table:
    """Errors of every way by the noise, with the settings that were chosen for one size of it."""
    noisy = {noise: with_noise(clean, noise) for noise in LEVELS}
    lines: list[list[Any]] = []
    for way in WAYS:
        kpca = chosen(train, way, size)
        found = [error(clone(kpca).set_params(noise=of).fit(train).denoise(rows), clean) for of, rows in noisy.items()]
        lines.append([way, kpca.sigma, kpca.n_components, getattr(kpca.preimage, "ridge", ""), *found])
    theirs = TheirKernelPCA(400, kernel="rbf", gamma=1e-3, alpha=5e-3, fit_inverse_transform=True, random_state=0)
    linear = [PCA(r, svd_solver="full") for r in (32, 64, 128) if r < len(train)]
    others = {
        "scikit-learn, gamma 1e-3, alpha 5e-3": lambda rows, _: error(restored(theirs, train, rows), clean),
        "PCA, best of 32, 64, 128": lambda rows, _: min(error(restored(pca, train, rows), clean) for pca in linear),
        "least squares on pixels": lambda rows, noise: error(least_squares(train, rows, noise), clean),
        "noisy": lambda rows, _: error(rows, clean),
    }
    for name, error_of in others.items():
        lines.append([name, "", "", "", *(error_of(rows, noise) for noise, rows in noisy.items())])
    title = f"Mean squared error of {len(clean)} digits; {len(train)} training rows, {size} landmarks"
    return Table(title, ["pre-image", "sigma", "components", "ridge", *(f"noise {noise}" for noise in LEVELS)], lines)


def pictures(train: Array, test: Array, folder: Path, size: int) -> Table:
    """Draws denoising.png, which is docs/preimages.png: digits, noise, PCA, and every pre-image with one setting."""
    noisy = (test + NOISE * np.random.default_rng(0).standard_normal(test.shape)).astype(np.float32)
    found = {"original": test, "noisy": noisy, "PCA": restored(PCA(64, svd_solver="full"), train, noisy)}
    for way in WAYS:
        kpca = KernelPCA(min(256, size), sigma=11.0, size=size, preimage=way, noise=NOISE, random_state=0)
        found[way] = kpca.fit(train).denoise(noisy)
    errors = {name: f"{error(rows, test):.4f}" for name, rows in found.items()}
    shown = first_of_each(labels("USPS")[TRAINING_ROWS:], 1)
    figure = new_figure(7.5, 4.2)
    names = [f"{name} {value}" if float(value) else name for name, value in errors.items()]
    mosaic(figure.subplots(), [rows[shown] for rows in found.values()], names)
    figure.savefig(folder / "denoising.png", dpi=100, metadata={"Software": None})
    title = f"Mean squared error of all {len(test)} test digits, sigma = 11"
    return Table(title, ["pre-image", "error"], [*errors.items()])


def main(folder: Path, rows: int = TRAINING_ROWS, size: int = 1000) -> Found:
    X = usps()
    train, test = X[: min(rows, TRAINING_ROWS)], X[TRAINING_ROWS:]
    size = min(size, len(train))
    yield denoising(train, some_rows(test, TESTED), size)
    yield pictures(train, test, folder, size)
