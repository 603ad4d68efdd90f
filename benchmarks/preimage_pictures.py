"""Draws docs/preimages.png: digits, noise, PCA, and pre-images of every kind. Needs the report extra."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from benchmarks.common import usps, usps_labels
from benchmarks.denoise import NOISE, TRAINING_ROWS, Rows, error
from bigkpca import KernelPCA

SIGMA, COMPONENTS, SIZE = 11.0, 256, 1000
WAYS = ("mds", "fixed-point", "ridge", "denoising")


def strips(train: Rows, clean: Rows) -> dict[str, Rows]:
    """Rows of pictures by name, one picture for each row of `clean`."""
    noisy = (clean + NOISE * np.random.default_rng(0).standard_normal(clean.shape)).astype(np.float32)
    pca = PCA(64, svd_solver="full").fit(train)
    found = {"original": clean, "noisy": noisy, "PCA": pca.inverse_transform(pca.transform(noisy))}
    for way in WAYS:
        fit = KernelPCA(COMPONENTS, sigma=SIGMA, size=SIZE, preimage=way, noise=NOISE, random_state=0).fit(train)
        found[way] = fit.denoise(noisy)
    return found


def draw(found: dict[str, Rows], errors: dict[str, float], path: Path) -> None:
    """One line of pictures for each name."""
    from matplotlib.figure import Figure

    count = len(found["original"])
    figure = Figure(figsize=(0.55 * count + 1.9, 0.55 * len(found)), dpi=100)
    axes = figure.subplots(len(found), count)
    for line, (name, pictures) in zip(axes, found.items(), strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture.reshape(16, 16), cmap="gray_r", vmin=-1, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
        shown = f"{name}\n{errors[name]:.3f}" if errors[name] else name
        line[0].set_ylabel(shown, rotation=0, ha="right", va="center", fontsize=9)
    figure.subplots_adjust(
        left=1.6 / (0.55 * count + 1.9), right=0.995, top=0.99, bottom=0.01, wspace=0.06, hspace=0.06
    )
    figure.savefig(path, metadata={"Software": None})


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs") / "preimages.png")
    given = parser.parse_args(argv)
    X, labels = usps(), usps_labels()
    test = slice(TRAINING_ROWS, None)
    shown = [int(np.flatnonzero(labels[test] == digit)[2]) for digit in range(10)]
    found = strips(X[:TRAINING_ROWS], X[test])
    errors = {name: error(rows, X[test]) for name, rows in found.items()}
    draw({name: rows[shown] for name, rows in found.items()}, errors, given.out)
    print({name: round(value, 4) for name, value in errors.items()})


if __name__ == "__main__":
    main()
