"""Seconds and memory of what benchmarks compare."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.results import as_cell
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import mean_features, sums_of
from bigkpca.fitting.features import choose_features
from bigkpca.fitting.sample import draw_sample, scaled_columns
from bigkpca.fitting.solve import rounding_of
from bigkpca.spec import FitSpec, resolve

COMMAND = "import sys; from bigkpca.cli import main; main(sys.argv[1:], standalone_mode=False)"
_PRINT_PEAK = """
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def interleaved(repeats: int, **sides: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds of each side, measured in turn A B B A A B ... so that a drift of the machine, and what one side leaves
    behind for the next, affect all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(repeats):
        for name in reversed(sides) if number % 2 else sides:
            seconds[name].append(sides[name]())
    return seconds


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def fit_pass(path: str, size: int, sigma: float, **options: Any) -> tuple[Rows, Callable[[Engine], float]]:
    """The rows of a fit of `size` k-means landmarks, and the seconds of its pass on an engine."""
    rows = open_rows(path)
    fit, engine = resolve(FitSpec.checked(size=size, sigma=sigma, **options), rows), Engine(threads=2)
    sample = draw_sample(rows, fit, engine)
    features = choose_features(sample, scaled_columns(sample, fit, engine), fit, engine)
    shift = mean_features(features, sample.probes.X)
    rounding = rounding_of(features, sample.probes.X, shift, engine).of(features.dtype)
    return rows, lambda engine: seconds_of(lambda: sums_of(rows, features, shift, rounding, None, engine))


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratios of neighbouring runs."""
    return [a / b for a, b in zip(above, below, strict=True)]


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the ratios of neighbouring runs."""
    return statistics.median(ratios(above, below))


def spread(values: Sequence[float]) -> str:
    """The least and the most of the values."""
    return f"{as_cell(min(values))} to {as_cell(max(values))}"


def child(code: str, *argv: str) -> tuple[str, float]:
    """Run Python code in a process of its own: what it printed, and its peak resident memory in MB.

    The peak is the process's own high-water mark: the ru_maxrss of a child starts at its parent's size. RuntimeError
    if the process fails; its messages go to the standard error of this process.
    """
    run = subprocess.run([sys.executable, "-c", code + _PRINT_PEAK, *argv], stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise RuntimeError(f"a process of the benchmark ended with exit code {run.returncode}; its message is above")
    output, _, peak = run.stdout.rstrip().rpartition("\n")
    return output, int(peak) * 1024 / 1e6
