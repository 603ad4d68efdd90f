"""The benchmarks of `python -m benchmarks`. Each runs in a separate process; one that fails does not stop the next."""

import os
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context

import psutil  # type: ignore[import-untyped]

from benchmarks.results import Results


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, with its rows, landmarks or features, and own options at toy size."""

    name: str
    rows: int
    size: int
    own: tuple[str, ...] = ()

    @property
    def toy(self) -> tuple[str, ...]:
        """Its options at toy size."""
        return ("--rows", str(self.rows), "--size", str(self.size), "--repeats", "1", *self.own)


CENTRAL = (  # those of docs/benchmarks.md
    Benchmark("peers", 3000, 250),
    Benchmark("share_of_pass", 3000, 120),
    Benchmark("fit_pass", 3000, 120),
    Benchmark("startup", 300, 120),
    Benchmark("serving", 3000, 120),
    Benchmark("exact", 3000, 120),
    Benchmark("memory", 3000, 120),
    Benchmark("accuracy", 500, 100, ("--draws", "2")),
    Benchmark("scale", 3000, 120),
)
FURTHER = (  # those of other pages
    Benchmark("classifier", 400, 120),
    Benchmark("denoise", 1000, 300),
    Benchmark("device", 3000, 120),
    Benchmark("flights", 3000, 120),
    Benchmark("nights", 3000, 120, ("--night", "2000")),
    Benchmark("processors", 400, 60),
    Benchmark("reconstruction", 300, 60),
    Benchmark("scaling", 3000, 120),
    Benchmark("subspace", 400, 60),
    Benchmark("unusual_rows", 500, 60, ("--classes", "1")),
)


@dataclass(frozen=True)
class Outcome:
    """The results of a benchmark or its error, its seconds, and how many cores other programs kept busy meanwhile."""

    name: str
    seconds: float
    results: Results | None
    error: str | None = None
    others: float = 0.0


def run(name: str, argv: Sequence[str]) -> Results:
    """Run the benchmark of a name in this process."""
    found: Results = import_module(f"benchmarks.{name}").main(argv)
    return found


def outcome(name: str, argv: Sequence[str]) -> Outcome:
    """Run a benchmark in a process of its own, so that neither its memory nor a crash reaches the next one."""
    print(f"\n== {name}", flush=True)
    started, busy = time.monotonic(), _seconds_of_others()
    found, failure = None, None
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(run, name, argv).result()
    except (Exception, SystemExit) as error:
        traceback.print_exception(error)
        failure = traceback.format_exception_only(error)[-1].strip()
    seconds = time.monotonic() - started
    return Outcome(name, seconds, found, failure, max(_seconds_of_others() - busy, 0.0) / seconds)


def _seconds_of_others() -> float:
    """CPU seconds since the machine started, without those of this process and of ended ones that it started."""
    return sum(psutil.cpu_times()[:3]) - sum(os.times()[:4])  # of users, with other priorities, of the system
