"""Peak resident memory of commands compared with the plan, for few and many rows, and on several threads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import arguments, child, repeated_dataset
from benchmarks.results import Results, Target, table
from bigkpca.ingesting import ingest

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
_AT_LEAST = Target("planned / used memory, smallest of the commands", "more", 1.0, "times")
_AT_MOST = Target(f"planned / used memory, largest of the commands above {SMALL_MB} MB", "less", 2, "times")
_ROWS, _COLUMNS = 66_000, (54, 784, 3000)  # of the grid; fewer where they are wider


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


def peaks(folder: Path, rows: int, size: int) -> dict[str, tuple[float, float | None]]:
    """Measured and planned peak in MB of each command on `rows` rows."""
    raw = repeated_dataset(folder, rows).replace(".zarr", ".npy")
    dataset, model, scores = (str(folder / name) for name in ("memory.zarr", "memory-model.zarr", "memory-scores.zarr"))
    found: dict[str, tuple[float, float | None]] = {
        "ingest": (child(_COMMAND, "2", "ingest", "-q", raw, dataset)[1], None),
        "fit": measured_and_planned(2, "fit", dataset, model, "--size", size),
        "transform": measured_and_planned(2, "transform", model, dataset, scores),
    }
    for path in (dataset, model, scores):
        shutil.rmtree(path)
    return found


def drawn(folder: Path, columns: int, dtype: str, rows: int) -> str:
    """A dataset of ten strong directions and noise, made once in each folder."""
    n = max(1000, min(rows, rows * 784 // columns))
    path = folder / f"drawn-{n}-{columns}-{dtype}.zarr"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        W, raw = rng.normal(size=(10, columns)), path.with_suffix(".npy")
        values = np.lib.format.open_memmap(raw, "w+", np.dtype(dtype), (n, columns))
        for start in range(0, n, 8192):
            part = values[start : start + 8192]
            X = rng.normal(size=(len(part), 10)) @ W + rng.normal(size=part.shape)
            part[:] = np.clip(20 * X + 128, 0, 255) if dtype == "uint8" else X
        values.flush()
        del values
        ingest([raw], path)
        raw.unlink()
    return str(path)


def commands(folder: Path, rows: int, size: int) -> Iterator[tuple[int, tuple[object, ...]]]:
    """(threads, command) of the grid: each kind of stage is the largest somewhere."""
    narrow, middle, wide = (drawn(folder, columns, "float32", rows) for columns in _COLUMNS)
    double, small = drawn(folder, 784, "float64", rows), drawn(folder, 784, "uint8", rows)
    model, ridge, scores, decoded = (folder / name for name in ("m.model", "r.model", "s.scores", "d.scores"))

    def fit(data: str, *options: object) -> tuple[object, ...]:
        return ("fit", data, folder / "other.model", *options)

    for threads in (1, 2, 4, 8):
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


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=1_800_000)
    few, many = peaks(given.folder, given.rows // 30, given.size), peaks(given.folder, given.rows, given.size)
    shown = table(
        f"Peak resident memory in MB, {given.size} landmarks (planned in brackets)",
        ["command", f"{given.rows // 30} rows", f"{given.rows} rows", "ratio"],
        [[name, _shown(few[name]), _shown(many[name]), many[name][0] / few[name][0]] for name in few],
    )
    found = grid(given.folder, min(given.rows, _ROWS), given.size)
    planned = table(
        "Peak resident memory of commands in MB, used and planned",
        ["threads", "command", "used", "planned", "planned / used"],
        [[threads, name, f"{used:.0f}", f"{plan:.0f}", plan / used] for threads, name, used, plan in found],
    )
    large = [plan / used for _, _, used, plan in found if used > SMALL_MB]
    least = min(plan / used for _, _, used, plan in found)
    return Results((shown, planned), (_AT_LEAST.measured(least), _AT_MOST.measured(max(large, default=None))))


def _shown(peak: tuple[float, float | None]) -> str:
    measured, planned = peak
    return f"{measured:.0f}" if planned is None else f"{measured:.0f} ({planned:.0f})"


if __name__ == "__main__":
    main()
