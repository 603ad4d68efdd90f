"""Engines: of threads, of processes started here, of a cluster that runs elsewhere."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import dask.config
from distributed import Client, LocalCluster, Nanny

from bigkpca.errors import SpecError, UnlikeWorkersWarning
from bigkpca.execution.blas import blas_core_types
from bigkpca.execution.engine import Engine


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


def _warn_if_unlike(types: Mapping[str, tuple[str, ...]]) -> None:
    of_type: dict[str, list[str]] = {}
    for address in sorted(types):
        of_type.setdefault(" and ".join(types[address]) or "unknown", []).append(address)
    if len(of_type) > 1:
        found = ", ".join(f"{name} ({len(at)}, e.g. {at[0]})" for name, at in sorted(of_type.items()))
        warnings.warn(
            f"the BLAS of the workers is for different processors: {found}. The last digits of results then depend on "
            "which worker computes which block; for the same bytes from every run, use workers of one type, or start "
            "all of them with the same OPENBLAS_CORETYPE",
            UnlikeWorkersWarning,
            stacklevel=4,
        )


def _current_client() -> Client | None:
    try:
        return Client.current()
    except ValueError:
        return None
