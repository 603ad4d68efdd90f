"""A pass on Dask's threaded scheduler, in this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

import dask.threaded
from dask.callbacks import local_callbacks

from bigkpca.execution.graph import Key, Pass


class _Stopped(Exception):
    """The run ended while tasks were left."""


def _go_on(stop: Event) -> None:
    if stop.is_set():
        raise _Stopped


def on_threads(given: Pass, threads: int, done: Callable[[range], None]) -> None:
    """Add to a pass what is missing. `done` receives the numbers of the tasks that ended, none after a sum, in this
    thread. An error of a task, or of `done`, ends the run after the tasks at work. An interruption ends it at once, and
    these end by themselves."""
    if not (nodes := given.missing()):
        return
    stop = Event()
    graph = given.graph(nodes, partial(_go_on, stop), adding=True)

    def after(key: Key, *_: Any) -> None:
        done(graph.groups.get(key, range(0)))

    pool, waits = ThreadPoolExecutor(threads, "bigkpca"), True
    try:
        # Callbacks of the user see this graph, but not those that tasks may compute inside.
        with local_callbacks() as of_user:
            callbacks = [(None, None, None, after, None), *of_user]
            dask.threaded.get(graph.dsk, graph.end, pool=pool, callbacks=callbacks)
    except KeyboardInterrupt:
        waits = False
        raise
    finally:
        stop.set()
        pool.shutdown(wait=waits, cancel_futures=True)
