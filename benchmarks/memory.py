"""Peak resident memory of commands compared with the plan, on several threads. `scale` shows that it does not grow
with the rows."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.data import dataset
from benchmarks.results import Results, Target, table
from benchmarks.timing import child
from bigkpca.errors import Array

# A command on a number of threads, which it takes from Dask.
_COMMAND = """
import sys
import dask.system
dask.system.CPU_COUNT = int(sys.argv[1])
from bigkpca.cli import main
main(sys.argv[2:], standalone_mode=False)
"""
_NEEDS = re.compile(r"this needs (\d+) MB in a process, but 1 MB are allowed|even a size of 10 needs (\d+) MB")
SMALL_MB = 200  # peaks below are mostly of the interpreter
_COLUMNS = (54, 784, 3000)
_SHOWN = 3


def measured_and_planned(threads: int, *command: object) -> tuple[float, float]:
    """Peak of a command in MB, and what it says that it needs where it is refused for memory."""
    words = [str(threads), *map(str, command)]
    refused = subprocess.run(
        [sys.executable, "-c", _COMMAND.replace(", standalone_mode=False", ""), *words, "--memory", "1 MB"],
        capture_output=True,
        text=True,
    )
    found = _NEEDS.search(refused.stderr)
    if found is None:
        raise RuntimeError(f"{' '.join(words[1:])} is not refused for its memory: {refused.stderr[-500:]}")
    return child(_COMMAND, *words, "-q")[1], float(found[1] or found[2])


def drawn(folder: Path, columns: int, dtype: str, rows: int) -> str:
    """A dataset of ten strong directions and noise, made once in each folder."""
    n = max(1000, min(rows, rows * 784 // columns))

    def made() -> Array:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, columns)) + rng.normal(size=(n, columns))
        return (np.clip(20 * X + 128, 0, 255) if dtype == "uint8" else X).astype(dtype)

    return dataset(folder / f"drawn-{n}-{columns}-{dtype}.zarr", made)


def commands(folder: Path, rows: int, size: int) -> Iterator[tuple[int, tuple[object, ...]]]:
    """(threads, command) of the grid: each kind of stage is the largest somewhere."""
    narrow, middle, wide = (drawn(folder, columns, "float32", rows) for columns in _COLUMNS)
    double, small = drawn(folder, 784, "float64", rows), drawn(folder, 784, "uint8", rows)
    model, ridge, scores, decoded = (folder / name for name in ("m.model", "r.model", "s.scores", "d.scores"))

    def fit(data: str, *options: object) -> tuple[object, ...]:
        return ("fit", data, folder / "other.model", *options)

    for threads in (1, 2, 8):
        yield threads, fit(middle, "--size", size)
    for threads in (2, 8):
        yield threads, fit(narrow, "--size", 2 * size)
        yield threads, fit(middle, "--size", max(20, size // 5), "--preimage", "ridge")
        yield threads, fit(middle, "--size", size, "--method", "rff")
    for data in (wide, double, small):
        yield 2, fit(data, "--size", size)
    for options in (
        ("--landmarks", "uniform"),
        ("--landmarks", "rpcholesky"),
        ("--method", "columns"),
        ("--method", "rff-pca"),
        ("--standardize",),
    ):
        yield 2, fit(middle, "--size", size, *options)
    yield 2, fit(narrow, "--size", 4 * size, "--method", "rff", "--solver", "randomized")
    yield 2, ("fit", middle, model, "--size", size)
    yield 2, ("fit", middle, ridge, "--size", max(20, size // 2), "--preimage", "ridge")
    for threads in (2, 8):
        yield threads, ("transform", model, middle, folder / f"{scores.name}{threads}")
    yield 2, ("transform", model, middle, scores, "--residual")
    yield 2, ("transform", ridge, middle, decoded)
    for threads in (2, 8):
        yield threads, ("reconstruct", ridge, decoded, folder / f"x{threads}.rows")
    yield 2, ("denoise", ridge, middle, folder / "y.rows")
    yield 2, ("evaluate", model, middle, "--sample", max(2, size // 2))
    yield 2, ("sigma", middle)


def grid(folder: Path, rows: int, size: int) -> list[tuple[int, str, float, float]]:
    """Threads, command, measured and planned peak in MB, of the grid."""
    here = folder / f"memory-{rows}-{size}"
    found = []
    for threads, command in commands(here, rows, size):
        for word in map(str, command[2:4]):
            if word.endswith("other.model"):
                shutil.rmtree(word, ignore_errors=True)
        named = " ".join(re.sub("drawn-|-?[0-9]+-float32|[.]zarr", "", Path(str(word)).name) for word in command)
        found.append((threads, named, *measured_and_planned(threads, *command)))
    shutil.rmtree(here)
    return found


def main(folder: Path, rows: int = 66_000, size: int = 1000) -> Results:
    found = sorted(grid(folder, rows, size), key=lambda each: each[3] / each[2])
    lines = [[threads, name, f"{used:.0f}", f"{plan:.0f}", plan / used] for threads, name, used, plan in found]
    title = f"Peak memory in MB of {len(lines)} commands on {rows} rows of 784 columns or as many values: the least"
    title += f" and the most of planned / used, {_SHOWN} each"
    header = ["threads", "command", "used", "planned", "planned / used"]
    shown = table(title, header, [*lines[:_SHOWN], *lines[-_SHOWN:]])
    least = min(plan / used for _, _, used, plan in found)
    most = max((plan / used for _, _, used, plan in found if used > SMALL_MB), default=None)
    targets = (
        Target("planned / used memory, smallest of the commands", least, "at least", 1),
        Target(f"planned / used memory, largest of the commands above {SMALL_MB} MB", most, "at most", 2),
    )
    return Results((shown,), targets)
