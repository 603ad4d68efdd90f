"""Sums of a pass that are known so far, and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from bigkpca.execution.carried import Carried
from bigkpca.execution.graphs import Node, is_part


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
    """Nodes of the sum over `tasks` tasks that are known, and not part of one another."""

    def __init__(self, tasks: int, saved: Mapping[Node, Any]) -> None:
        self.known: dict[Node, Carried] = {}
        for (level, number), value in sorted(saved.items(), reverse=True):
            # A save that was cut off leaves a node beside those that it is made of: the large one counts.
            possible = 0 <= level <= (tasks - 1).bit_length() and 0 <= number << level < tasks
            if possible and not any(is_part((level, number), other) for other in self.known):
                self.known[level, number] = Carried(value)

    def add(self, node: Node, value: Carried) -> None:
        """Take in a node, in place of its parts."""
        # At once: an interruption must not lose what was added up.
        self.known = {other: held for other, held in self.known.items() if not is_part(other, node)} | {node: value}

    @property
    def nodes(self) -> dict[Node, Any]:
        """The nodes, to be saved."""
        return {node: carried.value for node, carried in self.known.items()}

    def total(self) -> Any:
        """The sum over all tasks, once it is known."""
        (carried,) = self.known.values()
        return carried.value
