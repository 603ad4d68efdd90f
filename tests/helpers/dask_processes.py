"""A Dask scheduler and workers as processes of their own on this machine, which can be killed one by one."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Self

import pytest
from distributed import Client

from tests.helpers.files import ROOT

_QUIET = {"DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


# What a worker without bigkpca, and one with another version of it, have.
OTHER = """
import importlib.metadata
real = importlib.metadata.version
importlib.metadata.version = lambda name: "0.0.7" if name == "bigkpca" else real(name)
"""
BLOCKING = (
    OTHER.replace('"0.0.7" if', 'real("no such package") if')
    + """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "bigkpca":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Without())
"""
)


def hiding(folder: Path) -> list[str]:
    """A command whose processes see an empty folder there."""
    if user := os.geteuid():
        pytest.skip(f"to hide a path takes root, not user {user}")
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs "$0" && exec "$@"', str(folder)]


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what other processes do."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited for {seconds:g} seconds"
        time.sleep(0.02)


class DaskProcesses:
    """`dask scheduler` and `dask worker`, on ports that are free. They end with the context, or minutes after it."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        within: Sequence[str] = (),  # a command that starts workers
        tls: Sequence[str] = (),  # options of the scheduler and of workers
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._count, self._options, self._within = folder, workers, list(options), list(within)
        self._tls = ["--protocol", "tls", *tls] if tls else []
        # What this process set for its own workers, as LocalCluster does, is not for these.
        inherited = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self._env = {**os.environ, **inherited, **_QUIET, **(env or {})}
        self._all: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = ""

    def __enter__(self) -> Self:
        try:
            self._start_scheduler()
            self.replace_dead()
            if self._count:
                self.wait_for_workers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all processes, and wait for them."""
        for process in self._all:
            process.kill()
        for process in self._all:
            process.wait(60)

    def _start_scheduler(self) -> None:
        told = self.folder / "scheduler.json"
        told.unlink(missing_ok=True)
        options = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", "--idle-timeout", "900"]
        self.scheduler = self._started(["scheduler", *options, *self._tls, "--scheduler-file", str(told)])
        wait_until(lambda: told.exists() and told.read_text().rstrip().endswith("}"))
        self.address = json.loads(told.read_text())["address"]

    def start_worker(
        self, within: Sequence[str] | None = None, memory: str = "0", **env: str
    ) -> subprocess.Popen[bytes]:
        """Start one more worker, by another command if one is given, and do not wait for it."""
        options = ["--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "60"]
        local = ["--local-directory", str(self.folder), "--memory-limit", memory]
        command = ["worker", self.address, *options, *local, *self._tls, *self._options]
        self.workers.append(self._started(command, self._within if within is None else within, env))
        return self.workers[-1]

    def _started(
        self, arguments: list[str], within: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{arguments[0]}-{len(self._all)}.log").open("wb") as log:
            command = [*within, sys.executable, "-m", "dask", *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**self._env, **(env or {})})
        self._all.append(process)
        return process

    def kill_worker(self, number: int) -> None:
        """Send SIGKILL to a worker, and wait until it is gone."""
        worker = self.workers.pop(number)
        worker.kill()
        worker.wait(60)

    @contextmanager
    def revived(self) -> Iterator[None]:
        """While entered, a worker is started in place of each that dies."""
        stop = Event()

        def watch() -> None:
            while not stop.wait(0.05):
                self.replace_dead()

        thread = Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def replace_dead(self) -> None:
        """Start a worker in place of each that died, and for those that never came."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        for _ in range(self._count - len(self.workers)):
            self.start_worker()

    def wait_for_workers(self) -> None:
        """Wait until the scheduler knows as many workers as run here."""
        with Client(self.address, set_as_default=False) as client:
            wait_until(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == len(self.workers))
