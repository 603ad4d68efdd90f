"""The pass of a fit over compressed Zarr against the bare matrix products of the same shapes; and on processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.common import arguments, fit_pass, interleaved, median_ratio, seconds_of, table
from bigkpca.data.blocks import tile_rows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine


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


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=600_000)
    rows, one_pass = fit_pass(given)
    threads = Engine(threads=2)

    n, d = rows.shape
    with open_engine(workers=2) as cluster:
        one_pass(cluster)  # workers import on their first task
        seconds = interleaved(
            given.repeats,
            bare=lambda: seconds_of(lambda: bare_products(n, d, given.size)),
            threads=lambda: one_pass(threads),
            processes=lambda: one_pass(cluster),
        )
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    table(
        f"Fit pass over {n} x {d}, {given.size} landmarks, from Zarr; median of {given.repeats}",
        ["what", "seconds", "rows/s", "ratio"],
        [
            ["bare products, two threads", medians["bare"], round(n / medians["bare"]), 1.0],
            [
                "fit pass, two threads",
                medians["threads"],
                round(n / medians["threads"]),
                median_ratio(seconds["threads"], seconds["bare"]),
            ],
            [
                "fit pass, two processes (ratio to threads)",
                medians["processes"],
                round(n / medians["processes"]),
                median_ratio(seconds["processes"], seconds["threads"]),
            ],
        ],
    )


if __name__ == "__main__":
    main()
