"""The benchmarks that one command runs, each in a process of its own, and what came of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context

from benchmarks.common import seconds_of
from benchmarks.machine import cores_of_others
from benchmarks.results import Results


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, its rows and landmarks or features at toy size, and options of its own there."""

    name: str
    rows: int
    size: int
    own: tuple[str, ...] = ()

    @property
    def toy(self) -> tuple[str, ...]:
        """Its options at toy size."""
        return ("--rows", str(self.rows), "--size", str(self.size), "--repeats", "1", *self.own)


CENTRAL = (  # speed, memory and accuracy
    Benchmark("peers", 3000, 250),
    Benchmark("share_of_pass", 3000, 120),
    Benchmark("fit_pass", 3000, 120),
    Benchmark("startup", 300, 120),
    Benchmark("serving", 3000, 120),
    Benchmark("residual", 3000, 120),
    Benchmark("random_features", 1000, 2000, ("--features", "256")),
    Benchmark("exact", 3000, 120),
    Benchmark("device", 3000, 120),
    Benchmark("memory", 3000, 120),
    Benchmark("containers", 3000, 120),
    Benchmark("accuracy", 3000, 150, ("--draws", "2")),
    Benchmark("landmarks", 500, 100),
    Benchmark("checkpoints", 3000, 120),
    Benchmark("scaling", 3000, 120),
    Benchmark("scale", 3000, 120),
)
FURTHER = (  # about something else, and slow
    Benchmark("chaos", 1000, 120, ("--kills", "4")),
    Benchmark("classifier", 400, 120),
    Benchmark("comparison", 1000, 120),
    Benchmark("denoise", 1000, 300),
    Benchmark("drift", 500, 120),
    Benchmark("exact_held", 2200, 120),
    Benchmark("flights", 3000, 120),
    Benchmark("nights", 3000, 120, ("--night", "2000")),
    Benchmark("processors", 400, 60),
    Benchmark("reconstruction", 300, 60),
    Benchmark("subspace", 400, 60),
    Benchmark("unusual_rows", 300, 60, ("--classes", "1")),
)


@dataclass(frozen=True)
class Outcome:
    """What came of one benchmark: its results, or why it has none. commit: of the code, where it ran before others;
    others: cores that other programs kept busy meanwhile."""

    name: str
    seconds: float
    results: Results | None
    error: str | None
    commit: str | None = None
    others: float | None = None


def run(name: str, argv: Sequence[str]) -> Results:
    """Run the benchmark of a name here."""
    found: Results = import_module(f"benchmarks.{name}").main(argv)
    return found


def in_own_process(name: str, argv: Sequence[str]) -> Results:
    """Run the benchmark of a name in a process of its own, so that neither memory nor a crash reaches another."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, name, argv).result()


def outcomes(
    chosen: Sequence[Benchmark],
    argv_of: Callable[[Benchmark], Sequence[str]],
    runner: Callable[[str, Sequence[str]], Results] = in_own_process,
) -> Iterator[Outcome]:
    """Run one benchmark after the other; one that fails does not end the others."""
    for each in chosen:
        print(f"\n== {each.name}", flush=True)
        yield _outcome(each.name, argv_of(each), runner)


def _outcome(name: str, argv: Sequence[str], runner: Callable[[str, Sequence[str]], Results]) -> Outcome:
    found: list[Results] = []
    errors: list[str] = []

    def attempt() -> None:
        try:
            found.append(runner(name, argv))
        except (Exception, SystemExit) as error:
            traceback.print_exception(error)
            errors.append(traceback.format_exception_only(error)[-1].strip())

    others = cores_of_others()
    took = seconds_of(attempt)
    return Outcome(name, took, next(iter(found), None), next(iter(errors), None), others=others())
