"""Tasks, values that they share, and groups of tasks that one thread works through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, overload

import numpy as np
from dask.delayed import Delayed

from bigkpca.data.blocks import Block, power_of_two
from bigkpca.data.retrying import SECONDS, retrying_for
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.data.sparse import SparseRows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics.linalg import all_aligned


class Carried:
    """What goes into a task or comes out of one. Its arrays are aligned wherever it arrives, also in another process;
    rows, which may be many, align what is read of them. Dask would search an argument for graphs, for milliseconds:
    this is opaque."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value if isinstance(value, ArrayRows) else all_aligned(value)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from distributed.protocol import pickle

        buffers: list[Any] = []
        # Before protocol 5, messages hold arrays within, and these are copied out of them anyway.
        keep = buffers.append if protocol >= 5 else None
        return _unpacked, (pickle.dumps(self.value, buffer_callback=keep), buffers)


def _unpacked(packed: bytes, buffers: list[Any]) -> Carried:
    """What a message held: arrays begin where NumPy puts a copy of them, whatever object they are part of."""
    from distributed.protocol import pickle

    return Carried(pickle.loads(packed, buffers=[np.array(np.frombuffer(buffer, np.uint8)) for buffer in buffers]))


@dataclass(frozen=True)
class Task:
    """function(*arguments), some of which may be Dask's or `Shared`, standing for `rows` rows; `name` is for
    messages."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rows: int
    name: str = "a task"


@dataclass(frozen=True)
class Shared:
    """A value that many tasks take: it reaches each worker once."""

    carried: Carried


class BlockTasks(Sequence[Task]):
    """function(rows, block, *values) of each block. Tasks are made when they are taken; those of consecutive blocks
    that are taken together share what they need of the rows."""

    def __init__(
        self, function: Callable[..., Any], rows: Rows, blocks: Sequence[Block], values: Sequence[Any]
    ) -> None:
        self._function, self._rows, self._blocks, self._values = function, rows, blocks, values

    def __len__(self) -> int:
        return len(self._blocks)

    @overload
    def __getitem__(self, at: int) -> Task: ...

    @overload
    def __getitem__(self, at: slice) -> list[Task]: ...

    def __getitem__(self, at: int | slice) -> Task | list[Task]:
        if isinstance(at, int):
            return self[at : at + 1][0]
        blocks = self._blocks[at]
        if all(block.stop == after.start for block, after in pairwise(blocks)):
            parts = [self._rows.part(blocks[0].start, blocks[-1].stop)] * len(blocks) if blocks else []
        else:
            parts = [self._rows.part(block.start, block.stop) for block in blocks]
        return [
            Task(self._function, (part, block, *self._values), len(block), named_rows(self._rows, block))
            for part, block in zip(parts, blocks, strict=True)
        ]

    @property
    def sizes(self) -> list[int]:
        """Rows of each task."""
        return [len(block) for block in self._blocks]

    @property
    def held_bytes(self) -> int:
        """Bytes of rows in memory, which tasks take with them."""
        return self._rows.held_bytes if isinstance(self._rows, ArrayRows | SparseRows) else 0


def sizes_of(tasks: Sequence[Task]) -> list[int]:
    """Rows for which each task stands."""
    return tasks.sizes if isinstance(tasks, BlockTasks) else [task.rows for task in tasks]


def named_rows(rows: Rows, block: Block) -> str:
    """What messages call the rows of a block."""
    return f"{rows.where}, rows {block.start} to {block.stop - 1}"


@dataclass(frozen=True)
class Given:
    """The place of a shared value, or of a node of a graph, among the values that reach a group by Dask."""

    number: int


def shared(value: Any) -> Shared:
    """A value that many tasks take."""
    return Shared(Carried(value))


@dataclass(frozen=True)
class Group:
    """Consecutive tasks from number `first` on, and whether their results are added up. patience: seconds for which
    they try again what may pass."""

    first: int
    tasks: tuple[Task, ...]
    adds: bool
    patience: float = SECONDS

    @property
    def name(self) -> str:
        """What messages call its work."""
        more = f" and the {len(self.tasks) - 1} tasks after it" if len(self.tasks) > 1 else ""
        return self.tasks[0].name + more

    def arguments(self) -> Iterator[Any]:
        """The arguments of its tasks."""
        return (argument for task in self.tasks for argument in task.arguments)

    def taking_values(self) -> tuple[Group, list[Shared | Delayed]]:
        """The same with `Given` for those arguments that are values of nodes of a graph, and these."""
        values: list[Shared | Delayed] = []

        def taken(argument: Any) -> Any:
            if not isinstance(argument, Shared | Delayed):
                return argument
            number = next((i for i, value in enumerate(values) if value is argument), len(values))
            values[number:] = [argument] if number == len(values) else values[number:]
            return Given(number)

        tasks = tuple(replace(task, arguments=tuple(map(taken, task.arguments))) for task in self.tasks)
        return replace(self, tasks=tasks), values

    def with_values(self, values: Sequence[Any]) -> Group:
        """The same with these values in their places."""

        def filled(argument: Any) -> Any:
            return values[argument.number] if isinstance(argument, Given) else argument

        tasks = tuple(replace(task, arguments=tuple(map(filled, task.arguments))) for task in self.tasks)
        return replace(self, tasks=tasks)


def depends_on_graph(tasks: Sequence[Task]) -> bool:
    """Whether an argument of a task is a node of a user's own Dask graph."""
    some = tasks[:1] if isinstance(tasks, BlockTasks) else tasks  # which are all alike
    return any(isinstance(argument, Delayed) for task in some for argument in task.arguments)


def run_group(group: Group, done: Callable[[int], None]) -> Carried:
    """The list of results of a group, or their sum over a fixed tree; `done` hears the number of each task."""

    def result(i: int) -> Carried:
        task = group.tasks[i]
        found = run_function(task.function, task.arguments)
        done(group.first + i)
        return found

    count = len(group.tasks)
    # BLAS once for all tasks, as to set it takes a millisecond.
    with single_threaded_blas, retrying_for(group.patience):
        return tree_sum(result, 0, count) if group.adds else Carried([result(i).value for i in range(count)])


def run_function(function: Callable[..., Any], arguments: Sequence[Any]) -> Carried:
    """function(*arguments) as everywhere: arrays aligned, BLAS on one thread."""
    # What another task made of a user's own graph, as the chunk of a Dask array, comes as it is.
    carried = [each if isinstance(each, Carried) else Carried(each) for each in arguments]
    with single_threaded_blas:
        return Carried(function(*(each.value for each in carried)))


def tree_sum(result: Callable[[int], Carried], start: int, stop: int) -> Carried:
    """Sum of result(start) to result(stop - 1) over a binary tree, which of all trees keeps the fewest partial results
    alive: ((0+1)+(2+3))+((4+5)+...)."""
    if stop - start == 1:
        return result(start)
    middle = start + power_of_two(stop - start - 1)
    return added(tree_sum(result, start, middle), tree_sum(result, middle, stop))


def added(a: Carried, b: Carried) -> Carried:
    """The sum of two results."""
    return Carried(a.value + b.value)
