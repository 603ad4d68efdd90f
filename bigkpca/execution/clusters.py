"""Engines: threads, processes started here, or a cluster that runs elsewhere."""

from __future__ import annotations

import logging
import signal
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from multiprocessing import resource_tracker
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import dask.config

from bigkpca.data.stores import store_of
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.execution.engine import Engine, worker_here
from bigkpca.execution.progress import Progress, Silent, within
from bigkpca.execution.workers import Crew, known_workers, wait_for_workers
from bigkpca.spec.units import TIMEOUT, is_scheduler

if TYPE_CHECKING:
    from distributed import Client, LocalCluster


_CONNECT_SECONDS = 60.0
_RETRY_SECONDS = 1.0  # between two tries
_CLOSE_SECONDS = 4.0  # a stopped command may take twice this time to end


class _WithoutMain:
    """While entered, spawned processes do not import the main module of the program, which would run again in each of
    them and start its own processes. Objects defined there still reach workers, since they are pickled by value."""

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


def _settings() -> dict[str, Any]:
    """bigkpca's settings, without those that the user has changed."""
    import distributed  # noqa: F401  # whose defaults join those of Dask

    defaults = dask.config.merge(*dask.config.defaults)
    kept = [key for key in _SETTINGS if dask.config.get(key) == dask.config.get(key, config=defaults)]
    return {key: _SETTINGS[key] for key in kept}


@contextmanager
def open_engine(
    scheduler: str | None = None, workers: int | None = None, timeout: float = TIMEOUT, progress: Progress = Silent()
) -> Iterator[Engine]:
    """The engine of a run: the cluster at `scheduler`, `workers` local processes, otherwise a current Dask client,
    otherwise the cluster that Dask's configuration names (DASK_SCHEDULER_ADDRESS), otherwise threads of this process.
    Whatever is opened here is closed at the end.

    Raises SpecError for an invalid address, and if all workers have other versions of packages that must be the same;
    IncompleteError for a scheduler that does not answer, and if no worker appears within `timeout` seconds. Warns
    UnlikeWorkersWarning. If only some workers have other versions, `progress` reports them.
    """
    if scheduler and workers:
        raise SpecError("specify a scheduler address or a number of workers, not both")
    if scheduler:
        with dask.config.set(_settings()), connected(scheduler, timeout, progress) as client:
            progress.note(f"running on {scheduler}, dashboard {client.dashboard_link}")
            yield _on_client(client, timeout, progress)
    elif workers:
        with dask.config.set(_settings()), _local_cluster(workers) as client:
            yield Engine(client=client, timeout=timeout, crew=Crew(progress.note), progress=progress)
    elif worker_here() is not None:  # a pass inside a task would wait for workers that wait for it
        yield Engine(timeout=timeout, progress=progress)
    elif (current := _current_client()) is not None:
        yield _on_client(current, timeout, progress)
    elif address := configured_scheduler():
        with open_engine(address, timeout=timeout, progress=progress) as engine:
            yield engine
    else:
        yield Engine(timeout=timeout, progress=progress)


def configured_scheduler() -> str | None:
    """The address in Dask's configuration, which DASK_SCHEDULER_ADDRESS sets; None without one."""
    address: str | None = dask.config.get("scheduler-address", None)
    return address or None


def _current_client() -> Client | None:
    """The client that the user made in this process, if any."""
    if "distributed" not in sys.modules:  # none was made
        return None
    from distributed import Client

    with suppress(ValueError):
        return Client.current()
    return None


def opener(scheduler: str | None, timeout: float) -> Callable[[], AbstractContextManager[Engine]]:
    """A function that opens the engine of a scheduler, or of threads, in another process as `open_engine` does in this
    one. It can be pickled, and includes Dask's configuration of connections here, such as certificates."""
    return partial(_opened, scheduler, timeout, {"distributed.comm": dask.config.get("distributed.comm", {})})


@contextmanager
def _opened(scheduler: str | None, timeout: float, configured: dict[str, Any]) -> Iterator[Engine]:
    with dask.config.set(configured), open_engine(scheduler, timeout=timeout) as engine:
        yield engine


def connect(address: str, timeout: float, progress: Progress = Silent()) -> Client:
    """A client of the scheduler at an address, retried for some time, since one that was just started or restarted may
    not listen yet. Raises SpecError for an invalid address and for certificates that do not match, IncompleteError if
    no scheduler answers."""
    from distributed import Client
    from distributed.comm.core import FatalCommClosedError

    check_address(address)
    over_tls = address.startswith(("tls://", "wss://"))
    advice = "correct the address, or specify certificates of its authority" if over_tls else "or correct the address"
    late = f"the scheduler at {address} does not answer: start one there, {advice}"
    seconds, noted = min(timeout, _CONNECT_SECONDS), False
    end = monotonic() + seconds
    while True:
        try:
            # Dask's own time limit does not hold once a connection is made.
            left = max(_RETRY_SECONDS, end - monotonic())
            return within(left, lambda: Client(address, set_as_default=False), late)
        except (OSError, ValueError) as error:  # ValueError: Tornado's, if the connection is closed before TLS starts
            fatal = isinstance(error, FatalCommClosedError)
            if fatal and "does not match" in str(error):
                raise SpecError(
                    f"the scheduler at {address} has a certificate that was not issued by the authority in "
                    f"{_named('ca_file')}: specify the authority of its certificate"
                ) from error
            ended = monotonic() >= end
            # A scheduler that refuses a certificate closes the connection; that can arrive before the reason.
            closed = over_tls and any(name in str(error) for name in ("SSL", "ConnectionReset", "Stream is closed"))
            if fatal or (ended and closed):
                raise SpecError(
                    f"the scheduler at {address} does not accept a connection over TLS ({error}): either it does not "
                    f"use TLS, or the certificate in {_named('cert')} was not issued by its authority"
                ) from error
            if ended:
                raise IncompleteError(f"{late} ({error})") from error
            if not noted:
                progress.note(f"the scheduler at {address} does not answer: retrying for {seconds:g} seconds")
            noted = True
            sleep(_RETRY_SECONDS)


@contextmanager
def connected(address: str, timeout: float, progress: Progress = Silent()) -> Iterator[Client]:
    """`connect`, until the context ends."""
    client = connect(address, timeout, progress)
    try:
        yield client
    finally:
        _closed(client.close)


@contextmanager
def _local_cluster(workers: int) -> Iterator[Client]:
    """A client of this many single-threaded processes on this machine, which nothing else can reach: they listen on
    loopback, and use TLS if the library `cryptography` is installed."""
    from distributed import Client

    cluster = _made_cluster(workers)
    try:
        client = Client(cluster, set_as_default=False)
        try:
            yield client
        except BaseException:
            _closed(partial(client.run, _hush))
            raise
        finally:
            _closed(client.close)
    finally:
        _closed(partial(_end, cluster))


def _end(cluster: LocalCluster) -> None:
    """Close a cluster, without Dask's messages until it has closed, which may be after this process stops waiting."""
    cluster.shutdown_on_close = False  # Dask would do it again when the process ends
    before = _hush()
    try:
        cluster.close()
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _made_cluster(workers: int) -> LocalCluster:
    """Made in a thread: an interrupting Ctrl-C would leave a partial cluster, which cannot be closed."""
    from distributed import LocalCluster, Nanny

    class WithoutMain(Nanny):
        async def instantiate(self) -> Any:
            # Ctrl-C in a terminal reaches all its processes. Workers inherit that it is blocked: this process ends them
            # in order, without tracebacks. This is the thread of Dask's event loop, which handles no signals. Starting
            # the resource tracker here would unblock it. It removes what processes that end abruptly leave behind,
            # without a message.
            sys.warnoptions.append("ignore:resource_tracker:UserWarning")
            resource_tracker.ensure_running()
            sys.warnoptions.remove("ignore:resource_tracker:UserWarning")
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            with _without_main:
                return await super().instantiate()

    pool = ThreadPoolExecutor(1, thread_name_prefix="bigkpca-cluster")
    future = pool.submit(
        LocalCluster,
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        worker_class=WithoutMain,
        host="127.0.0.1",
        security=True if find_spec("cryptography") else None,
    )
    pool.shutdown(wait=False)
    try:
        return future.result()
    except KeyboardInterrupt:
        wait([future], _CLOSE_SECONDS)
        future.add_done_callback(lambda done: None if done.exception() else done.result().close())
        raise


def _hush() -> dict[str, int]:
    """Silence Dask's messages about work that is interrupted while a cluster closes; errors of tasks arrive with their
    results. Returns the earlier levels of its loggers."""
    loggers = [logging.getLogger(f"distributed.{name}") for name in ("nanny", "scheduler", "worker")]
    before = {logger.name: logger.level for logger in loggers}
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    return before


def _closed(close: Callable[[], Any]) -> None:
    """Close, or abandon what does not close in time: its processes end with this one."""
    with suppress(IncompleteError, OSError, RuntimeError):
        within(_CLOSE_SECONDS, close, "it does not close")


def check_address(address: str) -> None:
    """Raise SpecError unless this can be the address of a scheduler, with certificates if it needs them."""
    scheme, _, host = address.rpartition("://")
    if not is_scheduler(address):
        raise SpecError(f"{address!r} is not the address of a Dask scheduler, such as tcp://10.0.0.1:8786")
    if scheme in ("", "tcp", "ws") and dask.config.get("distributed.comm.require-encryption"):
        raise SpecError(
            f"{address} does not use TLS, which the options or Dask's configuration require: use tls://{host}"
        )
    if scheme in ("tls", "wss") and _tls_context() is None:
        raise SpecError(
            f"{address} needs certificates: specify --tls-ca, --tls-cert and --tls-key, or set distributed.comm.tls in "
            "Dask's configuration"
        )


_FLAGS = {"ca_file": "--tls-ca", "cert": "--tls-cert", "key": "--tls-key"}


def _files() -> dict[str, str]:
    """The certificate files that options and Dask's configuration name; the latter may also contain certificates."""
    from distributed import Security

    found = Security().get_tls_config_for_role("client")
    return {key: found[key] for key in _FLAGS if found[key] and "\n" not in found[key]}


def _named(key: str) -> str:
    return f"{_FLAGS[key]} {_files().get(key, 'or Dask configuration')}"


def _tls_context() -> ssl.SSLContext | None:
    """The TLS settings; None without certificates. Raises SpecError, naming a file that is not valid."""
    from distributed import Security

    files = _files()
    for key, path in files.items():
        try:
            with store_of(path).open(path) as file:
                file.read(1)
        except OSError as error:
            raise SpecError(f"{_named(key)} cannot be read ({error.strerror}): specify a file in PEM format") from error
    try:
        return Security().get_connection_args("client").get("ssl_context")
    except (ssl.SSLError, OSError) as error:
        for key in [key for key in ("ca_file", "cert") if key in files]:
            try:
                ssl.create_default_context(cafile=files[key])
            except (ssl.SSLError, OSError):
                raise SpecError(f"{_named(key)} contains no certificate: specify a file in PEM format") from error
        wrong = f"{_named('cert')} contains no key: specify it with --tls-key"
        if "key" in files:
            wrong = f"{_named('key')} is not the key of the certificate in {_named('cert')} ({error}): give its key"
        raise SpecError(wrong) from error


_crews: WeakKeyDictionary[Client, Crew] = WeakKeyDictionary()  # clients whose workers were checked


def _on_client(client: Client, timeout: float, progress: Progress) -> Engine:
    """The engine of an existing cluster; a client checks each worker once, and again if it is unfit."""
    known = _crews.get(client)
    if known is None:
        wait_for_workers(client, timeout)
        known = Crew()
    crew = Crew(progress.note, known.requirements, looked=set(known.looked), worked=known.worked)
    crew.look(client, timeout)
    crew.check_any_fits(known_workers(client, timeout))
    crew.tell()
    if not crew.requirements.core_types:
        crew.compare_processors(client, timeout)
    _crews[client] = crew
    return Engine(client=client, timeout=timeout, crew=crew, progress=progress)
