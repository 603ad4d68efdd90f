"""Where passes run: on Dask's threaded scheduler in this process, or on a Dask cluster, with the same bits."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

import dask.config
import dask.threaded
import numpy as np
from dask.base import tokenize
from dask.callbacks import local_callbacks
from dask.delayed import Delayed
from dask.system import CPU_COUNT

from bigkpca.data.blocks import Block, fit_block_rows, split, tile_rows
from bigkpca.data.devices import TALLER, Device, device_of
from bigkpca.data.rows import Rows, tiles
from bigkpca.errors import Array, IncompleteError, MemoryLimitError
from bigkpca.execution.blas import blas_core_types, single_threaded_blas
from bigkpca.execution.graph import Key, Pass
from bigkpca.execution.on_cluster import on_cluster
from bigkpca.execution.progress import Progress, shown_pass
from bigkpca.execution.tasks import Placed, Task, block_tasks, some_take
from bigkpca.execution.workers import known_workers, on_workers, seen_at
from bigkpca.numerics.array_api import in_numpy
from bigkpca.numerics.features import FeatureMap
from bigkpca.spec.units import TIMEOUT

if TYPE_CHECKING:
    from distributed import Client, Worker


_PIECE_BYTES = 2**26  # above 32 MB, the C library takes memory from the system and returns it when it is freed
_LINE = 64  # bytes of a cache line: no two tiles share one


class KeptFeatures:
    """Features V (b, D) of tiles of the last pass that fit into `most_bytes`. Scores from them have the same bits."""

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
        """Memory; None if too little is left. The system gets a piece back once all its tiles are released."""
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
        """V of each tile of `height` rows from `start` to `stop` - 1, which is released; None if one is missing."""
        spans = [(first, min(first + height, stop)) for first in range(start, stop, height)]
        if not all(span in self._tiles for span in spans):
            return None
        return [self._tiles.pop(span) for span in spans]


def content_digest(*values: Any) -> str:
    """A digest of values; equal values have the same digest in every process."""
    return hashlib.sha256(tokenize(*values, ensure_deterministic=True).encode()).hexdigest()


_OMP_THREADS = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # Dask sets it for its workers later


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
    """Threads of a pass in this process: those of the Dask worker that runs this task; otherwise as Dask is configured
    (num_workers), or OMP_NUM_THREADS, which joblib sets; at most the number of processors."""
    worker = worker_here()
    if worker is not None:
        return int(worker.state.nthreads)
    asked = dask.config.get("num_workers", None) or _OMP_THREADS
    return min(CPU_COUNT, max(1, int(asked))) if str(asked).isdecimal() else CPU_COUNT


@dataclass(frozen=True)
class Engine:
    """Runs tasks on a cluster if there is a client, otherwise on `threads` threads of this process."""

    threads: int = field(default_factory=threads_here)
    client: Client | None = None
    timeout: float = TIMEOUT  # seconds without a finished task after which a pass on a cluster ends
    checkpoint: Callable[..., Any] | None = None  # of a title and what its sums depend on: where they are saved
    kept: KeptFeatures | None = None  # from the pass of a fit on threads, for scores of the same rows
    seen: dict[str, str] = field(default_factory=dict)  # what workers must see, by path
    progress: Progress = Progress()
    device: Device | None = None  # of tasks that take `placed` values; None is the processor

    def on_device(self, device: Device | None) -> Engine:
        """The same engine with passes on this device. Raises SpecError if it, or a worker, does not have it."""
        if device is not None and self.client is None:
            device.check()
        elif device is not None and device != self.device and self.client is not None:
            workers = known_workers(self.client, self.timeout)
            gpus = [address for address, worker in workers.items() if "GPU" in worker["resources"]]
            on_workers(self.client, self.timeout, device.check, workers=gpus)  # all, if none declares a GPU
        return replace(self, device=device)

    def placed(self, value: Any) -> Any:
        """A value for tasks, on the device, if there is one."""
        return value if self.device is None else Placed(value, self.device)

    @property
    def devices(self) -> list[str]:
        """Names of the devices on which passes compute, apart from the processor."""
        return [] if self.device is None else [str(self.device)]

    def each(self, title: str, tasks: Sequence[Task]) -> list[Any]:
        """Results of all tasks, in their order."""
        return self._computed(title, tasks, adds=False) if tasks else []

    def total(self, title: str, tasks: Sequence[Task], *given: Any) -> Any:
        """Sum of the results of all tasks, over a fixed binary tree: ((0+1)+(2+3))+((4+5)+...). `given` identifies its
        checkpoint, besides the rows."""
        checkpoint = None
        if self.checkpoint is not None and not some_take(tasks, Delayed):
            checkpoint = self.checkpoint(title, len(tasks), *given)
        return self._computed(title, tasks, checkpoint, adds=True)

    def _computed(self, title: str, tasks: Sequence[Task], checkpoint: Any = None, *, adds: bool) -> Any:
        """The sum of a pass, or the list of its results, from what a checkpoint saved of it on."""
        threads = self.threads
        if self.client is not None:  # those of all workers
            threads = max(1, sum(each["nthreads"] for each in known_workers(self.client, self.timeout).values()))
        given = Pass(title, tasks, threads, adds=adds, saved=checkpoint and checkpoint.saved())
        with shown_pass(self.progress, title, sum(task.rows for task in tasks)) as advance, single_threaded_blas:

            def done(some: range) -> None:
                if some:
                    advance(sum(task.rows for task in tasks[some.start : some.stop]))
                if checkpoint and checkpoint.due(ended=False):
                    checkpoint.save(given.known)

            for node in given.known:
                done(given.span(node))
            try:
                if self.client is None:
                    _on_threads(given, self.threads, done)
                else:
                    on_cluster(self.client, given, dict(self.seen), self.timeout, done)
            except (KeyboardInterrupt, IncompleteError):
                if checkpoint:
                    checkpoint.save(given.known)
                raise
            if checkpoint and checkpoint.due(ended=True):
                checkpoint.save(given.known)
        return given.known[given.root]

    def core_types(self) -> list[str]:
        """The processor types for which BLAS computes where tasks run."""
        if self.client is None:
            return ["+".join(blas_core_types())]
        return sorted({"+".join(types) for types in on_workers(self.client, self.timeout, blas_core_types).values()})

    def check_paths(self, *paths: str | None) -> None:
        """Require that workers of a cluster see at these paths what this process sees: each looks before its first
        task, whenever it joined."""
        if self.client is not None:
            self.seen.update({path: seen_at(path) for path in paths if path is not None})

    def check_memory(self, peak_bytes: Callable[[int], int]) -> None:
        """Raise MemoryLimitError, naming it, if a worker has less memory than a process with its threads needs."""
        known = {} if self.client is None else known_workers(self.client, self.timeout)
        for address, worker in sorted(known.items()):
            limit = worker["memory_limit"]  # 0 without one
            if limit and (needed := peak_bytes(worker["nthreads"])) > limit:
                raise MemoryLimitError(
                    f"worker {address} may use {limit / 1e6:.0f} MB, but the plan needs {needed / 1e6:.0f} MB; give "
                    "workers more memory or fewer threads, or choose a smaller size"
                )


def _on_threads(given: Pass, threads: int, done: Callable[[range], None]) -> None:
    """Add to a pass what is missing. `done` receives the numbers of the tasks that ended, none after a sum, in this
    thread. An error of a task, or of `done`, ends the run after the tasks at work. An interruption ends it at once, and
    these end by themselves."""
    if not (nodes := given.missing()):
        return
    stop, waits = Event(), True

    def before() -> None:
        if stop.is_set():
            raise CancelledError

    graph = given.graph(nodes, before, adding=True)

    def after(key: Key, *_: Any) -> None:
        done(graph.groups.get(key, range(0)))

    pool = ThreadPoolExecutor(threads, "bigkpca")
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


def fit_blocks(rows: Rows, block_rows: int | None) -> tuple[Block, ...]:
    """The blocks of a reduction over all rows."""
    n = rows.shape[0]
    return split(n, fit_block_rows(n, rows.grain, block_rows))


def tile_height(features: FeatureMap) -> int:
    """Rows of a tile of a pass with these features."""
    height = tile_rows(features.columns, features.size, features.dtype.itemsize)
    return height if in_numpy(features.offset) else height * TALLER


def block_tiles(rows: Rows, block: Block, features: FeatureMap, digest: Any = None) -> tuple[Iterator[Array], int]:
    """The tiles of a block, on the device of the features if rows are there, and the most rows of a tile."""
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
    """The sum of function(rows, block, *given, *tools) over all blocks, which does not depend on `tools`."""
    blocks = fit_blocks(rows, block_rows)
    tasks = block_tasks(function, rows, blocks, (*given, *tools))
    return engine.total(title, tasks, function.__qualname__, blocks[0], given)
