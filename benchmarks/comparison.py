"""How long `bigkpca compare` takes with its default grid, and how much memory its processes hold together."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import arguments, repeated_dataset
from benchmarks.results import Results, table


def resident_mb(root: int) -> float:
    """Memory of a process and all below it, shared pages counted once, in MB."""
    below, found = [root], 0.0
    while below:
        process = Path("/proc") / str(below.pop())
        try:
            rollup = dict(line.split()[:2] for line in (process / "smaps_rollup").read_text().splitlines()[1:])
            below += map(int, (process / "task" / process.name / "children").read_text().split())
        except (OSError, ValueError):  # it has ended
            continue
        found += int(rollup["Pss:"]) * 1024 / 1e6
    return found


def watched(command: Sequence[str]) -> tuple[float, float]:
    """(seconds, peak MB of all processes together) of a command; its output goes where ours does."""
    started, peak = time.perf_counter(), 0.0
    with subprocess.Popen(command) as running:
        while running.poll() is None:
            peak = max(peak, resident_mb(running.pid))
            time.sleep(0.1)
    if running.returncode:
        raise SystemExit(running.returncode)
    return time.perf_counter() - started, peak


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000, repeats=3)
    data, out = repeated_dataset(given.folder, given.rows), given.folder / f"compare-{given.rows}"
    shutil.rmtree(out, ignore_errors=True)
    sizes = ",".join(str(given.size // share) for share in (8, 4, 2, 1))
    options = ["--sizes", sizes, "--seeds", str(given.repeats)]
    seconds, peak = watched([sys.executable, "-m", "bigkpca.cli", "compare", data, str(out), *options])
    shown = table(
        f"bigkpca compare, MNIST, {given.rows} rows, sizes {sizes}, {given.repeats} seeds",
        ["seconds", "peak MB of all processes", "fits"],
        [[f"{seconds:.0f}", f"{peak:.0f}", len((out / "compare.csv").read_text().splitlines()) - 1]],
    )
    return Results((shown,))


if __name__ == "__main__":
    main()
