"""The thesis's restarts, and uncentred K: possible explanations of the pictures in its Figures 7 and 8.

The rows and sigmas of `usps_preimages`, and the thesis's update: 30 steps from a random start with white corners, and
from another one where they do not converge, at most 1, 5 or 100 times; or without centring K, so that there is no mean
for its update to drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.sources.common import arguments, save_panels, save_table
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
from bigkpca.errors import Array

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


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=2199)
    X, labels = training_digits(given.rows, THESIS_DIGITS)
    rows = first_of_each(labels, MEASURED)
    found = {}
    for sigma in SIGMAS:
        for components in COMPONENTS:
            for name, way in (WAYS | MORE if components == MANY_AT else WAYS).items():
                found[sigma, components, name] = kept_of(X, labels, rows, sigma, components, way)
    lines = [
        [f"{sigma:g}", str(components), name, *(f"{share:.0%}" for share in each[:3]), f"{each[3]:.4f}"]
        for (sigma, components, name), each in found.items()
    ]
    header = ["sigma", "components", "way", "converged", "kept", "kept of those", "median error"]
    title = f"The thesis's update, {len(rows)} of {len(X)} digits {THESIS_DIGITS}"
    save_table(title, header, lines, given.folder, "preimage_starts")
    panels: dict[str, dict[str, tuple[Any, Any]]] = {f"digit kept, {r} components": {} for r in COMPONENTS}
    for _, r, name in found:
        kept = [found[sigma, r, name][1] for sigma in SIGMAS]
        panels[f"digit kept, {r} components"][name] = SIGMAS, kept
    save_panels(panels, given.folder, "preimage_starts", xscale="log", xlabel="σ")
