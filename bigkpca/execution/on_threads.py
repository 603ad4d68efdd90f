"""A pass on Dask's threaded scheduler, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import dask.threaded
from dask.callbacks import local_callbacks

from bigkpca.execution.graph import Key, Node, Pass


class _Stopped(Exception):
    """The run ended while tasks were left."""


def _go_on(stop: Event) -> None:
    if stop.is_set():
        raise _Stopped


def on_threads(
    given: Pass, nodes: Sequence[Node], threads: int, take: Callable[[Node, Any], None], done: Callable[[range], None]
) -> None:
    """Compute some nodes of a pass. `take` receives each with its value, in any thread; `done` receives the numbers of
    the tasks that ended, none after a sum, in this thread. An error of a task, or of `done`, ends the run after the
    tasks at work. An interruption ends it at once, and these end by themselves."""
    stop = Event()
    graph = given.graph(nodes, partial(_go_on, stop), take)

    def after(key: Key, *_: Any) -> None:
        done(graph.groups.get(key, range(0)))

    pool, waits = ThreadPoolExecutor(threads, "bigkpca"), True
    try:
        # Callbacks of the user see this graph, but not those that tasks may compute inside.
        with local_callbacks() as of_user:
            callbacks = [(None, None, None, after, None), *of_user]
            dask.threaded.get(graph.dsk, graph.ends, pool=pool, callbacks=callbacks)  # which keeps their values
    except KeyboardInterrupt:
        waits = False
        raise
    finally:
        stop.set()
        pool.shutdown(wait=waits, cancel_futures=True)
