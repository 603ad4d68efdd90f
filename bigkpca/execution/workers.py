"""What the workers of a cluster have: versions, paths that they see."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from os import getpid
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from bigkpca.data.stores import store_of
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.execution.watch import within

if TYPE_CHECKING:
    from distributed import Client

_ANSWER_SECONDS = 60.0
# Tasks are pickled here and unpickled there, and results depend on these.
_SAME = ("bigkpca", "dask", "distributed", "numpy", "scipy", "zarr")


def known_workers(client: Client, timeout: float) -> dict[str, Any]:
    """What the scheduler says of each worker, by their addresses. Raises IncompleteError if it does not answer."""
    if client.scheduler is None or client.status in ("closing", "closed"):
        raise IncompleteError("the Dask client is closed: open one again, and run the same command again")
    late = f"the scheduler at {_address(client)} does not answer: run the same command again when it does"
    seconds = min(timeout, _ANSWER_SECONDS)
    found: dict[str, Any] = within(seconds, lambda: client.scheduler_info(n_workers=-1)["workers"], late)
    return found


def wait_for_workers(client: Client, timeout: float) -> None:
    """Wait until a worker is there. Raises IncompleteError after `timeout` seconds."""
    late = f"no worker is connected to the scheduler at {_address(client)}: start some, and run the same command again"
    end = monotonic() + timeout
    asked = client.submit(getpid, pure=False)  # clusters that adapt start workers only for tasks that wait
    while not known_workers(client, timeout):  # not only those that take up tasks: some may be paused
        if monotonic() > end:
            raise IncompleteError(late)
        sleep(0.2)
    asked.release()


def check_versions(client: Client, timeout: float) -> None:
    """Raise SpecError, naming a worker, where Python or a package that must be the same is not."""
    here = {name: version(name) for name in _SAME} | {"Python": platform.python_version()}
    for name, expected in here.items():
        # Functions of the standard library, since a worker may lack bigkpca.
        of = (version, name) if name != "Python" else (platform.python_version,)
        for address, found in on_workers(client, timeout, *of).items():
            if isinstance(found, PackageNotFoundError):
                raise SpecError(
                    f"worker {address} lacks {name}: install {name} {expected} where workers run, and start them again"
                )
            if _telling(name, found) != _telling(name, expected):
                raise SpecError(
                    f"worker {address} has {name} {found}, this process has {expected}: install the same in both"
                )


def _telling(name: str, found: str) -> str:
    """The part of a version that must be the same: all of it, but 3.11 of Python 3.11.7."""
    return ".".join(found.split(".")[:2]) if name == "Python" else found


def check_paths(client: Client, paths: Sequence[str], timeout: float) -> None:
    """Raise SpecError, naming a worker, where it does not see one of the paths."""
    for address, unseen in on_workers(client, timeout, _unseen, list(paths)).items():
        if unseen:
            raise SpecError(
                f"worker {address} does not see {unseen[0]}: workers read and write by themselves, so every path must "
                "be on a file system that all machines mount at the same place, or on an object store"
            )


def _unseen(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not store_of(path).exists(path)]


def on_workers(client: Client, timeout: float, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """function(*arguments) on every worker that is there, by their addresses in order; an exception is a result. Those
    that go away meanwhile are left out.

    Raises IncompleteError, naming one, where workers do not answer within a minute, or `timeout` seconds.
    """
    some = ", ".join(sorted(known_workers(client, timeout))[:3])
    late = f"a worker of the scheduler at {_address(client)} does not answer, one of {some} or others"
    found = within(min(timeout, _ANSWER_SECONDS), lambda: client.run(function, *arguments, on_error="return"), late)
    return {address: found[address] for address in sorted(found) if not isinstance(found[address], OSError)}


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler else "a closed client"
