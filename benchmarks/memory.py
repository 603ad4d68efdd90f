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
from benchmarks.results import Found, Table, Target
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
_SHOWN = 3


def measured_and_planned(threads: int, *command: str) -> tuple[float, float]:
    """Peak of a command in MB, and what it says that it needs where it is refused for memory."""
    refused = subprocess.run(
        [
            sys.executable,
            "-c",
            _COMMAND.replace(", standalone_mode=False", ""),
            str(threads),
            *command,
            "--memory",
            "1 MB",
        ],
        capture_output=True,
        text=True,
    )
    found = _NEEDS.search(refused.stderr)
    if found is None:
        raise RuntimeError(f"{' '.join(command)} is not refused for its memory: {refused.stderr[-500:]}")
    return child(_COMMAND, str(threads), *command, "-q")[1], float(found[1] or found[2])


def drawn(folder: Path, columns: int, dtype: str, rows: int) -> str:
    """A dataset of ten strong directions and noise, of as many values as `rows` of 784 columns have at most."""
    n = max(1000, min(rows, rows * 784 // columns))

    def made() -> Array:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, columns)) + rng.normal(size=(n, columns))
        return (np.clip(20 * X + 128, 0, 255) if dtype == "uint8" else X).astype(dtype)

    return dataset(folder / f"x{columns}-{dtype}.zarr", made)


def commands(size: int) -> list[tuple[tuple[int, ...], str]]:
    """Numbers of threads and commands, in which each kind of stage is the largest somewhere. "x784" is a dataset of 784
    columns, of float32 if it names no other type, and "new" an output that no other command reads."""
    half, fifth = max(20, size // 2), max(20, size // 5)
    rules = ("--landmarks uniform", "--landmarks rpcholesky", "--method columns", "--method rff-pca", "--standardize")
    return [
        ((1, 2, 8), f"fit x784 new --size {size}"),
        ((2, 8), f"fit x54 new --size {2 * size}"),
        ((2, 8), f"fit x784 new --size {fifth} --preimage ridge"),
        ((2, 8), f"fit x784 new --size {size} --method rff"),
        *(((2,), f"fit {data} new --size {size}") for data in ("x3000", "x784-float64", "x784-uint8")),
        *(((2,), f"fit x784 new --size {size} {rule}") for rule in rules),
        ((2,), f"fit x54 new --size {4 * size} --method rff --solver randomized"),
        ((2,), f"fit x784 model --size {size}"),
        ((2,), f"fit x784 decoder --size {half} --preimage ridge"),
        ((2, 8), "transform model x784 new"),
        ((2,), "transform model x784 new --residual"),
        ((2,), "transform decoder x784 scores"),
        ((2, 8), "reconstruct decoder scores new"),
        ((2,), "denoise decoder x784 new"),
        ((2,), f"evaluate model x784 --sample {max(2, size // 2)}"),
        ((2,), "sigma x784"),
    ]


def grid(folder: Path, rows: int, size: int) -> Iterator[tuple[int, str, float, float]]:
    """Threads, command, measured and planned peak in MB."""
    here = folder / "memory"
    shutil.rmtree(here, ignore_errors=True)  # of a run that failed
    paths = {f"x{columns}": drawn(here, columns, "float32", rows) for columns in (54, 784, 3000)}
    paths |= {f"x784-{dtype}": drawn(here, 784, dtype, rows) for dtype in ("float64", "uint8")}
    paths |= {name: str(here / name) for name in ("model", "decoder", "scores")}
    for number, (all_threads, command) in enumerate(commands(size)):
        for threads in all_threads:
            paths["new"] = str(here / f"new-{number}-{threads}")
            words = [paths.get(word, word) for word in command.split()]
            yield threads, command, *measured_and_planned(threads, *words)
    shutil.rmtree(here)


def main(folder: Path, rows: int = 66_000, size: int = 1000) -> Found:
    found = sorted(grid(folder, rows, size), key=lambda each: each[3] / each[2])
    lines = [[threads, name, f"{used:.0f}", f"{plan:.0f}", plan / used] for threads, name, used, plan in found]
    title = f"Peak memory in MB of {len(lines)} commands on {rows} rows of 784 columns or as many values: the least"
    title += f" and the most of planned / used, {_SHOWN} each"
    header = ["threads", "command", "used", "planned", "planned / used"]
    yield Table(title, header, [*lines[:_SHOWN], *lines[-_SHOWN:]])
    least = min(plan / used for _, _, used, plan in found)
    most = max((plan / used for _, _, used, plan in found if used > SMALL_MB), default=None)
    yield Target("planned / used memory, smallest of the commands", least, "at least", 1)
    yield Target(f"planned / used memory, largest of the commands above {SMALL_MB} MB", most, "at most", 2)
