"""Options of a run, and how public functions accept them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from bigkpca.data.devices import Device
from bigkpca.data.rows import Rows
from bigkpca.errors import unknown_name
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress, shown
from bigkpca.spec import FitSpec
from bigkpca.spec.units import TIMEOUT, parse_bytes, parse_seconds


class ReadingOptions(TypedDict, total=False):
    """Options of functions that read many rows, here or on a cluster, in the form that users pass."""

    scheduler: str | None
    workers: int | None
    memory: str | int | None
    timeout: str | float
    progress: Progress | bool


class WritingOptions(ReadingOptions, total=False):
    """Options of functions that also write."""

    overwrite: bool


class DeviceOptions(TypedDict, total=False):
    """Options of functions whose passes can compute on a device, such as a GPU."""

    device: str | None


@dataclass(frozen=True)
class RunOptions:
    """Options of a run, as `bigkpca.fit` describes them. They change no result, except that memory may end the growth
    of a size (`tol`), and that a device rounds differently. Raises SpecError for values that cannot be parsed."""

    scheduler: str | None = None
    workers: int | None = None
    device: str | None = None
    memory: str | int | None = None
    timeout: str | float = TIMEOUT
    progress: Progress = Progress()
    overwrite: bool = False

    @classmethod
    def of(cls, kind: type, options: Mapping[str, Any], **others: Any) -> RunOptions:
        """The options with which a function was called that accepts those of `kind`, and the other options."""
        known = kind.__annotations__
        for name in options:
            if name not in known:
                raise unknown_name("option", name, known)
        return cls(**{**options, **others, "progress": shown(options.get("progress", False))})

    def __post_init__(self) -> None:
        _ = self.memory_limit, self.seconds, self.device_value  # which raise

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
    def seconds(self) -> float:
        """Seconds without a finished task after which the run ends."""
        return parse_seconds(self.timeout)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine that runs the tasks, open as long as the context."""
        with open_engine(self.scheduler, self.workers, self.seconds, self.progress) as engine:
            yield engine.on_device(self.device_value)


def of_fit(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a fit, which are fields of FitSpec, and the other options."""
    fit = {name: value for name, value in options.items() if name in FitSpec.model_fields}
    return fit, {name: value for name, value in options.items() if name not in fit}
