"""Groups of tasks on a Dask cluster whose workers, and whose scheduler, may die or hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import sleep, time
from typing import TYPE_CHECKING, Any

from dask.delayed import Delayed

from bigkpca.errors import IncompleteError
from bigkpca.execution.carried import Carried
from bigkpca.execution.cluster_run import (
    ClusterRun,
    bound,
    forget_shared,
    hold,
    is_worker_at_fault,
    large_graphs,
    may_send,
    running,
    submitted,
    window,
)
from bigkpca.execution.tasks import Group, tree_sum
from bigkpca.execution.watch import POLL_SECONDS, Watch, stalled_error, within
from bigkpca.execution.workers import Crew

if TYPE_CHECKING:
    from distributed import Client, Future

_ANSWER_SECONDS = 10.0  # that the scheduler gets for an answer
_SILENT_SECONDS = 30.0  # after which a worker is named: while all is well they are heard of every few seconds
_RESULT_SECONDS = 30.0  # that a result may take on its way


def on_cluster(
    client: Client, groups: Iterator[Group], crew: Crew, watch: Watch, done: Callable[[int], None]
) -> Iterator[tuple[Group, Carried]]:
    """Groups with their results, as they end; `done` gets the number of each task, once or more.

    A group whose worker died, or does not meet the requirements of the crew, runs again elsewhere. One that is blamed
    for the death of several workers is tried again after all others, task by task and alone: it may have been another
    task's fault. Raises IncompleteError for tasks that kill their worker then, too, for a scheduler that is gone, and
    if nothing ends for too long; the error of an unfit worker where there is no other.
    """
    blamed: list[Group] = []
    killers: list[Group] = []

    def send(some: Sequence[Group]) -> None:
        for group in some:
            run.pending[submitted(run, group)] = group

    with running(client, crew, watch, done) as run:
        yield from _results(run, groups, send, None, blamed)
        forget_shared(run)  # a shared value may have been blamed, too
        for group in sorted(blamed, key=lambda group: group.first):
            found = {task.first: value for task, value in _results(run, iter(group.alone()), send, 1, killers)}
            if len(found) == len(group.tasks):
                yield group, _joined(group, found)
    if killers:
        raise _quarantined(killers)


def graph_on_cluster(
    client: Client,
    nodes: Callable[[str], Sequence[Delayed]],
    groups: Sequence[Group],
    crew: Crew,
    watch: Watch,
    done: Callable[[int], None],
) -> list[Carried]:
    """Values of the nodes of one graph, made for a topic that its tasks report to; `groups` say what each computes.
    Raises IncompleteError as `on_cluster`."""
    found: dict[int, Carried] = {}
    killers: list[Group] = []

    def send(some: Sequence[Group]) -> None:
        made, to = dict(zip([group.first for group in groups], nodes(run.topic), strict=True)), bound(run)
        with large_graphs():
            wanted = [made[group.first] for group in some]
            futures = client.compute(wanted, optimize_graph=False, workers=to.workers)
        run.pending |= dict(zip(futures, some, strict=True))
        run.bounds |= dict.fromkeys(futures, to)

    with running(client, crew, watch, done) as run:
        run.held.extend(groups)
        found = {group.first: value for group, value in _results(run, iter(()), send, None, killers)}
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
    run: ClusterRun,
    groups: Iterator[Group],
    send: Callable[[Sequence[Group]], None],
    most: int | None,
    blamed: list[Group],
) -> Iterator[tuple[Group, Carried]]:
    """Groups with their results, at most `most` at once; those that kill workers are added to `blamed`."""
    waiting = True
    while waiting or run.pending or run.held:
        if may_send(run):
            held, run.held = run.held, []
            send(held)
            while waiting and len(run.pending) < (most or window(run)):
                group = next(groups, None)
                if group is None:
                    waiting = False
                else:
                    send([group])
        for future in _ended(run):
            if future not in run.pending:  # it was taken back with others
                continue
            group, (ended, found) = run.pending[future], _result(run, future)
            if not ended:
                continue
            if isinstance(found, Exception):
                if not is_worker_at_fault(run, future, found):
                    raise found
                forget_shared(run)
                hold(run, [future] if future in run.pending else [])
                continue
            del run.pending[future], run.bounds[future]
            run.watch.finished()
            if found is None:
                blamed.append(group)
                continue
            run.crew.worked = True
            for number in range(group.first, group.first + len(group.tasks)):
                run.done(number)
            yield group, found


def _ended(run: ClusterRun) -> list[Future[Any]]:
    """Futures that ended, after a second at most. Raises IncompleteError if nothing ends for too long."""
    from distributed import wait
    from distributed.client import FuturesCancelledError

    if not run.pending:  # what is held waits for a worker
        sleep(POLL_SECONDS)
    # Futures that were cancelled are among those that ended.
    with suppress(TimeoutError, FuturesCancelledError), run.client.as_current():
        wait(list(run.pending), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
    while not run.finished.empty():
        for number in run.finished.get():
            run.done(number)
        run.watch.finished()
    if run.watch.look():
        raise stalled_error(run.watch, what_hangs(run))
    # What was lost with the worker that held it is computed again, and pending until then.
    ended = [future for future in run.pending if future.status not in ("pending", "lost")]
    return sorted(ended, key=lambda future: run.pending[future].first)


def _result(run: ClusterRun, future: Future[Any]) -> tuple[bool, Carried | Exception | None]:
    """Whether the result of a future is here or will never be, and the result; None if its task was blamed for the
    death of workers, and what the task raised."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError, FuturesCancelledError

    if future.status == "cancelled":
        raise _gone(run)
    seconds = min(_RESULT_SECONDS, run.watch.seconds)
    try:
        if future.status == "error":
            error = future.exception(timeout=seconds)
            if isinstance(error, KilledWorker):
                return True, None
            if error is not None:
                return True, error
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


def _gone(run: ClusterRun) -> IncompleteError:
    if run.client.status == "running":  # so that the scheduler is there
        return IncompleteError(
            f"the tasks on the cluster of {run.scheduler.address} were cancelled, as when somebody restarts it: run "
            "the same command again"
        )
    return IncompleteError(
        f"the scheduler at {run.scheduler.address} is gone: start one again, and run the same command again"
    )


def what_hangs(run: ClusterRun) -> str:
    """What is wrong with a cluster on which nothing finishes, in words."""
    silent = f"the scheduler at {run.scheduler.address} does not answer"

    def look() -> tuple[Any, Any, float]:
        known = run.client.sync(run.scheduler.identity)["workers"]
        return known, run.client.processing(), run.client.run_on_scheduler(time)  # its clock, by which they were seen

    try:
        workers, processing, now = within(_ANSWER_SECONDS, look, silent)
    except IncompleteError:
        return silent
    except Exception:  # of a connection that breaks, each transport has its own
        return f"the scheduler at {run.scheduler.address} is gone"
    if not workers:
        return f"no worker is connected to the scheduler at {run.scheduler.address}"
    if not run.crew.fit(workers):
        return f"no worker that may take part is left, as {run.crew.unfit[min(workers)]}"
    paused = [address for address, worker in workers.items() if worker["status"] == "paused"]
    if len(paused) == len(workers):
        return f"all workers are paused, as their memory is full, for example {paused[0]}"
    names = {future.key: group.name for future, group in run.pending.items()}
    names |= {future.key: "a value that all blocks need" for future in run.shared.values()}
    described: list[str] = []
    for address, worker in workers.items():
        idle = now - worker["last_seen"]
        work = [f"works on {names[key]}" for key in processing.get(address, ()) if key in names][:1]
        if idle > min(_SILENT_SECONDS, run.watch.seconds / 2):
            described.insert(0, " and ".join([f"{address} has not been heard of for {idle:.0f} seconds", *work]))
        elif work:
            described.append(f"{address} {work[0]}")
    if described:
        return "; ".join(described[:3])
    return f"no worker of the scheduler at {run.scheduler.address} takes up tasks"
