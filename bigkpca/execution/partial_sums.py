"""Sums of a pass that are complete so far, and their checkpoints.

The sum over all tasks is a binary tree that task numbers alone fix. Its node (level, i) is the sum over the tasks from
i 2^level to (i + 1) 2^level - 1, or to the last one. Groups of tasks are whole nodes, so that neither their size nor
the order in which they end changes the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Protocol

from bigkpca.execution.carried import Carried
from bigkpca.execution.tasks import added

Node = tuple[int, int]  # level, and number in its level


class Checkpoint(Protocol):
    """Nodes of one pass that outlive the process."""

    def saved(self) -> Mapping[Node, Any]:
        """The nodes that were saved."""

    def save(self, nodes: Mapping[Node, Any]) -> None:
        """Save these nodes, in place of those that were saved."""

    def due(self, *, ended: bool) -> bool:
        """Whether enough time has passed to save again, in the course of the pass or as it has ended."""


class Checkpoints(Protocol):
    """Checkpoints of a run."""

    def of(self, name: str, *given: Any) -> Checkpoint:
        """The checkpoint of the pass that is called `name` and depends on the values `given`."""


class PartialSums:
    """The nodes of a sum over `tasks` tasks, in groups of 2^level, that are complete and not part of another."""

    def __init__(self, tasks: int, level: int, saved: Mapping[Node, Any]) -> None:
        self._tasks = tasks
        self._nodes: dict[Node, Carried] = {}
        self._level = level
        # Large ones first: a save that was cut off leaves a node beside those that it is made of.
        for (height, number), value in sorted(saved.items(), key=lambda item: item[0], reverse=True):
            known = level <= height <= (tasks - 1).bit_length() and number < self._count(height)
            if known and not self._holds(number << height):
                self._insert(height, number, Carried(value))

    def has(self, group: int) -> bool:
        """Whether a group is part of the nodes."""
        return self._holds(group << self._level)

    def _holds(self, task: int) -> bool:
        """Whether a task is part of the nodes."""
        return any(number << height <= task < (number + 1) << height for height, number in self._nodes)

    def add(self, group: int, value: Carried) -> None:
        """Take in the sum of a group."""
        self._insert(self._level, group, value)

    def _insert(self, level: int, number: int, value: Carried) -> None:
        """Add a node to its sibling, and that sum to the next, as far as they are complete."""
        taken = set()
        while self._count(level) > 1:
            sibling = number ^ 1
            if sibling < self._count(level):  # else it is the last of an odd number, and moves up as it is
                other = self._nodes.get((level, sibling))
                if other is None:
                    break
                taken.add((level, sibling))
                value = added(other, value) if sibling < number else added(value, other)
            level, number = level + 1, number // 2
        # At once: an interruption in the middle of an addition must not lose what was added.
        kept = {node: held for node, held in self._nodes.items() if node not in taken}
        self._nodes = {**kept, (level, number): value}

    def _count(self, level: int) -> int:
        """Number of nodes in a level."""
        return ceil(self._tasks / (1 << level))

    @property
    def nodes(self) -> dict[Node, Any]:
        """The nodes, to be saved."""
        return {node: carried.value for node, carried in self._nodes.items()}

    def total(self) -> Any:
        """The sum over all tasks, once all groups are in."""
        (carried,) = self._nodes.values()
        return carried.value
