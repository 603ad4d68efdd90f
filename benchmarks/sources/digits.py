"""USPS digits as the sources use them, pictures of them, and the thesis's way from scores back to rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from benchmarks.data import labels, usps
from bigkpca import KernelPCA, preimages
from bigkpca.errors import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRAINING_ROWS = 7291
THESIS_DIGITS = (1, 4, 8)
SIDE, CORNERS = 16, [0, 15, 240, 255]
THESIS_FORM = preimages.FixedPoint(mean_term=False, iterations=30, tol=1e-2)
TRIES = 5
_BORDER = -0.75  # light grey, between pixels of -1 (white) and 1 (black)


def training_digits(rows: int, digits: Sequence[int] = tuple(range(10))) -> tuple[Array, Array]:
    """The first `rows` training rows of these digits (m, 256), and their labels (m,)."""
    X, y = usps()[:TRAINING_ROWS], labels("USPS")[:TRAINING_ROWS]
    wanted = np.flatnonzero(np.isin(y, digits))[:rows]
    return X[wanted], y[wanted]


def test_digits(rows: int) -> tuple[Array, Array]:
    """The first `rows` test rows, and their labels."""
    return usps()[TRAINING_ROWS:][:rows], labels("USPS")[TRAINING_ROWS:][:rows]


def first_of_each(y: Array, count: int) -> Array:
    """Row numbers of the first `count` rows of every label in y (n,), label by label."""
    return np.concatenate([np.flatnonzero(y == label)[:count] for label in np.unique(y)])


def row_errors(found: Array, clean: Array) -> Array:
    """Mean squared error of each row, (m,)."""
    return np.asarray(np.mean((found.astype(np.float64) - clean) ** 2, axis=1))


def same_digit(found: Array, y: Array, known: Array, of_known: Array) -> Array:
    """Whether the known row nearest to each found row shows the digit that it should, (m,)."""
    return np.asarray(KNeighborsClassifier(1).fit(known, of_known).predict(found) == y)


def thesis_start(X: Array, count: int, rng: np.random.Generator) -> Array:
    """Starts of the thesis (count, 256): normal about the mean digit with variance uniform on (0, 1), corners white."""
    deviations = np.sqrt(rng.random((count, 1)))
    start = X.mean(axis=0) + deviations * rng.standard_normal((count, X.shape[1]))
    start[:, CORNERS] = -1
    return start.astype(np.float32)


def from_start(fit: KernelPCA, way: preimages.FixedPoint, Y: Array, start: Array) -> preimages.Preimages:
    """Pre-images of scores Y (m, r) by an iteration that begins at rows `start` (m, 256)."""
    model = fit.model_
    decode = preimages.reconstructing(way.decoder(model.fitted, start[:0]), model.features, model.solution, len(Y))
    return decode(Y, start)


def until_converged(
    decode: Callable[[Array, Array], preimages.Preimages], X: Array, count: int, tries: int = TRIES
) -> preimages.Preimages:
    """What the thesis does where its update does not converge: it begins again elsewhere, `tries` times at most.

    decode(numbers (m,), starts (m, 256)) are pre-images of some of `count` rows; X are the fitted rows.
    """
    rng = np.random.default_rng(0)
    found = decode(np.arange(count), thesis_start(X, count, rng))
    for _ in range(tries - 1):
        left = np.flatnonzero(~found.converged)
        if len(left):
            again = decode(left, thesis_start(X, len(left), rng))
            for name in ("rows", "converged", "far"):
                getattr(found, name)[left] = getattr(again, name)
    return found


def as_in_the_thesis(fit: KernelPCA, Y: Array, X: Array, tries: int = TRIES) -> preimages.Preimages:
    """Pre-images of scores Y (m, r) by the thesis's update, from so many random starts; X are the fitted rows."""
    return until_converged(lambda some, start: from_start(fit, THESIS_FORM, Y[some], start), X, len(Y), tries)


def mosaic(axis: Axes, lines: Sequence[Array], names: Sequence[str], headings: Sequence[str] = ()) -> None:
    """Lines of pictures (m, 256) each, a name beside every line and a heading above every column."""
    step, most = SIDE + 1, max(len(line) for line in lines)
    sheet = np.full((step * len(lines) + 1, step * most + 1), _BORDER)
    for i, line in enumerate(lines):
        for j, picture in enumerate(line):
            sheet[i * step + 1 : (i + 1) * step, j * step + 1 : (j + 1) * step] = picture.reshape(SIDE, SIDE)
    axis.imshow(sheet, cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
    axis.set_yticks([(i + 0.5) * step for i in range(len(lines))], names)
    axis.set_xticks([(j + 0.5) * step for j in range(len(headings))], headings)
    axis.tick_params(length=0, labelsize=8, top=False, labeltop=True, bottom=False, labelbottom=False)
    for spine in axis.spines.values():
        spine.set_visible(False)
