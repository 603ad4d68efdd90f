"""One pass on a Dask cluster: how groups of tasks and values that they share get there, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.config

from bigkpca.errors import IncompleteError
from bigkpca.execution.carried import Carried
from bigkpca.execution.tasks import Group, Shared, Task, run_group
from bigkpca.execution.watch import Watch
from bigkpca.execution.workers import known_workers

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

_ANSWER_SECONDS = 10.0  # that the scheduler gets for an answer
_COUNT_SECONDS = 5.0  # between two counts of workers
_REPORT_SECONDS = 0.3  # between two reports of a group
_GROUPS_PER_THREAD = 2  # at once: one at work, one that waits for it


@dataclass(frozen=True)
class _Sent:
    """The place of a shared value among the arguments that follow a group."""

    number: int


@dataclass
class ClusterRun:
    """One pass on a cluster: what is pending, and what reaches it while it waits."""

    client: Client
    scheduler: Any  # Dask's handle of it
    watch: Watch
    done: Callable[[int], None]
    topic: str = field(default_factory=lambda: f"bigkpca-{uuid4().hex}")
    finished: SimpleQueue[list[int]] = field(default_factory=SimpleQueue)
    threads: int = 0  # of all workers, when they were counted
    counted: float = -inf
    shared: dict[int, Future[Any]] = field(default_factory=dict)
    pending: dict[Future[Any], Group] = field(default_factory=dict)


@contextmanager
def running(client: Client, watch: Watch, done: Callable[[int], None]) -> Iterator[ClusterRun]:
    """A pass that hears of each task that ends, and lets go of what is pending when it is left."""
    scheduler: Any = client.scheduler
    if scheduler is None:
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    run = ClusterRun(client, scheduler, watch, done)
    client.subscribe_topic(run.topic, lambda event: run.finished.put(event[1]))
    try:
        yield run
    finally:
        run.pending.clear()  # which tells the scheduler, and does not wait for it
        run.shared.clear()
        with suppress(Exception):  # a client that is closed has its own errors, and the one on its way counts
            client.unsubscribe_topic(run.topic)


def window(run: ClusterRun) -> int:
    """Groups that may be pending: enough for all threads there are, who may come and go."""
    if monotonic() >= run.counted + _COUNT_SECONDS:
        with suppress(IncompleteError):  # whether the scheduler hangs is for the watch to say
            workers = known_workers(run.client, _ANSWER_SECONDS).values()
            run.threads = sum(worker["nthreads"] for worker in workers)
        run.counted = monotonic()
    return max(2, _GROUPS_PER_THREAD * run.threads)


def submitted(run: ClusterRun, group: Group) -> Future[Any]:
    futures: list[Future[Any]] = []

    def given(argument: Any) -> Any:
        if not isinstance(argument, Shared):
            return argument
        future = _shared(run, argument)
        if future not in futures:
            futures.append(future)
        return _Sent(futures.index(future))

    carried: dict[int, Carried] = {}  # by identity, so that rows that all tasks read are in the message once

    def packed(task: Task) -> Task:
        arguments = [given(argument) for argument in task.arguments]
        kept = [
            argument if isinstance(argument, _Sent) else carried.setdefault(id(argument), Carried(argument))
            for argument in arguments
        ]
        return replace(task, arguments=tuple(kept))

    sent = replace(group, tasks=tuple(map(packed, group.tasks)))
    key = f"{run.topic}-{group.first}-{uuid4().hex}"
    with large_graphs():
        return run.client.submit(_run_there, sent, run.topic, *futures, key=key, pure=False)


def _shared(run: ClusterRun, value: Shared) -> Future[Any]:
    """A shared value on the cluster.

    Not scattered: scattered data are lost with their worker, what a task returns is made again. Workers get it from
    each other.
    """
    if id(value) not in run.shared:
        with large_graphs():
            run.shared[id(value)] = run.client.submit(_itself, value.carried, key=f"{run.topic}-shared-{uuid4().hex}")
    return run.shared[id(value)]


def large_graphs() -> Any:
    """While entered, Dask does not warn of landmarks, components and rows in messages: they belong there."""
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"})


def _itself(value: Carried) -> Carried:
    return value


def _run_there(group: Group, topic: str, *values: Carried) -> Carried:
    from distributed import get_worker

    def task_with(task: Task) -> Task:
        arguments = [values[given.number] if isinstance(given, _Sent) else given for given in task.arguments]
        return replace(task, arguments=tuple(arguments))

    there = replace(group, tasks=tuple(map(task_with, group.tasks)))
    return run_group(there, _Reporter(get_worker(), topic))


class _Reporter:
    """Tells the driver which tasks ended, a few times a second: an event costs the scheduler as much as a task."""

    def __init__(self, worker: Worker, topic: str) -> None:
        self._worker, self._topic = worker, topic
        self._numbers: list[int] = []
        self._last = monotonic()

    def __call__(self, number: int) -> None:
        self._numbers.append(number)
        if monotonic() - self._last >= _REPORT_SECONDS:
            self._worker.log_event(self._topic, self._numbers)
            self._numbers, self._last = [], monotonic()
