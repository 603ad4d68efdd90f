"""Options of a run: where it works, what it may use, what it may replace."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import monotonic

from bigkpca.errors import SpecError
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress, Silent
from bigkpca.spec.defaults import TIMEOUT
from bigkpca.spec.units import parse_bytes, parse_seconds


@dataclass(frozen=True)
class RunOptions:
    """Options of a run. They change no result, except that memory or time may end the growth of a size (`tol`).

    scheduler is the address of a Dask cluster, workers a number of local processes (at most one of the two). memory is
    what a process may use ("2 GB", or bytes), time_budget how long a size may grow ("10 min", or seconds). overwrite
    allows replacing earlier output of the same kind. A run ends if no task does for `timeout` ("10 min", or seconds).
    Raises SpecError for amounts that cannot be read, and for an empty address, as of a variable that is not set.
    """

    scheduler: str | None = None
    workers: int | None = None
    memory: str | int | None = None
    time_budget: str | float | None = None
    overwrite: bool = False
    progress: Progress = Silent()
    timeout: str | float = TIMEOUT
    started: float = field(default_factory=monotonic)

    def __post_init__(self) -> None:
        if self.scheduler is not None and not self.scheduler.strip():
            raise SpecError(
                "the address of the scheduler is empty: give one, such as --scheduler tcp://10.0.0.1:8786 (scheduler= "
                "in Python), or leave the option out to run on threads of this process"
            )
        _ = self.memory_limit, self.deadline, self.seconds  # which raise

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

    def engine(self) -> AbstractContextManager[Engine]:
        """The engine that runs the tasks, open as long as the context."""
        return open_engine(self.scheduler, self.workers, self.seconds, self.progress)
