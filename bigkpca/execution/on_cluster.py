"""Groups of tasks on a Dask cluster whose workers, and whose scheduler, may die or hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from queue import SimpleQueue
from time import monotonic
from typing import Any
from uuid import uuid4

import dask.config
from dask.delayed import Delayed
from distributed import Client, Future, KilledWorker, Worker, get_worker, wait
from distributed.client import FutureCancelledError, FuturesCancelledError

from bigkpca.errors import IncompleteError
from bigkpca.execution.carried import Carried
from bigkpca.execution.tasks import Group, Shared, Task, run_group, tree_sum
from bigkpca.execution.watch import POLL_SECONDS, Watch, stalled_error, within
from bigkpca.execution.workers import known_workers

_ANSWER_SECONDS = 10.0  # that the scheduler gets for an answer
_COUNT_SECONDS = 5.0  # between two counts of workers
_RESULT_SECONDS = 30.0  # that a result may take on its way
_REPORT_SECONDS = 0.3  # between two reports of a group
_GROUPS_PER_THREAD = 2  # at once: one at work, one that waits for it


@dataclass(frozen=True)
class _Sent:
    """The place of a shared value among the arguments that follow a group."""

    number: int


@dataclass
class _Run:
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
def _running(client: Client, watch: Watch, done: Callable[[int], None]) -> Iterator[_Run]:
    """A pass that hears of each task that ends, and lets go of what is pending when it is left."""
    scheduler: Any = client.scheduler
    if scheduler is None:
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    run = _Run(client, scheduler, watch, done)
    client.subscribe_topic(run.topic, lambda event: run.finished.put(event[1]))
    try:
        yield run
    finally:
        run.pending.clear()  # which tells the scheduler, and does not wait for it
        run.shared.clear()
        with suppress(Exception):  # a client that is closed has its own errors, and the one on its way counts
            client.unsubscribe_topic(run.topic)


def on_cluster(
    client: Client, groups: Iterator[Group], watch: Watch, done: Callable[[int], None]
) -> Iterator[tuple[Group, Carried]]:
    """Groups with their results, as they end; `done` hears the number of each task, once or more.

    A group whose worker died runs again elsewhere. One that is blamed for the death of several workers is tried again
    after all others, task by task and alone: it may have been another task's fault. Raises IncompleteError for tasks
    that kill their worker then, too, for a scheduler that is gone, and if nothing ends for too long.
    """
    blamed: list[Group] = []
    killers: list[Group] = []
    with _running(client, watch, done) as run:
        yield from _results(run, groups, None, blamed)
        run.shared.clear()  # a shared value may have been blamed, too
        for group in sorted(blamed, key=lambda group: group.first):
            found = {task.first: value for task, value in _results(run, iter(group.alone()), 1, killers)}
            if len(found) == len(group.tasks):
                yield group, _joined(group, found)
    if killers:
        raise _quarantined(killers)


def graph_on_cluster(
    client: Client,
    nodes: Callable[[str], Sequence[Delayed]],
    groups: Sequence[Group],
    watch: Watch,
    done: Callable[[int], None],
) -> list[Carried]:
    """Values of the nodes of one graph, made for a topic that its tasks report to; `groups` say what each computes.
    Raises IncompleteError as `on_cluster`."""
    found: dict[int, Carried] = {}
    killers: list[Group] = []
    with _running(client, watch, done) as run:
        with _large_graphs():
            futures = client.compute(list(nodes(run.topic)), optimize_graph=False)
        run.pending |= dict(zip(futures, groups, strict=True))
        del futures
        found = {group.first: value for group, value in _results(run, iter(()), None, killers)}
    if killers:
        raise _quarantined(killers)
    return [found[group.first] for group in groups]


def _joined(group: Group, found: dict[int, Carried]) -> Carried:
    """The result of a group from those of its tasks alone."""
    parts = [found[group.first + i] for i in range(len(group.tasks))]
    if group.adds:
        return tree_sum(parts.__getitem__, 0, len(parts))
    return Carried([value for part in parts for value in part.value])


def _quarantined(killers: Sequence[Group]) -> IncompleteError:
    named = "; ".join(group.name for group in killers[:3]) + (" ..." if len(killers) > 3 else "")
    return IncompleteError(
        f"{len(killers)} of the tasks killed every worker that took them, also alone: {named}. Workers ran out of "
        "memory (allow them more, or take smaller blocks with --block-rows), or crashed: see the workers' logs. "
        "All other tasks are done; run the same command again when that is mended"
    )


def _results(
    run: _Run, groups: Iterator[Group], most: int | None, blamed: list[Group]
) -> Iterator[tuple[Group, Carried]]:
    """Groups with their results, at most `most` at once; those that kill workers are added to `blamed`."""
    waiting = True
    while waiting or run.pending:
        while waiting and len(run.pending) < (most or _window(run)):
            group = next(groups, None)
            if group is None:
                waiting = False
            else:
                run.pending[_submitted(run, group)] = group
        for future in _ended(run):
            group, (ended, found) = run.pending[future], _result(run, future)
            if not ended:
                continue
            del run.pending[future]
            run.watch.finished()
            if found is None:
                blamed.append(group)
                continue
            for number in range(group.first, group.first + len(group.tasks)):
                run.done(number)
            yield group, found


def _window(run: _Run) -> int:
    """Groups that may be pending: enough for all threads there are, who may come and go."""
    if monotonic() >= run.counted + _COUNT_SECONDS:
        with suppress(IncompleteError):  # whether the scheduler hangs is for the watch to say
            workers = known_workers(run.client, _ANSWER_SECONDS).values()
            run.threads = sum(worker["nthreads"] for worker in workers)
        run.counted = monotonic()
    return max(2, _GROUPS_PER_THREAD * run.threads)


def _submitted(run: _Run, group: Group) -> Future[Any]:
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
    with _large_graphs():
        return run.client.submit(_run_there, sent, run.topic, *futures, key=key, pure=False)


def _shared(run: _Run, value: Shared) -> Future[Any]:
    """A shared value on the cluster.

    Not scattered: scattered data are lost with their worker, what a task returns is made again. Workers get it from
    each other.
    """
    if id(value) not in run.shared:
        with _large_graphs():
            run.shared[id(value)] = run.client.submit(_itself, value.carried, key=f"{run.topic}-shared-{id(value)}")
    return run.shared[id(value)]


def _large_graphs() -> Any:
    """While entered, Dask does not warn of landmarks, components and rows in messages: they belong there."""
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"})


def _itself(value: Carried) -> Carried:
    return value


def _run_there(group: Group, topic: str, *values: Carried) -> Carried:
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


def _ended(run: _Run) -> list[Future[Any]]:
    """Futures that ended, after a second at most. Raises IncompleteError if nothing ends for too long."""
    # Futures that were cancelled are among those that ended.
    with suppress(TimeoutError, FuturesCancelledError), run.client.as_current():
        wait(list(run.pending), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
    while not run.finished.empty():
        for number in run.finished.get():
            run.done(number)
        run.watch.finished()
    if run.watch.look():
        raise stalled_error(run.watch, what_hangs(run))
    ended = [future for future in run.pending if future.status != "pending"]
    return sorted(ended, key=lambda future: run.pending[future].first)


def _result(run: _Run, future: Future[Any]) -> tuple[bool, Carried | None]:
    """Whether the result of a future is here or will never be, and the result; None if its task was blamed for the
    death of workers. Raises what the task raised."""
    if future.status in ("cancelled", "lost"):
        raise _gone(run)
    seconds = min(_RESULT_SECONDS, run.watch.seconds)
    try:
        if future.status == "error":
            error = future.exception(timeout=seconds)
            if isinstance(error, KilledWorker):
                return True, None
            if error is not None:
                raise error
        found: Carried = future.result(timeout=seconds)
    except KilledWorker:
        return True, None
    except (FutureCancelledError, FuturesCancelledError):
        raise _gone(run) from None
    except TimeoutError:
        if future.status == "error":
            raise  # it is the task's own
        # The worker that holds it hangs. If the scheduler gives that worker up, another one computes it again.
        if run.watch.look(seconds + _ANSWER_SECONDS):
            raise stalled_error(run.watch, what_hangs(run)) from None
        return False, None
    return True, found


def _gone(run: _Run) -> IncompleteError:
    return IncompleteError(
        f"the scheduler at {run.scheduler.address} is gone: start one again, and run the same command again"
    )


def what_hangs(run: _Run) -> str:
    """What is wrong with a cluster on which nothing finishes, in words."""
    silent = f"the scheduler at {run.scheduler.address} does not answer"

    def look() -> tuple[Any, Any]:
        return run.client.sync(run.scheduler.identity)["workers"], run.client.processing()

    try:
        workers, processing = within(_ANSWER_SECONDS, look, silent)
    except IncompleteError:
        return silent
    except Exception:  # of a connection that breaks, each transport has its own
        return f"the scheduler at {run.scheduler.address} is gone"
    if not workers:
        return f"no worker is connected to the scheduler at {run.scheduler.address}"
    paused = [address for address, worker in workers.items() if worker["status"] == "paused"]
    if len(paused) == len(workers):
        return f"all workers are paused, as their memory is full, for example {paused[0]}"
    groups = {future.key: group for future, group in run.pending.items()}
    busy = [(address, groups[key]) for address, keys in processing.items() for key in keys if key in groups]
    if busy:
        return "; ".join(f"{address} works on {group.name}" for address, group in busy[:3])
    return f"no worker of the scheduler at {run.scheduler.address} takes up tasks"
