"""The graph of each chunk of a Dask array, to compute it within tasks of others.

A Dask graph computes each key once, and keeps its value for all that need it: several passes over one array would hold
all of it. Here the graph of a chunk is a value, which each pass computes again in the task that uses the chunk. What
many chunks need (a mean row, landmarks), and what is a value already (a chunk of a persisted array), is an input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask.core import get_dependencies, toposort
from dask.local import get_sync
from dask.utils import ensure_dict

if TYPE_CHECKING:
    import dask.array as da

    Key = Any

_MANY = 1 / 8  # of the chunks: what so many need of several others, as a mean row, is computed once
_MOST = 1 / 2  # of the chunks: what so many need is computed once


@dataclass(frozen=True)
class ChunkGraph:
    """The graph of a chunk: `inputs` are keys of another graph, whose values it needs."""

    key: Key
    tasks: Mapping[Key, Any]
    inputs: tuple[Key, ...]

    def computed(self, values: list[Any]) -> Any:
        """The chunk, from the values of its inputs."""
        given = {key: (_itself(value),) for key, value in zip(self.inputs, values, strict=True)}
        return get_sync({**self.tasks, **given}, self.key)


def chunk_graphs(Z: da.Array) -> list[ChunkGraph]:
    """The graphs of the chunks of an array with one chunk along its columns."""
    graph = ensure_dict(Z.__dask_graph__())
    needs = {key: set(get_dependencies(graph, key)) - {key} for key in graph}  # a future names itself
    order = toposort(needs, dependencies=needs)  # what a key needs comes before it
    values = {key for key in order if _is_value(graph[key])}
    sources = _sources(order, needs, values)
    ends = [(Z.name, number, 0) for number in range(Z.numblocks[0])]
    owners: dict[Key, set[int]] = defaultdict(set, {key: {number} for number, key in enumerate(ends)})
    tasks: list[dict[Key, Any]] = [{} for _ in ends]
    inputs: list[dict[Key, None]] = [{} for _ in ends]  # ordered
    for key in reversed(order):
        # What a rechunk makes of one chunk for a few others is computed by each of them: kept, it would be all of Z.
        share = len(owners[key]) / len(ends)
        common = len(owners[key]) > 1 and (share > _MOST or (share >= _MANY and len(sources[key]) > 1))
        is_input = key in values or (common and key not in ends)
        for number in owners[key]:
            if is_input:
                inputs[number][key] = None
            else:
                tasks[number][key] = graph[key]
        if not is_input:
            for needed in needs[key]:
                owners[needed] |= owners[key]
    return [ChunkGraph(*each) for each in zip(ends, tasks, map(tuple, inputs), strict=True)]


def _sources(order: list[Key], needs: Mapping[Key, set[Key]], values: set[Key]) -> dict[Key, tuple[Key, ...]]:
    """One or two of the tasks without tasks below them from which a key comes."""
    found: dict[Key, tuple[Key, ...]] = {}
    for key in order:
        below = dict.fromkeys(source for needed in needs[key] for source in found[needed])
        found[key] = tuple(below)[:2] or (() if key in values else (key,))
    return found


def _is_value(node: Any) -> bool:
    """Whether a node of a graph is a value, of which there are nodes of several kinds, and not a task."""
    is_task = callable(node) or (type(node) is tuple and bool(node) and callable(node[0]))
    return hasattr(node, "value") or not (is_task or isinstance(node, list | tuple | str))


def _itself(value: Any) -> Callable[[], Any]:
    return lambda: value
