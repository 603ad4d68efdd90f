"""Where passes run: on Dask's threaded scheduler in this process, or on a Dask cluster, with the same bits.

Every pass is a list of independent block tasks, whose results are either kept in order or added up. It becomes one Dask
graph (`graphs`).
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import dask.config
import numpy as np
from dask.base import tokenize
from dask.system import CPU_COUNT

from bigkpca.errors import IncompleteError
from bigkpca.execution.blas import blas_core_types, single_threaded_blas
from bigkpca.execution.carried import Carried
from bigkpca.execution.graphs import Node, Pass
from bigkpca.execution.kept_features import KeptFeatures
from bigkpca.execution.on_cluster import on_cluster
from bigkpca.execution.on_threads import on_threads
from bigkpca.execution.partial_sums import Checkpoint, Checkpoints, PartialSums
from bigkpca.execution.progress import Progress
from bigkpca.execution.tasks import Task, depends_on_graph, sizes_of
from bigkpca.execution.watch import Watch, within
from bigkpca.execution.workers import Crew, known_workers, on_workers, peaks_of, sight_of
from bigkpca.spec.defaults import TIMEOUT

if TYPE_CHECKING:
    from distributed import Client, Worker


def content_digest(*values: Any) -> str:
    """A digest of values, which equal values have in every process."""
    return hashlib.sha256(tokenize(*values, ensure_deterministic=True).encode()).hexdigest()


# Read early: Dask sets it in this process, to 1, for the workers that it starts, and with it this seed of hashes.
_OF_DASK = os.environ.get("PYTHONHASHSEED") == "6640"
_OMP_THREADS = "" if _OF_DASK else os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()

_SAVE_SECONDS = 5.0  # for the last save of a run that ends early


def worker_here() -> Worker | None:
    """The Dask worker of which this is a task; None elsewhere."""
    if "distributed" not in sys.modules:  # nobody started one
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def threads_here() -> int:
    """Threads that a pass in this process may use: in a task of a Dask worker as many as that has; else as many as Dask
    is configured to use (num_workers), or OMP_NUM_THREADS says, which joblib sets where processes share a machine, and
    at most the processors that this process may use."""
    worker = worker_here()
    if worker is not None:
        return int(worker.state.nthreads)
    asked = dask.config.get("num_workers", None) or _OMP_THREADS
    return min(CPU_COUNT, max(1, int(asked))) if str(asked).isdecimal() else CPU_COUNT


@dataclass(frozen=True)
class Engine:
    """Runs tasks on a cluster if there is a client, else on `threads` threads of this process.

    A pass ends with IncompleteError if no task ends for `timeout` seconds. With `checkpoints`, sums are saved now and
    then, and go on from there in another process. With `kept`, the pass of a fit on threads leaves features there, and
    scores of the same rows take them from there. `crew` is what is known of the workers of a cluster.
    """

    threads: int = field(default_factory=threads_here)
    client: Client | None = None
    timeout: float = TIMEOUT
    checkpoints: Checkpoints | None = None
    kept: KeptFeatures | None = None
    crew: Crew = field(default_factory=Crew)

    def each(self, title: str, tasks: Sequence[Task], progress: Progress) -> list[Any]:
        """Results of all tasks, in their order."""
        given, found = self._pass(title, tasks, adds=False), dict[Node, Carried]()
        with self._showing(title, tasks, progress) as done, single_threaded_blas:
            for some in self._computed(given, lambda: found, lambda: False, done):
                found.update(some)
        first = {given.span(node).start: carried.value for node, carried in found.items()}
        return [result for number in sorted(first) for result in first[number]]

    def total(self, title: str, tasks: Sequence[Task], progress: Progress, *given: Any) -> Any:
        """Sum of the results of all tasks, over a fixed binary tree: ((0+1)+(2+3))+((4+5)+...).

        `given` are the values that it depends on, besides the rows, by which its checkpoint is found again.
        """
        of_sums = self._pass(title, tasks, adds=True)
        with self._showing(title, tasks, progress) as done, single_threaded_blas:
            checkpoint = None
            if self.checkpoints is not None and not depends_on_graph(tasks):
                checkpoint = self.checkpoints.of(title, len(tasks), *given)
            sums = PartialSums(len(tasks), checkpoint.saved() if checkpoint else {})
            for node in sums.known:
                for task in of_sums.span(node):
                    done(task)
            self._add_up(of_sums, sums, checkpoint, done)
        return sums.total()

    def _add_up(
        self, given: Pass, sums: PartialSums, checkpoint: Checkpoint | None, done: Callable[[int], None]
    ) -> None:
        """The sum of a pass, saved now and then, and where it is cut off."""

        def due() -> bool:
            return checkpoint is not None and checkpoint.due(ended=False)

        try:
            for some in self._computed(given, lambda: sums.known, due, done):
                for node, carried in some.items():
                    sums.add(node, carried)
                if checkpoint and due():
                    checkpoint.save(sums.nodes)
        except (KeyboardInterrupt, IncompleteError):
            if checkpoint:
                with suppress(IncompleteError):  # what hangs may be the place where sums are saved
                    within(_SAVE_SECONDS, lambda: checkpoint.save(sums.nodes), "")
            raise
        if checkpoint and checkpoint.due(ended=True):
            checkpoint.save(sums.nodes)

    def _pass(self, title: str, tasks: Sequence[Task], adds: bool) -> Pass:
        return Pass.of(title, tasks, adds, self.all_threads, self.timeout / 2)

    def _computed(
        self,
        given: Pass,
        known: Callable[[], Mapping[Node, Carried]],
        due: Callable[[], bool],
        done: Callable[[int], None],
    ) -> Iterator[dict[Node, Carried]]:
        """Nodes of a pass that are not known, as their values come here: of a sum at least the last one."""
        if not given.tasks:
            return iter(())
        watch = Watch(self.timeout)
        if self.client is None:
            return on_threads(given, known(), self.threads, watch, done)
        return on_cluster(self.client, given, known, due, self.crew, watch, done)

    @contextmanager
    def _showing(self, title: str, tasks: Sequence[Task], progress: Progress) -> Iterator[Callable[[int], None]]:
        """A function that counts each task once, by its number."""
        sizes = sizes_of(tasks)
        progress.start(title, sum(sizes))
        counted: set[int] = set()

        def done(number: int) -> None:
            if number not in counted:
                counted.add(number)
                progress.advance(sizes[number])

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
