"""Kill workers, and commands themselves, with SIGKILL at random times, and compare with what nobody disturbed.

    python -m benchmarks.chaos --kills 50

kills so many workers, and so many commands: of a fit and of a transform, on threads and on a cluster of three worker
processes. A worker that was killed is started again. Of a command that was killed, the same command is run again. Times
are drawn uniformly over the time that an undisturbed command takes from its first step on. Sums of a fit are saved
after every block, so that kills meet that too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

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


@dataclass
class Tally:
    """What kills of one kind did."""

    kills: int = 0
    runs: int = 0
    identical: int = 0
    reruns: int = 0
    most: int = 0  # reruns of one command
    orphans: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """One command, what it writes when nobody disturbs it, and how long that takes."""

    folder: Path
    name: str
    before: list[str]  # of the output
    after: list[str]
    wanted: dict[str, bytes]
    usual: float

    def start(self) -> subprocess.Popen[str]:
        return started([*self.before, str(self.out), *self.after], self.folder / "stderr.txt")

    @property
    def here(self) -> Path:
        return self.folder / "here"

    @property
    def out(self) -> Path:
        return self.here / "out.zarr"


def started(command: list[str], stderr: Path) -> subprocess.Popen[str]:
    """A command in a process of its own, which has imported all it needs and begins now."""
    with stderr.open("w") as errors:
        run = [sys.executable, "-c", _DRIVER, *command]
        driver = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=errors, text=True)
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


def left(driver: subprocess.Popen[str]) -> int:
    """The exit code of a command; one that hangs is killed."""
    try:
        return driver.wait() if ended(driver) else 1
    finally:
        driver.kill()
        driver.wait()


def work_of(folder: Path, name: str, before: list[str], after: list[str], wanted: dict[str, bytes]) -> Work:
    """A command with the time that it takes, on workers that have run it before."""
    trial = Work(folder, name, before, after, wanted, 0.0)
    for _ in range(2):
        shutil.rmtree(trial.here, ignore_errors=True)
        trial.here.mkdir(parents=True)
        driver = trial.start()
        usual = seconds_of(partial(left, driver))
    assert tree_bytes(trial.out) == wanted, (folder / "stderr.txt").read_text()
    return Work(folder, name, before, after, wanted, usual)


Disturb = Callable[[Work, "subprocess.Popen[str]"], int]  # returns the number of kills


def killed_workers(cluster: DaskProcesses, rng: np.random.Generator) -> Disturb:
    """Two kills of workers in the course of a command."""

    def disturb(work: Work, driver: subprocess.Popen[str]) -> int:
        begun, kills = time.perf_counter(), 0
        for at in np.sort(rng.uniform(0, work.usual, 2)):
            if ended(driver, at - (time.perf_counter() - begun)):
                return kills
            cluster.kill_worker(int(rng.integers(_WORKERS - kills)))  # not one that has just been started
            cluster.start_worker()
            kills += 1
        return kills

    return disturb


def killed_driver(rng: np.random.Generator) -> Disturb:
    """One kill of the command itself."""

    def disturb(work: Work, driver: subprocess.Popen[str]) -> int:
        if ended(driver, rng.uniform(0, work.usual)):
            return 0
        driver.kill()
        return 1

    return disturb


def tallied(work: Work, disturb: Disturb, kills: int, ready: Callable[[], None]) -> Tally:
    """Run a command until it was disturbed so many times."""
    found, begun = Tally(), time.perf_counter()
    while found.kills < kills and found.runs < 4 * kills:
        shutil.rmtree(work.here, ignore_errors=True)
        work.here.mkdir()
        ready()
        driver = work.start()
        found.kills += disturb(work, driver)
        found.runs += 1
        reruns, code = 0, left(driver)
        while code and reruns < _MOST_RERUNS:
            if code > 0:
                found.wrong.append(f"{work.name} ended with {code}: {(work.folder / 'stderr.txt').read_text()[-300:]}")
            code, reruns = left(work.start()), reruns + 1
        found.reruns += reruns
        found.most = max(found.most, reruns)
        found.identical += not code and tree_bytes(work.out) == work.wanted
        bigkpca.verify(work.out)
        found.orphans += sum(1 for path in work.here.rglob("*") if _orphaned(path, work))
    found.seconds = time.perf_counter() - begun
    return found


def _orphaned(path: Path, work: Work) -> bool:
    """Whether a file or folder is no part of the output."""
    if work.out not in (path, *path.parents):
        return True
    return path.is_file() and str(path.relative_to(work.out)) not in work.wanted


def dataset(folder: Path, rows: int) -> str:
    """So many digits: those of scikit-learn, or of MNIST where these are too few."""
    small = load_digits().data.astype(np.uint8)
    np.save(folder / "rows.npy", small[:rows] if rows <= len(small) else mnist()[:rows])
    return ingest([folder / "rows.npy"], folder / "rows.zarr", block_rows=-(-rows // _BLOCKS)).path


def works(folder: Path, data: str, given: Any, scheduler: list[str]) -> list[Work]:
    """A fit and a transform, compared with those on threads."""
    block = str(-(-given.rows // _BLOCKS))
    options = ["--block-rows", block, "-q"]
    fit = ["--components", "10", "--size", str(given.size), "--seed", "3", "--refine", "2", *options]
    transform = ["--residual", *options]
    model, scores = str(folder / "model.zarr"), str(folder / "scores.zarr")
    if not scheduler:
        for command in (["fit", data, model, *fit], ["transform", model, data, scores, *transform]):
            assert not left(started(command, folder / "stderr.txt")), (folder / "stderr.txt").read_text()
    where, wanted = "on a cluster" if scheduler else "on threads", tree_bytes(scores)
    return [
        work_of(folder, f"a fit {where}", ["fit", data], [*fit, *scheduler], tree_bytes(model)),
        work_of(folder, f"a transform {where}", ["transform", model, data], [*transform, *scheduler], wanted),
    ]


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=1797, size=600, kills=50)
    folder, rng = given.folder.resolve() / "chaos", np.random.default_rng(0)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data = dataset(folder, given.rows)
    rows: list[list[Any]] = []
    wrong: list[str] = []
    with DaskProcesses(folder / "cluster", _WORKERS) as cluster:
        on_threads = works(folder, data, given, [])
        on_cluster = works(folder, data, given, ["--scheduler", cluster.address, "--timeout", "60 s"])
        faults = [("worker", work, killed_workers(cluster, rng)) for work in on_cluster]
        faults += [("command", work, killed_driver(rng)) for work in on_threads + on_cluster]
        for what, work, disturb in faults:
            kills = -(-given.kills // (2 if what == "worker" else 4))
            found = tallied(work, disturb, kills, cluster.wait_for_workers)
            wrong += found.wrong
            counts = [found.kills, found.runs, found.identical, found.reruns, found.most, found.orphans]
            rows.append([f"SIGKILL of a {what}", work.name, *counts, round(found.seconds)])
    header = ["fault", "during", "kills", "runs", "same bytes", "reruns", "most", "left behind", "seconds"]
    tallies = table(f"{given.kills} random kills of each kind, {given.rows} rows", header, rows)
    print("\n".join(wrong))
    return Results((tallies,))


if __name__ == "__main__":
    main()
