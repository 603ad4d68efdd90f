"""The benchmarks of `python -m benchmarks`. Each runs in a separate process; one that fails does not stop the next.

A benchmark is a file with a function `main`, which yields tables and targets. Its parameters are its options, with
their values at full size as defaults, and the folder of its data.
"""

import os
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from multiprocessing import get_context
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.results import Results, Target


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, with its rows, landmarks or features, and own options at toy size."""

    name: str
    rows: int
    size: int
    own: Mapping[str, int] = field(default_factory=dict)

    @property
    def toy(self) -> dict[str, int]:
        """Its options at toy size."""
        return {"rows": self.rows, "size": self.size, "repeats": 1, **self.own}


CENTRAL = (  # those of docs/benchmarks.md
    Benchmark("peers", 3000, 250),
    Benchmark("share_of_pass", 3000, 120),
    Benchmark("fit_pass", 3000, 120),
    Benchmark("startup", 300, 120),
    Benchmark("serving", 3000, 120),
    Benchmark("exact", 3000, 120),
    Benchmark("memory", 3000, 120),
    Benchmark("accuracy", 500, 100, {"draws": 2}),
    Benchmark("scale", 3000, 120),
)
FURTHER = (  # those of other pages
    Benchmark("classifier", 400, 120),
    Benchmark("denoise", 1000, 300),
    Benchmark("device", 3000, 120),
    Benchmark("flights", 3000, 120),
    Benchmark("nights", 3000, 120),
    Benchmark("processors", 400, 60),
    Benchmark("reconstruction", 300, 60),
    Benchmark("scaling", 3000, 120),
    Benchmark("subspace", 400, 60),
    Benchmark("unusual_rows", 500, 60, {"classes": 1}),
)


@dataclass(frozen=True)
class Outcome:
    """The results of a benchmark or its error, its seconds, and how many cores other programs kept busy meanwhile."""

    name: str
    seconds: float
    results: Results | None
    error: str | None = None
    others: float = 0.0


def called(main: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What a function returns for those of the options that are among its parameters."""
    known = signature(main).parameters
    return main(**{name: value for name, value in options.items() if name in known})


def run(name: str, options: Mapping[str, Any]) -> Results:
    """Run the benchmark of a name in this process, with those of the options that it has, and print its tables."""
    tables, targets = [], []
    for found in called(import_module(f"benchmarks.{name}").main, options):
        if isinstance(found, Target):
            targets.append(found)
        else:
            tables.append(found)
            print(f"\n{found.printed()}", flush=True)
    return Results(tuple(tables), tuple(targets))


def outcome(name: str, options: Mapping[str, Any]) -> Outcome:
    """Run a benchmark in a process of its own, so that neither its memory nor a crash reaches the next one."""
    print(f"\n== {name}", flush=True)
    started, busy = time.monotonic(), _seconds_of_others()
    found, failure = None, None
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(run, name, options).result()
    except (Exception, SystemExit) as error:
        traceback.print_exception(error)
        failure = traceback.format_exception_only(error)[-1].strip()
    seconds = time.monotonic() - started
    return Outcome(name, seconds, found, failure, max(_seconds_of_others() - busy, 0.0) / seconds)


def _seconds_of_others() -> float:
    """CPU seconds since the machine started, without those of this process and of ended ones that it started."""
    return sum(psutil.cpu_times()[:3]) - sum(os.times()[:4])  # of users, with other priorities, of the system
