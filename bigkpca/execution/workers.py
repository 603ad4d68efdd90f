"""The requirements for workers of a cluster to take part in a run, and which workers meet them.

Workers come and go. So the requirements of a run are sent with its tasks, and each worker is checked when it runs its
first task, whenever it joined. An unfit worker gets no more tasks of the run, but is otherwise left alone, since it may
be working for someone else.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from os import getpid
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.data.devices import Device
from bigkpca.data.stores import NODE_FILES, store_of
from bigkpca.errors import BigKPCAError, IncompleteError, MemoryLimitError, SpecError, UnlikeWorkersWarning, warn
from bigkpca.execution.blas import blas_core_types
from bigkpca.execution.progress import WARNING, within

if TYPE_CHECKING:
    from distributed import Client, Worker

_ANSWER_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 1.0  # a network file system may take a moment to show what was just written
# Tasks are pickled here and unpickled there, and results depend on these.
_SAME = ("bigkpca", "dask", "distributed", "numpy", "scipy", "zarr")
_READ_BYTES = 2**16  # bytes of a file that are compared
_MOST_THREADS = 64  # threads of a worker up to which memory is planned exactly
CoreTypes = tuple[str, ...]


@dataclass(frozen=True)
class Sight:
    """A path, and a digest of its content; "" if there is nothing."""

    path: str
    digest: str


@dataclass(frozen=True)
class Requirements:
    """The requirements for a worker to take part in a run; an empty field means no requirement. `versions`: of Python
    and packages, by name; `peaks`: the bytes that a process with 1, 2, ... threads needs; `core_types`: the processor
    types for which BLAS may compute; `device`: the name of a device, and `device_bytes`: what 1, 2, ... threads need
    there."""

    versions: tuple[tuple[str, str], ...] = ()
    sights: tuple[Sight, ...] = ()
    peaks: tuple[int, ...] = ()
    core_types: frozenset[CoreTypes] = frozenset()
    device: str | None = None
    device_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Misfit:
    """Why a worker is unfit: the error that would end a run without other workers and, if that concerns a path, what it
    was asked to see; or only its processor types, with which it can take part."""

    error: BigKPCAError | None = None
    sight: Sight | None = None
    core_types: CoreTypes = ()


class UnfitWorker(Exception):
    """A task was started on a worker that does not meet the requirements of its run."""

    def __init__(self, worker: str, misfit: Misfit) -> None:
        super().__init__(worker, misfit)
        self.worker, self.misfit = worker, misfit


@lru_cache(maxsize=1)
def requirements_here() -> Requirements:
    """The requirements of every run from this process: the same versions. Reading them takes 30 ms."""
    here = {name: version(name) for name in _SAME} | {"Python": platform.python_version()}
    return Requirements(tuple(here.items()))


def check_here(requirements: Requirements) -> None:
    """Raise UnfitWorker if the worker that runs this task does not meet the requirements. Each worker is checked
    once."""
    from distributed import get_worker

    worker = get_worker()
    _checked(worker.address, worker.state.nthreads, worker.memory_manager.memory_limit, requirements)


# A worker closes when it receives a message that it cannot unpickle, and its work for others is lost. So tasks are
# bytes and arrays until this runs on it.
CALL = (
    "__import__('bigkpca.execution.workers', fromlist=['called'])"
    ".called(bigkpca_required, bigkpca_packed, bigkpca_buffers, bigkpca_values)"
)


def packed_call(requirements: Requirements, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """The names in CALL that make up function(values, *arguments) on a worker that meets the requirements, except
    `bigkpca_values`, the results of other tasks that it takes. A name must not be a key of a user's graph."""
    from distributed.protocol import pickle

    raw: list[Any] = []
    packed = pickle.dumps((function, arguments), buffer_callback=raw.append)
    buffers = [np.frombuffer(buffer.raw(), np.uint8) for buffer in raw]
    required = pickle.dumps(requirements)
    return {"bigkpca_required": required, "bigkpca_packed": packed, "bigkpca_buffers": buffers}


def called(required: bytes, packed: bytes, buffers: Sequence[Any], values: Sequence[Any]) -> Any:
    """The function that CALL evaluates, on a worker. Raises UnfitWorker."""
    from distributed.protocol import pickle

    check_here(pickle.loads(required))
    function, arguments = pickle.loads(packed, buffers=buffers)
    return function(values, *arguments)


@lru_cache(maxsize=64)  # which remembers no exception
def _checked(address: str, threads: int, limit: int | None, requirements: Requirements) -> None:
    misfit = _misfit(address, threads, limit, requirements)
    if misfit is not None:
        raise UnfitWorker(address, misfit)


def look_here(requirements: Requirements, dask_worker: Worker) -> Misfit | None:
    """Why this worker does not meet the requirements; None if it does. For `Client.run`."""
    limit = dask_worker.memory_manager.memory_limit
    return _misfit(dask_worker.address, dask_worker.state.nthreads, limit, requirements)


def _misfit(address: str, threads: int, limit: int | None, requirements: Requirements) -> Misfit | None:
    for name, expected in requirements.versions:
        found = None  # where it is not installed
        with suppress(PackageNotFoundError):
            found = platform.python_version() if name == "Python" else version(name)
        other = _other_version(address, name, found, expected)
        if other is not None:
            return Misfit(other)
    if (peaks := requirements.peaks) and limit:
        # Beyond the planned numbers, each thread adds the same amount.
        beyond = max(0, threads - len(peaks))
        needed = peaks[min(threads, len(peaks)) - 1] + beyond * (peaks[-1] - (peaks[-2] if len(peaks) > 1 else 0))
        if needed > limit:
            return Misfit(
                MemoryLimitError(
                    f"worker {address} may use {limit / 1e6:.0f} MB, but the plan needs {needed / 1e6:.0f} MB; give "
                    "workers more memory or fewer threads, or choose a smaller size"
                )
            )
    for sight in requirements.sights:
        error = _other_sight(address, sight)
        if error is not None:
            return Misfit(error, sight)
    if requirements.device is not None:
        try:
            _check_device(requirements.device, (0, *requirements.device_bytes)[: threads + 1][-1])
        except BigKPCAError as failed:
            return Misfit(type(failed)(f"worker {address}: {failed}"))
    types = blas_core_types()
    if requirements.core_types and types not in requirements.core_types:
        return Misfit(core_types=types)
    return None


@lru_cache(maxsize=64)  # which remembers no exception: tasks that have begun take the memory themselves
def _check_device(name: str, needed: int) -> None:
    """Raise SpecError or DeviceMemoryError unless this process has a device with so many bytes."""
    device = Device.named(name)
    if device is not None:
        device.check()
        device.check_room(needed)


def _other_version(address: str, name: str, found: str | None, expected: str) -> SpecError | None:
    if found is None:
        return SpecError(
            f"worker {address} lacks {name}: install {name} {expected} where workers run, and start them again"
        )
    telling = 2 if name == "Python" else None  # 3.11 for Python 3.11.7, otherwise all parts
    if found.split(".")[:telling] != expected.split(".")[:telling]:
        return SpecError(
            f"worker {address} has {name} {found}, but this process has {expected}: install the same version in both"
        )
    return None


def peaks_of(peak_bytes: Callable[[int], int]) -> tuple[int, ...]:
    """The bytes that processes with 1, 2, ... threads need."""
    return tuple(peak_bytes(threads) for threads in range(1, _MOST_THREADS + 1))


def sight_of(path: str) -> Sight:
    """What this process sees at a path. Raises the errors of the store, except if nothing is there."""
    store, digest = store_of(path), hashlib.sha256()
    try:
        files = [f"{path}/{name}" for name in NODE_FILES] if store.is_folder(path) else [path]
        found = store.is_folder(path)
        for file in files:
            with suppress(FileNotFoundError), store.open(file) as opened:
                digest.update(f"{file} {store.file(file).bytes}\n".encode() + opened.read(_READ_BYTES))
                found = True
    except OSError:
        return Sight(path, "")
    return Sight(path, digest.hexdigest() if found else "")


def _other_sight(address: str, expected: Sight) -> BigKPCAError | None:
    """What is wrong with what this worker sees at a path."""
    try:
        seen = sight_of(expected.path)
        if seen != expected:
            sleep(_LOOK_AGAIN_SECONDS)
            seen = sight_of(expected.path)
    except BigKPCAError as error:  # of an object store
        return type(error)(f"worker {address} cannot use {error}")
    if seen == expected and seen.digest:
        return None
    what = f"sees something else at {seen.path} than this process" if seen.digest else f"does not see {seen.path}"
    return SpecError(
        f"worker {address} {what}: workers read and write themselves, so every path must be on a file system that all "
        "machines mount at the same place, or on an object store with the same address for all of them"
    )


@dataclass(eq=False)
class Crew:
    """The workers of a cluster in one run: their requirements, and the workers that do not meet them, with the errors,
    which get no more tasks. `note` receives one warning for each of these; `told` are those already reported. `looked`
    are the workers that were checked from here."""

    note: Callable[[str], None] = lambda _: None
    requirements: Requirements = field(default_factory=requirements_here)
    unfit: dict[str, BigKPCAError] = field(default_factory=dict)
    looked: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    worked: bool = False  # whether a worker was found to fit

    def copy(self) -> Crew:
        """The same workers, for an engine with other requirements."""
        return replace(self, unfit=dict(self.unfit), looked=set(self.looked), told=set(self.told))

    def fit(self, workers: Collection[str]) -> list[str]:
        """Those of the workers that are not known to be unfit."""
        return sorted(set(workers) - set(self.unfit))

    def check_any_fits(self, workers: Collection[str]) -> None:
        """Raise the error of the first worker if none of these is fit."""
        if workers and not self.fit(workers):
            raise self.unfit[min(workers)]

    def met(self, worker: str, misfit: Misfit) -> None:
        """Register a worker that does not meet the requirements."""
        if misfit.error is None:  # processor types that no earlier worker has: it takes part, with a warning
            known = self.requirements.core_types
            if misfit.core_types not in known:
                joined = f"{_types(misfit.core_types)} of {worker}, which joined later"
                _warn_of_unlike(f"{', '.join(sorted(map(_types, known)))}, and {joined}")
                self.requirements = replace(self.requirements, core_types=known | {misfit.core_types})
        elif misfit.sight is None or not self._is_stale(misfit.sight):
            self.unfit.setdefault(worker, misfit.error)

    def tell(self) -> None:
        """Report the unfit workers, each once."""
        for worker in sorted(self.unfit.keys() - self.told):
            self.told.add(worker)
            self.note(f"{WARNING}a worker gets no tasks of this run: {self.unfit[worker]}")

    def _is_stale(self, asked: Sight) -> bool:
        """Whether a path changed since workers were asked to see it; if so, they are asked for its current content."""
        try:
            now = sight_of(asked.path)
        except BigKPCAError:
            return False
        if now == asked:
            return False
        others = tuple(sight for sight in self.requirements.sights if sight.path != asked.path)
        self.requirements = replace(self.requirements, sights=(*others, now) if now.digest else others)
        return True

    def look(self, client: Client, timeout: float) -> None:
        """Check all workers that were not yet checked from here, even those that cannot run bigkpca's tasks."""
        new = sorted(set(known_workers(client, timeout)) - self.looked - set(self.unfit))
        for name, expected in self.requirements.versions:
            # Functions of the standard library, since a worker may lack bigkpca.
            of = (version, name) if name != "Python" else (platform.python_version,)
            for address, found in on_workers(client, timeout, *of, workers=self.fit(new)).items():
                installed = None if isinstance(found, Exception) else found
                error = _other_version(address, name, installed, expected)
                if error is not None:
                    self.unfit.setdefault(address, error)
        self._met_all(client, timeout, self.fit(new))

    def compare_processors(self, client: Client, timeout: float) -> None:
        """Warn if the fit workers have different processors; those that join later are compared with these."""
        found = on_workers(client, timeout, blas_core_types, workers=self.fit(known_workers(client, timeout)))
        types = {address: each for address, each in found.items() if isinstance(each, tuple)}
        of_type: dict[str, list[str]] = {}
        for address in sorted(types):
            of_type.setdefault(_types(types[address]), []).append(address)
        if len(of_type) > 1:
            _warn_of_unlike(", ".join(f"{name} ({len(at)}, e.g. {at[0]})" for name, at in sorted(of_type.items())))
        self.requirements = replace(self.requirements, core_types=frozenset(types.values()))

    def require(self, client: Client, timeout: float, requirements: Requirements) -> None:
        """Require this from now on, and check all workers. Raises the error of the first if none is fit."""
        before, unfit = self.requirements, dict(self.unfit)
        self.requirements = requirements
        workers = known_workers(client, timeout)
        try:
            self._met_all(client, timeout, self.fit(workers))
            self.check_any_fits(workers)
        except BaseException:
            self.requirements, self.unfit = before, unfit
            raise
        self.tell()

    def _met_all(self, client: Client, timeout: float, workers: Sequence[str]) -> None:
        found = on_workers(client, timeout, look_here, self.requirements, workers=workers)
        for address, misfit in found.items():
            self.looked.add(address)
            if isinstance(misfit, Exception):
                self.unfit.setdefault(address, SpecError(f"worker {address} cannot run bigkpca: {misfit!r}"))
            elif misfit is not None:
                self.met(address, misfit)
            self.worked |= address not in self.unfit


def _types(core_types: CoreTypes) -> str:
    return " and ".join(core_types) or "unknown"


def _warn_of_unlike(found: str) -> None:
    warn(
        f"the workers use BLAS for different processors: {found}. The last digits of results then depend on which "
        "worker computes which block; for identical bytes from every run, use workers of one type, or start all of "
        "them with the same OPENBLAS_CORETYPE",
        UnlikeWorkersWarning,
    )


def known_workers(client: Client, timeout: float) -> dict[str, Any]:
    """What the scheduler reports about each worker, by address. Raises IncompleteError if it does not answer."""
    if client.scheduler is None or client.status in ("closing", "closed"):
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    late = f"the scheduler at {_address(client)} does not answer: run the same command again when it does"
    seconds = min(timeout, _ANSWER_SECONDS)
    found = within(seconds, lambda: client.scheduler_info(n_workers=-1), late)
    if "workers" not in found:  # the scheduler is gone
        raise IncompleteError(late)
    return found["workers"]


def wait_for_workers(client: Client, timeout: float) -> None:
    """Wait until there is a worker. Raises IncompleteError after `timeout` seconds."""
    late = f"no worker is connected to the scheduler at {_address(client)}: start some, and run the same command again"
    end = monotonic() + timeout
    asked = client.submit(getpid, pure=False)  # adaptive clusters start workers only for waiting tasks
    while not known_workers(client, timeout):  # not only those that accept tasks: some may be paused
        if monotonic() > end:
            raise IncompleteError(late)
        sleep(0.2)
    asked.release()


def on_workers(
    client: Client, timeout: float, function: Callable[..., Any], *arguments: Any, workers: Collection[str]
) -> dict[str, Any]:
    """function(*arguments) on these workers, by their addresses in order; an exception is a result. Workers that leave
    meanwhile are omitted. Raises IncompleteError, naming one, if workers do not answer within a minute, or `timeout`
    seconds."""
    asked = sorted(workers)
    if not asked:
        return {}
    late = f"a worker of the scheduler at {_address(client)} does not answer, one of {', '.join(asked[:3])} or others"
    run = partial(client.run, function, *arguments, workers=asked, on_error="return")
    found = within(min(timeout, _ANSWER_SECONDS), run, late)
    return {address: found[address] for address in sorted(found) if not isinstance(found[address], OSError)}


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler else "a closed client"
