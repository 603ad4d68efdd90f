"""Tasks, the values that they share, groups of tasks that one thread processes, and the Dask graph of a pass.

A graph has a task for each group of blocks and, above these, the binary tree in which they are added up. The tree
depends only on block numbers: ((0+1)+(2+3))+((4+5)+...). Its node (level, i) is the sum over the blocks from i 2^level
to (i + 1) 2^level - 1, or to the last one. A group is such a node, so results have the same bits however many blocks it
has and wherever it runs. A value that all tasks take is in the graph once, and is sent to each worker once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Lock
from typing import Any, overload
from uuid import uuid4

import numpy as np
from dask.base import normalize_token
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import ensure_dict

from bigkpca.data.blocks import Block, power_of_two
from bigkpca.data.dask import optimized
from bigkpca.data.devices import Device
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.data.sparse import SparseRows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.numerics.linalg import all_aligned

Node = tuple[int, int]  # level, and number in its level
Key = Any
Call = Callable[..., Any]  # Call(function, keys, *given): the graph node for function(values of keys, *given)

_MOST_BLOCKS = 32  # rows of a group: few results to move, but only seconds of work
_GROUPS_PER_THREAD = 8  # at least, so that threads end at about the same time


class Carried:
    """A value that goes into a task or comes out of one. Its arrays are aligned wherever it arrives, even in another
    process; rows, which may be many, align what is read from them. It is opaque, since Dask would spend milliseconds
    searching an argument for graphs."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value if isinstance(value, ArrayRows) else all_aligned(value)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from distributed.protocol import pickle

        buffers: list[Any] = []
        # Before protocol 5, messages contain arrays inline, and these are copied out of them anyway.
        keep = buffers.append if protocol >= 5 else None
        return _unpacked, (pickle.dumps(self.value, buffer_callback=keep), buffers)


def _unpacked(packed: bytes, buffers: list[Any]) -> Carried:
    """The content of a message: arrays begin where NumPy puts a copy of them, whatever object they are part of."""
    from distributed.protocol import pickle

    return Carried(pickle.loads(packed, buffers=[np.array(np.frombuffer(buffer, np.uint8)) for buffer in buffers]))


class Placed(Carried):
    """A value whose arrays are on a device where a task takes it: once in each process. It is sent to others as it is
    in host memory."""

    def __init__(self, value: Any, device: Device) -> None:
        self.host = value if isinstance(value, Carried) else Carried(value)
        self.device, self._lock, self._there = device, Lock(), None

    @property
    def value(self) -> Any:
        with self._lock:
            if self._there is None:
                self._there = self.host.value.placed(self.device.place)
            return self._there

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Placed, (self.host, self.device)

    def __dask_tokenize__(self) -> Any:
        return normalize_token((self.host.value, str(self.device)))


@dataclass(frozen=True)
class Task:
    """function(*arguments), which counts for `rows` rows; some arguments may be Dask's, or `Carried`: values that many
    tasks take, and that are sent to each worker once. `name` is for messages."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    rows: int
    name: str = "a task"


@dataclass(frozen=True)
class Argument:
    """The position of a shared value, or of a node of a graph, among the values that a group receives through Dask."""

    number: int


class BlockTasks(Sequence[Task]):
    """function(rows, block, *values) for each block, with values that all share. Tasks are made when they are accessed;
    those of consecutive blocks that are accessed together share the part of the rows that they need."""

    def __init__(
        self, function: Callable[..., Any], rows: Rows, blocks: Sequence[Block], values: Sequence[Any]
    ) -> None:
        self._function, self._rows, self._blocks = function, rows, blocks
        self._values = [value if isinstance(value, Carried) else Carried(value) for value in values]

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
        """Bytes of rows in memory, which are sent with tasks."""
        return self._rows.held_bytes if isinstance(self._rows, ArrayRows | SparseRows) else 0


def named_rows(rows: Rows, block: Block) -> str:
    """The name of the rows of a block in messages."""
    return f"{rows.where}, rows {block.start} to {block.stop - 1}"


@dataclass(frozen=True)
class Group:
    """Consecutive tasks from number `first` on, and whether their results are added up. patience: seconds for which
    they retry after errors that may be temporary."""

    first: int
    tasks: tuple[Task, ...]
    adds: bool
    patience: float = 30.0

    @property
    def name(self) -> str:
        """The name of its work in messages."""
        more = f" and the {len(self.tasks) - 1} tasks after it" if len(self.tasks) > 1 else ""
        return self.tasks[0].name + more

    def taking_values(self) -> tuple[Group, list[Carried | Delayed]]:
        """The same group with `Argument` in place of arguments that are nodes of a graph, and these nodes."""
        values: list[Carried | Delayed] = []

        def taken(argument: Any) -> Any:
            if not isinstance(argument, Carried | Delayed):
                return argument
            number = next((i for i, value in enumerate(values) if value is argument), len(values))
            values[number:] = [argument] if number == len(values) else values[number:]
            return Argument(number)

        return self._changed(taken), values

    def with_values(self, values: Sequence[Any]) -> Group:
        """The same group with these values in their places."""
        return self._changed(lambda argument: values[argument.number] if isinstance(argument, Argument) else argument)

    def _changed(self, change: Callable[[Any], Any]) -> Group:
        tasks = tuple(replace(task, arguments=tuple(map(change, task.arguments))) for task in self.tasks)
        return replace(self, tasks=tasks)


def depends_on_graph(tasks: Sequence[Task]) -> bool:
    """Whether an argument of a task is a node of a user's own Dask graph."""
    return _take(tasks, Delayed)


def use_device(tasks: Sequence[Task]) -> bool:
    """Whether tasks compute on a device."""
    return _take(tasks, Placed)


def _take(tasks: Sequence[Task], kind: type) -> bool:
    """Whether an argument of a task is of this kind."""
    some = tasks[:1] if isinstance(tasks, BlockTasks) else tasks  # which are all alike
    return any(isinstance(argument, kind) for task in some for argument in task.arguments)


def run_group(group: Group, done: Callable[[int], None]) -> Carried:
    """The list of results of a group, or their sum over a fixed tree; `done` receives the number of each task."""

    def result(i: int) -> Carried:
        task = group.tasks[i]
        found = run_function(task.function, task.arguments)
        done(group.first + i)
        return found

    count = len(group.tasks)
    # BLAS is set once for all tasks, since this takes a millisecond.
    with single_threaded_blas:
        return tree_sum(result, 0, count) if group.adds else Carried([result(i).value for i in range(count)])


def run_function(function: Callable[..., Any], arguments: Sequence[Any]) -> Carried:
    """function(*arguments) under the usual conditions: arrays aligned, BLAS on one thread, and on a device within its
    memory."""
    # Results of other tasks of a user's graph, such as chunks of a Dask array, arrive unwrapped.
    carried = [each if isinstance(each, Carried) else Carried(each) for each in arguments]
    device = next((each.device for each in carried if isinstance(each, Placed)), None)

    def compute() -> Any:
        return function(*(each.value for each in carried))

    with single_threaded_blas:
        return Carried(compute() if device is None else device.computing(compute))


def tree_sum(result: Callable[[int], Carried], start: int, stop: int) -> Carried:
    """Sum of result(start) to result(stop - 1) over the binary tree that keeps the fewest partial results alive:
    ((0+1)+(2+3))+((4+5)+...)."""
    if stop - start == 1:
        return result(start)
    middle = start + power_of_two(stop - start - 1)
    return added([tree_sum(result, start, middle), tree_sum(result, middle, stop)])


def added(values: Sequence[Carried]) -> Carried:
    """The sum of two results."""
    a, b = values
    return Carried(a.value + b.value)


@dataclass(frozen=True)
class Pass:
    """The tasks of a pass with its title, and whether their results are added up. level: a group has 2^level tasks.
    patience: seconds for which a task retries after errors that may be temporary."""

    title: str
    tasks: Sequence[Task]
    adds: bool
    level: int
    patience: float

    @classmethod
    def of(cls, title: str, tasks: Sequence[Task], adds: bool, threads: int, patience: float) -> Pass:
        """A pass for this many threads. Its result does not depend on their number."""
        # A chunk that Dask computes is released as soon as its task ends.
        size = 1 if depends_on_graph(tasks) else group_size(len(tasks), threads)
        return cls(title, tasks, adds, size.bit_length() - 1, patience)

    @property
    def root(self) -> Node:
        """The node of the sum over all tasks."""
        return (len(self.tasks) - 1).bit_length(), 0

    def span(self, node: Node) -> range:
        """The numbers of the tasks of a node."""
        level, number = node
        return range(number << level, min((number + 1) << level, len(self.tasks)))

    def group(self, node: Node) -> Group:
        """The tasks of a node."""
        span = self.span(node)
        return Group(span.start, tuple(self.tasks[span.start : span.stop]), self.adds, self.patience)

    def missing(self, known: Collection[Node]) -> list[Node]:
        """The groups that are not part of known nodes, in order. If parts of a group are known, its other parts become
        separate groups."""
        top = self.root[0]
        above = {(at, number >> (at - level)) for level, number in known for at in range(level + 1, top + 1)}
        return list(self._missing(self.root, known, above))

    def _missing(self, node: Node, known: Container[Node], above: Container[Node]) -> Iterator[Node]:
        """The missing groups of a node; `above` are the nodes of which a part is known."""
        if node in known or not self.span(node):
            return
        if node[0] <= self.level and node not in above:
            yield node
            return
        for child in children(node):
            yield from self._missing(child, known, above)


def group_size(tasks: int, threads: int) -> int:
    """Number of tasks of a group, a power of two. Results do not depend on it."""
    return min(_MOST_BLOCKS, power_of_two(tasks // (_GROUPS_PER_THREAD * threads)))


def children(node: Node) -> list[Node]:
    """The two nodes whose sum is this node; the second one may lie beyond the last task."""
    level, number = node
    return [(level - 1, 2 * number), (level - 1, 2 * number + 1)] if level else []


def is_part(node: Node, other: Node) -> bool:
    """Whether a node equals another one, or is part of its sum."""
    return node[0] <= other[0] and node[1] >> (other[0] - node[0]) == other[1]


@dataclass
class Graph:
    """A Dask graph of the rest of a pass. groups and sums: the nodes behind their keys. root: the key of the whole
    sum."""

    dsk: dict[Key, Any] = field(default_factory=dict)
    groups: dict[Key, Node] = field(default_factory=dict)
    sums: dict[Key, Node] = field(default_factory=dict)
    root: Key = None

    @property
    def nodes(self) -> dict[Key, Node]:
        return self.groups | self.sums


def graph_of(
    given: Pass,
    known: Mapping[Node, Carried],
    missing: Iterable[Node],
    call: Call,
    run: Callable[..., Carried],
    tree: bool = True,
    copies: int = 1,
) -> Graph:
    """The graph of the missing groups, each as run(values, group) and, if results are added up and a tree is requested,
    of their sums with the known nodes. Sums with a part that is neither missing nor known are left out. Shared values
    have this many copies, each for consecutive groups, since Dask gives a task that is bound to some workers to those
    that hold what it needs."""
    groups = {node: given.group(node) for node in missing}
    builder = _Builder(given, known, groups, call, run, copies)
    arguments = [argument for group in groups.values() for task in group.tasks for argument in task.arguments]
    if asked := [argument for argument in arguments if isinstance(argument, Delayed)]:  # nodes of a user's own graph
        builder.graph.dsk |= ensure_dict(HighLevelGraph.merge(*(each.dask for each in optimized(*asked))))
    if given.adds and tree:
        builder.graph.root = builder.total(given.root)
    else:
        for node in groups:
            builder.leaf(node)
    return builder.graph


@dataclass
class _Builder:
    """Makes the graph of a pass. (Nested functions that call each other would keep `known` in memory.) shared: keys of
    the values that groups share, by their identity and the number of the copy."""

    given: Pass
    known: Mapping[Node, Carried]
    groups: Mapping[Node, Group]
    call: Call
    run: Callable[..., Carried]
    copies: int
    graph: Graph = field(default_factory=Graph)
    shared: dict[tuple[int, int], Key] = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid4().hex)

    def key(self, kind: str, *number: int) -> Key:
        """A key of this graph, which begins with the name of the pass, as the dashboard shows it."""
        name = "-".join(re.findall("[a-z]+", f"bigkpca {self.given.title.lower()} {kind}"))
        return (f"{name}-{self.token}", *number)

    def key_of(self, value: Carried | Delayed, copy: int) -> Key:
        """The key of a value that a group shares with others, or takes from a user's graph."""
        if isinstance(value, Delayed):
            return value.key
        if (id(value), copy) not in self.shared:
            self.shared[id(value), copy] = key = self.key("shared", len(self.shared))
            self.graph.dsk[key] = self.call(itself, [], value)
        return self.shared[id(value), copy]

    def leaf(self, node: Node) -> Key:
        """The key of a group."""
        group, values = self.groups[node].taking_values()
        key, copy = self.key("", *node), len(self.graph.groups) * self.copies // len(self.groups)
        self.graph.dsk[key] = self.call(self.run, [self.key_of(value, copy) for value in values], group)
        self.graph.groups[key] = node
        return key

    def total(self, node: Node) -> Key:
        """The key of a node; None if a part of it is left out."""
        if node in self.groups:
            return self.leaf(node)
        if node in self.known:
            key = self.key("known", *node)
            self.graph.dsk[key] = self.call(itself, [], self.known[node])
            return key
        parts = [self.total(child) for child in children(node) if self.given.span(child)]
        if len(parts) < 2 or None in parts:
            return parts[0] if len(parts) == 1 else None
        key = self.key("sum", *node)
        self.graph.dsk[key], self.graph.sums[key] = self.call(added, parts), node
        return key


def itself(values: Sequence[Any], value: Carried) -> Carried:
    """A value that tasks share, or a known one."""
    return value


def constant(value: Any) -> Delayed:
    """A value that many nodes of a user's graph take: it is in the graph once, and is sent to each worker once."""
    return delayed(Carried(value), traverse=False)
