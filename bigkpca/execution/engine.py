"""Where passes run: on Dask's threaded scheduler in this process, or on a Dask cluster, with the same bits.

Every pass is a list of independent block tasks, whose results are either kept in order or added up. It becomes one Dask
graph (`tasks`).
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
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import dask.config
import numpy as np
from dask.base import tokenize
from dask.system import CPU_COUNT

from bigkpca.data.blocks import Block, fit_block_rows, split, tile_rows
from bigkpca.data.devices import AT_ONCE, Device, device_of, tile_factor
from bigkpca.data.rows import Rows, tiles
from bigkpca.errors import Array, IncompleteError, check_overflow
from bigkpca.execution.blas import blas_core_types, single_threaded_blas
from bigkpca.execution.on_cluster import on_cluster
from bigkpca.execution.on_threads import on_threads
from bigkpca.execution.progress import Progress, Silent, Watch, within
from bigkpca.execution.tasks import (
    BlockTasks,
    Carried,
    Node,
    Pass,
    Placed,
    Task,
    depends_on_graph,
    is_part,
    named_rows,
)
from bigkpca.execution.workers import Crew, known_workers, on_workers, peaks_of, sight_of
from bigkpca.numerics.array_api import in_numpy
from bigkpca.numerics.features import FeatureMap
from bigkpca.spec.units import TIMEOUT

if TYPE_CHECKING:
    from distributed import Client, Worker


_PIECE_BYTES = 2**26  # above 32 MB, the C library takes memory from the system and returns it when it is freed
_LINE = 64  # bytes of a cache line: no two tiles share one


class KeptFeatures:
    """Features V (b, D) of tiles of rows, as many as fit into `most_bytes`, of the last pass that began. Scores made
    from them have the same bits as those from recomputed features, since the tiles are the same."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.most_bytes = most_bytes  # None until a fit reserves room
        self._lock = Lock()
        self.begin()

    def __reduce__(self) -> tuple[type[KeptFeatures], tuple[int]]:
        """Another process has no room: features kept there would not come back."""
        return KeptFeatures, (0,)

    def begin(self) -> None:
        """Discard the features of another pass, which may differ."""
        with self._lock:
            self._left, self._free = self.most_bytes or 0, np.empty(0, np.uint8)
            self._tiles: dict[tuple[int, int], Array] = {}  # by first row, and by the row after the last

    def keeping(self, start: int, tiles: Iterable[tuple[Array, Array]]) -> Iterator[tuple[Array, Array]]:
        """The tiles (V, diagonal) of consecutive rows from `start` on; V are kept as long as there is room."""
        for V, diagonal in tiles:
            stop, room = start + len(V), self._room(V.nbytes)
            if room is not None:
                copy = room.view(V.dtype).reshape(V.shape)
                copy[:] = V  # which is a work space
                self._tiles[start, stop] = copy
            yield V, diagonal
            start = stop

    def _room(self, count: int) -> Array | None:
        """`count` bytes of memory; None if that is more than what is left. The system gets a piece back as
        soon as all its tiles are released, which the allocator would keep."""
        with self._lock:
            if count > self._left:
                return None
            self._left -= count
            taken = -(-count // _LINE) * _LINE
            if taken > len(self._free):
                self._free = np.empty(max(taken, _PIECE_BYTES), np.uint8)  # resident only where it is written
            room, self._free = self._free[:count], self._free[taken:]
        return room

    def take(self, start: int, stop: int, height: int) -> list[Array] | None:
        """V of each tile of `height` rows from row `start` to `stop` - 1, which are then released; None if one is
        missing."""
        spans = [(first, min(first + height, stop)) for first in range(start, stop, height)]
        if not all(span in self._tiles for span in spans):
            return None
        return [self._tiles.pop(span) for span in spans]


class PartialSums:
    """Known nodes of the sum over `tasks` tasks, none of them part of another."""

    def __init__(self, tasks: int, saved: Mapping[Node, Any]) -> None:
        self.known: dict[Node, Carried] = {}
        for (level, number), value in sorted(saved.items(), reverse=True):
            # An interrupted save leaves a node beside its parts: the large one counts.
            possible = 0 <= level <= (tasks - 1).bit_length() and 0 <= number << level < tasks
            if possible and not any(is_part((level, number), other) for other in self.known):
                self.known[level, number] = Carried(value)

    def add(self, node: Node, value: Carried) -> None:
        """Add a node, replacing its parts."""
        # Atomically: an interruption must not lose what was added up.
        self.known = {other: held for other, held in self.known.items() if not is_part(other, node)} | {node: value}

    @property
    def nodes(self) -> dict[Node, Any]:
        """The nodes, to be saved."""
        return {node: carried.value for node, carried in self.known.items()}

    def total(self) -> Any:
        """The sum over all tasks, once it is known."""
        (carried,) = self.known.values()
        return carried.value


def content_digest(*values: Any) -> str:
    """A digest of values; equal values have the same digest in every process."""
    return hashlib.sha256(tokenize(*values, ensure_deterministic=True).encode()).hexdigest()


# Read early: Dask sets this variable to 1 in this process, for the workers that it starts, along with this seed of
# hashes.
_OF_DASK = os.environ.get("PYTHONHASHSEED") == "6640"
_OMP_THREADS = "" if _OF_DASK else os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()

_SAVE_SECONDS = 5.0  # for the last save of a run that ends early


def worker_here() -> Worker | None:
    """The Dask worker that runs this task; None elsewhere."""
    if "distributed" not in sys.modules:  # none was started
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def threads_here() -> int:
    """Threads that a pass in this process may use: in a task of a Dask worker, as many as the worker has; otherwise as
    many as Dask is configured to use (num_workers), or OMP_NUM_THREADS, which joblib sets when processes share a
    machine; at most the number of processors that this process may use."""
    worker = worker_here()
    if worker is not None:
        return int(worker.state.nthreads)
    asked = dask.config.get("num_workers", None) or _OMP_THREADS
    return min(CPU_COUNT, max(1, int(asked))) if str(asked).isdecimal() else CPU_COUNT


@dataclass(frozen=True)
class Engine:
    """Runs tasks on a cluster if there is a client, otherwise on `threads` threads of this process.

    A pass ends with IncompleteError if no task ends for `timeout` seconds. `checkpoint` receives the title of a pass
    and the values that it depends on: its sums are saved there from time to time, and another process can continue from
    them. With `kept`, the pass of a fit on threads leaves features there, and scores of the same rows take them from
    there. `crew` is what is known about the workers of a cluster. `progress` receives the title of each pass, the rows
    of finished blocks, and notes. Tasks that take `placed` values compute on `device`; None is the processor.
    """

    threads: int = field(default_factory=threads_here)
    client: Client | None = None
    timeout: float = TIMEOUT
    checkpoint: Callable[..., Any] | None = None
    kept: KeptFeatures | None = None
    crew: Crew = field(default_factory=Crew)
    progress: Progress = Silent()
    device: Device | None = None

    def on_device(self, device: Device | None) -> Engine:
        """The same engine with passes on this device, here or on the workers of a cluster; workers without it get no
        tasks, even if they join later. Raises SpecError if it is not there."""
        crew = self.crew
        if device is not None and self.client is None:
            device.check()
        elif device != self.device and self.client is not None:
            crew = crew.copy()  # this engine still requires what it did
            name = None if device is None else str(device)
            crew.require(self.client, self.timeout, replace(crew.requirements, device=name, device_bytes=()))
        return replace(self, device=device, crew=crew)

    def placed(self, value: Any) -> Any:
        """A value for tasks, whose arrays each process moves to the device, if there is one."""
        return value if self.device is None else Placed(value, self.device)

    @property
    def devices(self) -> list[str]:
        """Names of the devices on which passes compute, apart from the processor."""
        return [] if self.device is None else [str(self.device)]

    def each(self, title: str, tasks: Sequence[Task]) -> list[Any]:
        """Results of all tasks, in their order."""
        given, found = Pass.of(title, tasks, False, self.all_threads, self.timeout / 2), dict[Node, Carried]()
        with self._showing(title, tasks) as done, single_threaded_blas:
            for some in self._computed(given, lambda: found, lambda: False, done):
                found.update(some)
        first = {given.span(node).start: carried.value for node, carried in found.items()}
        return [result for number in sorted(first) for result in first[number]]

    def total(self, title: str, tasks: Sequence[Task], *given: Any) -> Any:
        """Sum of the results of all tasks, over a fixed binary tree: ((0+1)+(2+3))+((4+5)+...). `given` are the values
        that it depends on besides the rows; they identify its checkpoint."""
        of_sums = Pass.of(title, tasks, True, self.all_threads, self.timeout / 2)
        with self._showing(title, tasks) as done, single_threaded_blas:
            checkpoint = None
            if self.checkpoint is not None and not depends_on_graph(tasks):
                checkpoint = self.checkpoint(title, len(tasks), *given)
            sums = PartialSums(len(tasks), checkpoint.saved() if checkpoint else {})
            for task in [task for node in sums.known for task in of_sums.span(node)]:
                done(task)

            def due() -> bool:
                return checkpoint is not None and checkpoint.due(ended=False)

            try:
                for some in self._computed(of_sums, lambda: sums.known, due, done):
                    for node, carried in some.items():
                        sums.add(node, carried)
                    if checkpoint and due():
                        checkpoint.save(sums.nodes)
            except (KeyboardInterrupt, IncompleteError):
                if checkpoint:
                    with suppress(IncompleteError):  # the place where sums are saved may itself hang
                        within(_SAVE_SECONDS, lambda: checkpoint.save(sums.nodes), "")
                raise
            if checkpoint and checkpoint.due(ended=True):
                checkpoint.save(sums.nodes)
        return sums.total()

    def _computed(
        self,
        given: Pass,
        known: Callable[[], Mapping[Node, Carried]],
        due: Callable[[], bool],
        done: Callable[[int], None],
    ) -> Iterator[dict[Node, Carried]]:
        """Unknown nodes of a pass, as their values arrive here: of a sum at least the last one."""
        if not given.tasks:
            return iter(())
        watch = Watch(self.timeout)
        if self.client is None:
            return on_threads(given, known(), self.threads, watch, done)
        return on_cluster(self.client, given, known, due, self.crew, watch, done)

    @contextmanager
    def _showing(self, title: str, tasks: Sequence[Task]) -> Iterator[Callable[[int], None]]:
        """A function that counts each task once, by its number."""
        sizes = tasks.sizes if isinstance(tasks, BlockTasks) else [task.rows for task in tasks]
        self.progress.start(title, sum(sizes))
        counted: set[int] = set()

        def done(number: int) -> None:
            if number not in counted:
                counted.add(number)
                self.progress.advance(sizes[number])

        try:
            yield done
        finally:
            self.progress.finish()

    @property
    def all_threads(self) -> int:
        """Threads of this process, or of all workers."""
        if self.client is None:
            return self.threads
        return max(1, sum(threads for _, threads, _ in self._workers()))

    def _workers(self) -> list[tuple[str, int, int]]:
        """(address, threads, bytes it may use) of each worker of a cluster that can take part."""
        if self.client is None:
            return []
        workers = known_workers(self.client, self.timeout)
        fit = self.crew.fit(workers)
        return [(address, workers[address]["nthreads"], workers[address]["memory_limit"]) for address in fit]

    @contextmanager
    def small_work(self) -> Iterator[Callable[[Callable[[int], Any], Iterable[int]], list[Any]]]:
        """`map` on threads of this process that live as long as the context, for work of the driver in many small
        steps; BLAS stays at one thread. A mapped function may itself map another."""
        with single_threaded_blas, ThreadPoolExecutor(max(1, self.threads - 1)) as pool:
            yield lambda function, items: _in_order(pool, self.threads, function, list(items))

    def in_order(self, function: Callable[[int], Any], items: Iterable[int]) -> list[Any]:
        """`map` on the threads of this process, for small work of the driver; BLAS stays at one thread."""
        with self.small_work() as in_order:
            return in_order(function, items)

    def worker_limits(self) -> list[tuple[str, int, int]]:
        """(address, threads, bytes it may use) of each worker of a cluster that has a memory limit."""
        return [worker for worker in self._workers() if worker[2]]

    def core_types(self) -> list[str]:
        """The processor types for which BLAS computes where tasks run."""
        if self.client is None:
            return ["+".join(blas_core_types())]
        fit = [address for address, *_ in self._workers()]
        found = on_workers(self.client, self.timeout, blas_core_types, workers=fit)
        return sorted({"+".join(each) for each in found.values() if isinstance(each, tuple)})

    def check_paths(self, *paths: str | None) -> None:
        """Require that workers of a cluster see at these paths what this process sees; others get no tasks, even if
        they join later. Raises SpecError, naming a path, if none does."""
        given = [path for path in paths if path is not None]
        if self.client is not None and given:
            before = tuple(sight for sight in self.crew.requirements.sights if sight.path not in given)
            sights = (*before, *map(sight_of, given))
            self.crew.require(self.client, self.timeout, replace(self.crew.requirements, sights=sights))

    def check_memory(self, peak_bytes: Callable[[int], int], device_bytes: Callable[[int], int] | None = None) -> None:
        """Require that workers may use the memory that a process with their threads will need, here and on the device;
        others get no tasks, even if they join later. Raises MemoryLimitError, naming one, if none may, and
        DeviceMemoryError if the device has too little memory."""
        threads = range(1, AT_ONCE + 1) if self.device and device_bytes else ()
        on_device = tuple(device_bytes(each) for each in threads) if device_bytes else ()
        if self.client is not None:
            required = replace(self.crew.requirements, peaks=peaks_of(peak_bytes), device_bytes=on_device)
            self.crew.require(self.client, self.timeout, required)
        elif self.device and on_device:
            self.device.check_room(on_device[min(self.threads, AT_ONCE) - 1])


def _in_order(pool: ThreadPoolExecutor, threads: int, function: Callable[[int], Any], items: list[int]) -> list[Any]:
    """function(item) of all items, in order. The calling thread works alongside idle threads of the pool, so nested
    calls never wait for a thread."""
    found: list[Any] = [None] * len(items)
    left, settings = deque(range(len(items))), np.geterr()  # which each thread has separately

    def work() -> None:
        try:
            with np.errstate(**settings):
                while left:
                    try:
                        i = left.popleft()
                    except IndexError:  # another thread took the last one
                        return
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


T = TypeVar("T")


def fit_blocks(rows: Rows, block_rows: int | None) -> tuple[Block, ...]:
    """The blocks of a reduction over all rows."""
    n = rows.shape[0]
    return split(n, fit_block_rows(n, rows.grain, block_rows))


def tile_height(features: FeatureMap) -> int:
    """Rows of a tile of a pass with these features; in a task, the same for all its tiles."""
    height = tile_rows(features.columns, features.size, features.dtype.itemsize)
    return height if in_numpy(features.offset) else height * tile_factor()


def block_tiles(rows: Rows, block: Block, features: FeatureMap, digest: Any = None) -> tuple[Iterator[Array], int]:
    """The tiles of a block, and the largest number of rows of a tile. Those of rows on the device of the features stay
    there."""
    height, device = tile_height(features), device_of(features.offset)
    return tiles(rows, block.start, block.stop, height, digest, device=device), min(height, len(block))


def sum_by_block(
    title: str,
    function: Callable[..., Any],
    rows: Rows,
    given: Sequence[Any],
    block_rows: int | None,
    engine: Engine,
    *tools: Any,
) -> Any:
    """The sum of function(rows, block, *given, *tools) over all blocks: the same bits wherever they are computed. The
    sum does not depend on `tools`."""
    blocks = fit_blocks(rows, block_rows)
    tasks = BlockTasks(function, rows, blocks, (*given, *tools))
    return engine.total(title, tasks, function.__qualname__, blocks[0], given)


def refuse_overflow(of: Callable[[Any], Array]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Decorates functions of (rows, block, ...): raises DataError, naming the rows, if `of` their result is not
    finite."""

    def decorated(function: Callable[..., T]) -> Callable[..., T]:
        @wraps(function)
        def checked(rows: Rows, block: Block, *given: Any) -> T:
            with np.errstate(over="ignore", invalid="ignore"):
                found = function(rows, block, *given)
            check_overflow(of(found), named_rows(rows, block))
            return found

        return checked

    return decorated
