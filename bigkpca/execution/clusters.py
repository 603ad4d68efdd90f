"""Engines: threads, processes started here, or a cluster that runs elsewhere."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import dask.config

from bigkpca.errors import IncompleteError, SpecError
from bigkpca.execution.engine import Engine, worker_here
from bigkpca.execution.progress import Progress, within
from bigkpca.execution.workers import compare_workers
from bigkpca.spec.units import TIMEOUT, check_scheduler

if TYPE_CHECKING:
    from distributed import Client


_CONNECT_SECONDS = 60.0

# A run that streams blocks needs other settings than Dask's. They apply to clusters started here, unless the user's
# configuration overrides them; docs/clusters.md lists them for other clusters.
_SETTINGS = {
    # A worker that dies takes innocent tasks with it.
    "distributed.scheduler.allowed-failures": 10,
    # A worker that hangs is abandoned, and its tasks go elsewhere.
    "distributed.scheduler.worker-ttl": "2 minutes",
    # A lost packet does not mean a lost worker.
    "distributed.comm.retry.count": 5,
    # Memory in a pass is work space, not results that could be spilled: pausing a worker because of it would only stop
    # the pass (a paused worker never resumes if the memory is not Dask's).
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}
_TLS = (
    "set distributed.comm.tls.ca-file, distributed.comm.tls.client.cert and distributed.comm.tls.client.key in Dask's "
    "configuration to files in PEM format"
)
# A worker that is closed may complain of closed connections.
_QUIET = "import logging; logging.getLogger('tornado.application').setLevel(logging.CRITICAL)"


@contextmanager
def open_engine(
    scheduler: str | None = None, workers: int | None = None, timeout: float = TIMEOUT, progress: Progress = Progress()
) -> Iterator[Engine]:
    """The engine of a run: the cluster at `scheduler`, `workers` local processes, otherwise a current Dask client,
    otherwise the cluster that Dask's configuration names (DASK_SCHEDULER_ADDRESS), otherwise threads of this process.
    Whatever is opened here is closed at the end.

    Raises SpecError for an invalid address, and for a worker with other versions of packages that must be the same;
    IncompleteError for a scheduler that does not answer, and if no worker appears within `timeout` seconds. Warns
    UnlikeWorkersWarning.
    """
    if scheduler is not None and workers:
        raise SpecError("specify a scheduler address or a number of workers, not both")
    current = None
    if scheduler is None and not workers:
        current = _current_client()
        if current is None and worker_here() is None:  # a task's own pass would wait for its worker
            scheduler = configured_scheduler()
    if scheduler is not None:
        with dask.config.set(_settings()), connect(scheduler, timeout) as client:
            progress.note(f"running on {scheduler}, dashboard {client.dashboard_link}")
            compare_workers(client, timeout)
            yield Engine(client=client, timeout=timeout, progress=progress)
    elif workers:
        with dask.config.set(_settings()), _local_cluster(workers, timeout) as client:
            yield Engine(client=client, timeout=timeout, progress=progress)
    else:
        if current is not None:
            compare_workers(current, timeout)
        yield Engine(client=current, timeout=timeout, progress=progress)


def configured_scheduler() -> str | None:
    """The address in Dask's configuration, which DASK_SCHEDULER_ADDRESS sets."""
    address: str | None = dask.config.get("scheduler-address", None)
    return address or None


def _current_client() -> Client | None:
    """The current Dask client; in a task, only one made current there: others could wait for that task."""
    if "distributed" not in sys.modules:  # none was made
        return None
    from distributed import Client

    with suppress(ValueError):
        return Client.current(allow_global=worker_here() is None)
    return None


def _settings() -> dict[str, Any]:
    """bigkpca's settings, without those that the user has changed."""
    import distributed  # noqa: F401  # whose defaults join those of Dask

    defaults = dask.config.merge(*dask.config.defaults)
    return {key: own for key, own in _SETTINGS.items() if dask.config.get(key) == dask.config.get(key, config=defaults)}


def connect(address: str, timeout: float) -> Client:
    """A client of the scheduler at an address. Dask tries for some time, since one that was just started may not listen
    yet. Raises SpecError for an invalid address, IncompleteError if no scheduler answers."""
    from distributed import Client

    check_address(address)
    seconds = min(timeout, _CONNECT_SECONDS)
    late = f"the scheduler at {address} does not answer: start one there, or correct the address"
    try:
        # Dask's own time limit does not hold once a connection is made.
        return within(seconds + 1, lambda: Client(address, timeout=seconds, set_as_default=False), late)
    except (OSError, ValueError) as error:  # ValueError: Tornado's, if the connection is closed before TLS starts
        reason = ": ".join(str(each) for each in (error, error.__cause__) if each is not None)
        if address.startswith(("tls://", "wss://")):
            reason += "; it must use TLS, and certificates of the same authority as distributed.comm.tls here"
        raise IncompleteError(f"{late} ({reason})") from error


def check_address(address: str) -> None:
    """Raise SpecError unless this can be the address of a scheduler, with certificates if it needs them."""
    scheme, _, host = address.rpartition("://")
    check_scheduler(address)
    if scheme in ("", "tcp", "ws") and dask.config.get("distributed.comm.require-encryption"):
        raise SpecError(f"{address} does not use TLS, which Dask's settings require: use tls://{host}")
    if scheme in ("tls", "wss"):
        from distributed import Security

        try:
            if Security().get_connection_args("client")["ssl_context"] is None:
                raise ValueError("none are set")
        except (OSError, ValueError) as error:
            raise SpecError(f"{address} needs certificates ({error}): {_TLS}") from error


@contextmanager
def _local_cluster(workers: int, timeout: float) -> Iterator[Client]:
    """A client of this many single-threaded processes on this machine, which nothing else can reach: they listen on
    loopback, and use TLS if the library `cryptography` is installed."""
    from distributed import Client, LocalCluster
    from distributed.system import MEMORY_LIMIT

    cluster = LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        memory_limit=MEMORY_LIMIT // workers,
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
        security=True if find_spec("cryptography") else None,
        silence_logs=logging.CRITICAL,  # errors of tasks arrive with their results
        preload=[*dask.config.get("distributed.worker.preload"), _QUIET],
    )
    with _without_main(), cluster, Client(cluster, set_as_default=False, direct_to_workers=True) as client:
        # Ctrl-C in a terminal reaches all its processes. Workers, which the thread of this loop starts, inherit that it
        # is blocked: this process ends them. (Their tracker, if it started later, would unblock it.)
        assert cluster.loop is not None
        resource_tracker.ensure_running()
        cluster.loop.add_callback(signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGINT})
        cluster.scale(workers)
        try:
            client.wait_for_workers(workers, timeout)
        except KeyboardInterrupt:
            client.wait_for_workers(workers, _CONNECT_SECONDS)  # a cluster cannot be closed while workers start
            raise
        yield client


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are spawned meanwhile do not import the main module of the program, which would run again in each
    of them, and start its own processes. Objects defined there still reach workers, since they are pickled by value."""
    known = vars(sys.modules["__main__"])
    hidden = {name: known.pop(name) for name in ("__file__", "__spec__") if known.get(name) is not None}
    known["__spec__"] = None
    try:
        yield
    finally:
        known.update(hidden)
