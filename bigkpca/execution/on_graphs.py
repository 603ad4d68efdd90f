"""Tasks that depend on a user's own Dask graph: one graph of all, so that what several tasks need is computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from threading import Event
from typing import Any

from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import Delayed, delayed

from bigkpca.execution.carried import Carried
from bigkpca.execution.tasks import Shared, Task, added, run_function
from bigkpca.execution.watch import POLL_SECONDS, Watch, stalled_error


def constant(value: Any) -> Delayed:
    """A value that many nodes of a graph take: it is in the graph once, and reaches each worker once."""
    return delayed(Carried(value), traverse=False)


def lazy(function: Callable[..., Any], *arguments: Any) -> Delayed:
    """function(*arguments) as a node of a user's own graph, run as a task is: arrays aligned, BLAS on one thread."""
    return delayed(_called, pure=False)(Carried(function), *map(_opaque, arguments))


def _called(function: Carried, *arguments: Any) -> Any:
    return run_function(function.value, arguments).value


def _opaque(argument: Any) -> Any:
    return argument if isinstance(argument, Delayed) else Carried(argument)


def nodes_of(tasks: Sequence[Task], topic: str = "") -> list[Delayed]:
    """The tasks as nodes of one graph; on a cluster they report their numbers to a topic."""
    constants: dict[int, Delayed] = {}  # by identity: each shared value is in the graph once

    def given(argument: Any) -> Any:
        if isinstance(argument, Shared):
            return constants.setdefault(id(argument), delayed(argument.carried, traverse=False))
        return _opaque(argument)

    run = delayed(_run, pure=False)
    return [run(Carried(task.function), topic, i, *map(given, task.arguments)) for i, task in enumerate(tasks)]


def _run(function: Carried, topic: str, number: int, *arguments: Any) -> Carried:
    found = run_function(function.value, arguments)
    if topic:
        from distributed import get_worker

        get_worker().log_event(topic, [number])
    return found


def sum_node(nodes: Sequence[Delayed]) -> Delayed:
    """The sum of the nodes over the same tree as `tasks.tree_sum`."""
    add = delayed(added, pure=False)
    found = list(nodes)
    while len(found) > 1:
        sums = [add(a, b) for a, b in zip(found[::2], found[1::2], strict=False)]
        found = sums + found[len(sums) * 2 :]
    return found[0]


class _Stopped(Exception):
    """The run ended while Dask had tasks left."""


def compute_on_threads(
    tasks: Sequence[Task], adds: bool, threads: int, watch: Watch, done: Callable[[int], None]
) -> list[Carried]:
    """Results of the tasks, or their sum; `done` hears their numbers. Raises IncompleteError if no task ends for too
    long."""
    nodes, stop = nodes_of(tasks), Event()
    numbers = {node.key: number for number, node in enumerate(nodes)}
    wanted = [sum_node(nodes)] if adds else nodes

    def after(key: str, *_: Any) -> None:
        watch.finished()
        if key in numbers:
            done(numbers[key])
        if stop.is_set():
            raise _Stopped

    def run() -> Any:
        with Callback(posttask=after):
            scheduler = "threads" if threads > 1 else "synchronous"
            return compute(*wanted, scheduler=scheduler, num_workers=threads)

    pool = ThreadPoolExecutor(1, "bigkpca-graph")  # so that this thread can look at the clock, and hears signals
    found = pool.submit(run)
    try:
        while not found.done():
            wait_for([found], POLL_SECONDS)
            if watch.look():
                raise stalled_error(watch, "a task of the Dask array hangs")
        return list(found.result())
    finally:
        stop.set()
        pool.shutdown(wait=found.done(), cancel_futures=True)
