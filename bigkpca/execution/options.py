"""Options of a run, and how public functions accept these and the options of a fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from time import monotonic
from typing import Any, TypedDict, TypeVar, get_type_hints

from bigkpca.data.devices import Device
from bigkpca.data.rows import Rows
from bigkpca.errors import SpecError, unknown_name
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress, shown
from bigkpca.spec import FitSpec
from bigkpca.spec.units import TIMEOUT, parse_bytes, parse_seconds

_Function = TypeVar("_Function", bound=Callable[..., Any])


class ClusterOptions(TypedDict, total=False):
    """Options of functions that read many rows, here or on a cluster, in the form that users pass; see `RunOptions`."""

    array: str | None
    scheduler: str | None
    memory: str | int | None
    timeout: str | float
    progress: Progress | bool


class ReadingOptions(ClusterOptions, total=False):
    """Options of functions that may also start processes."""

    workers: int | None


class WritingOptions(ReadingOptions, total=False):
    """Options of functions that also write."""

    overwrite: bool


class DeviceOptions(TypedDict, total=False):
    """Options of functions whose passes can compute on a device, such as a GPU."""

    device: str | None


@dataclass(frozen=True)
class RunOptions:
    """Options of a run. They change no result, except that memory or time may end the growth of a size (`tol`), and
    that a device rounds differently.

    Parameters
    ----------
    array : str, optional
        Name of the array of rows, if these are passed as a Zarr group.
    scheduler : str, optional
        Address of the Dask cluster to run on, e.g. "tcp://10.0.0.1:8786"; by default that of Dask's configuration
        (`DASK_SCHEDULER_ADDRESS`), if any, unless there is a current Dask client.
    workers : int, optional
        Number of local processes to run on; by default threads of this process, or a current Dask client.
    device : str, optional
        Device that computes the passes: "cuda", "cuda:1" or "xpu" (PyTorch), "cupy:cuda:0" (CuPy), or "cpu" for the
        processor. Default: the device that holds the rows, or else "cpu". The last digits of results depend on the
        device. Experimental.
    memory : str or int, optional
        Memory that a process may use, with what it already holds, e.g. "2 GB", or a number of bytes.
    timeout : str or float
        Time without a finished block after which the run ends with IncompleteError, e.g. "10 min", or a number of
        seconds.
    progress : bool or Progress
        True shows bars, or lines without a terminal; a Progress receives titles and rows of each pass, and notes; by
        default nothing is shown.
    overwrite : bool
        Make output anew that exists, and replace output of the same kind: on a local disk once the new one is finished,
        in an object store before it is begun.
    time_budget : str or float, optional
        Time after which no size grows, and no fit of a comparison starts, e.g. "10 min", or a number of seconds.

    Raises
    ------
    SpecError
        If an amount cannot be parsed, an address is empty, e.g. because a variable is not set, or a device does not
        exist.
    """

    array: str | None = None
    scheduler: str | None = None
    workers: int | None = None
    device: str | None = None
    memory: str | int | None = None
    timeout: str | float = TIMEOUT
    progress: Progress = Progress()
    overwrite: bool = False
    time_budget: str | float | None = None
    started: float = field(default_factory=monotonic)

    @classmethod
    def of(cls, kind: type, options: Mapping[str, Any], **others: Any) -> RunOptions:
        """The options with which a function was called that accepts those of `kind`, and the other options. SpecError
        names an unknown option, and the nearest known one."""
        known = get_type_hints(kind)
        for name in options:
            if name not in known:
                raise unknown_name("option", name, known)
        return cls(**{**options, **others, "progress": shown(options.get("progress", False))})

    def __post_init__(self) -> None:
        if self.scheduler is not None and not self.scheduler.strip():
            raise SpecError(
                "the address of the scheduler is empty: specify one, such as --scheduler tcp://10.0.0.1:8786 "
                "(scheduler= in Python), or omit the option to run on threads of this process"
            )
        _ = self.memory_limit, self.deadline, self.seconds, self.device_value  # which raise

    def on(self, rows: Rows) -> RunOptions:
        """The same options with the device of the rows, unless they name one."""
        return self if self.device is not None or rows.device is None else replace(self, device=str(rows.device))

    @property
    def device_value(self) -> Device | None:
        """The device that computes the passes; None for the processor."""
        return None if self.device is None else Device.named(str(self.device))  # which may be a torch.device

    @property
    def memory_limit(self) -> int | None:
        """Bytes that a process may use; None without a limit."""
        return None if self.memory is None else parse_bytes(self.memory)

    @property
    def deadline(self) -> float | None:
        """The end of the time budget on the monotonic clock, None without one."""
        return None if self.time_budget is None else self.started + parse_seconds(self.time_budget)

    @property
    def seconds(self) -> float:
        """Seconds without a finished task after which the run ends."""
        return parse_seconds(self.timeout)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine that runs the tasks, open as long as the context."""
        with open_engine(self.scheduler, self.workers, self.seconds, self.progress) as engine:
            yield engine.on_device(self.device_value)


_DEFAULTS = {name: each.default for name, each in FitSpec.model_fields.items()}
_DEFAULTS |= {each.name: each.default for each in fields(RunOptions)} | {"progress": False}
# Of docstrings without indentation, which Python removes from 3.13 on.
_ENTRIES = dict(re.findall(r"^(\w+) : ((?:.*\n)(?:    .*\n)+)", inspect.cleandoc(RunOptions.__doc__ or ""), re.M))
_ENTRY = re.compile(r"^\*\*options\n(?:    .*(?:\n|\Z))+", re.M)


def takes(*kinds: type, defaults: Mapping[str, Any] | None = None) -> Callable[[_Function], _Function]:
    """Show the options that a function takes as **options in its signature, and those of a run in its docstring.

    `kinds` are the TypedDicts that declare the same options to static checkers, with `Unpack`. In the docstring,
    options of a run replace the entry of **options, and those of a fit stand above it.
    """
    annotations = {name: kind for each in kinds for name, kind in get_type_hints(each).items()}

    def decorate(function: _Function) -> _Function:
        own = inspect.signature(function)
        kept = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=(defaults or _DEFAULTS)[name], annotation=kind
            )
            for name, kind in annotations.items()
        ]
        function.__signature__ = own.replace(parameters=kept + taken)  # type: ignore[attr-defined]
        entries = "".join(f"{name} : {_ENTRIES[name]}" for name in annotations if name in _ENTRIES)
        function.__doc__ = _ENTRY.sub(entries.replace("\\", r"\\"), inspect.cleandoc(function.__doc__ or ""))
        return function

    return decorate


def of_fit(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a fit, which are fields of FitSpec, and the other options."""
    fit = {name: value for name, value in options.items() if name in FitSpec.model_fields}
    return fit, {name: value for name, value in options.items() if name not in fit}
