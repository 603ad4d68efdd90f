"""What the workers of a cluster must have in common with the process that drives them: versions of packages, types of
processors, devices, and what they see at paths."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache, partial
from itertools import product
from os import getpid
from time import sleep
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from bigkpca.data.stores import NODE_FILES, store_of
from bigkpca.errors import BigKPCAError, IncompleteError, SpecError, UnlikeWorkersWarning, warn
from bigkpca.execution.blas import blas_core_types
from bigkpca.execution.progress import within

if TYPE_CHECKING:
    from distributed import Client

_ANSWER_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 1.0  # a network file system may take a moment to show what was just written
# Tasks are pickled here and unpickled there, and results depend on these.
_SAME = ("bigkpca", "dask", "distributed", "numpy", "scipy", "zarr")
_READ_BYTES = 2**16  # bytes of a file that are compared
_WORKER = "a worker of the scheduler"


def known_workers(client: Client, timeout: float) -> dict[str, Any]:
    """What the scheduler reports about each worker, by address. Raises IncompleteError if it is gone or does not
    answer, or if the client was closed."""
    found = _asked(client, timeout, "the scheduler", client.scheduler_info, n_workers=-1)
    if "workers" not in found:
        raise scheduler_gone(address_of(client))
    return found["workers"]


def address_of(client: Client) -> str:
    """The address of the scheduler."""
    return str(client.scheduler.address) if client.scheduler else "a closed client"


def scheduler_gone(address: str) -> IncompleteError:
    """The error for a scheduler that died during a request."""
    return IncompleteError(f"the scheduler at {address} is gone: start one again, and run the same command again")


def on_workers(
    client: Client, timeout: float, function: Callable[..., Any], *arguments: Any, workers: Collection[str] = ()
) -> dict[str, Any]:
    """function(*arguments) on these workers, by default on all, by their addresses in order, without those that leave
    meanwhile. Raises what the function raises, naming the worker, and IncompleteError as `known_workers`."""
    among = sorted(workers) or None
    found = _asked(client, timeout, _WORKER, client.run, function, *arguments, workers=among, on_error="return")
    for address, value in found.items():
        if isinstance(value, BigKPCAError):
            raise type(value)(f"worker {address}: {value}")
        if isinstance(value, Exception) and not isinstance(value, OSError):  # which a worker that left is
            raise value
    return {address: found[address] for address in sorted(found) if not isinstance(found[address], OSError)}


def _asked(client: Client, timeout: float, who: str, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """ask(*arguments, **options), a request that `who` must answer in time. Raises IncompleteError as
    `known_workers`."""
    if client.scheduler is None or client.status in ("closing", "closed"):
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    address = address_of(client)
    late = f"{who} at {address} does not answer: restart it, or run the same command again when it does"
    try:
        return within(min(timeout, _ANSWER_SECONDS), partial(ask, *arguments, **options), late)
    except (OSError, RuntimeError, AttributeError, UnboundLocalError) as error:
        raise scheduler_gone(address) from error  # Dask raises the last two if it closes the client meanwhile


_compared: WeakSet[Client] = WeakSet()  # clients whose workers were compared


def compare_workers(client: Client, timeout: float) -> None:
    """Wait until there is a worker and compare all workers with this process, once for each client."""
    if client in _compared:
        return
    if not known_workers(client, timeout):
        asked = client.submit(getpid, pure=False)  # adaptive clusters start workers only for waiting tasks
        try:
            client.wait_for_workers(1, timeout)
        except TimeoutError:
            raise IncompleteError(
                f"no worker is connected to the scheduler at {address_of(client)}: start some, and run the same "
                "command again"
            ) from None
        asked.release()
    versions = _asked(client, timeout, _WORKER, client.get_versions, packages=list(_SAME))
    others = {f"the scheduler at {address_of(client)}": versions["scheduler"]}
    others |= {f"worker {address}": each for address, each in sorted(versions["workers"].items())}
    for (name, other), package in product(others.items(), ("python", *_SAME)):
        there, ours = other["packages"].get(package), str(versions["client"]["packages"][package])
        telling = 2 if package == "python" else None  # 3.11 for Python 3.11.7, otherwise all parts
        if there is None or there.split(".")[:telling] != ours.split(".")[:telling]:
            what = f"no {package}" if there is None else f"{package} {there}"
            raise SpecError(f"{name} has {what}, but this process has {ours}: install the same version in both")
    of_type: dict[str, list[str]] = {}
    for address, types in on_workers(client, timeout, blas_core_types).items():
        of_type.setdefault(" and ".join(types) or "unknown", []).append(address)
    if len(of_type) > 1:
        found = ", ".join(f"{name} ({len(at)}, e.g. {at[0]})" for name, at in sorted(of_type.items()))
        warn(
            f"the workers use BLAS for different processors: {found}. The last digits of results then depend on which "
            "worker computes which block; for identical bytes from every run, use workers of one type, or start all of "
            "them with the same OPENBLAS_CORETYPE",
            UnlikeWorkersWarning,
        )
    _compared.add(client)


def seen_at(path: str) -> str:
    """A digest of what this process sees at a path; "" if that is nothing."""
    store, digest = store_of(path), hashlib.sha256()
    try:
        found = is_folder = store.is_folder(path)
        for file in [f"{path}/{name}" for name in NODE_FILES] if is_folder else [path]:
            with suppress(FileNotFoundError), store.open(file) as opened:
                digest.update(f"{file} {store.file(file).bytes}\n".encode() + opened.read(_READ_BYTES))
                found = True
    except OSError:
        return ""
    return digest.hexdigest() if found else ""


@lru_cache(maxsize=64)  # which remembers no exception
def look(path: str, expected: str) -> None:
    """Raise SpecError, naming the worker that runs this task, unless it sees at this path what `seen_at` returned."""
    from distributed import get_worker

    worker = f"worker {get_worker().address}"
    try:
        seen = seen_at(path)
        if seen != expected:
            sleep(_LOOK_AGAIN_SECONDS)
            seen = seen_at(path)
    except BigKPCAError as error:  # of an object store
        raise type(error)(f"{worker} cannot use {error}") from error
    if seen and seen == expected:
        return
    what = f"sees something else at {path} than this process" if seen else f"does not see {path}"
    raise SpecError(
        f"{worker} {what}: workers read and write themselves, so every path must be on a file system that all "
        "machines mount at the same place, or on an object store with the same address for all of them"
    )
