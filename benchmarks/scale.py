"""Ingest, fit and transform of up to ten million rows, each as a complete command: seconds and peak memory.

MNIST repeated and shifted, in .npy files of 600,000 rows. The full size needs 14 GB of disk space in --folder, which
is freed at the end. --rows is the largest number of rows.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import COMMAND, arguments, child, repeated_digits
from benchmarks.results import Results, Target, table

_ROWS = (60_000, 1_000_000)  # and the largest number
_FILE_ROWS = 600_000
_COMPONENTS = 50


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    peak: float  # resident, MB


def files(folder: Path, rows: int) -> list[str]:
    """Files that hold so many rows together; each is made once."""
    found = []
    for first in range(0, rows, _FILE_ROWS):
        count = min(_FILE_ROWS, rows - first)
        path = folder / f"part-{first}-{count}.npy"
        if not path.exists():
            np.save(path, repeated_digits(first, count))
        found.append(str(path))
    return found


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


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=10_000_000)
    folder = given.folder / "scale"
    folder.mkdir(parents=True, exist_ok=True)
    sizes = [*(rows for rows in _ROWS if rows < given.rows), given.rows]
    try:
        found = {rows: costs(folder, rows, given.size) for rows in sizes}
    finally:
        shutil.rmtree(folder)
    smallest, before, largest = sizes[0], sizes[-min(2, len(sizes))], sizes[-1]
    fit, lines = found[largest]["fit"], []
    targets = [
        Target(f"fit of {largest:,} rows", fit.seconds, "at most", 150, "s"),
        Target(f"fit of {largest:,} rows: peak", fit.peak, "at most", 250, "MB"),
    ]
    for name in found[smallest]:
        for rows in sizes:
            cost = found[rows][name]
            share = f"{cost.peak / found[smallest][name].peak:.2f}"
            lines.append([name, rows, cost.seconds, 1e6 * cost.seconds / rows, round(cost.peak), share])
        per_row = found[largest][name].seconds / largest / (found[before][name].seconds / before)
        memory = found[largest][name].peak / found[smallest][name].peak
        what = f"{name}: seconds per row with {largest:,} rows / with {before:,}"
        targets.append(Target(what, per_row, "at most", 1.05))
        targets.append(Target(f"{name}: memory of {largest:,} rows / of {smallest:,}", memory, "at most", 1.1))
    header = ["command", "rows", "seconds", "seconds per million rows", "peak MB", "of the smallest"]
    title = f"Complete commands, {given.size} landmarks, 784 columns"
    return Results((table(title, header, lines),), tuple(targets))


if __name__ == "__main__":
    main()
