"""The thesis's restarts, and uncentred K: possible explanations of the pictures in its Figures 7 and 8.

The rows and sigmas of `usps_preimages`, and the thesis's update: 30 steps from a random start with white corners, and
from another one where they do not converge, at most 5 or 100 times; or without centring K, so that there is no mean for
its update to drop.
"""

from itertools import product

from benchmarks.sources.common import Table, Tables
from benchmarks.sources.digits import (
    THESIS_DIGITS,
    TRIES,
    as_in_the_thesis,
    first_of_each,
    same_digit,
    training_digits,
)
from bigkpca import KernelPCA
from bigkpca.errors import Array

SIGMAS, COMPONENTS, MEASURED = (1.0, 5.0, 10.0, 20.0, 50.0), 51, 100
WAYS = {  # whether K is centred, and how often it may start
    f"centred, {TRIES} starts": (True, TRIES),
    f"K not centred, {TRIES}": (False, TRIES),
    "centred, 100 starts": (True, 100),
}


def kept_of(X: Array, labels: Array, rows: Array, sigma: float, center: bool, tries: int) -> list[str]:
    """Shares of rows that converged, and that keep their digit."""
    fit = KernelPCA(COMPONENTS, sigma=sigma, method="exact", center=center).fit(X)
    found = as_in_the_thesis(fit, fit.transform(X[rows]), X, tries)
    kept = same_digit(found.rows, labels[rows], X, labels)
    return [f"{found.converged.mean():.0%}", f"{kept.mean():.0%}"]


def main(rows: int = 2199) -> Tables:
    X, labels = training_digits(rows, THESIS_DIGITS)
    measured = first_of_each(labels, MEASURED)
    tried = product(SIGMAS, WAYS.items())
    lines = [[f"{sigma:g}", name, *kept_of(X, labels, measured, sigma, *way)] for sigma, (name, way) in tried]
    title = f"The thesis's update, {len(measured)} of {len(X)} digits {THESIS_DIGITS}, {COMPONENTS} components"
    yield Table(title, ["sigma", "way", "converged", "kept"], lines)
