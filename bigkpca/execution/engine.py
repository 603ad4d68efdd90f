"""Where tasks run: this thread, a pool of threads, or a Dask cluster. Results are the same bits everywhere.

Every pass is a list of independent block tasks, whose results are either kept in order or added up over a
tree that block numbers alone determine.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from weakref import WeakSet

import dask.config
import numpy as np
from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import Delayed, delayed
from dask.system import CPU_COUNT
from dask.utils import parse_bytes as _parse_bytes
from dask.utils import parse_timedelta
from distributed import Client, LocalCluster, Nanny, get_worker
from distributed.protocol import pickle
from threadpoolctl import ThreadpoolController

from bigkpca.data.memory import ArrayRows
from bigkpca.errors import MemoryLimitError, SpecError, UnlikeWorkersWarning
from bigkpca.numerics.aligned import all_aligned

_TOPIC = "bigkpca-blocks"


class _SingleThreadedBlas:
    """One process-wide limit of BLAS to one thread, set by the first to enter and lifted by the last.

    Limits of threadpoolctl hold for the whole process: were each task to set and restore its own, the first
    task to end would give its neighbours two threads, and two threads give other bits than one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._entered:
                self._limit = ThreadpoolController().limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._entered += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered:
                self._limit.__exit__(None, None, None)


single_threaded_blas = _SingleThreadedBlas()


class Progress(Protocol):
    """Told of every pass: its title and number of rows, then of the rows of each finished block; and of what
    the user should know besides the result."""

    def start(self, title: str, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, message: str) -> None: ...


@dataclass(frozen=True)
class Silent:
    """Progress for nobody."""

    def start(self, title: str, rows: int) -> None: ...

    def advance(self, rows: int) -> None: ...

    def finish(self) -> None: ...

    def note(self, message: str) -> None: ...


@dataclass(frozen=True)
class Task:
    """function(*arguments), of which some may be Dask's, standing for `rows` rows."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rows: int


@dataclass(frozen=True)
class Engine:
    """Runs block tasks on a cluster if there is a client, else on `threads` threads of this process."""

    threads: int = CPU_COUNT
    client: Client | None = None

    def each(self, title: str, tasks: Sequence[Task], progress: Progress) -> list[Any]:
        """Results of all tasks, in their order."""
        nodes, rows_of = _nodes(tasks)
        return self._compute(title, nodes, rows_of, progress)

    def total(self, title: str, tasks: Sequence[Task], progress: Progress) -> Any:
        """Sum of the results of all tasks, over a fixed binary tree: ((0+1)+(2+3))+((4+5)+...)."""
        nodes, rows_of = _nodes(tasks)
        # Binary, because of all trees it keeps the fewest partial results alive: one per level and worker.
        while len(nodes) > 1:
            sums = [_add(a, b) for a, b in zip(nodes[::2], nodes[1::2], strict=False)]
            nodes = sums + nodes[len(sums) * 2 :]
        (result,) = self._compute(title, nodes, rows_of, progress)
        return result

    def _compute(
        self, title: str, nodes: Sequence[Delayed], rows_of: Mapping[str, int], progress: Progress
    ) -> list[Any]:
        progress.start(title, sum(rows_of.values()))
        try:
            run = self._on_threads if self.client is None else partial(_on_cluster, self.client)
            return [found.value for found in run(nodes, rows_of, progress)]
        finally:
            progress.finish()

    def _on_threads(
        self, nodes: Sequence[Delayed], rows_of: Mapping[str, int], progress: Progress
    ) -> Iterable[Carried]:
        scheduler = "threads" if self.threads > 1 else "synchronous"
        counting = Callback(posttask=lambda key, *_: progress.advance(rows_of.get(key, 0)))
        with counting, single_threaded_blas:
            return compute(*nodes, scheduler=scheduler, num_workers=self.threads)

    @contextmanager
    def small_work(self) -> Iterator[Callable[[Callable[[int], Any], Iterable[int]], list[Any]]]:
        """`map` on threads of this process that last as long as the context, for the driver's own small work in many
        steps; BLAS stays at one thread."""
        with single_threaded_blas, ThreadPoolExecutor(self.threads) as pool:
            yield lambda function, items: list(pool.map(function, items))

    def in_order(self, function: Callable[[int], Any], items: Iterable[int]) -> list[Any]:
        """`map` on the threads of this process, for the driver's own small work; BLAS stays at one thread."""
        with self.small_work() as in_order:
            return in_order(function, items)

    def worker_limits(self) -> list[tuple[str, int, int]]:
        """(address, threads, bytes it may use) of each worker of a cluster that has such a limit."""
        if self.client is None:
            return []
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return [(address, w["nthreads"], w["memory_limit"]) for address, w in workers.items() if w["memory_limit"]]

    def check_memory(self, peak_bytes: Callable[[int], int]) -> None:
        """Raise MemoryLimitError if a worker may use less memory than a process with its threads will need."""
        for address, threads, limit in self.worker_limits():
            needed = peak_bytes(threads)
            if needed > limit:
                raise MemoryLimitError(
                    f"worker {address} may use {limit / 1e6:.0f} MB, the plan needs {needed / 1e6:.0f} MB; "
                    "give workers more memory or fewer threads, or ask for a smaller size"
                )


class Carried:
    """What goes into a task or comes out of one. Its arrays are aligned wherever it arrives, also in another process.

    Rows are left as they are: they may be many, and align what is read of them. To Dask it is opaque, which would
    otherwise search each argument for graphs, for milliseconds.
    """

    def __init__(self, value: Any) -> None:
        self.value: Any = value if isinstance(value, ArrayRows) else all_aligned(value)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        buffers: list[Any] = []
        # Before protocol 5, messages hold arrays within, and these are copied out of them anyway.
        keep = buffers.append if protocol >= 5 else None
        return _unpacked, (pickle.dumps(self.value, buffer_callback=keep), buffers)


def _unpacked(packed: bytes, buffers: list[Any]) -> Carried:
    """What a message held: arrays begin where NumPy puts a copy of them, whatever object they are part of."""
    return Carried(pickle.loads(packed, buffers=[np.array(np.frombuffer(buffer, np.uint8)) for buffer in buffers]))


def shared(value: Any) -> Delayed:
    """A value that many tasks take: it stands in the graph once, and reaches each worker once.

    Not scattered: scattered data are lost with their worker, a graph's own values are sent again.
    """
    return delayed(Carried(value), traverse=False)


def lazy(function: Callable[..., Any], *arguments: Any) -> Delayed:
    """function(*arguments) as a node of a user's own graph, run as a task is: arrays aligned, BLAS on one thread."""
    return delayed(_called, pure=False)(Carried(function), *map(_opaque, arguments))


def _nodes(tasks: Sequence[Task]) -> tuple[list[Delayed], dict[str, int]]:
    """The tasks in Dask's form, and the rows that each of their keys stands for."""
    run = delayed(_run, pure=False)
    nodes = [run(Carried(task.function), task.rows, *map(_opaque, task.arguments)) for task in tasks]
    return nodes, {node.key: task.rows for node, task in zip(nodes, tasks, strict=True)}


def _opaque(argument: Any) -> Any:
    return argument if isinstance(argument, Delayed) else Carried(argument)


def _called(function: Carried, *arguments: Any) -> Any:
    # What another task made of a user's own graph, as the chunk of a Dask array, comes as it is.
    given = [argument if isinstance(argument, Carried) else Carried(argument) for argument in arguments]
    with single_threaded_blas:
        return function.value(*(argument.value for argument in given))


def _run(function: Carried, rows: int, *arguments: Any) -> Carried:
    found = Carried(_called(function, *arguments))
    try:
        worker = get_worker()
    except ValueError:  # not on a cluster: the local scheduler's callback counts
        return found
    worker.log_event(_TOPIC, rows)
    return found


def _sum(a: Carried, b: Carried) -> Carried:
    return Carried(a.value + b.value)


_add = delayed(_sum, pure=False)


def _on_cluster(
    client: Client, nodes: Sequence[Delayed], rows_of: Mapping[str, int], progress: Progress
) -> Iterable[Carried]:
    client.subscribe_topic(_TOPIC, lambda event: progress.advance(event[1]))
    try:
        # Landmarks and components travel in the graph on purpose, see `shared`: no warning about its size.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
            futures = client.compute(list(nodes), optimize_graph=False)
        return client.gather(futures)
    finally:
        client.unsubscribe_topic(_TOPIC)


class _WithoutMain:
    """While entered, processes that are spawned do not import the module that was started as a program, as those of an
    interactive session do not: it would run again in each of them, and start processes of its own.

    What it defines reaches workers all the same: it is pickled by value.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = 0
        self._hidden: dict[str, Any] = {}

    def __enter__(self) -> None:
        with self._lock:
            if not self._entered:
                known = vars(sys.modules["__main__"])
                self._hidden = {key: known.pop(key) for key in ("__file__", "__spec__") if key in known}
                known["__spec__"] = None
            self._entered += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._entered -= 1
            if not self._entered:
                vars(sys.modules["__main__"]).update(self._hidden)


_without_main = _WithoutMain()


class _Nanny(Nanny):
    """Starts its worker, and starts it again when it died, without the user's script."""

    async def instantiate(self) -> Any:
        with _without_main:
            return await super().instantiate()


@contextmanager
def open_engine(scheduler: str | None = None, workers: int | None = None) -> Iterator[Engine]:
    """The engine of a run: the cluster at `scheduler`, `workers` local processes, else a Dask client that is
    current, else threads of this process. What is opened here is closed at the end.
    """
    if scheduler and workers:
        raise SpecError("give a scheduler address or a number of workers, not both")
    if scheduler:
        with Client(scheduler, set_as_default=False) as client:
            yield _on_client(client)
    elif workers:
        # Memory in a pass is work space, not results that could be spilled: pausing a worker for it would
        # only stop the pass (a paused worker never comes back when its memory is not Dask's own).
        memory = {f"distributed.worker.memory.{key}": False for key in ("target", "spill", "pause")}
        with (
            dask.config.set(memory),
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", worker_class=_Nanny
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield Engine(client=client)
    else:
        client = _current_client()
        yield Engine() if client is None else _on_client(client)


_compared: WeakSet[Client] = WeakSet()  # clients whose workers were looked at


def _on_client(client: Client) -> Engine:
    """The engine of a cluster that was there before. Warns UnlikeWorkersWarning, once for each client."""
    if client not in _compared:
        types = client.run(blas_core_types, on_error="ignore")
        if types:
            _compared.add(client)
        _warn_if_unlike(types)
    return Engine(client=client)


def blas_core_types() -> tuple[str, ...]:
    """The processor types for which the BLAS libraries of this process compute, e.g. ("Haswell",)."""
    libraries = ThreadpoolController().select(user_api="blas").info()
    return tuple(sorted({library["architecture"] for library in libraries if library.get("architecture")}))


def _warn_if_unlike(types: Mapping[str, tuple[str, ...]]) -> None:
    of_type: dict[str, list[str]] = {}
    for address in sorted(types):
        of_type.setdefault(" and ".join(types[address]) or "unknown", []).append(address)
    if len(of_type) > 1:
        found = ", ".join(f"{name} ({len(at)}, e.g. {at[0]})" for name, at in sorted(of_type.items()))
        warnings.warn(
            f"BLAS computes for unlike processors on the workers: {found}. Which worker computes which block then "
            "decides the last digits of results; for the same bytes from every run, take workers of one type, or start "
            "all of them with the same OPENBLAS_CORETYPE",
            UnlikeWorkersWarning,
            stacklevel=4,
        )


def _current_client() -> Client | None:
    try:
        return Client.current()
    except ValueError:
        return None


def parse_bytes(text: str | int) -> int:
    """Bytes in "2 GB" (decimal) or "2 GiB" (binary); SpecError if it says neither."""
    try:
        return int(_parse_bytes(text))
    except ValueError as error:
        raise SpecError(f"{text!r} is not an amount of memory such as '2 GB' or '500 MB'") from error


def parse_seconds(text: str | float) -> float:
    """Seconds in "10 min", "1.5 h" or 90; SpecError if it says none."""
    try:
        seconds = float(parse_timedelta(re.sub(r"mins?$", "minutes", text.strip()) if isinstance(text, str) else text))
    except (KeyError, ValueError) as error:
        raise SpecError(f"{text!r} is not a time such as '90 s' or '10 min'") from error
    if not seconds > 0:
        raise SpecError(f"{text!r}: a time budget is longer than nothing")
    return seconds
