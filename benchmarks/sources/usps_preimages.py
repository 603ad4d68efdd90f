"""The thesis's Figures 7 and 8: pre-images of digits 1, 4 and 8 of USPS, by sigma and the number of components.

Exact kernel PCA of the 2199 rows; errors are those of 100 rows of each digit, pre-images made of their scores alone.
Beside the fixed point with the mean in feature space stands the update that the thesis prints, which drops it: 30 steps
from a random start with white corners, and from another one where they do not converge, five in all. It fails where it
leaves the numbers, never converges, or ends further off than the mean digit. A digit is kept where the nearest row of
the data shows the same one. The second table is of the start alone: random, or the row itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from benchmarks.sources.common import arguments, save_figure, save_table
from benchmarks.sources.digits import (
    THESIS_DIGITS,
    THESIS_FORM,
    first_of_each,
    from_start,
    mosaic,
    row_errors,
    same_digit,
    thesis_start,
    training_digits,
    until_converged,
)
from bigkpca import KernelPCA, preimages
from bigkpca.errors import Array, NarrowKernelWarning

SIGMAS, COMPONENTS, MEASURED = (1.0, 5.0, 10.0, 20.0, 50.0), (256, 128, 51, 26, 13), 100
STARTS_AT = 51  # components of the second table
FIXED_POINT = preimages.FixedPoint()
Pictures = dict[tuple[str, str], list[Array]]


@dataclass(frozen=True)
class Digits:
    """The fitted rows, and those of them whose pre-images are measured."""

    X: Array
    labels: Array
    rows: Array

    @property
    def clean(self) -> Array:
        return self.X[self.rows]

    def fit(self, sigma: float, components: int) -> tuple[KernelPCA, Array]:
        """Exact kernel PCA, and the scores of the measured rows."""
        fit = KernelPCA(components, sigma=sigma, method="exact", preimage=FIXED_POINT).fit(self.X)
        return fit, fit.transform(self.clean)

    def kept(self, found: Array) -> Array:
        return same_digit(found, self.labels[self.rows], self.X, self.labels)

    def lost(self, found: Array) -> Array:
        """Whether rows are no nearer than the mean digit."""
        return row_errors(found, self.clean) >= row_errors(self.X.mean(axis=0), self.clean)


def grid(digits: Digits, shown: Sequence[int]) -> tuple[list[list[str]], Pictures]:
    """A line of the table for every setting, and pictures of the rows shown, by way and sigma."""
    lines: list[list[str]] = []
    pictures: Pictures = {}
    for components in COMPONENTS:
        pca = PCA(min(components, *digits.X.shape), svd_solver="full").fit(digits.X)
        found = pca.inverse_transform(pca.transform(digits.clean))
        lines.append(["PCA", str(components), *_ours(digits, found), *5 * [""]])
        pictures.setdefault(("PCA", ""), []).append(found[shown])
    for sigma in SIGMAS:
        for components in COMPONENTS:
            fit, Y = digits.fit(sigma, components)
            found, theirs = fit.inverse_transform(Y), as_in_the_thesis(fit, Y, digits.X)
            lines.append([f"{sigma:g}", str(components), *_ours(digits, found), *_theirs(digits, theirs)])
            pictures.setdefault(("fixed point", f"σ = {sigma:g}"), []).append(found[shown])
            pictures.setdefault(("the thesis's form", f"σ = {sigma:g}"), []).append(theirs.rows[shown])
    return lines, pictures


def as_in_the_thesis(fit: KernelPCA, Y: Array, X: Array) -> preimages.Preimages:
    return until_converged(lambda rows, start: from_start(fit, THESIS_FORM, Y[rows], start), X, len(Y))


def _ours(digits: Digits, found: Array) -> list[str]:
    return [f"{row_errors(found, digits.clean).mean():.4f}", f"{digits.kept(found).mean():.0%}"]


def _theirs(digits: Digits, found: preimages.Preimages) -> list[str]:
    kept, settled = digits.kept(found.rows), found.converged
    failed = np.mean(found.far | ~settled | digits.lost(found.rows))
    error = np.median(row_errors(found.rows, digits.clean))
    of_settled = f"{kept[settled].mean():.0%}" if settled.any() else "-"
    return [f"{error:.4f}", f"{kept.mean():.0%}", f"{settled.mean():.0%}", of_settled, f"{failed:.0%}"]


def starts(digits: Digits) -> list[list[str]]:
    """Digits kept and error by both ways, from a random start and from the row itself."""
    random = thesis_start(digits.X, len(digits.rows), np.random.default_rng(1))
    lines = []
    for sigma in SIGMAS:
        fit, Y = digits.fit(sigma, STARTS_AT)
        cells = []
        for way in (FIXED_POINT, THESIS_FORM):
            for start in (random, digits.clean):
                found = from_start(fit, way, Y, start).rows
                error = np.median(row_errors(found, digits.clean))
                cells.append(f"{digits.kept(found).mean():.0%}, {error:.4f}")
        lines.append([f"{sigma:g}", *cells])
    return lines


def draw(pictures: Pictures, clean: Array, folder: Path) -> None:
    """A block of pictures for PCA and each way; columns are digits, and components within them."""
    from matplotlib.figure import Figure

    ways = list(dict.fromkeys(way for way, _ in pictures))
    blocks = {way: {sigma: rows for (of, sigma), rows in pictures.items() if of == way} for way in ways}
    figure = Figure(figsize=(9.5, 7.2), layout="constrained")
    axes = figure.subplots(len(blocks), 1, height_ratios=[len(block) + 0.7 for block in blocks.values()])
    headings = [cell for _ in clean for cell in ("row", *map(str, COMPONENTS))]
    for axis, (way, block) in zip(axes, blocks.items(), strict=True):
        lines = [np.concatenate([[x, *(r[i] for r in rows)] for i, x in enumerate(clean)]) for rows in block.values()]
        mosaic(axis, lines, list(block), headings)
        axis.set_title(way, fontsize=10)
    save_figure(figure, folder, "usps_preimages")


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=2199)
    X, labels = training_digits(given.rows, THESIS_DIGITS)
    digits = Digits(X, labels, first_of_each(labels, MEASURED))
    shown = [int(np.flatnonzero(labels[digits.rows] == digit)[2]) for digit in THESIS_DIGITS]
    title = f"Pre-images of {len(digits.rows)} of {len(X)} digits {THESIS_DIGITS}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # sigma = 1 is one of the thesis's
        lines, pictures = grid(digits, shown)
        of_starts = starts(digits)
    ours, theirs = ["mean squared error", "digit kept"], ["median error", "kept", "converged", "kept of those", "fails"]
    header = ["sigma", "components", *ours, *(f"thesis's form: {name}" for name in theirs)]
    save_table(title, header, lines, given.folder, "usps_preimages")
    columns = [f"{way}, {start}" for way in ("fixed point", "thesis's form") for start in ("random", "the row")]
    title = f"Digits kept and median error by the start, {STARTS_AT} components"
    save_table(title, ["sigma", *columns], of_starts, given.folder, "usps_preimages_starts")
    draw(pictures, digits.clean[shown], given.folder)


if __name__ == "__main__":
    main()
