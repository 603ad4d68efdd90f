"""What a block costs where nothing is computed: sums over many blocks on a cluster of two processes."""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
from collections.abc import Sequence
from functools import partial

from benchmarks.common import seconds_of
from benchmarks.results import Results, table
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.tasks import Task


def nothing(number: int) -> int:
    """A block without work."""
    return number


def summed(engine: Engine, blocks: int) -> None:
    """One pass."""
    tasks = [Task(nothing, (number,), 65_536) for number in range(blocks)]
    assert engine.total("adding up nothing", tasks) == blocks * (blocks - 1) // 2


def main(argv: Sequence[str] | None = None) -> Results:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, nargs="+", default=[1000, 10_000, 61_000])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args(argv)
    rows = []
    with open_engine(workers=2) as engine:
        summed(engine, 10)  # workers import on their first task
        for blocks in given.blocks:
            seconds = statistics.median(seconds_of(partial(summed, engine, blocks)) for _ in range(given.repeats))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
            rows.append([blocks, blocks * 65_536, seconds, 1e6 * seconds / blocks, peak])
    shown = table(
        f"Passes over blocks of 65,536 rows that compute nothing, two processes; median of {given.repeats}",
        ["blocks", "rows", "seconds", "microseconds a block", "peak MB of this process"],
        rows,
    )
    return Results((shown,))


if __name__ == "__main__":
    main()
