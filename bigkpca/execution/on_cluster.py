"""A pass on a Dask cluster. Dask runs its graph, and runs tasks again whose worker dies or that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import ceil, inf
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import dask.config

from bigkpca.data.rows import ArrayRows
from bigkpca.data.sparse import SparseRows
from bigkpca.errors import IncompleteError
from bigkpca.execution.graph import Graph, Key, Pass
from bigkpca.execution.progress import within
from bigkpca.execution.tasks import Placed, in_order, some_take
from bigkpca.execution.workers import address_of, known_workers, look, on_workers, scheduler_gone

if TYPE_CHECKING:
    from distributed import Client, Future

_RETRIES = 2  # of a task that fails
_MOST_BYTES = 2**30  # of rows in a graph: those in the memory of this process go to the scheduler with it
_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 10.0  # seconds for the scheduler to answer


def on_cluster(
    client: Client, given: Pass, seen: dict[str, str], timeout: float, done: Callable[[range], None]
) -> None:
    """Add to a pass what is missing. `seen` is what each worker must see (`seen_at`); `done` receives the numbers of
    the tasks that ended. Raises the error of a task that fails again and again, and IncompleteError for one that kills
    every worker, if the scheduler is gone, and if nothing ends for `timeout` seconds."""
    workers = known_workers(client, timeout) if some_take(given.tasks, Placed) else {}
    gpu = any("GPU" in worker["resources"] for worker in workers.values())
    arguments = (argument for task in given.tasks for argument in task.arguments)
    held = sum(each.held_bytes for each in arguments if isinstance(each, ArrayRows | SparseRows))
    nodes = given.missing()
    left = iter(nodes)
    while some := list(islice(left, ceil(len(nodes) * _MOST_BYTES / max(held, _MOST_BYTES)))):
        graph = given.graph(some, partial(_before_task, seen), adding=False)
        _Run(client, given, graph, {"GPU": 1} if gpu else None, timeout, address_of(client)).compute(done)


_begun = [-inf]  # when this process, a worker, last began a task


def _before_task(seen: dict[str, str]) -> None:
    for path, digest in seen.items():
        look(path, digest)
    _begun[0] = monotonic()


def _idle_here() -> float:
    """Seconds since this process, a worker, last began a task."""
    return monotonic() - _begun[0]


@dataclass
class _Run:
    """A graph on a cluster. ended: futures whose state changed; heard: when anything was last known to end."""

    client: Client
    given: Pass
    graph: Graph
    resources: dict[str, int] | None
    timeout: float
    address: str
    ended: SimpleQueue[Future[Any]] = field(default_factory=SimpleQueue)
    heard: float = field(default_factory=monotonic)

    def compute(self, done: Callable[[range], None]) -> None:
        from distributed import KilledWorker

        keys = list(dict.fromkeys([*self.graph.results, *self.graph.groups, *filter(None, [self.graph.end])]))
        # Dask warns of landmarks, components and rows in a graph, which belong there.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
            futures = self.client.get(self.graph.dsk, keys, sync=False, retries=_RETRIES, resources=self.resources)
        waiting = dict(zip(keys, futures, strict=True))
        for future in waiting.values():
            future.add_done_callback(self.ended.put)
        del futures
        try:
            while waiting:
                some = [future for future in self._some() if self._is_finished(future)]
                results = [future for future in some if future.key in self.graph.results]
                for future, value in zip(results, self._gathered(results), strict=True):
                    self.given.add(self.graph.results[future.key], in_order(value))
                for future in some:
                    del waiting[future.key]  # and with it the result of a group, once it is part of a sum
                    done(self.graph.groups.get(future.key, range(0)))
        except KilledWorker as error:
            raise self._killers(waiting.values()) from error
        finally:
            for future in waiting.values():  # which callbacks hold: unfinished work ends
                future.release()

    def _some(self) -> list[Future[Any]]:
        """Futures whose state changed, at least one. Raises IncompleteError if there are none for too long."""
        found: list[Future[Any]] = []
        while not found:
            with suppress(Empty):
                found.append(self.ended.get(timeout=_POLL_SECONDS))
                while True:
                    found.append(self.ended.get_nowait())
            if not found and monotonic() - self.heard >= self.timeout and not self._is_at_work():
                raise self._stalled()
        self.heard = monotonic()
        return found

    def _is_at_work(self) -> bool:
        """Whether workers began tasks within the time limit: long groups of tasks report only their end."""
        with suppress(IncompleteError):  # one of them hangs; whether others work is not known
            idle = min(on_workers(self.client, _ANSWER_SECONDS, _idle_here).values(), default=inf)
            self.heard = monotonic() - idle
            return idle < self.timeout
        return False

    def _is_finished(self, future: Future[Any]) -> bool:
        """Whether a future has a result. Raises the error of its task."""
        if future.status == "cancelled":
            raise self._gone()
        if future.status == "error":
            raise future.exception(timeout=_ANSWER_SECONDS)
        if future.status == "finished":
            return True
        future.add_done_callback(self.ended.put)  # lost with its worker, and computed again
        return False

    def _gathered(self, futures: list[Future[Any]]) -> list[Any]:
        try:
            return within(self.timeout, lambda: self.client.gather(futures), "") if futures else []
        except IncompleteError:  # the worker that holds them does not answer
            raise self._stalled() from None
        except Exception as error:  # of a request of which the scheduler dies; an UnboundLocalError if Dask cancels it
            if self.client.status == "running":
                raise
            raise self._gone() from error

    def _killers(self, waiting: Iterable[Future[Any]]) -> IncompleteError:
        """The error that names the tasks that killed their workers."""
        from distributed import KilledWorker

        sleep(_POLL_SECONDS)  # a worker that dies takes innocent tasks with it: all are named together
        errors = [future.exception(timeout=_ANSWER_SECONDS) for future in waiting if future.status == "error"]
        killed = sorted({error.task for error in errors if isinstance(error, KilledWorker)}, key=str)
        named = "; ".join(map(self._name, killed[:3])) + ("; ..." if len(killed) > 3 else "")
        return IncompleteError(
            f"tasks killed every worker that ran them: {named}. Workers ran out of memory (allow them more, or use "
            "smaller blocks with --block-rows), or crashed: see the workers' logs. Run the same command again when "
            "that is fixed: it resumes"
        )

    def _name(self, key: Key) -> str:
        """The name of the work of a key in messages."""
        tasks, span = self.given.tasks, self.graph.groups.get(key)
        if span is None:
            return "a value that many blocks need, or a sum of them"
        first, last = tasks[span[0]].name, tasks[span[-1]].name
        return first if len(span) == 1 else f"{first}, or a task after it, up to {last}"

    def _gone(self) -> IncompleteError:
        where = self.address
        if self.client.status == "running":  # so that the scheduler is there
            return IncompleteError(
                f"the tasks on the cluster of {where} were cancelled, e.g. by a restart: run the same command again"
            )
        return scheduler_gone(where)

    def _stalled(self) -> IncompleteError:
        """The error that says what is wrong with a cluster on which nothing finishes."""
        where, workers = self.address, known_workers(self.client, _ANSWER_SECONDS)
        processing = within(_ANSWER_SECONDS, self.client.processing, f"the scheduler at {where} does not answer")
        work = [f"{address} works on {self._name(keys[0])}" for address, keys in processing.items() if keys]
        if not workers:
            what = f"no worker is connected to the scheduler at {where}"
        elif all(worker["status"] == "paused" for worker in workers.values()):
            what = f"all workers are paused because their memory is full, for example {min(workers)}"
        else:
            what = "; ".join(work[:3]) or f"no worker of the scheduler at {where} accepts tasks"
        return IncompleteError(
            f"nothing has finished for {self.timeout:g} seconds: {what}; run the same command again when that is "
            "fixed, or allow more time with --timeout (timeout= in Python)"
        )
