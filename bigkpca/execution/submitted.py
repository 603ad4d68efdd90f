"""Commands that run on a Dask cluster itself, and continue when the computer that submitted them is switched off.

A submitted command is one task. It starts the command as a separate process on the worker that runs it, and this
process runs its passes on the same cluster. If the worker dies, Dask gives the task to another one, where the command
continues from what it saved. The state of a command is stored in the metadata of the scheduler, and is lost with it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.config

from bigkpca.data.stores import store_of
from bigkpca.errors import IncompleteError, SpecError

if TYPE_CHECKING:
    from distributed import Client, Future

_KEPT = "bigkpca-submitted"  # in the metadata of the scheduler
_LOOK_SECONDS = 1.0  # between two checks of a command
_END_SECONDS = 30.0  # for a command to end before it is killed
_CANCELLED = 130  # the exit code of a command that is cancelled before it starts, as with Ctrl-C
_PROGRESS = re.compile(r"^[^:]+: [\d,]+( of [\d,]+)? rows\b")


@dataclass(frozen=True)
class Submitted:
    """A submitted command. state: waiting, running, finished, failed or cancelled. progress: the last line of progress.
    message: the last other line. exit_code: None before it ends."""

    name: str
    command: str
    state: str
    progress: str
    exit_code: int | None
    message: str
    submitted: str


def submit(client: Client, words: Sequence[str], name: str | None, *, on_cluster: bool) -> tuple[str, Future[int]]:
    """Submit the command `bigkpca` with these words. Returns its name, and a future of its exit code. It continues
    without a client. on_cluster: whether it accepts --scheduler, and should run on the same cluster. Raises SpecError
    for a name in use."""
    name = name or f"{words[0]}-{uuid4().hex[:6]}"
    if name in _kept(client):
        raise SpecError(f"{name} is the name of an earlier submitted command: choose another one with --name")
    about = {"command": shlex.join(words), "submitted": datetime.now(UTC).isoformat(timespec="seconds")}
    client.set_metadata([_KEPT, name], about)
    future = client.submit(_run, name, list(words), os.getcwd(), on_cluster, key=f"{_KEPT}-{name}", pure=False)
    client.publish_dataset(future, name=f"{_KEPT}-{name}")  # so that it outlives this client
    return name, future


def submitted(client: Client) -> list[Submitted]:
    """All commands that were submitted to the cluster of a client, in order of submission."""
    found = [_find(client, name) for name in _kept(client)]
    return sorted(found, key=lambda each: each.submitted)


def cancel(client: Client, name: str) -> None:
    """End a command as Ctrl-C does, or before it begins. Raises SpecError for a name that no command has."""
    if _find(client, name).exit_code is None:
        client.set_metadata([_KEPT, name, "cancelled"], True)


def wait(client: Client, name: str, show: Callable[[str], None]) -> int:
    """The exit code of a command, when it ends; `show` receives its lines. Raises SpecError for a name that no command
    has, IncompleteError if the scheduler goes away."""
    shown = 0.0  # time of the last line shown
    while True:
        found = _find(client, name)  # before the lines, so that no line is missing at the end
        with _answered(client):
            events = client.get_events(f"{_KEPT}-{name}")
        for at, event in events:  # Dask keeps the last thousand
            if at > shown:
                show(event["line"])
                shown = at
        if found.exit_code is not None:
            return found.exit_code
        sleep(_LOOK_SECONDS)


@contextmanager
def _answered(client: Client) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise IncompleteError(
            f"the scheduler is gone ({error}), and with it all submitted commands: start one again, and submit the "
            "same command again"
        ) from error


def _kept(client: Client) -> dict[str, Mapping[str, Any]]:
    with _answered(client):
        return client.get_metadata([_KEPT], default={})


def _find(client: Client, name: str) -> Submitted:
    known = _kept(client)
    if name not in known:
        others = ", ".join(sorted(known)) or "none"
        raise SpecError(f"{name} is not the name of a command that was submitted to this cluster; there are: {others}")
    about = dict(known[name])
    if about.get("exit_code") is None and _is_given_up(client, name):
        lost = {"exit_code": IncompleteError.exit_code, "message": "the workers that ran it died, one after another"}
        _AtWork(client, name, lambda _: None).note(**lost)
        about |= lost
    exit_code = about.get("exit_code")
    if exit_code == 0:
        state = "finished"
    elif about.get("cancelled") and (exit_code is not None or "worker" not in about):
        state = "cancelled"
    else:
        state = "failed" if exit_code is not None else "running" if "worker" in about else "waiting"
    command, at = about["command"], about["submitted"]
    return Submitted(name, command, state, about.get("progress", ""), exit_code, about.get("message", ""), at)


def _is_given_up(client: Client, name: str) -> bool:
    """Whether Dask gave up a command because too many workers that ran it died."""
    from distributed import wait as settled

    with client.as_current(), _answered(client), suppress(KeyError, TimeoutError):
        future = client.get_dataset(f"{_KEPT}-{name}")
        settled(future, timeout=0.2)  # or it is running
        return bool(future.status == "error")
    return False


def _run(name: str, words: Sequence[str], folder: str, on_cluster: bool) -> int:
    """The exit code of a command, run on the worker of this task, which accepts other tasks meanwhile."""
    from distributed import get_worker, worker_client

    worker = get_worker()
    with worker_client() as client:
        run = _AtWork(client, name, lambda line: worker.log_event(f"{_KEPT}-{name}", {"line": line}))
        about = _kept(client)[name]
        if (exit_code := about.get("exit_code")) is None:  # otherwise the worker that knew it is gone
            run.note(worker=worker.address)
            own = worker.security.get_tls_config_for_role("client")  # for a process that it starts
            tls = {"ca-file": own["ca_file"], "client": {"cert": own["cert"], "key": own["key"]}}
            comm = dask.config.merge(dask.config.get("distributed.comm"), {"tls": tls} if own["ca_file"] else {})
            configured = dask.config.serialize({"distributed": {"comm": comm}})
            where = ["--scheduler", worker.scheduler.address] if on_cluster else []
            exit_code = run.ended([words[0], *where, *words[1:]], folder, configured)
            run.note(exit_code=exit_code)
        if f"{_KEPT}-{name}" in client.list_datasets():
            client.unpublish_dataset(f"{_KEPT}-{name}")
    return int(exit_code)


@dataclass(frozen=True)
class _AtWork:
    """A running command; `tell` receives its lines."""

    client: Client
    name: str
    tell: Callable[[str], None]

    def note(self, **values: Any) -> None:
        for key, value in values.items():
            self.client.set_metadata([_KEPT, self.name, key], value)

    def ended(self, words: Sequence[str], folder: str, configured: str) -> int:
        """Run a command to its end, or until it is cancelled."""
        if self._cancelled():
            return _CANCELLED
        if not store_of(folder).is_folder(folder):
            self._show([f"note: the worker has no folder {folder}, where this was submitted: relative paths differ"])
            folder = os.getcwd()
        process = subprocess.Popen(
            [sys.executable, "-m", "bigkpca.cli.submit", *words],
            cwd=folder,
            env={**os.environ, "DASK_INTERNAL_INHERIT_CONFIG": configured},
            stdin=subprocess.PIPE,  # it is closed when this process dies, which ends the command
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        reading = Thread(target=self._show, args=(process.stdout,), daemon=True)
        reading.start()
        try:
            while process.poll() is None:
                sleep(_LOOK_SECONDS)
                if self._cancelled():
                    process.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_END_SECONDS)
                    break
        finally:
            process.kill()
            code = process.wait()
            reading.join(_END_SECONDS)
        if code < 0:
            self._show([f"the command was killed by {signal.Signals(-code).name}, as happens when memory runs out"])
        return code if code >= 0 else 128 - code

    def _cancelled(self) -> bool:
        return bool(_kept(self.client)[self.name].get("cancelled"))

    def _show(self, lines: Iterable[str]) -> None:
        for line in filter(str.strip, lines):
            with suppress(OSError, RuntimeError):  # the scheduler does not answer: the next lines may reach it
                self.tell(line.rstrip("\n"))
                self.note(**{"progress" if _PROGRESS.match(line) else "message": line.rstrip("\n")})
