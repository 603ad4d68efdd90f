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
from bigkpca.execution.tasks import Given, Shared, Task, added, run_function
from bigkpca.execution.watch import POLL_SECONDS, Watch, stalled_error
from bigkpca.execution.workers import CALL, Requirements, packed_call


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


def nodes_of(tasks: Sequence[Task], topic: str = "", requirements: Requirements | None = None) -> list[Delayed]:
    """The tasks as nodes of one graph. With requirements, of a cluster, they report their numbers to a topic, and raise
    UnfitWorker where a worker does not meet these."""
    constants: dict[int, Delayed] = {}  # by identity: each shared value is in the graph once

    def node(number: int, task: Task) -> Delayed:
        values: list[Delayed] = []

        def given(argument: Any) -> Any:
            if isinstance(argument, Shared):
                if id(argument) not in constants:
                    constants[id(argument)] = _node(requirements, itself, [], argument.carried)
                argument = constants[id(argument)]
            elif not isinstance(argument, Delayed):
                return Carried(argument)
            values.append(argument)
            return Given(len(values) - 1)

        arguments = [given(argument) for argument in task.arguments]
        return _node(requirements, _run, values, Carried(task.function), topic, number, Carried(arguments))

    return [node(number, task) for number, task in enumerate(tasks)]


def _node(
    requirements: Requirements | None, function: Callable[..., Any], values: Sequence[Delayed], *given: Any
) -> Delayed:
    """function(values, *given) as a node of a graph."""
    if requirements is None:
        return delayed(function, pure=False)(values, *given)
    names = packed_call(requirements, function, *given) | {"values": values}
    return delayed(eval, pure=False)(CALL, None, names)


def itself(values: Sequence[Any], value: Carried) -> Carried:
    """A shared value, on a worker."""
    return value


def _run(values: Sequence[Any], function: Carried, topic: str, number: int, arguments: Carried) -> Carried:
    found = run_function(function.value, Given.filled(arguments.value, values))
    if topic:
        from distributed import get_worker

        get_worker().log_event(topic, [number])
    return found


def sum_node(nodes: Sequence[Delayed], requirements: Requirements | None = None) -> Delayed:
    """The sum of the nodes over the same tree as `tasks.tree_sum`."""
    found = list(nodes)
    while len(found) > 1:
        sums = [_node(requirements, _added, [a, b]) for a, b in zip(found[::2], found[1::2], strict=False)]
        found = sums + found[len(sums) * 2 :]
    return found[0]


def _added(values: Sequence[Carried]) -> Carried:
    return added(*values)


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
