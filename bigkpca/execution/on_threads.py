"""Groups of tasks on threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from queue import SimpleQueue
from threading import Event

from bigkpca.execution.carried import Carried
from bigkpca.execution.tasks import Group, run_group
from bigkpca.execution.watch import POLL_SECONDS, Watch, stalled_error

_ENDING_SECONDS = 5.0  # that tasks at work get when the run ends


class _Stopped(Exception):
    """The run ended while a thread had tasks left."""


def on_threads(
    groups: Iterator[Group], threads: int, watch: Watch, done: Callable[[int], None]
) -> Iterator[tuple[Group, Carried]]:
    """Groups with their results, as they end; `done` hears the number of each task.

    Raises IncompleteError if no task ends for too long. What a task raises ends the run. Threads cannot be killed:
    those at work end after their task.
    """
    finished: SimpleQueue[int] = SimpleQueue()
    stop, pending = Event(), dict[Future[Carried | None], Group]()

    def note(task: int) -> None:
        finished.put(task)
        if stop.is_set():
            raise _Stopped

    def work(group: Group) -> Carried | None:
        if stop.is_set():
            return None
        try:
            return run_group(group, note)
        except _Stopped:
            return None
        except BaseException:
            stop.set()
            raise

    pool = ThreadPoolExecutor(threads, "bigkpca")
    try:
        while True:
            # One more than there are threads, so that none waits for this one.
            for group in islice(groups, threads + 1 - len(pending)):
                pending[pool.submit(work, group)] = group
            if not pending:
                return
            ended, _ = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
            while not finished.empty():
                done(finished.get())
                watch.finished()
            for future in sorted(ended, key=lambda future: pending[future].first):
                group, found = pending.pop(future), future.result()
                if found is not None:  # else another one failed, whose error comes next
                    yield group, found
            if watch.look():
                names = "; ".join(sorted(group.name for group in pending.values())[:threads])
                raise stalled_error(watch, f"{names} hangs")
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        _, at_work = wait(pending, 0 if watch.stalled else _ENDING_SECONDS)
        if not at_work:
            pool.shutdown()
