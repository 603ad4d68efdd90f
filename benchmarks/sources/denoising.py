"""Noise removed from digits by PCA and by kernel PCA: the proseminar's Figures 9 to 12, which are Mika et al.'s (1999).

USPS: 300 training and 50 test rows of every digit; Gaussian noise of deviation 0.5, or speckle noise: a pixel turns
white or black with probability 0.4. Exact kernel PCA with sigma = 8; pre-images are the fixed point from the noisy row
and the map that is fitted with Gaussian noise. A digit is recognised where the nearest training row shows the same
digit.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.sources.common import Lines, Table, Tables, new_figure, save_figure
from benchmarks.sources.digits import TRAINING_ROWS, first_of_each, mosaic, row_errors, test_digits, training_digits
from bigkpca import KernelPCA
from bigkpca.errors import Array

SIGMA, COMPONENTS, DEVIATION, SPECKLE = 8.0, (1, 4, 16, 64, 256, 1024), 0.5, 0.4
WAYS = ("fixed-point", "denoising")
Found = dict[tuple[str, int], list[Array]]


def gaussian(clean: Array, rng: np.random.Generator) -> Array:
    return np.asarray(clean + DEVIATION * rng.standard_normal(clean.shape), np.float32)


def speckle(clean: Array, rng: np.random.Generator) -> Array:
    """Salt and pepper: a pixel is replaced with probability 0.4, by white or black alike."""
    replaced, black = rng.random(clean.shape) < SPECKLE, rng.random(clean.shape) < 0.5
    return np.where(replaced, np.where(black, 1, -1), clean).astype(np.float32)


NOISES: dict[str, Callable[[Array, np.random.Generator], Array]] = {"Gaussian": gaussian, "speckle": speckle}


def answers(train: Array, noisy: dict[str, list[Array]]) -> dict[str, Found]:
    """By noise, then by way and components: rows without noise, one array for each seed."""
    found: dict[str, Found] = {name: {} for name in noisy}
    for components in COMPONENTS:
        if components <= min(train.shape):
            pca = PCA(components, svd_solver="full").fit(train)
            for name, all_seeds in noisy.items():
                found[name]["PCA", components] = [pca.inverse_transform(pca.transform(rows)) for rows in all_seeds]
        for way in WAYS:
            options: dict[str, Any] = {"method": "exact", "preimage": way, "noise": DEVIATION, "random_state": 0}
            fit = KernelPCA(components, sigma=SIGMA, **options).fit(train)
            for name, all_seeds in noisy.items():
                found[name][way, components] = [fit.denoise(rows) for rows in all_seeds]
    return found


def lines_of(noisy: dict[str, list[Array]], found: dict[str, Found], clean: Array, labels: Array) -> Lines:
    """A line for each noise, way and number of components: error, recognised digits."""
    known, of_known = training_digits(TRAINING_ROWS)
    nearest = KNeighborsClassifier(1).fit(known, of_known)
    for name, of_noise in found.items():
        for (way, components), all_seeds in [(("with noise", ""), noisy[name]), *of_noise.items()]:
            error = np.mean([row_errors(rows, clean).mean() for rows in all_seeds])
            right = np.mean([nearest.predict(rows) == labels for rows in all_seeds])
            yield [name, way, str(components), f"{error:.4f}", f"{right:.1%}"]


def draw(clean: Array, noisy: dict[str, list[Array]], found: dict[str, Found], shown: Array, folder: Path) -> None:
    """Pictures for each noise: digits, the same with noise, and every way by the number of components."""
    figure = new_figure(9.5, 8.6)
    for axis, (name, of_noise) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        ordered = sorted(of_noise, key=lambda key: ("PCA", *WAYS).index(key[0]))
        lines = [clean, noisy[name][0], *(of_noise[key][0] for key in ordered)]
        names = ["digit", "with noise", *(f"{way}, {components}" for way, components in ordered)]
        mosaic(axis, [rows[shown] for rows in lines], names)
        axis.set_title(f"{name} noise", fontsize=10)
    save_figure(figure, folder, "denoising")


def main(folder: Path, rows: int = 3000, repeats: int = 1) -> Tables:
    X, of_rows = training_digits(TRAINING_ROWS)
    train = X[first_of_each(of_rows, max(1, rows // 10))]
    X, labels = test_digits(TRAINING_ROWS)
    chosen = first_of_each(labels, min(50, max(1, rows // 10)))
    clean, labels = X[chosen], labels[chosen]
    noisy = {name: [add(clean, np.random.default_rng(seed)) for seed in range(repeats)] for name, add in NOISES.items()}
    found = answers(train, noisy)
    header = ["noise", "pre-image", "components", "mean squared error", "recognised"]
    title = f"{len(train)} training rows, {len(clean)} test rows, {repeats} draws of the noise"
    yield Table(title, header, [*lines_of(noisy, found, clean, labels)])
    draw(clean, noisy, found, first_of_each(labels, 1), folder)
