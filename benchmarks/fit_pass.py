"""The pass of a fit over compressed Zarr, compared with bare matrix products of the same shapes; also on processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import (
    COVERTYPE_MEDIAN_DISTANCE,
    MEDIAN_DISTANCE,
    arguments,
    fit_pass,
    interleaved,
    median_ratio,
    ratios,
    repeated_covertype,
    repeated_dataset,
    seconds_of,
    spread,
)
from benchmarks.results import Measured, Results, Table, Target, table
from bigkpca.data.blocks import Block, tile_rows
from bigkpca.data.rows import Rows, tiles
from bigkpca.data.zarr import ZarrRows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine, fit_blocks
from bigkpca.execution.tasks import block_tasks
from bigkpca.numerics.linalg import aligned

CHECKS = Target("the fit pass by one that does not check what it reads, d = 784", "less", 1.02, "times its time")
PROCESSES = Target("the fit pass on two processes / two threads, d = 784", "less", 1.05, "times its time")


@dataclass(frozen=True)
class Pass:
    """A data set, the options of its fit, and the ratio to the products that the pass is to keep."""

    name: str
    path: str
    sigma: float
    options: dict[str, Any]
    bound: float


def bare_products(n: int, d: int, size: int) -> None:
    """n rows of (tile, d) @ (d, l) and (l, tile) @ (tile, l) in float32, one half on each of two threads."""
    tile = tile_rows(d, size, 4)
    rng = np.random.default_rng(0)
    rows, landmarks = rng.random((tile, d), np.float32), rng.random((d, size), np.float32)

    def half(tiles: int) -> None:
        V, square = np.empty((tile, size), np.float32), np.empty((size, size), np.float32)
        for _ in range(tiles):
            np.matmul(rows, landmarks, out=V)
            np.matmul(V.T, V, out=square)

    tiles = -(-n // tile)
    with single_threaded_blas, ThreadPoolExecutor(2) as pool:
        list(pool.map(half, [tiles // 2, tiles - tiles // 2]))


class Unchecked(ZarrRows):
    """Rows as Zarr reads them: no versions and no digests are compared."""

    def part(self, start: int, stop: int) -> Unchecked:
        return self

    def block(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        return aligned(np.asarray(self.array[start:stop]))


def unchecked(rows: Rows) -> Rows:
    """The same rows, read without checks."""
    assert isinstance(rows, ZarrRows)
    return Unchecked(rows.array, rows.count, where=rows.where)


def read_block(rows: Rows, block: Block) -> int:
    """The number of rows of a block, which are read and checked, and used for nothing."""
    return sum(map(len, tiles(rows, block.start, block.stop, tile_rows(rows.shape[1], 1, 4))))


def one_read(rows: Rows, engine: Engine) -> None:
    """Read every row once."""
    engine.each("reading", block_tasks(read_block, rows, fit_blocks(rows, None)))


def measured(each: Pass, size: int, repeats: int, cluster: Engine) -> tuple[Table, dict[str, list[float]]]:
    """The table of a data set, and the seconds of all runs."""
    rows, one_pass = fit_pass(each.path, size, each.sigma, **each.options)
    threads, (n, d) = Engine(threads=2), rows.shape
    one_pass(cluster)  # workers import on their first task
    seconds = interleaved(
        repeats,
        read=lambda: seconds_of(lambda: one_read(rows, threads)),
        bare=lambda: seconds_of(lambda: bare_products(n, d, size)),
        threads=lambda: one_pass(threads),
        unchecked=lambda: one_pass(threads, unchecked(rows)),
        processes=lambda: one_pass(cluster),
    )
    lines = []
    for what, name, other in (
        ("one read of the rows, two threads", "read", "bare"),
        ("bare products, two threads", "bare", "bare"),
        ("fit pass, two threads", "threads", "bare"),
        ("fit pass, two threads (ratio to the same without checks of what is read)", "threads", "unchecked"),
        ("fit pass, two processes (ratio to threads)", "processes", "threads"),
    ):
        middle, found = statistics.median(seconds[name]), ratios(seconds[name], seconds[other])
        lines.append([what, middle, round(n / middle), statistics.median(found), spread(found)])
    title = f"Fit pass over {n} x {d} ({each.name}), {size} landmarks, from Zarr; medians of {repeats}"
    return table(title, ["what", "seconds", "rows/s", "ratio", "least to most"], lines), seconds


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=600_000)
    wide = Pass("MNIST repeated", repeated_dataset(given.folder, given.rows), MEDIAN_DISTANCE, {}, 1.15)
    narrow = Pass(
        "covertype repeated",
        repeated_covertype(given.folder, given.rows),
        COVERTYPE_MEDIAN_DISTANCE,
        {"standardize": True},
        1.5,
    )
    shown: list[Table] = []
    kept: list[Measured] = []
    with open_engine(workers=2) as cluster:
        for each, d in ((wide, 784), (narrow, 54)):
            of_data, seconds = measured(each, given.size, given.repeats, cluster)
            shown.append(of_data)
            target = Target(f"the fit pass / the bare products, d = {d}", "less", each.bound, "times their time")
            kept.append(target.measured(median_ratio(seconds["threads"], seconds["bare"])))
            if each is wide:
                kept.append(CHECKS.measured(median_ratio(seconds["threads"], seconds["unchecked"])))
                kept.append(PROCESSES.measured(median_ratio(seconds["processes"], seconds["threads"])))
    return Results(tuple(shown), tuple(kept))


if __name__ == "__main__":
    main()
