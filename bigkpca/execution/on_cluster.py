"""The graph of a pass on a Dask cluster whose workers and scheduler may die or hang.

The rest of a pass is always one graph. Sums stay on workers; the driver receives the last one and, from time to time,
the complete ones, to save them. If a graph cannot finish as it is (a worker turns out to be unfit, died with sums that
were saved, or tasks kill workers), the known values come to the driver, and the rest is submitted as a new graph.
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
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

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
    use_device,
)
from bigkpca.execution.workers import CALL, Crew, UnfitWorker, known_workers, on_workers, packed_call

if TYPE_CHECKING:
    from distributed import Client, Future

_ANSWER_SECONDS = 10.0  # seconds for the scheduler to answer
_SILENT_SECONDS = 30.0  # after which a worker is reported: normally they send a sign of life every few seconds
_RESULT_SECONDS = 30.0  # that a result may be under way
_COUNT_SECONDS = 5.0  # between two counts of workers
_KEEP_SECONDS = 10.0  # between two fetches of sums, in case their worker dies
_MOST_SHARE = 30.0  # times the duration of a fetch, before the next
_MOST_BYTES = 2**30  # of rows in a graph
_CANCEL_SECONDS = 5.0  # seconds for the scheduler to cancel the rest


class _Again(Exception):
    """The rest of the pass must be submitted as a new graph."""


@dataclass
class _Run:
    """A pass on a cluster. blamed and killers: groups that seem to have killed their workers, and those that also did
    so alone. bound: the workers that may take tasks of the current graph, None for any; unfit: how many were known to
    be unfit when it was made."""

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
    with_gpu: bool = False  # whether some of them declare GPU as a resource
    counted: float = -inf
    bound: tuple[str, ...] | None = None
    unfit: int = 0
    fetched: float = field(default_factory=monotonic)  # when sums were last fetched
    seconds: float = 0.0  # the time that this took
    failed: BaseException | None = None  # the error of a task
    tasks_ended: dict[str, int] = field(default_factory=dict)  # of workers, when they were last asked

    def call(self, function: Callable[..., Any], keys: list[Key], *given: Any) -> tuple[Any, ...]:
        """The graph node for function(values of keys, *given), on a worker that meets the requirements."""
        names = packed_call(self.crew.requirements, function, *given) | {"bigkpca_values": keys}
        return eval, CALL, None, (dict, [list(each) for each in names.items()])


@dataclass
class _Sent:
    """A graph on the cluster. futures: those of nodes that are pending, or held by workers and not part of another held
    one. ended: keys of futures that changed their state."""

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
        """Register a complete node: nodes below it in the tree are no longer needed."""
        node = self.graph.nodes[key]
        self.pending.remove(key)
        below = children(node) if key in self.graph.sums else []
        while below:
            part = below.pop()
            other = self.keys.get(part)  # None if it has only one part, and equals that
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
    """Nodes of a pass with their values, as they arrive; `known` are those that have arrived. `done` receives the
    number of each task, once or more. `due` returns whether complete sums should be fetched.

    Values lost with a worker are computed again, and tasks of an unfit worker go to others. A group that is blamed for
    the death of several workers is retried after all others, task by task and alone, since another task may have been
    at fault. Raises IncompleteError for tasks that still kill their worker, for a scheduler that is gone, and if
    nothing ends for too long; raises the error of an unfit worker if there is no other.
    """
    scheduler: Any = client.scheduler
    if scheduler is None:
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    run = _Run(client, scheduler, given, known, due, crew, watch, done)
    try:
        yield from _all(run)
    except (OSError, RuntimeError) as error:  # what Dask raises from a request of which the scheduler dies
        if error is run.failed or client.status == "running":
            raise
        raise _gone(run) from error


def _all(run: _Run) -> Iterator[dict[Node, Carried]]:
    """All nodes that are missing, see `on_cluster`."""
    given, known = run.given, run.known
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
        f"{len(run.killers)} of the tasks killed every worker that ran them, even alone: {named}. Workers ran out of "
        "memory (allow them more, or use smaller blocks with --block-rows), or crashed: see the workers' logs. All "
        "other tasks are done; run the same command again when that is fixed"
    )


def _computed(run: _Run, missing: Iterable[Node]) -> Generator[dict[Node, Carried], None, bool]:
    """Values of nodes: each group if nothing is added up, otherwise complete sums from time to time and at the end.
    Returns False if the rest must be submitted again."""
    _wait_for_fit(run)
    graph = graph_of(run.given, run.known(), missing, run.call, run_there, not run.alone, len(run.bound or [0]))
    nodes = graph.nodes
    # Dask warns about landmarks, components and rows in a graph, which belong there.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
        futures = run.client.get(_graph(run, graph), list(nodes), sync=False, workers=run.bound) if nodes else []
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
    finally:  # Unfinished work is cancelled, since the callbacks of its futures keep references to these.
        left = [sent.futures[key] for key in sent.pending if key in sent.futures]
        sent.futures.clear()  # which notifies the scheduler without waiting for it
        if left:
            with suppress(Exception):  # the scheduler is gone, or the client was closed
                within(_CANCEL_SECONDS, lambda: run.client.cancel(left), "it does not answer")
    return True


def _graph(run: _Run, graph: Graph) -> Any:
    """The graph for Dask. Groups that compute on a device take a GPU of their worker, if any worker declares some."""
    if not (run.with_gpu and use_device(run.given.tasks)):
        return graph.dsk
    groups = {key: graph.dsk[key] for key in graph.groups}
    others = {key: node for key, node in graph.dsk.items() if key not in groups}
    layers = {"groups": MaterializedLayer(groups, {"resources": {"GPU": 1}}), "others": MaterializedLayer(others)}
    return HighLevelGraph(layers, {name: set() for name in layers})


def _ended(run: _Run, sent: _Sent) -> list[Key]:
    """Keys of futures that ended, after at most a second. Raises IncompleteError if nothing ends for too long."""
    found: list[Key] = []
    with suppress(Empty):
        found.append(sent.ended.get(timeout=POLL_SECONDS))
        while True:
            found.append(sent.ended.get_nowait())
    if found:
        run.watch.finished()
    elif run.watch.look():
        # A group reports only its end: did workers finish tasks of groups since they were last asked?
        before, run.tasks_ended = run.tasks_ended, {}
        with suppress(IncompleteError):  # one of them hangs; whether others work is not known
            counts = on_workers(run.client, _ANSWER_SECONDS, tasks_ended, workers=run.crew.fit(run.workers))
            run.tasks_ended = {each: count for each, count in counts.items() if isinstance(count, int)}
        if not any(count > before.get(each, 0) for each, count in run.tasks_ended.items()):
            raise stalled_error(run.watch, what_hangs(run, sent.graph))
        run.watch.finished()
    return found


def _take(run: _Run, sent: _Sent, key: Key) -> None:
    """Process a future whose state changed. Raises what its task raised, and _Again."""
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
        if isinstance(error, UnfitWorker):  # others can run it
            run.crew.met(error.worker, error.misfit)
            run.crew.tell()
            raise _Again
        if not isinstance(error, KilledWorker):
            run.failed = error
            # Perhaps a worker that could not even unpickle its task. If it is not known which worker failed, those that
            # joined later are checked.
            _look_at_new(run)
            if len(run.crew.unfit) > run.unfit:
                raise _Again
            raise error
        sent.drop(key)
        if run.alone or (str(error.task) == str(key) and key not in sent.graph.groups):
            run.killers.append(run.given.group(node))
        elif key in sent.graph.groups:
            run.blamed.add(node)
    else:  # lost with its worker, and computed again
        sent.await_again(key)


def _look(run: _Run, sent: _Sent) -> None:
    """Check what workers hold and, from time to time, the workers. Raises _Again if saved sums are lost, a worker that
    could take tasks is unfit, or all workers that may take them are gone."""
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
    """Count the workers, and check those that joined. Returns those that turn out to be unfit."""
    with suppress(IncompleteError):  # the watch decides whether the scheduler hangs
        known = known_workers(run.client, _ANSWER_SECONDS)
        run.workers, run.with_gpu = tuple(known), any("GPU" in worker["resources"] for worker in known.values())
    run.counted = monotonic()
    # A worker without the package does not fail at a value that it cannot unpickle, but waits forever.
    return _look_at_new(run) if set(run.workers) - run.crew.looked - run.crew.unfit.keys() else set()


def _look_at_new(run: _Run) -> set[str]:
    """Check workers that joined. Returns those that turn out to be unfit."""
    crew, before = run.crew, set(run.crew.unfit)
    try:
        crew.look(run.client, _ANSWER_SECONDS)
    except IncompleteError:  # one of them hangs, and takes no tasks
        crew.looked.update(run.workers)
    crew.tell()
    return crew.unfit.keys() - before


def _wait_for_fit(run: _Run) -> None:
    """Wait until there is a worker that is not known to be unfit, and bind tasks to such workers if there are others.
    Raises the error of an unfit worker if all are unfit and none was ever fit."""
    while True:
        _counted(run)
        fit = tuple(run.crew.fit(run.workers))
        # Any worker, as long as all are fit, so that those that join later take part.
        run.bound, run.unfit = fit if run.crew.unfit else None, len(run.crew.unfit)
        if fit or not run.crew.unfit:
            return
        if not run.crew.worked:
            run.crew.check_any_fits(run.workers)
        if run.watch.look():
            raise stalled_error(run.watch, what_hangs(run, Graph()))
        sleep(POLL_SECONDS)


def _fetched(run: _Run, sent: _Sent) -> Iterator[dict[Node, Carried]]:
    """Values that workers hold, if they are not known."""
    started = monotonic()
    found = {node: _result(run, sent.futures[key]) for node, key in sent.held.items() if node not in run.known()}
    yield {node: value for node, value in found.items() if value is not None}
    if not (run.given.adds and sent.pending):
        for node in [node for node in sent.held if node in run.known()]:
            sent.drop(sent.held[node])
    run.fetched = monotonic()
    run.seconds = run.fetched - started


def _result(run: _Run, future: Future[Any]) -> Carried | None:
    """The value of a finished future; None if it was lost, or its worker hangs."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError, FuturesCancelledError

    seconds = min(_RESULT_SECONDS, run.watch.seconds)
    try:
        found: Carried = future.result(timeout=seconds)
    except (KilledWorker, UnfitWorker):  # it was lost, and then computed again: the next check finds the error
        return None
    except (FutureCancelledError, FuturesCancelledError):
        raise _gone(run) from None
    except Exception as error:
        if future.status == "error":
            run.failed = error
        if run.failed is error or not isinstance(error, TimeoutError):
            raise
        # The worker that holds it hangs. If the scheduler drops that worker, another one computes it again.
        if run.watch.look(seconds + _ANSWER_SECONDS):
            raise stalled_error(run.watch, what_hangs(run, Graph())) from None
        return None
    return found


_ended_here = [0]  # tasks that ended in this process, a worker; two threads at once may be counted as one


def run_there(values: Sequence[Carried], group: Group) -> Carried:
    """The result of a group, on a worker."""

    def done(_: int) -> None:
        _ended_here[0] += 1

    return run_group(group.with_values(values), done)


def tasks_ended() -> int:
    """Approximate number of tasks that ended in this process."""
    return _ended_here[0]


def _gone(run: _Run) -> IncompleteError:
    if run.client.status == "running":  # so that the scheduler is there
        return IncompleteError(
            f"the tasks on the cluster of {run.scheduler.address} were cancelled, e.g. by a restart: run the same "
            "command again"
        )
    return IncompleteError(
        f"the scheduler at {run.scheduler.address} is gone: start one again, and run the same command again"
    )


def what_hangs(run: _Run, graph: Graph) -> str:
    """A description of what is wrong with a cluster on which no node of a graph finishes."""
    silent = f"the scheduler at {run.scheduler.address} does not answer"

    def look() -> tuple[Any, Any, float]:
        known = run.client.sync(run.scheduler.identity)["workers"]
        return known, run.client.processing(), run.client.run_on_scheduler(time)  # its clock

    try:
        workers, processing, now = within(_ANSWER_SECONDS, look, silent)
    except IncompleteError:
        return silent
    except Exception:  # errors of a broken connection, of which each transport has its own
        return f"the scheduler at {run.scheduler.address} is gone"
    if not workers:
        return f"no worker is connected to the scheduler at {run.scheduler.address}"
    if not run.crew.fit(workers):
        return f"no usable worker is left: {run.crew.unfit[min(workers)]}"
    paused = [address for address, worker in workers.items() if worker["status"] == "paused"]
    if len(paused) == len(workers):
        return f"all workers are paused because their memory is full, for example {paused[0]}"
    names = {str(key): "a value that all blocks need" for key in graph.dsk}
    names |= {str(key): run.given.group(node).name for key, node in graph.nodes.items()}
    described: list[str] = []
    for address, worker in workers.items():
        idle = now - worker["last_seen"]
        work = [f"works on {names[str(key)]}" for key in processing.get(address, ()) if str(key) in names][:1]
        if idle > min(_SILENT_SECONDS, run.watch.seconds / 2):
            described.insert(0, " and ".join([f"{address} has not responded for {idle:.0f} seconds", *work]))
        elif work:
            described.append(f"{address} {work[0]}")
    if described:
        return "; ".join(described[:3])
    return f"no worker of the scheduler at {run.scheduler.address} accepts tasks"
