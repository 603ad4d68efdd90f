"""Dask clusters of real processes on loopback, which tests may stop and kill by their process ids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_WAIT_SECONDS = 40.0


@dataclass
class Processes:
    """A scheduler and workers without nannies, so that nothing starts them again."""

    folder: Path
    options: list[str]
    env: Mapping[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    address: str = ""

    def scheduler(self, port: int = 0) -> subprocess.Popen[bytes]:
        """Start a scheduler at a free port, or at this one, and wait until it is there."""
        file = self.folder / "scheduler.json"
        file.unlink(missing_ok=True)
        place = ["--host", "127.0.0.1", "--port", str(port), "--scheduler-file", str(file), "--no-dashboard"]
        process = self._start("scheduler", *place, *self.options)
        end = time.monotonic() + _WAIT_SECONDS
        while not file.exists() or not file.read_text():
            assert time.monotonic() < end, "the scheduler did not start"
            assert process.poll() is None, "the scheduler ended"
            time.sleep(0.05)
        self.address = json.loads(file.read_text())["address"]
        return process

    def worker(self, *options: str, prefix: tuple[str, ...] = (), **env: str) -> subprocess.Popen[bytes]:
        """Start a worker of one thread."""
        given = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--memory-limit", "0"]
        return self._start("worker", self.address, *given, *self.options, *options, prefix=prefix, **env)

    def _start(self, kind: str, *options: str, prefix: tuple[str, ...] = (), **env: str) -> subprocess.Popen[bytes]:
        command = [*prefix, sys.executable, "-m", "dask", kind, *options]
        log = (self.folder / f"{kind}-{len(self.started)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env={**os.environ, **self.env, **env}
            )
        self.started.append(process)
        return process


@contextmanager
def processes(folder: Path, *options: str, **env: str) -> Iterator[Processes]:
    """A scheduler; workers are started by the test. All are killed at the end, also those that are stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Processes(folder, list(options), env)
    try:
        found.scheduler()
        yield found
    finally:
        for process in found.started:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait(20)
