"""Commands that run on a Dask cluster itself, and continue when the computer that submitted them is switched off.

A submitted command is one task: the function of the command, whose passes run on the same cluster. If its worker dies,
Dask gives the task to another one, where the command continues from what it saved. What it prints, and how it ended,
are events of the scheduler, and are lost with it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any, TextIO

from bigkpca.errors import IncompleteError, SpecError

if TYPE_CHECKING:
    from distributed import Client

_PREFIX = "bigkpca-job-"  # of the key of the task, and of the topic of its events
_JOBS = "bigkpca-jobs"  # the topic of the events of all commands
_LOOK_SECONDS = 1.0  # between two looks at the events of a command
_SENDING_SECONDS = 0.05  # between two looks at whether a command arrived

Function = Callable[[Mapping[str, Any]], tuple[int, str]]


@dataclass(frozen=True)
class Job:
    """A submitted command. state: waiting, running, finished or failed. exit_code: None before it ends. message: the
    reason of a failure, otherwise the last line that it printed."""

    name: str
    command: str
    state: str
    exit_code: int | None
    message: str


def submit(client: Client, name: str, command: str, function: Function, options: Mapping[str, Any]) -> None:
    """Submit function(options), which returns an exit code and a message. The task continues without the client. Raises
    SpecError for a name in use."""
    from distributed import fire_and_forget

    if name in _events(client):
        raise SpecError(f"{name} is the name of an earlier submitted command: choose another one with --name")
    client.log_event(_JOBS, {"name": name, "command": command})
    future = client.submit(_run, name, function, dict(options), key=f"{_PREFIX}{name}", pure=False)
    fire_and_forget(future)
    while future.key not in _answer(client.run_on_scheduler, _states):  # it was sent, and may not have arrived
        sleep(_SENDING_SECONDS)


def jobs(client: Client) -> list[Job]:
    """All commands that were submitted to the cluster of a client, in order of submission."""
    states = _answer(client.run_on_scheduler, _states)
    return [_job(client, about, states.get(f"{_PREFIX}{name}")) for name, about in _events(client).items()]


def wait(client: Client, name: str, show: Callable[[str], None]) -> int:
    """The exit code of a command, when it ends; `show` receives its lines."""
    shown = 0.0  # time of the last line shown
    while True:
        found = {job.name: job for job in jobs(client)}  # before the lines, so that no line is missing at the end
        if name not in found:
            others = ", ".join(sorted(found)) or "none"
            raise SpecError(f"{name} is not the name of a command that was submitted to this cluster: {others}")
        for at, line in _lines(client, name):
            if at > shown:
                show(line)
                shown = at
        if (code := found[name].exit_code) is not None:
            return code
        sleep(_LOOK_SECONDS)


def _job(client: Client, about: dict[str, Any], task: str | None) -> Job:
    """A command of whose task the scheduler knows this state."""
    name, lines = about["name"], _lines(client, about["name"])
    code, message = about.get("exit_code"), about.get("message") or (lines[-1][1] if lines else "")
    if code is None and task not in (None, "erred"):
        return Job(name, about["command"], "running" if task == "processing" else "waiting", None, message)
    if code is None:
        code = IncompleteError.exit_code
        message = "it ended without a result, e.g. since the workers that ran it died: see their logs"
    return Job(name, about["command"], "failed" if code else "finished", code, message)


def _states(dask_scheduler: Any) -> dict[str, str]:
    """The states of the tasks of submitted commands that the scheduler knows, by their keys."""
    return {key: task.state for key, task in dask_scheduler.tasks.items() if str(key).startswith(_PREFIX)}


def _events(client: Client) -> dict[str, dict[str, Any]]:
    """What was reported of each submitted command, by its name."""
    found: dict[str, dict[str, Any]] = {}
    for _, event in _answer(client.get_events, _JOBS):
        found.setdefault(event["name"], {}).update(event)
    return found


def _lines(client: Client, name: str) -> list[tuple[float, str]]:
    """The last lines that a command printed, each with its time."""
    return [(at, event["line"]) for at, event in _answer(client.get_events, f"{_PREFIX}{name}")]


def _answer(ask: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except (OSError, RuntimeError, UnboundLocalError) as error:  # the last, if Dask closes the client during a request
        raise IncompleteError(
            f"the scheduler is gone ({error}), and with it all submitted commands: start one again, and submit the "
            "same command again"
        ) from error


def _run(name: str, function: Function, options: dict[str, Any]) -> int:
    """The exit code of a command. The worker accepts other tasks, such as those of its passes, meanwhile."""
    from distributed import get_worker, worker_client

    worker = get_worker()
    if "memory" in options and options["memory"] is None:
        options["memory"] = worker.memory_manager.memory_limit or None

    def tell(line: str) -> None:
        worker.log_event(f"{_PREFIX}{name}", {"line": line})

    with worker_client() as client, client.as_current(), _printing(tell):
        code, message = function(options)
    worker.log_event(_JOBS, {"name": name, "exit_code": code, "message": message})
    return code


_tell: ContextVar[Callable[[str], None] | None] = ContextVar("_tell", default=None)


class _Lines(io.TextIOBase):
    """A stream of which lines of submitted commands become events, each of its own; others print as before."""

    encoding = "utf-8"

    def __init__(self, before: TextIO) -> None:
        self._before = before

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("a text stream")  # which click finds out by this
        if (tell := _tell.get()) is None:
            return self._before.write(text)
        for line in filter(str.strip, text.splitlines()):
            tell(line)
        return len(text)

    def flush(self) -> None:
        self._before.flush()


@contextmanager
def _printing(tell: Callable[[str], None]) -> Iterator[None]:
    """While entered, `tell` receives what this thread prints."""
    if not isinstance(sys.stdout, _Lines):
        sys.stdout, sys.stderr = _Lines(sys.stdout), _Lines(sys.stderr)
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)
