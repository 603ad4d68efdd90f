"""Ingest, fit and transform of up to ten million rows, each as a complete command: seconds and peak memory.

MNIST repeated and shifted, in .npy files of 600,000 rows. At the full size this takes about half an hour on two cores
and 14 GB of disk space in --folder, which is freed at the end. --rows is the largest number of rows.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import arguments, child, mnist, seconds_of
from benchmarks.results import Measured, Results, Target, table

_COMMAND = "import sys; from bigkpca.cli import main; main(sys.argv[1:], standalone_mode=False)"
_ROWS = (60_000, 1_000_000, 3_000_000)  # and the largest number
_FILE_ROWS = 600_000
_COMPONENTS = 50


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    peak: float  # resident, MB


def write_rows(path: Path, first: int, rows: int) -> None:
    """Rows from the number `first` on of MNIST repeated, copy i shifted by (i mod 3, i div 3) pixels."""
    digits = mnist().reshape(-1, 28, 28)
    values = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, 784))
    for start in range(0, rows, len(digits)):
        copy = (first + start) // len(digits)
        shifted = np.roll(digits[: rows - start], (copy % 3, copy // 3), axis=(1, 2))
        values[start : start + len(shifted)] = shifted.reshape(len(shifted), 784)
    values.flush()


def files(folder: Path, rows: int) -> list[str]:
    """Files that hold so many rows together; whole ones are made once."""
    found = []
    for first in range(0, rows, _FILE_ROWS):
        count = min(_FILE_ROWS, rows - first)
        path = folder / f"part-{first}-{count}.npy"
        if not path.exists():
            write_rows(path, first, count)
        found.append(str(path))
    return found


def costs(folder: Path, rows: int, size: int) -> dict[str, Cost]:
    """The cost of each command for so many rows."""
    dataset, model, scores = (str(folder / name) for name in ("rows.zarr", "model.zarr", "scores.zarr"))
    options = ("--size", str(size), "--components", str(min(_COMPONENTS, size)))
    commands = {
        "ingest": (*files(folder, rows), dataset),
        "fit": (dataset, model, *options),
        "transform": (model, dataset, scores),
    }
    found = {name: _cost(name, "-q", *given) for name, given in commands.items()}
    for path in (dataset, model, scores):
        shutil.rmtree(path)
    return found


def _cost(*command: str) -> Cost:
    peaks: list[float] = []
    seconds = seconds_of(lambda: peaks.append(child(_COMMAND, *command)[1]))
    return Cost(seconds, peaks[0])


def measured(given: argparse.Namespace, folder: Path) -> dict[int, dict[str, Cost]]:
    """The median seconds and the largest peak of each command, for each number of rows."""
    found = {}
    for rows in (*(rows for rows in _ROWS if rows < given.rows), given.rows):
        runs = [costs(folder, rows, given.size) for _ in range(given.repeats)]
        found[rows] = {
            name: Cost(statistics.median(run[name].seconds for run in runs), max(run[name].peak for run in runs))
            for name in runs[0]
        }
    return found


def lines(found: dict[int, dict[str, Cost]]) -> Iterator[list[object]]:
    """A line for each command and number of rows."""
    smallest = min(found)
    for name in found[smallest]:
        more = dict.fromkeys(found, "")
        for before, rows in pairwise(found):
            seconds = found[rows][name].seconds - found[before][name].seconds
            more[rows] = f"{1e6 * seconds / (rows - before):.2f}"
        for rows, each in found.items():
            cost = each[name]
            share = f"{cost.peak / found[smallest][name].peak:.2f}"
            yield [name, rows, cost.seconds, 1e6 * cost.seconds / rows, more[rows], round(cost.peak), share]


def targets(found: dict[int, dict[str, Cost]]) -> Iterator[Measured]:
    """For each command how far time and memory grow beyond what they should, up to the largest number of rows."""
    rows = list(found)
    smallest, before, largest = rows[0], rows[-min(3, len(rows))], rows[-1]
    for name in found[largest]:
        grown = found[largest][name].seconds / found[before][name].seconds
        yield Target(
            f"{name}: seconds of {largest:,} rows / those of {before:,}, divided by the ratio of rows",
            "less",
            1.05,
            "times",
        ).measured(grown * before / largest)
        yield Target(f"{name}: memory of {largest:,} rows / that of {smallest:,}", "less", 1.1, "times").measured(
            found[largest][name].peak / found[smallest][name].peak
        )


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=10_000_000, repeats=1)
    folder = given.folder / "scale"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = measured(given, folder)
    finally:
        shutil.rmtree(folder)
    shown = table(
        f"Complete commands, {given.size} landmarks, 784 columns; linear if every further million takes the same time",
        ["command", "rows", "seconds", "a million rows", "a million more", "peak MB", "of the smallest"],
        list(lines(found)),
    )
    return Results((shown,), tuple(targets(found)))


if __name__ == "__main__":
    main()
