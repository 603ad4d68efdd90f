"""The pass of a fit over compressed Zarr, compared with bare matrix products of the same shapes; on two threads, with
its sums saved, and on two processes."""

import shutil
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.data import DATA, repeated_covertype, repeated_dataset
from benchmarks.results import Found, Table, Target
from benchmarks.timing import fit_pass, interleaved, ratios, seconds_of, spread
from bigkpca.data.blocks import tile_rows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.workflows.checkpoints import saved_in

_MADE = {"MNIST": (repeated_dataset, 1.15), "covertype": (repeated_covertype, 1.5)}  # most times the bare products
_BARE, _THREADS = "bare products, two threads", "fit pass, two threads"
_PROCESSES = "fit pass, two processes (ratio to threads)"
_ON_PROCESSES = 1.05  # most times the pass on threads, of MNIST


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


def measured(name: str, path: str, size: int, repeats: int, cluster: Engine) -> Found:
    """The table of a data set, and its targets."""
    data, most = DATA[name], _MADE[name][1]
    rows, one_pass = fit_pass(path, size, data.sigma, standardize=data.standardize)
    threads, (n, d) = Engine(threads=2), rows.shape
    one_pass(cluster)  # workers import on their first task
    with TemporaryDirectory(dir=Path(path).parent) as folder:

        def saved() -> float:
            shutil.rmtree(f"{folder}/sums", ignore_errors=True)
            return one_pass(replace(threads, checkpoint=saved_in(f"{folder}/sums", [], Progress())))

        sides: dict[str, tuple[Callable[[], float], str]] = {  # and what each is compared with
            _BARE: (lambda: seconds_of(lambda: bare_products(n, d, size)), _BARE),
            _THREADS: (lambda: one_pass(threads), _BARE),
            "the same, sums saved (ratio to the same without)": (saved, _THREADS),
            _PROCESSES: (lambda: one_pass(cluster), _THREADS),
        }
        seconds = interleaved(repeats, **{what: side for what, (side, _) in sides.items()})
    times = {what: ratios(took, seconds[sides[what][1]]) for what, took in seconds.items()}
    middle = {what: statistics.median(each) for what, each in times.items()}
    lines = [[what, statistics.median(seconds[what]), middle[what], spread(times[what])] for what in sides]
    yield Target(f"the fit pass / the bare products, d = {d}", middle[_THREADS], "at most", most)
    if name == "MNIST":
        what = f"the fit pass on two processes / two threads, d = {d}"
        yield Target(what, middle[_PROCESSES], "at most", _ON_PROCESSES)
    title = f"Fit pass over {n} x {d} ({name} repeated), {size} landmarks, from Zarr; medians of {repeats}"
    yield Table(title, ["what", "seconds", "ratio", "least to most"], lines)


def main(folder: Path, rows: int = 300_000, size: int = 1000, repeats: int = 5) -> Found:
    with open_engine(workers=2) as cluster:
        for name, (make, _) in _MADE.items():
            yield from measured(name, make(folder, rows), size, repeats, cluster)
