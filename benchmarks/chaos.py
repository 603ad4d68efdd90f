"""Kill workers, and commands themselves, with SIGKILL at random times, and compare with undisturbed runs.

`--kills 50` kills so many workers, and so many commands: of a fit and of a transform, on threads and on a cluster of
three worker processes. A killed worker is replaced; a killed command is run again. Times are drawn uniformly over the
time that an undisturbed command takes. Sums of a fit are saved after every block, so that kills meet that too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import bigkpca
from benchmarks.common import arguments, mnist, seconds_of
from benchmarks.results import Results, table
from bigkpca.ingesting import ingest
from tests.helpers.dask_processes import DaskProcesses
from tests.helpers.disks import tree_bytes

_BLOCKS = 36
_WORKERS = 3
_MOST_RERUNS = 5
_SECONDS = 300.0  # that a command may take
_DRIVER = """
import sys
import bigkpca.cli.fit, bigkpca.workflows.fit, bigkpca.workflows.transform
from bigkpca.cli import main
from bigkpca.workflows import checkpoints
checkpoints._EVERY_SECONDS = checkpoints._SHORT_SECONDS = 0.0
print("ready", flush=True)
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Work:
    """One command, what it writes when nothing disturbs it, and how long that takes."""

    folder: Path
    name: str
    words: tuple[str, ...]  # with OUT for the output
    wanted: dict[str, bytes]
    usual: float = 0.0

    @property
    def out(self) -> Path:
        return self.folder / "here" / "out.zarr"

    def emptied(self) -> None:
        """Make its folder anew."""
        shutil.rmtree(self.out.parent, ignore_errors=True)
        self.out.parent.mkdir(parents=True)

    def start(self) -> subprocess.Popen[str]:
        """The command in a process of its own, which has imported all that it needs and begins now."""
        words = [str(self.out) if word == "OUT" else word for word in self.words]
        return started(words, self.folder)

    def timed(self) -> Work:
        """The same with the time that it takes, on workers that have run it before."""
        for _ in range(2):
            self.emptied()
            driver = self.start()
            usual = seconds_of(partial(exit_code, driver))
        assert tree_bytes(self.out) == self.wanted, errors(self.folder)
        return replace(self, usual=usual)

    def orphans(self) -> int:
        """The number of files and folders that are not part of the output."""
        found = self.out.parent.rglob("*")
        files = {path for path in found if path.is_file() or not path.is_relative_to(self.out)}
        return len(files - {self.out / name for name in self.wanted})


def errors(folder: Path) -> str:
    """The end of what the last command printed."""
    return (folder / "stderr.txt").read_text(encoding="utf-8")[-300:]


def started(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    with (folder / "stderr.txt").open("w") as told:
        run = [sys.executable, "-c", _DRIVER, *command]
        driver = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=told, text=True)
    assert driver.stdout is not None
    driver.stdout.readline()
    return driver


def ended(driver: subprocess.Popen[str], seconds: float = _SECONDS) -> bool:
    """Whether a command ends in this time."""
    try:
        driver.communicate(timeout=max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return False
    return True


def exit_code(driver: subprocess.Popen[str]) -> int:
    """The exit code of a command; one that hangs is killed."""
    try:
        return driver.wait() if ended(driver) else 1
    finally:
        driver.kill()
        driver.wait()


def kill_workers(cluster: DaskProcesses, rng: np.random.Generator, work: Work, driver: subprocess.Popen[str]) -> int:
    """Kill two workers in the course of a command; the number of kills."""
    begun, kills = time.perf_counter(), 0
    for at in np.sort(rng.uniform(0, work.usual, 2)):
        if ended(driver, at - (time.perf_counter() - begun)):
            return kills
        cluster.kill_worker(int(rng.integers(_WORKERS - kills)))  # not one that has just been started
        cluster.start_worker()
        kills += 1
    return kills


def kill_command(rng: np.random.Generator, work: Work, driver: subprocess.Popen[str]) -> int:
    """Kill the command itself; the number of kills."""
    if ended(driver, rng.uniform(0, work.usual)):
        return 0
    driver.kill()
    return 1


def tallied(
    work: Work, disturb: Callable[[Work, subprocess.Popen[str]], int], most: int, ready: Callable[[], None]
) -> list[int]:
    """Run a command until it was disturbed so many times: kills, runs, runs with the same bytes, reruns, the most
    reruns of one command, files left behind, and seconds."""
    kills, runs, identical, orphans, reruns, begun = 0, 0, 0, 0, list[int](), time.perf_counter()
    while kills < most and runs < 4 * most:
        work.emptied()
        ready()
        driver = work.start()
        kills += disturb(work, driver)
        code, again, runs = exit_code(driver), 0, runs + 1
        while code and again < _MOST_RERUNS:
            if code > 0:
                print(f"{work.name} ended with {code}: {errors(work.folder)}", flush=True)
            code, again = exit_code(work.start()), again + 1
        reruns.append(again)
        identical += not code and tree_bytes(work.out) == work.wanted
        bigkpca.verify(work.out)
        orphans += work.orphans()
    return [kills, runs, identical, sum(reruns), max(reruns), orphans, round(time.perf_counter() - begun)]


def works(folder: Path, data: str, rows: int, size: int, scheduler: Sequence[str]) -> list[Work]:
    """A fit and a transform, compared with those on threads."""
    options = ["--block-rows", str(-(-rows // _BLOCKS)), "-q"]
    fit = ["--components", "10", "--size", str(size), "--seed", "3", "--refine", "2", *options]
    transform = ["--residual", *options]
    model, scores = str(folder / "model.zarr"), str(folder / "scores.zarr")
    if not scheduler:
        for command in (["fit", data, model, *fit], ["transform", model, data, scores, *transform]):
            assert not exit_code(started(command, folder)), errors(folder)
    where = "on a cluster" if scheduler else "on threads"
    fitting = ("fit", data, "OUT", *fit, *scheduler)
    transforming = ("transform", model, data, "OUT", *transform, *scheduler)
    return [
        Work(folder, f"a fit {where}", fitting, tree_bytes(model)).timed(),
        Work(folder, f"a transform {where}", transforming, tree_bytes(scores)).timed(),
    ]


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=1797, size=600, kills=50)
    folder, rng = given.folder.resolve() / "chaos", np.random.default_rng(0)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    digits = load_digits().data.astype(np.uint8)
    np.save(folder / "rows.npy", digits[: given.rows] if given.rows <= len(digits) else mnist()[: given.rows])
    data = ingest([folder / "rows.npy"], folder / "rows.zarr", block_rows=-(-given.rows // _BLOCKS)).path
    lines = []
    with DaskProcesses(folder / "cluster", _WORKERS) as cluster:
        on_threads = works(folder, data, given.rows, given.size, [])
        scheduler = ["--scheduler", cluster.address, "--timeout", "60 s"]
        on_cluster = works(folder, data, given.rows, given.size, scheduler)
        faults = [("worker", work, partial(kill_workers, cluster, rng)) for work in on_cluster]
        faults += [("command", work, partial(kill_command, rng)) for work in on_threads + on_cluster]
        for what, work, disturb in faults:
            kills = -(-given.kills // (2 if what == "worker" else 4))
            counts = tallied(work, disturb, kills, cluster.wait_for_workers)
            lines.append([f"SIGKILL of a {what}", work.name, *counts])
    header = ["fault", "during", "kills", "runs", "same bytes", "reruns", "most", "left behind", "seconds"]
    return Results((table(f"{given.kills} random kills of each kind, {given.rows} rows", header, lines),))


if __name__ == "__main__":
    main()
