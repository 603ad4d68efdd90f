"""The graph of a pass on Dask's threaded scheduler, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

import dask.threaded
from dask.callbacks import local_callbacks

from bigkpca.execution.progress import POLL_SECONDS, Watch, stalled_error
from bigkpca.execution.tasks import Carried, Group, Key, Node, Pass, graph_of, run_group

_ENDING_SECONDS = 2.0  # for running tasks when the run ends


class _Stopped(Exception):
    """The run ended while Dask still had tasks."""


@dataclass(frozen=True)
class _State:
    """Reports from threads to the thread that waits for them: numbers of tasks, and keys with their values."""

    ended: SimpleQueue[int | tuple[Key, Any] | None] = field(default_factory=SimpleQueue)
    stop: Event = field(default_factory=Event)
    nodes: dict[Key, Node] = field(default_factory=dict)  # the nodes that keys represent
    at_work: dict[int, str] = field(default_factory=dict)  # names of groups, by their first tasks

    def run(self, values: Sequence[Carried], group: Group) -> Carried:
        """The result of a group."""
        self.at_work[group.first] = group.name
        try:
            return run_group(group.with_values(values), self.note)
        finally:
            del self.at_work[group.first]

    def note(self, task: int) -> None:
        self.ended.put(task)
        self.look()

    def after(self, key: Key, value: Any, *_: Any) -> None:
        """The callback that Dask calls after each task."""
        if key in self.nodes:
            self.ended.put((key, value))
        self.look()

    def look(self) -> None:
        if self.stop.is_set():
            raise _Stopped


def plain(function: Callable[..., Any], keys: list[Key], *given: Any) -> tuple[Any, ...]:
    """The graph node for function(values of keys, *given)."""
    return (function, keys, *given)


def on_threads(
    given: Pass, known: Mapping[Node, Carried], threads: int, watch: Watch, done: Callable[[int], None]
) -> Iterator[dict[Node, Carried]]:
    """Unknown nodes of a pass, with their values, as they end; `done` receives the number of each task.

    Raises IncompleteError if no task ends for too long. An error of a task ends the run. Threads cannot be killed:
    running ones end after their task.
    """
    state = _State()
    graph = graph_of(given, known, given.missing(known), plain, state.run)
    wanted = [graph.root] if given.adds else list(graph.groups)
    state.nodes.update(graph.nodes)
    workers = ThreadPoolExecutor(threads, "bigkpca")
    driver = ThreadPoolExecutor(1, "bigkpca-graph")  # so that this thread can check the clock and receive signals

    def compute() -> Any:
        try:
            # Callbacks of the user see this graph, but not those that tasks may compute inside.
            with local_callbacks() as of_user:
                callbacks = [(None, None, None, state.after, None), *of_user]
                dask.threaded.get(graph.dsk, wanted, pool=workers, callbacks=callbacks)
        finally:
            state.stop.set()
            state.ended.put(None)

    running: Future[Any] = driver.submit(compute)
    try:
        while True:
            try:
                ended = state.ended.get(timeout=POLL_SECONDS)
            except Empty:
                if watch.look():
                    names = "; ".join(name for _, name in sorted(state.at_work.items())[:3])
                    raise stalled_error(watch, f"a thread hangs at {names}") from None
                continue
            if ended is None:
                break
            watch.finished()
            if isinstance(ended, int):
                done(ended)
            else:
                yield {state.nodes[ended[0]]: ended[1]}
        running.result()
    finally:
        state.stop.set()
        workers.shutdown(wait=False, cancel_futures=True)
        _, left = wait([running], 0 if watch.stalled else _ENDING_SECONDS)
        if left:  # a thread hangs: ending the process does not wait for it
            driver.shutdown(wait=False)
        else:
            # The C library gives new threads the memory of ended ones, last in, first out: in this order no more
            # threads than workers keep freed memory.
            workers.shutdown()
            driver.shutdown()
