"""The thesis's table of costs, its section 3.6.4, measured: what the scores of all rows take as n, l or d grow.

The thesis's orders, for vectors or scores, are n l k for Nyström, columns and random features, n l d* for RFF-PCA, n²
k for kernel PCA itself. They leave out the product of the features with themselves, n l², and the columns of the data.
Next to the measured exponents are those of the thesis's orders and of the counts that include these, n l (d + l) + l³
and the like.

CPU seconds of a fit and of the scores of all rows, one BLAS thread, medians. Uniform landmarks, σ given, float32, k =
10 components, d* = 20. n goes up to 64 times the middle, so that what does not grow with it is left behind; exact
kernel PCA is measured about a 32nd of the middle. Exponents are fitted to the larger half of the sizes; those of the
growth to the differences of neighbouring ones, in which what does not grow cancels: they are c for a + b n^c. Other
programs on the machine slow memory and caches, and with them CPU seconds: the load is printed.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.sources.common import arguments, save_figure, save_table
from bigkpca import KernelPCA
from bigkpca.errors import NarrowKernelWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPONENTS, AXES = 10, 20
METHODS: dict[str, dict[str, Any]] = {
    "nystroem": {"method": "nystroem", "landmarks": "uniform"},
    "columns": {"method": "columns"},
    "rff": {"method": "rff"},
    "rff-pca": {"method": "rff-pca", "n_directions": AXES},
    "exact": {"method": "exact"},
}


@dataclass(frozen=True)
class Sizes:
    n: int
    l: int  # noqa: E741
    d: int


def thesis(name: str, s: Sizes) -> float:
    """Its order of the costs."""
    if name == "exact":
        return s.n**2 * COMPONENTS
    return s.n * s.l * (AXES if name == "rff-pca" else COMPONENTS)


def counted(name: str, s: Sizes) -> float:
    """Multiplications, up to factors: features, their product with themselves, and the small eigenproblem."""
    if name == "exact":
        return s.n**2 * s.d + s.n**3
    if name == "rff-pca":
        return s.n * s.d**2 + s.n * s.l * (AXES / 2 + s.l) + s.l**3
    return s.n * s.l * (s.d / (2 if name == "rff" else 1) + s.l) + s.l**3


def middle_of(rows: int) -> Sizes:
    """The sizes that stay while another varies, for at most `rows` rows."""
    return Sizes(max(rows // 64, 100), max(rows // 10_240, 16), max(rows // 40_960, 24))


def grid(name: str, rows: int) -> dict[str, list[Sizes]]:
    """By what varies: the sizes of a method, while the others stay at the middle."""
    middle, steps = middle_of(rows), [2.0**i for i in (-2, -1, 0, 1, 2)]
    of_rows = [4.0**i for i in (-1, 0, 1, 2, 3)]
    if name == "exact":
        middle, of_rows = replace(middle, n=max(middle.n // 32, 32)), steps
    return {
        "n": [replace(middle, n=round(middle.n * step)) for step in of_rows],
        "l": [replace(middle, l=2 * round(middle.l * step)) for step in steps],
        "d": [replace(middle, d=round(middle.d * step * 4)) for step in steps],
    }


def seconds(name: str, sizes: Sizes, repeats: int) -> float:
    """CPU seconds of a fit and all scores, the median. Of new data each time, so that nothing is at hand."""
    found = []
    size = "auto" if name == "exact" else sizes.l
    for seed in range(repeats):
        X = np.random.default_rng(seed).standard_normal((sizes.n, sizes.d)).astype(np.float32)
        model = KernelPCA(COMPONENTS, sigma=float(np.sqrt(sizes.d)), size=size, random_state=seed, **METHODS[name])
        started = time.process_time()
        model.fit(X).transform(X)
        found.append(time.process_time() - started)
    return float(np.median(found))


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of log costs over log sizes, of the larger half."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)[0])


def of_growth(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """c of costs = a + b sizes^c, from the last three, sizes growing by one factor; None where costs do not grow."""
    before, last = costs[-2] - costs[-3], costs[-1] - costs[-2]
    if min(before, last) <= 0:
        return None
    return float(np.log(last / before) / np.log(sizes[-1] / sizes[-2]))


def measured(rows: int, repeats: int) -> dict[tuple[str, str], tuple[list[Sizes], list[float]]]:
    """By what varies and method: the sizes, and the seconds of each."""
    found = {}
    for varies in ("n", "l", "d"):
        for name in METHODS:
            if name == "exact" and varies == "l":
                continue
            sizes = grid(name, rows)[varies]
            found[varies, name] = sizes, [seconds(name, s, repeats) for s in sizes]
            print(f"{varies}, {name}: {found[varies, name][1][-1]:.1f} s", file=sys.stderr)
    return found


def draw(found: dict[tuple[str, str], tuple[list[Sizes], list[float]]]) -> Figure:
    """Three panels, log over log; thin lines are the counts through the last point."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.5), layout="constrained")
    axes = dict(zip("nld", figure.subplots(1, 3, sharey=True), strict=True))
    for (varies, name), (sizes, costs) in found.items():
        at = [getattr(s, varies) for s in sizes]
        color = f"C{list(METHODS).index(name)}"
        counts = np.array([counted(name, s) for s in sizes])
        axes[varies].loglog(at, costs, "o-", color=color, label=f"{name}: {exponent(at, costs):.2f}")
        axes[varies].loglog(at, counts * costs[-1] / counts[-1], color=color, linewidth=0.7, linestyle="--")
    for varies, axis in axes.items():
        axis.set_xlabel(varies)
        axis.legend(title="exponent", fontsize=8)
        axis.grid(which="major", linewidth=0.3)
        if varies != "n":
            axis.set_xticks(at := [getattr(s, varies) for s in found[varies, "rff"][0]], at)
            axis.minorticks_off()
    axes["n"].set_ylabel("CPU seconds; dashed: the counts")
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=2_048_000, repeats=3)
    before = os.getloadavg()[0]
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", NarrowKernelWarning)
        found = measured(given.rows, given.repeats)
    lines = []
    for (varies, name), (sizes, costs) in found.items():
        at = [getattr(s, varies) for s in sizes]
        orders = [exponent(at, [order(name, s) for s in sizes]) for order in (thesis, counted)]
        growth = of_growth(at, costs)
        took = [f"{at[0]} to {at[-1]}", ", ".join(f"{cost:.2f}" for cost in costs)]
        lines.append(
            [
                varies,
                name,
                *took,
                f"{exponent(at, costs):.2f}",
                "" if growth is None else f"{growth:.2f}",
                *(f"{abs(x):.2f}" if abs(x) < 0.005 else f"{x:.2f}" for x in orders),
            ]
        )
    header = ["varies", "method", "sizes", "CPU seconds", "exponent", "of the growth", "of the thesis", "of the count"]
    middle, load = middle_of(given.rows), (before, os.getloadavg()[0])
    busy = f"load {min(load):.0f} to {max(load):.0f} on {os.cpu_count()} cores"
    title = f"Costs about n = {middle.n}, l = {middle.l}, d = {middle.d}; exact about n / 32; {busy}"
    save_table(title, header, lines, given.folder, "complexity")
    save_figure(draw(found), given.folder, "complexity")


if __name__ == "__main__":
    main()
