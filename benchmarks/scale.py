"""Ingest, fit and transform of up to ten million rows, each as a complete command: seconds and peak memory.

MNIST repeated and shifted, in .npy files of 600,000 rows. The full size needs 14 GB of disk space in --folder, which
is freed at the end. --rows is the largest number of rows.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.data import repeated_digits
from benchmarks.results import Found, Table, Target
from benchmarks.timing import COMMAND, child

_ROWS = (60_000, 1_000_000)  # and the largest number
_FILE_ROWS = 600_000
_COMPONENTS = 50


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    peak: float  # resident, MB


def files(folder: Path, rows: int) -> Iterator[str]:
    """Files that hold so many rows together; each is made once."""
    for first in range(0, rows, _FILE_ROWS):
        count = min(_FILE_ROWS, rows - first)
        path = folder / f"part-{first}-{count}.npy"
        if not path.exists():
            np.save(path, repeated_digits(first, count))
        yield str(path)


def costs(folder: Path, rows: int, size: int) -> dict[str, Cost]:
    """The cost of each command for so many rows."""
    dataset, model, scores = (str(folder / name) for name in ("rows.zarr", "model.zarr", "scores.zarr"))
    commands = {
        "ingest": (*files(folder, rows), dataset),
        "fit": (dataset, model, "--size", str(size), "--components", str(min(_COMPONENTS, size))),
        "transform": (model, dataset, scores),
    }
    found = {}
    for name, words in commands.items():
        started = time.perf_counter()
        _, peak = child(COMMAND, name, "-q", *words)
        found[name] = Cost(time.perf_counter() - started, peak)
    for path in (dataset, model, scores):
        shutil.rmtree(path)
    return found


def main(folder: Path, rows: int = 10_000_000, size: int = 1000) -> Found:
    folder = folder / "scale"
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [*(n for n in _ROWS if n < rows), rows]
    try:
        found = {n: costs(folder, n, size) for n in sizes}
    finally:
        shutil.rmtree(folder)
    smallest, before = sizes[0], sizes[-min(2, len(sizes))]
    fit, lines = found[rows]["fit"], []
    yield Target(f"fit of {rows:,} rows", fit.seconds, "at most", 150, "s")
    yield Target(f"fit of {rows:,} rows: peak", fit.peak, "at most", 250, "MB")
    for name in found[smallest]:
        for n in sizes:
            cost = found[n][name]
            lines.append([name, n, cost.seconds, 1e6 * cost.seconds / n, round(cost.peak)])
        per_row = found[rows][name].seconds / rows / (found[before][name].seconds / before)
        memory = found[rows][name].peak / found[smallest][name].peak
        what = f"{name}: seconds per row with {rows:,} rows / with {before:,}"
        yield Target(what, per_row, "at most", 1.05)
        yield Target(f"{name}: memory of {rows:,} rows / of {smallest:,}", memory, "at most", 1.1)
    header = ["command", "rows", "seconds", "seconds per million rows", "peak MB"]
    yield Table(f"Complete commands, {size} landmarks, 784 columns", header, lines)
