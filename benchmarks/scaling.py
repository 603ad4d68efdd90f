"""The time of a fit on 1 to 100 workers of one thread each, calculated from the measured times of its parts.

docs/scaling.md explains the formula. --rows sets how many rows the parts are measured on.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import MEDIAN_DISTANCE, repeated_dataset
from benchmarks.results import Found, Table
from benchmarks.timing import fit_pass, seconds_of
from bigkpca.data.blocks import READ_BYTES
from bigkpca.data.rows import Rows
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.graph import Pass
from bigkpca.execution.tasks import Carried, Task, group_size
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics import moments
from bigkpca.numerics.moments import ShiftedSums
from bigkpca.spec import FitSpec, resolve

ROWS = (10**7, 10**9)
WORKERS = (1, 2, 4, 8, 16, 32, 64, 100)
BLOCK_ROWS = 65_536  # of a fit of so many rows
NETWORK = 1.25e9  # bytes a second: 10 Gbit/s, assumed
_NOTHING_BLOCKS, _MOVES = 10_000, 20  # of measured passes, and sums that are moved


@dataclass(frozen=True)
class Parts:
    """Seconds of the parts of a fit, for `size` landmarks."""

    size: int
    row: float  # of one row in the pass, on one thread
    read: float  # of one row that is only read
    driver: float  # landmarks, eigenproblem and certificate, on the driver
    block: float  # of the scheduler and the driver for one block
    move: float  # of one sum from one worker to another on this machine, where no network is between them
    addition: float  # of two sums
    sampled: int  # rows drawn for the sample and for the bounds
    grain: int  # rows of a chunk, which is read whole for each of them

    def seconds(self, n: int, workers: int) -> float:
        """The time of a fit of n rows."""
        blocks = ceil(n / BLOCK_ROWS)
        together = group_size(blocks, workers)
        groups = ceil(blocks / together)
        busiest = min(n, ceil(groups / workers) * together * BLOCK_ROWS) * self.row
        sampling = min(n, self.sampled * self.grain) * self.read / workers
        return self.driver + sampling + max(busiest, blocks * self.block) + self.tree(blocks, groups, workers)

    def tree(self, blocks: int, groups: int, workers: int) -> float:
        """What follows the last groups, one of each worker: the levels of subtrees above them, and the way of the sums
        of these subtrees to the driver, which adds them up, one after the other."""
        subtrees = len(Pass("fitting", [Task(int, (), 0)] * blocks, workers, adds=True).missing())
        moved = self.move + 8 * moments.entries(self.size) / NETWORK
        of_subtree = ceil(groups / subtrees)
        levels, last = ceil(log2(min(of_subtree, workers))), ceil(min(groups, workers) / of_subtree)
        return (levels + last) * (moved + self.addition)


def nothing(number: int) -> int:
    """A block without work."""
    return number


def summed(engine: Engine, blocks: int) -> None:
    """A pass over blocks without work."""
    tasks = [Task(nothing, (number,), BLOCK_ROWS) for number in range(blocks)]
    assert engine.total("adding up nothing", tasks) == blocks * (blocks - 1) // 2


def measured(path: str, size: int, repeats: int) -> Parts:
    """The parts of a fit on this machine."""
    rows, one_pass = fit_pass(path, size, MEDIAN_DISTANCE)
    n, spec = rows.shape[0], FitSpec.checked(size=size, sigma=MEDIAN_DISTANCE)
    fit, threads = resolve(spec, rows), Engine(threads=2)
    zero = np.zeros(size)
    sums = ShiftedSums(zero, 1, 1.0, zero, moments.empty_sums(size), 0.0, zero, zero)

    def median(work: Callable[[], Any]) -> float:
        return statistics.median(seconds_of(work) for _ in range(repeats))

    row, read = median(lambda: one_pass(Engine(threads=1))) / n, median(lambda: _read(rows)) / n
    whole, passing = median(lambda: fit_rows(rows, spec, threads)), median(lambda: one_pass(threads))
    with open_engine(workers=2) as cluster:
        summed(cluster, 10)  # workers import on their first task
        block = median(lambda: summed(cluster, _NOTHING_BLOCKS)) / _NOTHING_BLOCKS
        move = _move(cluster, sums)
    return Parts(
        size=size,
        row=row,
        read=read,
        driver=max(whole - passing - min(n, fit.sample * rows.grain) * read / 2, 0.0),
        block=block,
        move=move,
        addition=median(lambda: sums + sums),
        sampled=fit.sample,
        grain=rows.grain,
    )


def _move(cluster: Engine, value: Any) -> float:
    """Seconds that a value takes from one worker to another."""
    client = cluster.client
    assert client is not None
    one, other = client.scheduler_info(n_workers=-1)["workers"]

    def taken(place: str) -> float:
        held = client.submit(Carried, value, workers=[one], pure=False)
        held.exception()  # which waits for it, and leaves it there
        return seconds_of(lambda: client.submit(type, held, workers=[place], pure=False).result())

    here, there = ([taken(place) for _ in range(_MOVES)] for place in (one, other))
    return max(statistics.median(there) - statistics.median(here), 0.0)


def _read(rows: Rows) -> None:
    """Read all rows on one thread."""
    height = max(rows.grain, READ_BYTES // (rows.shape[1] * rows.dtype.itemsize))
    for start in range(0, rows.shape[0], height):
        rows.block(start, min(start + height, rows.shape[0]))


def main(folder: Path, rows: int = 120_000, size: int = 1000, repeats: int = 3) -> Found:
    parts = measured(repeated_dataset(folder, rows), size, repeats)
    yield Table(
        f"Parts of a fit with {parts.size} landmarks, measured on {rows} rows",
        ["part", "seconds"],
        [
            [f"a block of {BLOCK_ROWS} rows, on one thread", parts.row * BLOCK_ROWS],
            [f"a chunk of {parts.grain} rows that is only read", parts.read * parts.grain],
            ["landmarks, eigenproblem, certificate on the driver", parts.driver],
            ["scheduler and driver, for each block", parts.block],
            [f"a sum of {8e-6 * moments.entries(parts.size):.1f} MB moved from one worker to another", parts.move],
            ["two sums added", parts.addition],
        ],
    )
    lines = []
    for workers in WORKERS:
        seconds = [parts.seconds(n, workers) for n in ROWS]
        alone = [parts.seconds(n, 1) for n in ROWS]
        pairs = zip(seconds, alone, strict=True)
        lines.append([workers, *(cell for s, one in pairs for cell in (f"{s:,.1f}", f"{one / workers / s:.0%}"))])
    header = ["workers", *(cell for n in ROWS for cell in (f"{n:,} rows: seconds", "efficiency"))]
    yield Table(f"Calculated, in blocks of {BLOCK_ROWS} rows", header, lines)
