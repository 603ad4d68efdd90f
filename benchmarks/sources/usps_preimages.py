"""The thesis's Figures 7 and 8: pre-images of digits 1, 4 and 8 of USPS, by sigma and the number of components.

Pre-images are made of scores alone: by the fixed point with the mean in feature space, and by the update that the
thesis prints, from at most five random starts. A digit is kept where the nearest row of the data shows the same one.
The second table is of the start: random, or the row itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

from benchmarks.sources.common import Lines, Table, Tables, new_figure, save_figure
from benchmarks.sources.digits import (
    THESIS_DIGITS,
    THESIS_FORM,
    as_in_the_thesis,
    first_of_each,
    from_start,
    mosaic,
    row_errors,
    same_digit,
    thesis_start,
    training_digits,
)
from bigkpca import KernelPCA, preimages
from bigkpca.errors import Array

SIGMAS, COMPONENTS, MEASURED = (1.0, 5.0, 10.0, 20.0, 50.0), (256, 51, 13), 100
STARTS_AT = 51  # components of the second table
FIXED_POINT = preimages.FixedPoint()
Pictures = dict[str, list[Array]]


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


def grid(digits: Digits, shown: Sequence[int]) -> tuple[list[list[str]], Pictures]:
    """A line of the table for every setting, and pictures of the rows shown, by way and sigma."""
    lines: list[list[str]] = []
    pictures: Pictures = {}
    for components in COMPONENTS:
        pca = PCA(min(components, *digits.X.shape), svd_solver="full").fit(digits.X)
        found = pca.inverse_transform(pca.transform(digits.clean))
        lines.append(["PCA", str(components), *_ours(digits, found), ""])
        pictures.setdefault("PCA", []).append(found[shown])
    for sigma in SIGMAS:
        for components in COMPONENTS:
            fit, Y = digits.fit(sigma, components)
            found, theirs = fit.inverse_transform(Y), as_in_the_thesis(fit, Y, digits.X)
            kept = f"{digits.kept(theirs.rows).mean():.0%}"
            lines.append([f"{sigma:g}", str(components), *_ours(digits, found), kept])
            for name, rows in (("fixed point", found), ("thesis's form", theirs.rows)):
                pictures.setdefault(f"{name}, σ = {sigma:g}", []).append(rows[shown])
    return lines, pictures


def _ours(digits: Digits, found: Array) -> list[str]:
    return [f"{row_errors(found, digits.clean).mean():.4f}", f"{digits.kept(found).mean():.0%}"]


def starts(digits: Digits) -> Lines:
    """Digits kept by both ways, from a random start and from the row itself."""
    random = thesis_start(digits.X, len(digits.rows), np.random.default_rng(1))
    for sigma in SIGMAS:
        fit, Y = digits.fit(sigma, STARTS_AT)
        ways = product((FIXED_POINT, THESIS_FORM), (random, digits.clean))
        kept = [digits.kept(from_start(fit, way, Y, start).rows).mean() for way, start in ways]
        yield [f"{sigma:g}", *(f"{share:.0%}" for share in kept)]


def draw(pictures: Pictures, folder: Path) -> None:
    """A line of pictures for PCA, and for each way and sigma."""
    figure = new_figure(9.5, 7.2)
    headings = np.repeat(COMPONENTS, len(THESIS_DIGITS)).astype(str).tolist()
    mosaic(figure.subplots(), [np.concatenate(rows) for rows in pictures.values()], list(pictures), headings)
    save_figure(figure, folder, "usps_preimages")


def main(folder: Path, rows: int = 2199) -> Tables:
    X, labels = training_digits(rows, THESIS_DIGITS)
    digits = Digits(X, labels, first_of_each(labels, MEASURED))
    shown = [int(np.flatnonzero(labels[digits.rows] == digit)[2]) for digit in THESIS_DIGITS]
    title = f"Pre-images of {len(digits.rows)} of {len(X)} digits {THESIS_DIGITS}"
    lines, pictures = grid(digits, shown)
    header = ["sigma", "components", "mean squared error", "digit kept", "thesis's form: kept"]
    yield Table(title, header, lines)
    columns = [f"{way}, {start}" for way in ("fixed point", "thesis's form") for start in ("random", "the row")]
    title = f"Digits kept by the start, {STARTS_AT} components"
    yield Table(title, ["sigma", *columns], [*starts(digits)], "starts")
    draw(pictures, folder)
