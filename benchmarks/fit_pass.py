"""The pass of a fit over compressed Zarr against the bare matrix products of the same shapes; and on processes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.common import MEDIAN_DISTANCE, arguments, interleaved, median_ratio, repeated_dataset, seconds_of, table
from bigkpca.data.blocks import tile_rows
from bigkpca.data.opening import open_rows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import moments_of
from bigkpca.execution.progress import Silent
from bigkpca.fitting.choose_features import choose_features
from bigkpca.fitting.size_search import SizeLimits
from bigkpca.spec import FitSpec, resolve


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
    rows = open_rows(repeated_dataset(given.folder, given.rows))
    spec = FitSpec.checked(size=given.size, sigma=MEDIAN_DISTANCE)
    threads = Engine(threads=2)
    chosen = choose_features(rows, resolve(spec, rows), SizeLimits(given.size), threads, Silent())

    def one_pass(engine: Engine) -> float:
        return seconds_of(lambda: moments_of(rows, chosen.features, chosen.near_mean, None, engine, Silent()))

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
