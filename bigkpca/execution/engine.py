"""Where tasks run: this thread, a pool of threads, or a Dask cluster. Results are the same bits everywhere.

Every pass is a list of independent block tasks, whose results are either kept in order or added up over a
tree that block numbers alone determine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask.config
from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import Delayed, delayed
from dask.system import CPU_COUNT
from distributed import Client, get_worker

from bigkpca.errors import MemoryLimitError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.carried import Carried
from bigkpca.execution.progress import Progress

_TOPIC = "bigkpca-blocks"


@dataclass(frozen=True)
class Task:
    """function(*arguments), of which some may be Dask's, standing for `rows` rows."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rows: int


@dataclass(frozen=True)
class Engine:
    """Runs block tasks on a cluster if there is a client, else on `threads` threads of this process."""

    threads: int = CPU_COUNT
    client: Client | None = None

    def each(self, title: str, tasks: Sequence[Task], progress: Progress) -> list[Any]:
        """Results of all tasks, in their order."""
        nodes, rows_of = _nodes(tasks)
        return self._compute(title, nodes, rows_of, progress)

    def total(self, title: str, tasks: Sequence[Task], progress: Progress) -> Any:
        """Sum of the results of all tasks, over a fixed binary tree: ((0+1)+(2+3))+((4+5)+...)."""
        nodes, rows_of = _nodes(tasks)
        # Binary, because of all trees it keeps the fewest partial results alive: one per level and worker.
        while len(nodes) > 1:
            sums = [_add(a, b) for a, b in zip(nodes[::2], nodes[1::2], strict=False)]
            nodes = sums + nodes[len(sums) * 2 :]
        (result,) = self._compute(title, nodes, rows_of, progress)
        return result

    def _compute(
        self, title: str, nodes: Sequence[Delayed], rows_of: Mapping[str, int], progress: Progress
    ) -> list[Any]:
        progress.start(title, sum(rows_of.values()))
        try:
            run = self._on_threads if self.client is None else partial(_on_cluster, self.client)
            return [found.value for found in run(nodes, rows_of, progress)]
        finally:
            progress.finish()

    def _on_threads(
        self, nodes: Sequence[Delayed], rows_of: Mapping[str, int], progress: Progress
    ) -> Iterable[Carried]:
        scheduler = "threads" if self.threads > 1 else "synchronous"
        counting = Callback(posttask=lambda key, *_: progress.advance(rows_of.get(key, 0)))
        with counting, single_threaded_blas:
            return compute(*nodes, scheduler=scheduler, num_workers=self.threads)

    @contextmanager
    def small_work(self) -> Iterator[Callable[[Callable[[int], Any], Iterable[int]], list[Any]]]:
        """`map` on threads of this process that last as long as the context, for the driver's own small work in many
        steps; BLAS stays at one thread."""
        with single_threaded_blas, ThreadPoolExecutor(self.threads) as pool:
            yield lambda function, items: list(pool.map(function, items))

    def in_order(self, function: Callable[[int], Any], items: Iterable[int]) -> list[Any]:
        """`map` on the threads of this process, for the driver's own small work; BLAS stays at one thread."""
        with self.small_work() as in_order:
            return in_order(function, items)

    def worker_limits(self) -> list[tuple[str, int, int]]:
        """(address, threads, bytes it may use) of each worker of a cluster that has such a limit."""
        if self.client is None:
            return []
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return [(address, w["nthreads"], w["memory_limit"]) for address, w in workers.items() if w["memory_limit"]]

    def check_memory(self, peak_bytes: Callable[[int], int]) -> None:
        """Raise MemoryLimitError if a worker may use less memory than a process with its threads will need."""
        for address, threads, limit in self.worker_limits():
            needed = peak_bytes(threads)
            if needed > limit:
                raise MemoryLimitError(
                    f"worker {address} may use {limit / 1e6:.0f} MB, the plan needs {needed / 1e6:.0f} MB; "
                    "give workers more memory or fewer threads, or ask for a smaller size"
                )


def shared(value: Any) -> Delayed:
    """A value that many tasks take: it is in the graph once, and reaches each worker once.

    Not scattered: scattered data are lost with their worker, a graph's own values are sent again.
    """
    return delayed(Carried(value), traverse=False)


def lazy(function: Callable[..., Any], *arguments: Any) -> Delayed:
    """function(*arguments) as a node of a user's own graph, run as a task is: arrays aligned, BLAS on one thread."""
    return delayed(_called, pure=False)(Carried(function), *map(_opaque, arguments))


def _nodes(tasks: Sequence[Task]) -> tuple[list[Delayed], dict[str, int]]:
    """The tasks in Dask's form, and the rows that each of their keys stands for."""
    run = delayed(_run, pure=False)
    nodes = [run(Carried(task.function), task.rows, *map(_opaque, task.arguments)) for task in tasks]
    return nodes, {node.key: task.rows for node, task in zip(nodes, tasks, strict=True)}


def _opaque(argument: Any) -> Any:
    return argument if isinstance(argument, Delayed) else Carried(argument)


def _called(function: Carried, *arguments: Any) -> Any:
    # What another task made of a user's own graph, as the chunk of a Dask array, comes as it is.
    given = [argument if isinstance(argument, Carried) else Carried(argument) for argument in arguments]
    with single_threaded_blas:
        return function.value(*(argument.value for argument in given))


def _run(function: Carried, rows: int, *arguments: Any) -> Carried:
    found = Carried(_called(function, *arguments))
    try:
        worker = get_worker()
    except ValueError:  # not on a cluster: the local scheduler's callback counts
        return found
    worker.log_event(_TOPIC, rows)
    return found


def _sum(a: Carried, b: Carried) -> Carried:
    return Carried(a.value + b.value)


_add = delayed(_sum, pure=False)


def _on_cluster(
    client: Client, nodes: Sequence[Delayed], rows_of: Mapping[str, int], progress: Progress
) -> Iterable[Carried]:
    client.subscribe_topic(_TOPIC, lambda event: progress.advance(event[1]))
    try:
        # Landmarks and components travel in the graph on purpose, see `shared`: no warning about its size.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
            futures = client.compute(list(nodes), optimize_graph=False)
        return client.gather(futures)
    finally:
        client.unsubscribe_topic(_TOPIC)
