"""Where tasks run: threads of this process, or a Dask cluster. Results are the same bits everywhere.

Every pass is a list of independent block tasks, whose results are either kept in order or added up over a tree that
block numbers alone determine. Consecutive tasks form groups, which one thread works through.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import tokenize
from dask.system import CPU_COUNT

from bigkpca.errors import IncompleteError
from bigkpca.execution.blas import blas_core_types, single_threaded_blas
from bigkpca.execution.carried import Carried
from bigkpca.execution.kept_features import KeptFeatures
from bigkpca.execution.on_cluster import graph_on_cluster, on_cluster
from bigkpca.execution.on_graphs import compute_on_threads, nodes_of, sum_node
from bigkpca.execution.on_threads import on_threads
from bigkpca.execution.partial_sums import Checkpoint, Checkpoints, PartialSums
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import Group, Task, depends_on_graph, group_size, groups_of
from bigkpca.execution.watch import Watch, within
from bigkpca.execution.workers import Crew, known_workers, on_workers, peaks_of, sight_of
from bigkpca.spec.defaults import TIMEOUT

if TYPE_CHECKING:
    from distributed import Client


def content_digest(*values: Any) -> str:
    """A digest of values, which equal values have in every process."""
    return hashlib.sha256(tokenize(*values, ensure_deterministic=True).encode()).hexdigest()


_SAVE_SECONDS = 5.0  # for the last save of a run that ends early


@dataclass(frozen=True)
class Engine:
    """Runs tasks on a cluster if there is a client, else on `threads` threads of this process.

    A pass ends with IncompleteError if no task ends for `timeout` seconds. With `checkpoints`, sums are saved now and
    then, and go on from there in another process. With `kept`, the pass of a fit on threads leaves features there, and
    scores of the same rows take them from there. `crew` is what is known of the workers of a cluster.
    """

    threads: int = CPU_COUNT
    client: Client | None = None
    timeout: float = TIMEOUT
    checkpoints: Checkpoints | None = None
    kept: KeptFeatures | None = None
    crew: Crew = field(default_factory=Crew)

    def each(self, title: str, tasks: Sequence[Task], progress: Progress) -> list[Any]:
        """Results of all tasks, in their order."""
        with self._showing(title, tasks, progress) as done, single_threaded_blas:
            if depends_on_graph(tasks):
                return [found.value for found in self._graph(tasks, False, done)]
            groups = groups_of(
                tasks, group_size(len(tasks), self.all_threads), False, lambda _: False, self.timeout / 2
            )
            found = {group.first: carried.value for group, carried in self._groups(groups, done)}
        return [result for first in sorted(found) for result in found[first]]

    def total(self, title: str, tasks: Sequence[Task], progress: Progress, *given: Any) -> Any:
        """Sum of the results of all tasks, over a fixed binary tree: ((0+1)+(2+3))+((4+5)+...).

        `given` are the values that it depends on, besides the rows, by which its checkpoint is found again.
        """
        with self._showing(title, tasks, progress) as done, single_threaded_blas:
            if depends_on_graph(tasks):
                return self._graph(tasks, True, done)[0].value
            checkpoint = None if self.checkpoints is None else self.checkpoints.of(title, len(tasks), *given)
            size = group_size(len(tasks), self.all_threads)
            sums = PartialSums(len(tasks), size.bit_length() - 1, checkpoint.saved() if checkpoint else {})
            for number in range(0, len(tasks), size):
                if sums.has(number // size):
                    for task in range(number, min(number + size, len(tasks))):
                        done(task)
            groups = groups_of(tasks, size, True, sums.has, self.timeout / 2)
            return self._added(groups, size, sums, checkpoint, done)

    def _added(
        self,
        groups: Iterator[Group],
        size: int,
        sums: PartialSums,
        checkpoint: Checkpoint | None,
        done: Callable[[int], None],
    ) -> Any:
        """The sum of all groups, saved now and then, and where it is cut off."""
        try:
            for group, carried in self._groups(groups, done):
                sums.add(group.first // size, carried)
                if checkpoint and checkpoint.due(ended=False):
                    checkpoint.save(sums.nodes)
        except (KeyboardInterrupt, IncompleteError):
            if checkpoint:
                with suppress(IncompleteError):  # what hangs may be the place where sums are saved
                    within(_SAVE_SECONDS, lambda: checkpoint.save(sums.nodes), "")
            raise
        if checkpoint and checkpoint.due(ended=True):
            checkpoint.save(sums.nodes)
        return sums.total()

    def _groups(self, groups: Iterator[Group], done: Callable[[int], None]) -> Iterator[tuple[Group, Carried]]:
        watch = Watch(self.timeout)
        if self.client is None:
            return on_threads(groups, self.threads, watch, done)
        return on_cluster(self.client, groups, self.crew, watch, done)

    def _graph(self, tasks: Sequence[Task], adds: bool, done: Callable[[int], None]) -> list[Carried]:
        """Results of tasks that depend on a user's own Dask graph, or their sum."""
        watch = Watch(self.timeout)
        if self.client is None:
            return compute_on_threads(tasks, adds, self.threads, watch, done)

        def nodes(topic: str) -> Sequence[Any]:
            found = nodes_of(tasks, topic, self.crew.requirements)
            return [sum_node(found, self.crew.requirements)] if adds else found

        whole = Group(0, tuple(tasks), adds)
        return graph_on_cluster(self.client, nodes, [whole] if adds else whole.alone(), self.crew, watch, done)

    @contextmanager
    def _showing(self, title: str, tasks: Sequence[Task], progress: Progress) -> Iterator[Callable[[int], None]]:
        """A function that counts each task once, by its number."""
        progress.start(title, sum(task.rows for task in tasks))
        counted: set[int] = set()

        def done(number: int) -> None:
            if number not in counted:
                counted.add(number)
                progress.advance(tasks[number].rows)

        try:
            yield done
        finally:
            progress.finish()

    @property
    def all_threads(self) -> int:
        """Threads of this process, or of all workers."""
        if self.client is None:
            return self.threads
        return max(1, sum(threads for _, threads, _ in self._workers()))

    def _workers(self) -> list[tuple[str, int, int]]:
        """(address, threads, bytes it may use) of each worker of a cluster that may take part."""
        if self.client is None:
            return []
        workers = known_workers(self.client, self.timeout)
        fit = self.crew.fit(workers)
        return [(address, workers[address]["nthreads"], workers[address]["memory_limit"]) for address in fit]

    @contextmanager
    def small_work(self) -> Iterator[Callable[[Callable[[int], Any], Iterable[int]], list[Any]]]:
        """`map` on threads of this process that last as long as the context, for the driver's own small work in many
        steps; BLAS stays at one thread. A function that is mapped may itself map another."""
        with single_threaded_blas, ThreadPoolExecutor(max(1, self.threads - 1)) as pool:
            yield lambda function, items: _in_order(pool, self.threads, function, list(items))

    def in_order(self, function: Callable[[int], Any], items: Iterable[int]) -> list[Any]:
        """`map` on the threads of this process, for the driver's own small work; BLAS stays at one thread."""
        with self.small_work() as in_order:
            return in_order(function, items)

    def worker_limits(self) -> list[tuple[str, int, int]]:
        """(address, threads, bytes it may use) of each worker of a cluster that has such a limit."""
        return [worker for worker in self._workers() if worker[2]]

    def core_types(self) -> list[str]:
        """The processor types for which BLAS computes where tasks run."""
        if self.client is None:
            return ["+".join(blas_core_types())]
        fit = [address for address, _, _ in self._workers()]
        found = on_workers(self.client, self.timeout, blas_core_types, workers=fit)
        return sorted({"+".join(each) for each in found.values() if isinstance(each, tuple)})

    def check_paths(self, *paths: str | None) -> None:
        """Require that workers of a cluster see at these paths what this process sees. Raises SpecError, naming one,
        where none does; those that do not get no tasks, also if they join later."""
        given = [path for path in paths if path is not None]
        if self.client is not None and given:
            before = tuple(sight for sight in self.crew.requirements.sights if sight.path not in given)
            sights = (*before, *map(sight_of, given))
            self.crew.require(self.client, self.timeout, replace(self.crew.requirements, sights=sights))

    def check_memory(self, peak_bytes: Callable[[int], int]) -> None:
        """Require that workers may use the memory that a process with their threads will need. Raises MemoryLimitError,
        naming one, where none may; those that may not get no tasks, also if they join later."""
        if self.client is not None:
            peaks = peaks_of(peak_bytes)
            self.crew.require(self.client, self.timeout, replace(self.crew.requirements, peaks=peaks))


def _in_order(pool: ThreadPoolExecutor, threads: int, function: Callable[[int], Any], items: list[int]) -> list[Any]:
    """function(item) of all items, in their order. The calling thread works with those of the pool that have nothing
    else to do, so that calls within calls never wait for a thread."""
    found: list[Any] = [None] * len(items)
    left, settings = deque(range(len(items))), np.geterr()  # which each thread has of its own

    def work() -> None:
        try:
            with np.errstate(**settings):
                while (i := _popped(left)) is not None:
                    found[i] = function(items[i])
        except BaseException:
            left.clear()
            raise

    helpers = [pool.submit(work) for _ in range(min(threads, len(items)) - 1)]
    try:
        work()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    return found


def _popped(numbers: deque[int]) -> int | None:
    """The first of the numbers, which is taken from them; None where another thread took the last one."""
    try:
        return numbers.popleft()
    except IndexError:
        return None
