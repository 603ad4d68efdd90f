"""Tasks, values that they share, and groups of tasks that one thread works through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dask.delayed import Delayed

from bigkpca.data.blocks import power_of_two
from bigkpca.data.retrying import SECONDS, retrying_for
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.carried import Carried

_MOST_TASKS = 64  # of a group: fewer results to move, and still seconds of work
_GROUPS_PER_THREAD = 8  # at least, so that threads end at about the same time


@dataclass(frozen=True)
class Task:
    """function(*arguments), of which some may be Dask's or `Shared`, standing for `rows` rows.

    `name` is what messages call its work.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rows: int
    name: str = "a task"


@dataclass(frozen=True)
class Shared:
    """A value that many tasks take: it reaches each worker once."""

    carried: Carried


@dataclass(frozen=True)
class Given:
    """The place of a shared value, or of a node of a graph, among the values that reach a task by Dask."""

    number: int

    @staticmethod
    def filled(arguments: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """The arguments with these values in their places."""
        return [values[given.number] if isinstance(given, Given) else given for given in arguments]


def shared(value: Any) -> Shared:
    """A value that many tasks take."""
    return Shared(Carried(value))


@dataclass(frozen=True)
class Group:
    """Consecutive tasks, of which the first has the number `first`, and whether their results are added up.

    patience: seconds for which they try again what may pass.
    """

    first: int
    tasks: tuple[Task, ...]
    adds: bool
    patience: float = SECONDS

    @property
    def name(self) -> str:
        """What messages call its work."""
        more = f" and the {len(self.tasks) - 1} tasks after it" if len(self.tasks) > 1 else ""
        return self.tasks[0].name + more

    def alone(self) -> list[Group]:
        """Its tasks, each a group of its own."""
        return [Group(self.first + i, (task,), self.adds, self.patience) for i, task in enumerate(self.tasks)]


def group_size(tasks: int, threads: int) -> int:
    """Tasks of a group, a power of two: 64 at most, and several groups for each thread. Results do not depend on it."""
    return min(_MOST_TASKS, power_of_two(tasks // (_GROUPS_PER_THREAD * threads)))


def depends_on_graph(tasks: Sequence[Task]) -> bool:
    """Whether an argument of a task is a node of a user's own Dask graph."""
    return any(isinstance(argument, Delayed) for task in tasks for argument in task.arguments)


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
    with single_threaded_blas:
        return Carried(function(*(_value(argument) for argument in arguments)))


def _value(argument: Any) -> Any:
    if isinstance(argument, Shared):
        return argument.carried.value
    # What another task made of a user's own graph, as the chunk of a Dask array, comes as it is.
    return argument.value if isinstance(argument, Carried) else Carried(argument).value


def tree_sum(result: Callable[[int], Carried], start: int, stop: int) -> Carried:
    """Sum of result(start) to result(stop - 1) over a binary tree: ((0+1)+(2+3))+((4+5)+...).

    Binary, because of all trees it keeps the fewest partial results alive.
    """
    if stop - start == 1:
        return result(start)
    middle = start + power_of_two(stop - start - 1)
    return added(tree_sum(result, start, middle), tree_sum(result, middle, stop))


def added(a: Carried, b: Carried) -> Carried:
    """The sum of two results."""
    return Carried(a.value + b.value)


def groups_of(
    tasks: Sequence[Task], size: int, adds: bool, skip: Callable[[int], bool], patience: float
) -> Iterator[Group]:
    """The tasks in groups of `size`, without the groups whose number is to be skipped."""
    for number, first in enumerate(range(0, len(tasks), size)):
        if not skip(number):
            yield Group(first, tuple(tasks[first : first + size]), adds, patience)
