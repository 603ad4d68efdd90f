"""Groups of tasks on threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from queue import SimpleQueue
from threading import Event

from bigkpca.execution.carried import Carried
from bigkpca.execution.tasks import Group, run_group
from bigkpca.execution.watch import POLL_SECONDS, Watch, stalled_error

_ENDING_SECONDS = 2.0  # that tasks at work get when the run ends


class _Stopped(Exception):
    """The run ended while a thread had tasks left."""


@dataclass(frozen=True)
class _State:
    """What threads tell, and are told."""

    finished: SimpleQueue[int] = field(default_factory=SimpleQueue)  # numbers of tasks
    stop: Event = field(default_factory=Event)

    def note(self, task: int) -> None:
        """A task is finished. Raises _Stopped where the run has ended."""
        self.finished.put(task)
        if self.stop.is_set():
            raise _Stopped


def _worked(group: Group, state: _State) -> Carried | None:
    """The result of a group; None where the run has ended."""
    if state.stop.is_set():
        return None
    try:
        return run_group(group, state.note)
    except _Stopped:
        return None
    except BaseException:
        state.stop.set()
        raise


def _first(group: Group) -> int:
    return group.first


def on_threads(
    groups: Iterator[Group], threads: int, watch: Watch, done: Callable[[int], None]
) -> Iterator[tuple[Group, Carried]]:
    """Groups with their results, as they end; `done` hears the number of each task.

    Raises IncompleteError if no task ends for too long. What a task raises ends the run. Threads cannot be killed:
    those at work end after their task.
    """
    state, pending = _State(), dict[Future[Carried | None], Group]()

    def told() -> None:
        while not state.finished.empty():
            done(state.finished.get())
            watch.finished()

    pool = ThreadPoolExecutor(threads, "bigkpca")
    try:
        while True:
            # One more than there are threads, so that none waits for this one.
            for group in islice(groups, threads + 1 - len(pending)):
                pending[pool.submit(_worked, group, state)] = group
            if not pending:
                return
            ended, _ = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
            told()
            for future in sorted(ended, key=lambda future: _first(pending[future])):
                group, found = pending.pop(future), future.result()
                if found is not None:  # else another one failed, whose error comes next
                    yield group, found
            told()  # while a result was taken in, others ended
            if watch.look():
                at_work = sorted((group for future, group in pending.items() if future.running()), key=_first)
                names = "; ".join(group.name for group in at_work[:3])
                raise stalled_error(watch, f"a thread hangs at {names}")
    finally:
        state.stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        _, left = wait(pending, 0 if watch.stalled else _ENDING_SECONDS)
        if not left:
            pool.shutdown()
