"""The thesis's table of costs, section 3.6.4, measured: CPU seconds of a fit and all scores as n, l or d grow.

One BLAS thread, medians, uniform landmarks, sigma given, float32, k = 10 components, d* = 20. Exponents are fitted to
the larger half of the sizes; "of the growth" is c of a + b n^c, from differences of neighbouring sizes. The counts
include what the thesis leaves out: the product of the features with themselves, and the columns of the data.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.sources.common import Table, Tables
from bigkpca import KernelPCA

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


def measured(rows: int, repeats: int) -> Iterator[tuple[str, str, list[Sizes], list[float]]]:
    """What varies, the method, the sizes, and the seconds of each."""
    for varies in ("n", "l", "d"):
        for name in METHODS:
            if name != "exact" or varies != "l":
                sizes = grid(name, rows)[varies]
                yield varies, name, sizes, [seconds(name, s, repeats) for s in sizes]


def main(rows: int = 2_048_000, repeats: int = 3) -> Tables:
    before = os.getloadavg()[0]
    with threadpool_limits(1):
        found = [*measured(rows, repeats)]
    lines = []
    for varies, name, sizes, costs in found:
        at = [getattr(s, varies) for s in sizes]
        exponents = of_growth(at, costs), round(exponent(at, [counted(name, s) for s in sizes]), 2) + 0.0
        took = [f"{at[0]} to {at[-1]}", ", ".join(f"{cost:.2f}" for cost in costs)]
        lines.append([varies, name, *took, *("" if each is None else f"{each:.2f}" for each in exponents)])
    header = ["varies", "method", "sizes", "CPU seconds", "of the growth", "of the count"]
    middle, load = middle_of(rows), (before, os.getloadavg()[0])
    busy = f"load {min(load):.0f} to {max(load):.0f} on {os.cpu_count()} cores"
    title = f"Costs about n = {middle.n}, l = {middle.l}, d = {middle.d}; exact about n / 32; {busy}"
    yield Table(title, header, lines)
