"""The thesis's restarts, and uncentred K: possible explanations of the pictures in its Figures 7 and 8.

The rows and sigmas of `usps_preimages`, and the thesis's update: 30 steps from a random start with white corners, and
from another one where they do not converge. The thesis does not say how often it begins again. The first ways centre K,
as the thesis says, and begin once, 5 times, 100 times at most; the last does not centre K, so that there is no mean for
its update to drop. A digit is kept where the nearest row of the data shows the same one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.sources.common import arguments, save_figure, save_table
from benchmarks.sources.digits import (
    THESIS_DIGITS,
    THESIS_FORM,
    TRIES,
    first_of_each,
    from_start,
    row_errors,
    same_digit,
    training_digits,
    until_converged,
)
from bigkpca import KernelPCA
from bigkpca.errors import Array, NarrowKernelWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGMAS, COMPONENTS, MEASURED, MANY = (1.0, 5.0, 10.0, 20.0, 50.0), (256, 51, 13), 100, 100
MANY_AT = 51  # components at which 100 starts are tried
WAYS = {
    "centred, 1 start": (True, 1),
    f"centred, {TRIES} starts": (True, TRIES),
    f"K not centred, {TRIES}": (False, TRIES),
}
MORE = {f"centred, {MANY} starts": (True, MANY)}


def kept_of(X: Array, labels: Array, rows: Array, sigma: float, components: int, way: tuple[bool, int]) -> list[float]:
    """Shares of rows that converged, that keep their digit, and that keep it of those that converged; median error."""
    center, tries = way
    fit = KernelPCA(components, sigma=sigma, method="exact", center=center).fit(X)
    Y = fit.transform(X[rows])
    found = until_converged(lambda some, start: from_start(fit, THESIS_FORM, Y[some], start), X, len(rows), tries)
    kept, settled = same_digit(found.rows, labels[rows], X, labels), found.converged
    of_settled = float(kept[settled].mean()) if settled.any() else 0.0
    return [float(settled.mean()), float(kept.mean()), of_settled, float(np.median(row_errors(found.rows, X[rows])))]


def draw(found: dict[tuple[float, int, str], list[float]]) -> Figure:
    """Digits kept by sigma: a panel for each number of components."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.8), layout="constrained")
    for axis, components in zip(figure.subplots(1, len(COMPONENTS), sharey=True), COMPONENTS, strict=True):
        for name in [*WAYS, *MORE]:
            shares = {s: each[1] for (s, r, way), each in found.items() if (r, way) == (components, name)}
            if shares:
                axis.plot(list(shares), list(shares.values()), marker=".", label=name)
        axis.set(xscale="log", xlabel="σ", ylim=(0, 1.03))
        axis.set_title(f"{components} components", fontsize=9)
        axis.set_xticks(SIGMAS, [f"{s:g}" for s in SIGMAS])
        axis.minorticks_off()
    figure.axes[0].set_ylabel("digit kept")
    figure.axes[COMPONENTS.index(MANY_AT)].legend(fontsize=7)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=2199)
    X, labels = training_digits(given.rows, THESIS_DIGITS)
    rows = first_of_each(labels, MEASURED)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # sigma = 1 is one of the thesis's
        for sigma in SIGMAS:
            for components in COMPONENTS:
                for name, way in (WAYS | MORE if components == MANY_AT else WAYS).items():
                    found[sigma, components, name] = kept_of(X, labels, rows, sigma, components, way)
            print(f"sigma {sigma:g}", file=sys.stderr)
    lines = [
        [f"{sigma:g}", str(components), name, *(f"{share:.0%}" for share in each[:3]), f"{each[3]:.4f}"]
        for (sigma, components, name), each in found.items()
    ]
    header = ["sigma", "components", "way", "converged", "kept", "kept of those", "median error"]
    title = f"The thesis's update, {len(rows)} of {len(X)} digits {THESIS_DIGITS}"
    save_table(title, header, lines, given.folder, "preimage_starts")
    save_figure(draw(found), given.folder, "preimage_starts")


if __name__ == "__main__":
    main()
