"""The Dask graph of a pass.

It has a node for each group of consecutive blocks and, if their results are added up, nodes for sums over a binary tree
that depends only on block numbers: ((0+1)+(2+3))+((4+5)+...). Node (level, i) of the tree is the sum over blocks
i 2^level to (i + 1) 2^level - 1, or to the last one. A group is such a node, so sums have the same bits however large
groups are and wherever they run. The tree is cut into at most 64 subtrees: the sum of each goes to the process that
drives the pass, which adds these up in the order of the same tree, and can save what it knows at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from operator import itemgetter
from threading import Lock
from typing import Any
from uuid import uuid4

from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import ensure_dict

from bigkpca.data.blocks import power_of_two
from bigkpca.data.dask import optimized
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.tasks import Carried, Task, group_size, in_order, run_function, some_take

Node = tuple[int, int]  # level, and number in its level
Key = Any
_SUBTREES = 64  # at most: of a pass that is killed, one of them is lost for each that was being computed
_PER_GROUP = 4  # subtrees for each group that a thread computes: with more, many threads would send many sums at once


def is_part(node: Node, other: Node) -> bool:
    """Whether a node equals another one, or is part of its sum."""
    return node[0] <= other[0] and node[1] >> (other[0] - node[0]) == other[1]


@dataclass(frozen=True)
class Graph:
    """A Dask graph, whose keys begin with the name of the pass, as the dashboard shows it."""

    dsk: dict[Key, Any]
    groups: dict[Key, range]  # the numbers of the tasks of each group
    results: dict[Key, Node]  # which go to the driver
    end: Key  # has no value, and depends on all results; None if there is none


class Pass:
    """The tasks of a pass, and what is known of the sum of their results; of a list of them unless the pass `adds`.
    `saved` are nodes that were known before."""

    def __init__(
        self, title: str, tasks: Sequence[Task], threads: int, *, adds: bool, saved: Mapping[Node, Any] | None = None
    ) -> None:
        self.title, self.tasks, self.adds = title, tasks, adds
        self.root: Node = (len(tasks) - 1).bit_length(), 0
        # A group has 2^level tasks, and nodes of level `cut` go to the driver: both depend on the number of threads,
        # the sum does not. A chunk that Dask computes is released as soon as its task ends.
        size = 1 if some_take(tasks, Delayed) else group_size(len(tasks), threads)
        self.level = self.cut = size.bit_length() - 1
        if adds:
            subtrees = min(_SUBTREES, _PER_GROUP * ceil(len(tasks) / (size * threads)))
            self.cut = max(0, self.root[0] - subtrees.bit_length() + 1)
            self.level = min(self.level, self.cut)
        self.known: dict[Node, Any] = {}  # none of them part of another, and no two halves of a node
        self._lock = Lock()
        for node, value in sorted((saved or {}).items(), key=itemgetter(0), reverse=True):
            of_this_tree = 0 <= node[0] <= self.root[0] and node[1] >= 0 and self.span(node)
            # An interrupted save may leave a node beside its parts.
            if of_this_tree and not any(is_part(node, other) for other in self.known):
                self.add(node, in_order(value))

    def span(self, node: Node) -> range:
        """The numbers of the tasks of a node; empty beyond the last task."""
        level, number = node
        return range(number << level, min((number + 1) << level, len(self.tasks)))

    def add(self, node: Node, value: Any) -> None:
        """Add a node, and its sum with what is known beside it."""
        with self._lock:
            while node != self.root:
                level, number = node
                beside = level, number ^ 1
                if beside in self.known:
                    other = self.known[beside]
                    value = added(other, value) if number % 2 else added(value, other)
                elif self.span(beside):
                    break
                node = level + 1, number // 2
            # At once: an interruption must not lose what was added up.
            self.known = {other: held for other, held in self.known.items() if not is_part(other, node)} | {node: value}

    def missing(self) -> list[Node]:
        """The nodes of level `cut` of which nothing is known, and the parts of others."""
        found, left = [], [(self.cut, number) for number in reversed(range(-(-len(self.tasks) >> self.cut)))]
        while left:
            level, number = node = left.pop()
            if not self.span(node) or any(is_part(node, known) for known in self.known):
                continue
            if any(is_part(known, node) for known in self.known):
                left += [(level - 1, 2 * number + 1), (level - 1, 2 * number)]
            else:
                found.append(node)
        return found

    def graph(self, nodes: Sequence[Node], before: Callable[[], None], *, adding: bool) -> Graph:
        """The graph of some nodes of the tree. It calls `before` before each task and, if `adding`, adds nodes here."""
        dsk, groups, results = dict[Key, Any](), dict[Key, range](), dict[Key, Node]()
        asked, keys, end = dict[Key, Delayed](), dict[int, Key](), None  # keys: of shared values, by their identity
        name, token = "-".join(re.findall("[a-z]+", f"bigkpca {self.title.lower()}")), uuid4().hex

        def new(kind: str, function: Callable[..., Any], *arguments: Any) -> Key:
            key = (f"{name}{kind}-{token}", len(dsk))
            dsk[key] = (function, *arguments)
            return key

        def joined(kind: str, function: Callable[..., Any], parts: list[Key]) -> Key:
            """The key of a tree: neighbours become one, level by level, and the last of an odd number moves up."""
            while len(parts) > 1:
                pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
                parts = [new(kind, function, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
            return parts[0]

        for node in nodes:
            span = self.span(node)
            size = min(1 << self.level, len(span))
            parts = []
            for first in range(span.start, span.stop, size):
                group = range(first, min(first + size, span.stop))
                some, places = self.tasks[group.start : group.stop], dict[int, _Place]()
                for value in [each for task in some for each in task.arguments if isinstance(each, Carried | Delayed)]:
                    places.setdefault(id(value), _Place(len(places)))
                    if isinstance(value, Delayed):
                        asked[value.key], keys[id(value)] = value, value.key
                    elif id(value) not in keys:
                        keys[id(value)] = new("-shared", partial(_itself, value))
                calls = [(task.function, [places.get(id(each), each) for each in task.arguments]) for task in some]
                key = new("", partial(run_group, before, self.adds, calls), [keys[identity] for identity in places])
                groups[key] = group
                parts.append(key)
            results[joined("-sum", added, parts)] = node
        # Sums end in a tree, so that Dask computes subtrees in their order, and few of them wait for others.
        if nodes and (adding or self.adds):
            after = self.add if adding else _nothing
            end = joined("-end", _nothing, [new("-end", partial(after, node), key) for key, node in results.items()])
        if asked:
            dsk |= ensure_dict(HighLevelGraph.merge(*(each.dask for each in optimized(*asked.values()))))
        return Graph(dsk, groups, results, end)


def _itself(value: Carried) -> Carried:
    return value


def _nothing(*_: Any) -> None: ...


class _Place(int):
    """The position of a shared value, or of a node of a user's graph, among the values that a group receives."""


def run_group(
    before: Callable[[], None], adds: bool, calls: Sequence[tuple[Callable[..., Any], list[Any]]], values: Sequence[Any]
) -> Any:
    """The sum of the results of some tasks, over the tree; unless the pass `adds`, of lists of one result."""

    def result(i: int) -> Any:
        before()
        function, arguments = calls[i]
        found = run_function(function, [values[each] if isinstance(each, _Place) else each for each in arguments])
        return found if adds else [found]

    with single_threaded_blas:  # once for all tasks
        return tree_sum(result, 0, len(calls))


def tree_sum(result: Callable[[int], Any], start: int, stop: int) -> Any:
    """Sum of result(start) to result(stop - 1) over the tree, with as few partial results at a time as possible."""
    if stop - start == 1:
        return result(start)
    middle = start + power_of_two(stop - start - 1)
    return added(tree_sum(result, start, middle), tree_sum(result, middle, stop))


def added(a: Any, b: Any) -> Any:
    """The sum of two results, which may have come from other processes; of lists, whose items are in order already."""
    return a + b if isinstance(a, list) else in_order(in_order(a) + in_order(b))
