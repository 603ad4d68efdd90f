"""One pass on a Dask cluster: how groups of tasks and values that they share get there, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from bigkpca.execution.on_graphs import itself
from bigkpca.execution.tasks import Given, Group, Shared, Task, run_group
from bigkpca.execution.watch import Watch
from bigkpca.execution.workers import CALL, Crew, UnfitWorker, known_workers, packed_call

if TYPE_CHECKING:
    from distributed import Client, Future, Worker

_ANSWER_SECONDS = 10.0  # that the scheduler gets for an answer
_COUNT_SECONDS = 5.0  # between two counts of workers
_REPORT_SECONDS = 0.3  # between two reports of a group
_GROUPS_PER_THREAD = 2  # at once: one at work, one that waits for it


@dataclass(frozen=True)
class _Bound:
    """How a task was sent: the workers that may take it, None for any, and how many were known to be unfit then."""

    workers: tuple[str, ...] | None
    unfit: int


@dataclass
class ClusterRun:
    """One pass on a cluster: what is pending, and what reaches it while it waits."""

    client: Client
    scheduler: Any  # Dask's handle of it
    crew: Crew
    watch: Watch
    done: Callable[[int], None]
    topic: str = field(default_factory=lambda: f"bigkpca-{uuid4().hex}")
    finished: SimpleQueue[list[int]] = field(default_factory=SimpleQueue)
    workers: dict[str, int] = field(default_factory=dict)  # with their threads, when they were counted
    counted: float = -inf
    shared: dict[int, Future[Any]] = field(default_factory=dict)
    pending: dict[Future[Any], Group] = field(default_factory=dict)
    bounds: dict[Future[Any], _Bound] = field(default_factory=dict)  # of what is pending and shared
    held: list[Group] = field(default_factory=list)  # that wait for a worker that may take them


@contextmanager
def running(client: Client, crew: Crew, watch: Watch, done: Callable[[int], None]) -> Iterator[ClusterRun]:
    """A pass that learns of each task that ends, and lets go of what is pending when it is left."""
    scheduler: Any = client.scheduler
    if scheduler is None:
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    run = ClusterRun(client, scheduler, crew, watch, done)
    client.subscribe_topic(run.topic, lambda event: run.finished.put(event[1]))
    try:
        yield run
    finally:
        run.pending.clear()  # which tells the scheduler, and does not wait for it
        run.shared.clear()
        run.bounds.clear()
        with suppress(Exception):  # a client that is closed has its own errors, and the one on its way counts
            client.unsubscribe_topic(run.topic)


def window(run: ClusterRun) -> int:
    """Groups that may be pending: enough for all threads there are, which may come and go."""
    count(run)
    return max(2, _GROUPS_PER_THREAD * sum(run.workers[address] for address in run.crew.fit(run.workers)))


def count(run: ClusterRun) -> None:
    """Count the workers, if some time has passed. Where all those that something was bound to are gone, what is pending
    is held, to be sent again."""
    if monotonic() < run.counted + _COUNT_SECONDS:
        return
    with suppress(IncompleteError):  # whether the scheduler hangs is for the watch to say
        workers = known_workers(run.client, _ANSWER_SECONDS)
        run.workers = {address: worker["nthreads"] for address, worker in workers.items()}
        if run.workers.keys() - run.crew.looked - run.crew.unfit.keys():
            look(run)
        if any(bound.workers and run.workers.keys().isdisjoint(bound.workers) for bound in run.bounds.values()):
            hold(run, list(run.pending))
            forget_shared(run)
    run.counted = monotonic()


def look(run: ClusterRun) -> None:
    """Look at workers that joined. What was sent where one of them could take it, and turns out unfit, is held to be
    sent again: a worker that lacks the package does not fail at a value that it cannot unpickle, but waits forever."""
    crew, before = run.crew, set(run.crew.unfit)
    try:
        crew.look(run.client, _ANSWER_SECONDS)
    except IncompleteError:  # one of them hangs, and takes no tasks
        crew.looked.update(run.workers)
    unfit = crew.unfit.keys() - before
    if unfit:
        crew.tell()
        open_to = [future for future in run.pending if not unfit.isdisjoint(run.bounds[future].workers or unfit)]
        hold(run, open_to)
        forget_shared(run)


def hold(run: ClusterRun, futures: Sequence[Future[Any]]) -> None:
    """Take back what was sent, to send it again."""
    for future in futures:
        run.held.append(run.pending.pop(future))
        run.bounds.pop(future, None)
    run.held.sort(key=lambda group: group.first)


def forget_shared(run: ClusterRun) -> None:
    """Send shared values again with what needs them next."""
    for future in run.shared.values():
        run.bounds.pop(future, None)
    run.shared.clear()


def may_send(run: ClusterRun) -> bool:
    """Whether there is a worker that may take a task, or none of which something is known against it. Raises the error
    of an unfit worker where all are, and none ever was fit."""
    count(run)
    if not run.crew.unfit or run.crew.fit(run.workers):
        return True
    if not run.crew.worked:
        run.crew.check_any_fits(run.workers)
    return False


def bound(run: ClusterRun) -> _Bound:
    """The workers that may take what is sent now. Any, as long as all are fit: so those that join later take part."""
    crew = run.crew
    return _Bound(tuple(crew.fit(run.workers)) if crew.unfit else None, len(crew.unfit))


def is_worker_at_fault(run: ClusterRun, future: Future[Any], error: Exception) -> bool:
    """Whether a task failed because its worker does not meet the requirements, so that others can do it.

    Besides those that the task itself found, these are workers that could not even unpickle it: where it is not known
    which worker failed, those that joined later are looked at.
    """
    crew = run.crew
    sent = run.bounds[future]
    if isinstance(error, UnfitWorker):
        crew.met(error.worker, error.misfit)
        crew.tell()
    else:
        look(run)
        if len(crew.unfit) == sent.unfit:
            return False
    run.counted = -inf
    return True


def submitted(run: ClusterRun, group: Group) -> Future[Any]:
    futures: list[Future[Any]] = []

    def given(argument: Any) -> Any:
        if not isinstance(argument, Shared):
            return argument
        future = _shared(run, argument)
        if future not in futures:
            futures.append(future)
        return Given(futures.index(future))

    carried: dict[int, Carried] = {}  # by identity, so that rows that all tasks read are in the message once

    def packed(task: Task) -> Task:
        arguments = [given(argument) for argument in task.arguments]
        kept = [
            argument if isinstance(argument, Given) else carried.setdefault(id(argument), Carried(argument))
            for argument in arguments
        ]
        return replace(task, arguments=tuple(kept))

    sent = replace(group, tasks=tuple(map(packed, group.tasks)))
    key = f"{run.topic}-{group.first}-{uuid4().hex}"
    return call(run, key, futures, run_group_there, sent, run.topic)


def call(run: ClusterRun, key: str, values: Sequence[Future[Any]], function: Callable[..., Any], *given: Any) -> Any:
    """The future of function(values, *given) on a worker that meets the requirements."""
    to, names = bound(run), packed_call(run.crew.requirements, function, *given)
    with large_graphs():
        names["values"] = list(values)
        # None: without names of its own, beside these, which Dask fills in.
        future = run.client.submit(eval, CALL, None, names, key=key, pure=False, workers=to.workers)
    run.bounds[future] = to
    return future


def _shared(run: ClusterRun, value: Shared) -> Future[Any]:
    """A shared value on the cluster.

    Not scattered: scattered data are lost with their worker, what a task returns is made again. Workers get it from
    each other.
    """
    if id(value) not in run.shared:
        run.shared[id(value)] = call(run, f"{run.topic}-shared-{uuid4().hex}", [], itself, value.carried)
    return run.shared[id(value)]


def large_graphs() -> Any:
    """While entered, Dask does not warn of landmarks, components and rows in messages: they belong there."""
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"})


def run_group_there(values: Sequence[Carried], group: Group, topic: str) -> Carried:
    """The result of a group, on a worker."""
    from distributed import get_worker

    tasks = [replace(task, arguments=tuple(Given.filled(task.arguments, values))) for task in group.tasks]
    return run_group(replace(group, tasks=tuple(tasks)), _Reporter(get_worker(), topic))


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
