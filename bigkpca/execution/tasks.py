"""Tasks of a pass, the values that many of them take, and how a task runs wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from dask.base import normalize_token
from dask.delayed import Delayed, delayed

from bigkpca.data.blocks import Block, power_of_two
from bigkpca.data.devices import Device
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics.linalg import all_aligned

_MOST_BLOCKS = 32  # rows of a group: few results to move, but only seconds of work
_GROUPS_PER_THREAD = 8  # at least, so that threads end at about the same time


def in_order(value: Any) -> Any:
    """A value whose arrays are aligned, however they came here. Rows align what is read from them."""
    return value if isinstance(value, ArrayRows) else all_aligned(value)


class Carried:
    """A value that many tasks take: it is in the graph of a pass once, and is sent to each worker once. Its arrays are
    aligned wherever it arrives, also inside objects of which nothing is known, such as a kernel of the user. Dask does
    not search it for graphs, which would take milliseconds for each task."""

    def __init__(self, value: Any) -> None:
        self._value = in_order(value)

    @property
    def value(self) -> Any:
        return self._value

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from distributed.protocol import pickle

        buffers: list[Any] = []
        keep = buffers.append if protocol >= 5 else None  # before, messages contain arrays inline, and copy them anyway
        return _unpacked, (pickle.dumps(self._value, buffer_callback=keep), buffers)


def _unpacked(packed: bytes, buffers: Sequence[Any]) -> Carried:
    """The content of a message: arrays begin where NumPy puts a copy of them."""
    from distributed.protocol import pickle

    return Carried(pickle.loads(packed, buffers=[np.array(np.frombuffer(buffer, np.uint8)) for buffer in buffers]))


class Placed(Carried):
    """A value whose arrays are on a device where tasks take it, once in each process, and in host memory on the way."""

    def __init__(self, value: Any, device: Device) -> None:
        self._host = value if isinstance(value, Carried) else Carried(value)
        self.device, self._lock, self._there = device, Lock(), None

    @property
    def value(self) -> Any:
        with self._lock:
            if self._there is None:
                self._there = self._host.value.placed(self.device.place)
            return self._there

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Placed, (self._host, self.device)

    def __dask_tokenize__(self) -> Any:
        return normalize_token((self._host.value, str(self.device)))


@dataclass(frozen=True)
class Task:
    """function(*arguments), of `rows` rows; arguments may be `Carried`, or nodes of a user's own Dask graph."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rows: int
    name: str = "a task"


def block_tasks(
    function: Callable[..., Any], rows: Rows, blocks: Iterable[Block], values: Sequence[Any] = ()
) -> list[Task]:
    """Tasks of function(rows, block, *values) for each block, with values that all share."""
    shared = [value if isinstance(value, Carried) else Carried(value) for value in values]
    return [
        Task(function, (rows.part(block.start, block.stop), block, *shared), len(block), named_rows(rows, block))
        for block in blocks
    ]


def named_rows(rows: Rows, block: Block) -> str:
    """The name of the rows of a block in messages."""
    return f"{rows.where}, rows {block.start} to {block.stop - 1}"


def some_take(tasks: Iterable[Task], kind: type) -> bool:
    """Whether an argument of a task is of this kind: `Placed`, or `Delayed` of a user's own graph."""
    return any(isinstance(argument, kind) for task in tasks for argument in task.arguments)


def group_size(count: int, threads: int) -> int:
    """How many of `count` consecutive tasks one thread runs and adds up by itself."""
    return min(_MOST_BLOCKS, power_of_two(count // (_GROUPS_PER_THREAD * threads)))


def run_function(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """function(*arguments) as every task computes it: with one BLAS thread, aligned, on the device of its values."""
    device = next((each.device for each in arguments if isinstance(each, Placed)), None)

    def compute() -> Any:
        return function(*(each.value if isinstance(each, Carried) else in_order(each) for each in arguments))

    with single_threaded_blas:
        return in_order(compute() if device is None else device.computing(compute))


def constant(value: Any) -> Delayed:
    """A value that many nodes of a user's graph take: it is in the graph once, and is sent to each worker once."""
    return delayed(Carried(value), traverse=False)
