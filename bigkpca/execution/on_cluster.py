"""The graph of a pass on a Dask cluster whose workers, and whose scheduler, may die or hang.

All that is left of a pass is one graph. Sums stay on workers; the driver gets the last one, and now and then those that
are complete, to save them. Where a graph cannot end as it is (a worker turns out unfit, or died with sums that were
saved, or kills workers), what is known comes to the driver, and the rest is submitted as a new graph.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any

import dask.config

from bigkpca.errors import IncompleteError
from bigkpca.execution.progress import POLL_SECONDS, Watch, stalled_error, within
from bigkpca.execution.tasks import (
    BlockTasks,
    Carried,
    Graph,
    Group,
    Key,
    Node,
    Pass,
    children,
    graph_of,
    is_part,
    run_group,
)
from bigkpca.execution.workers import CALL, Crew, UnfitWorker, known_workers, on_workers, packed_call

if TYPE_CHECKING:
    from distributed import Client, Future

_ANSWER_SECONDS = 10.0  # that the scheduler gets for an answer
_SILENT_SECONDS = 30.0  # after which a worker is named: while all is well they are heard of every few seconds
_RESULT_SECONDS = 30.0  # that a result may take on its way
_COUNT_SECONDS = 5.0  # between two counts of workers
_KEEP_SECONDS = 10.0  # between two times that sums are fetched, in case their worker dies
_MOST_SHARE = 30.0  # times the duration of that, before the next
_MOST_BYTES = 2**30  # of rows in a graph
_CANCEL_SECONDS = 5.0  # that the scheduler gets to cancel what is left


class _Again(Exception):
    """What is left of the pass must be submitted as a new graph."""


@dataclass
class _Run:
    """A pass on a cluster. blamed and killers: groups that seem to have killed their workers, and those that did so
    alone, too. bound: the workers that may take tasks of the present graph, None for any; unfit: how many were known to
    be unfit then."""

    client: Client
    scheduler: Any  # Dask's handle of it
    given: Pass
    known: Callable[[], Mapping[Node, Carried]]
    due: Callable[[], bool]
    crew: Crew
    watch: Watch
    done: Callable[[int], None]
    blamed: set[Node] = field(default_factory=set)
    alone: bool = False  # whether one task runs after the other
    killers: list[Group] = field(default_factory=list)
    workers: tuple[str, ...] = ()  # when they were counted
    counted: float = -inf
    bound: tuple[str, ...] | None = None
    unfit: int = 0
    fetched: float = field(default_factory=monotonic)  # when sums came here last
    seconds: float = 0.0  # that they took
    tasks_ended: dict[str, int] = field(default_factory=dict)  # of workers, when they were asked last

    def call(self, function: Callable[..., Any], keys: list[Key], *given: Any) -> tuple[Any, ...]:
        """What stands in a graph for function(values of keys, *given), on a worker that meets the requirements."""
        names = packed_call(self.crew.requirements, function, *given) | {"bigkpca_values": keys}
        return eval, CALL, None, (dict, [list(each) for each in names.items()])


@dataclass
class _Sent:
    """A graph on the cluster. futures: of nodes that are pending, or held by workers and not part of another one that
    is. ended: keys of futures that changed their state."""

    graph: Graph
    futures: dict[Key, Future[Any]]
    pending: set[Key]
    held: dict[Node, Key] = field(default_factory=dict)
    ended: SimpleQueue[Key] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        self.keys = {node: key for key, node in self.graph.nodes.items()}

    def await_again(self, key: Key) -> None:
        self.pending.add(key)
        self.futures[key].add_done_callback(lambda future: self.ended.put(future.key))

    def hold(self, key: Key) -> None:
        """Take account of a node that is complete: what lies below it in the tree is needed no more."""
        node = self.graph.nodes[key]
        self.pending.remove(key)
        below = children(node) if key in self.graph.sums else []
        while below:
            part = below.pop()
            other = self.keys.get(part)  # None where it has one part alone, and is that
            if other is None or other in self.pending:
                below += children(part)
            if other is not None:
                self.drop(other)
        self.held[node] = key

    def drop(self, key: Key) -> None:
        self.held.pop(self.graph.nodes[key], None)
        self.pending.discard(key)
        self.futures.pop(key, None)


def on_cluster(
    client: Client,
    given: Pass,
    known: Callable[[], Mapping[Node, Carried]],
    due: Callable[[], bool],
    crew: Crew,
    watch: Watch,
    done: Callable[[int], None],
) -> Iterator[dict[Node, Carried]]:
    """Nodes of a pass with their values, as they come here; `known` are those that came. `done` gets the number of each
    task, once or more. `due` says whether sums that are complete are to come.

    What was lost with a worker is computed again, and what an unfit one was to do is done by others. A group that is
    blamed for the death of several workers is tried again after all others, task by task and alone: it may have been
    another task's fault. Raises IncompleteError for tasks that kill their worker then, too, for a scheduler that is
    gone, and if nothing ends for too long; the error of an unfit worker where there is no other.
    """
    scheduler: Any = client.scheduler
    if scheduler is None:
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    run = _Run(client, scheduler, given, known, due, crew, watch, done)
    held = given.tasks.held_bytes if isinstance(given.tasks, BlockTasks) else 0
    most_groups: int | None = None  # of one graph
    if held > _MOST_BYTES:  # groups that take rows of the driver's memory with them wait in the scheduler
        most_groups = max(1, (len(given.tasks) >> given.level) * _MOST_BYTES // held)
    while True:
        missing = [node for node in given.missing(known()) if node not in run.blamed]
        some = missing[:most_groups]
        if not (yield from _computed(run, some)) or len(some) < len(missing):
            continue
        if not run.blamed or run.killers:
            break
        run.alone = True
        for number in [number for node in sorted(run.blamed) for number in given.span(node)]:
            while not (yield from _computed(run, [(0, number)])):
                pass
        run.alone = False
        if run.killers:
            break
        run.blamed.clear()
    if not run.killers:
        return
    named = "; ".join(group.name for group in run.killers[:3]) + (" ..." if len(run.killers) > 3 else "")
    raise IncompleteError(
        f"{len(run.killers)} of the tasks killed every worker that took them, also alone: {named}. Workers ran out of "
        "memory (allow them more, or take smaller blocks with --block-rows), or crashed: see the workers' logs. "
        "All other tasks are done; run the same command again when that is fixed"
    )


def _computed(run: _Run, missing: Iterable[Node]) -> Generator[dict[Node, Carried], None, bool]:
    """Values of nodes: each group where nothing is added up, else what is complete now and then, and in the end.
    Returns False where the rest must be submitted again."""
    _wait_for_fit(run)
    graph = graph_of(run.given, run.known(), missing, run.call, run_there, not run.alone, len(run.bound or [0]))
    nodes = graph.nodes
    # Dask warns of landmarks, components and rows in a graph: they belong there.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
        futures = run.client.get(graph.dsk, list(nodes), sync=False, workers=run.bound) if nodes else []
    sent = _Sent(graph, dict(zip(nodes, futures, strict=True)), set())
    for key in nodes:
        sent.await_again(key)
    try:
        while sent.pending or sent.held:
            for key in _ended(run, sent):
                _take(run, sent, key)
            _look(run, sent)
            waited = monotonic() - run.fetched >= max(_KEEP_SECONDS, _MOST_SHARE * run.seconds)
            if not sent.pending or not run.given.adds or waited or run.due():
                yield from _fetched(run, sent)
    except _Again:
        with suppress(IncompleteError):
            yield from _fetched(run, sent)
        return False
    finally:  # What has not ended is cancelled: the callbacks of its futures hold these.
        left = [sent.futures[key] for key in sent.pending if key in sent.futures]
        sent.futures.clear()  # which tells the scheduler, and does not wait for it
        if left:
            with suppress(Exception):  # of a scheduler that is gone, or a client that was closed
                within(_CANCEL_SECONDS, lambda: run.client.cancel(left), "it does not answer")
    return True


def _ended(run: _Run, sent: _Sent) -> list[Key]:
    """Keys of futures that ended, after a second at most. Raises IncompleteError if nothing ends for too long."""
    found: list[Key] = []
    with suppress(Empty):
        found.append(sent.ended.get(timeout=POLL_SECONDS))
        while True:
            found.append(sent.ended.get_nowait())
    if found:
        run.watch.finished()
    elif run.watch.look():
        # Of a group only its end is heard of: did workers end tasks of groups since they were asked last?
        before, run.tasks_ended = run.tasks_ended, {}
        with suppress(IncompleteError):  # one of them hangs; whether others work is not known
            counts = on_workers(run.client, _ANSWER_SECONDS, tasks_ended, workers=run.crew.fit(run.workers))
            run.tasks_ended = {each: count for each, count in counts.items() if isinstance(count, int)}
        if not any(count > before.get(each, 0) for each, count in run.tasks_ended.items()):
            raise stalled_error(run.watch, what_hangs(run, sent.graph))
        run.watch.finished()
    return found


def _take(run: _Run, sent: _Sent, key: Key) -> None:
    """Take account of a future of which something was heard. Raises what its task raised, and _Again."""
    from distributed import KilledWorker

    future, node = sent.futures.get(key), sent.graph.nodes[key]
    if key in sent.graph.groups and (future is None or future.status == "finished"):
        for task in run.given.span(node):
            run.done(task)
    if future is None or key not in sent.pending:  # a sum of which it is a part ended first
        return
    if future.status == "cancelled":
        raise _gone(run)
    if future.status == "finished":
        run.crew.worked = True
        sent.hold(key)
    elif future.status == "error":
        error = future.exception(timeout=min(_RESULT_SECONDS, run.watch.seconds))
        if isinstance(error, UnfitWorker):  # others can do it
            run.crew.met(error.worker, error.misfit)
            run.crew.tell()
            raise _Again
        if not isinstance(error, KilledWorker):
            # Of a worker that could not even unpickle its task? Where it is not known which worker failed, those that
            # joined later are looked at.
            _look_at_new(run)
            if len(run.crew.unfit) > run.unfit:
                raise _Again
            raise error
        sent.drop(key)
        if run.alone or (str(error.task) == str(key) and key not in sent.graph.groups):
            run.killers.append(run.given.group(node))
        elif key in sent.graph.groups:
            run.blamed.add(node)
    else:  # it was lost with its worker, and is computed again
        sent.await_again(key)


def _look(run: _Run, sent: _Sent) -> None:
    """Look at what workers hold, and now and then at the workers. Raises _Again where saved sums are lost, a worker
    that could take tasks is unfit, or all that may take them are gone."""
    for node, key in list(sent.held.items()):
        if sent.futures[key].status == "finished":
            continue
        if any(is_part(node, other) or is_part(other, node) for other in run.known()):
            raise _Again
        del sent.held[node]
        sent.await_again(key)
    if monotonic() >= run.counted + _COUNT_SECONDS:
        unfit = _counted(run)
        if (unfit if run.bound is None else unfit.intersection(run.bound)) or (
            run.bound and not set(run.bound) & set(run.workers)
        ):
            raise _Again


def _counted(run: _Run) -> set[str]:
    """Count the workers, and look at those that joined: those that turn out unfit."""
    with suppress(IncompleteError):  # whether the scheduler hangs is for the watch to say
        run.workers = tuple(known_workers(run.client, _ANSWER_SECONDS))
    run.counted = monotonic()
    # A worker that lacks the package does not fail at a value that it cannot unpickle, but waits forever.
    return _look_at_new(run) if set(run.workers) - run.crew.looked - run.crew.unfit.keys() else set()


def _look_at_new(run: _Run) -> set[str]:
    """Look at workers that joined: those that turn out unfit."""
    crew, before = run.crew, set(run.crew.unfit)
    try:
        crew.look(run.client, _ANSWER_SECONDS)
    except IncompleteError:  # one of them hangs, and takes no tasks
        crew.looked.update(run.workers)
    crew.tell()
    return crew.unfit.keys() - before


def _wait_for_fit(run: _Run) -> None:
    """Wait until there is a worker of which nothing is known against it, and bind tasks to these if there are others.
    Raises the error of an unfit worker where all are, and none ever was fit."""
    while True:
        _counted(run)
        fit = tuple(run.crew.fit(run.workers))
        # Any, as long as all are fit: so those that join later take part.
        run.bound, run.unfit = fit if run.crew.unfit else None, len(run.crew.unfit)
        if fit or not run.crew.unfit:
            return
        if not run.crew.worked:
            run.crew.check_any_fits(run.workers)
        if run.watch.look():
            raise stalled_error(run.watch, what_hangs(run, Graph()))
        sleep(POLL_SECONDS)


def _fetched(run: _Run, sent: _Sent) -> Iterator[dict[Node, Carried]]:
    """What workers hold, with its values, where it is not known."""
    started = monotonic()
    found = {node: _result(run, sent.futures[key]) for node, key in sent.held.items() if node not in run.known()}
    yield {node: value for node, value in found.items() if value is not None}
    if not (run.given.adds and sent.pending):
        for node in [node for node in sent.held if node in run.known()]:
            sent.drop(sent.held[node])
    run.fetched = monotonic()
    run.seconds = run.fetched - started


def _result(run: _Run, future: Future[Any]) -> Carried | None:
    """The value of a future that is finished; None where it was lost, or its worker hangs."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError, FuturesCancelledError

    seconds = min(_RESULT_SECONDS, run.watch.seconds)
    try:
        found: Carried = future.result(timeout=seconds)
    except (KilledWorker, UnfitWorker):  # it was lost, and then computed again: the next look finds the error
        return None
    except (FutureCancelledError, FuturesCancelledError):
        raise _gone(run) from None
    except TimeoutError:
        if future.status == "error":
            raise  # it is the task's own
        # The worker that holds it hangs. If the scheduler gives that worker up, another one computes it again.
        if run.watch.look(seconds + _ANSWER_SECONDS):
            raise stalled_error(run.watch, what_hangs(run, Graph())) from None
        return None
    return found


_ended_here = [0]  # how many tasks ended in this process, a worker; two threads at once may count one


def run_there(values: Sequence[Carried], group: Group) -> Carried:
    """The result of a group, on a worker."""

    def done(_: int) -> None:
        _ended_here[0] += 1

    return run_group(group.with_values(values), done)


def tasks_ended() -> int:
    """How many tasks ended in this process, about."""
    return _ended_here[0]


def _gone(run: _Run) -> IncompleteError:
    if run.client.status == "running":  # so that the scheduler is there
        return IncompleteError(
            f"the tasks on the cluster of {run.scheduler.address} were cancelled, as when somebody restarts it: run "
            "the same command again"
        )
    return IncompleteError(
        f"the scheduler at {run.scheduler.address} is gone: start one again, and run the same command again"
    )


def what_hangs(run: _Run, graph: Graph) -> str:
    """What is wrong with a cluster on which nothing of a graph finishes, in words."""
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
    names = {str(key): "a value that all blocks need" for key in graph.dsk}
    names |= {str(key): run.given.group(node).name for key, node in graph.nodes.items()}
    described: list[str] = []
    for address, worker in workers.items():
        idle = now - worker["last_seen"]
        work = [f"works on {names[str(key)]}" for key in processing.get(address, ()) if str(key) in names][:1]
        if idle > min(_SILENT_SECONDS, run.watch.seconds / 2):
            described.insert(0, " and ".join([f"{address} has not been heard of for {idle:.0f} seconds", *work]))
        elif work:
            described.append(f"{address} {work[0]}")
    if described:
        return "; ".join(described[:3])
    return f"no worker of the scheduler at {run.scheduler.address} takes up tasks"
