"""Singular values of a tall Dask array by block Krylov iteration, lazily.

A Dask graph computes each key once and keeps its value for all keys that need it: several passes over one array would
keep all of it in memory. Here the graph of a chunk is itself a value, which each pass computes again in the task that
uses the chunk. Keys that many chunks need (a mean row, landmarks) and keys that are already values (a chunk of a
persisted array) are inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from dask.core import get_dependencies, toposort
from dask.highlevelgraph import HighLevelGraph
from dask.local import get_sync
from dask.utils import ensure_dict

from bigkpca.errors import Array, DataError, SpecError
from bigkpca.execution.tasks import run_function
from bigkpca.numerics import solvers
from bigkpca.numerics.linalg import aligned
from bigkpca.numerics.random_streams import VIEW_START, random_stream
from bigkpca.numerics.solvers import Action

if TYPE_CHECKING:
    import dask.array as da

    Key = Any

_MANY = 1 / 8  # of the chunks: a key made from several, like a mean row, is computed once if this share needs it
_MOST = 1 / 2  # of the chunks: any key that this share needs is computed once


@dataclass(frozen=True)
class ChunkGraph:
    """The graph of a chunk; `inputs` are the keys of another graph whose values it needs."""

    key: Key
    tasks: Mapping[Key, Any]
    inputs: tuple[Key, ...]

    def computed(self, values: list[Any]) -> Array:
        """The chunk, from the values of its inputs; aligned, so that its products have the same bits wherever it lies
        in memory."""
        given = {key: (lambda value=value: value,) for key, value in zip(self.inputs, values, strict=True)}
        return aligned(np.asarray(get_sync({**self.tasks, **given}, self.key)))


def chunk_graphs(Z: da.Array) -> list[ChunkGraph]:
    """The graphs of the chunks of an array with one chunk along its columns."""
    graph = ensure_dict(Z.__dask_graph__())
    needs = {key: set(get_dependencies(graph, key)) - {key} for key in graph}  # a future names itself
    order = toposort(needs, dependencies=needs)  # what a key needs comes before it
    values: set[Key] = set()  # nodes that are not tasks, of which there are several kinds
    for key in order:
        node = graph[key]
        is_task = callable(node) or (type(node) is tuple and bool(node) and callable(node[0]))
        if hasattr(node, "value") or not (is_task or isinstance(node, list | tuple | str)):
            values.add(key)
    sources: dict[Key, tuple[Key, ...]] = {}  # for each key, one or two of the leaf tasks that it comes from
    for key in order:
        below = dict.fromkeys(source for needed in needs[key] for source in sources[needed])
        sources[key] = tuple(below)[:2] or (() if key in values else (key,))
    ends = [(Z.name, number, 0) for number in range(Z.numblocks[0])]
    owners: dict[Key, set[int]] = defaultdict(set, {key: {number} for number, key in enumerate(ends)})
    tasks: list[dict[Key, Any]] = [{} for _ in ends]
    inputs: list[dict[Key, None]] = [{} for _ in ends]  # ordered
    for key in reversed(order):
        # What a rechunk makes of one chunk for a few others, each of them computes: if kept, it would be all of Z.
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


def randomized_svd(
    Z: da.Array, k: int, *, center: bool = False, random_state: int = 0, passes: int = solvers.PASSES
) -> tuple[da.Array, da.Array, da.Array]:
    """The k leading singular triplets of Z (n, D), or of Z minus its mean row, lazy: U (n, k), s (k,), Vt (k, D).

    Block Krylov on Z'Z, which is never formed. Every pass computes the chunks of Z again and releases them, so memory
    holds a few chunks and D x k blocks, however tall Z is. Chunks that are already in memory, such as those of a
    persisted collection, are used as they are. Values that many chunks share, such as a mean row that was subtracted,
    are computed once and stay in memory; after a shuffle of rows, that is all of Z.

    Parameters
    ----------
    Z : dask.array.Array, (n, D)
    k : int
    center : bool
        Subtract the mean row. This needs no extra pass.
    random_state : int
        Seed of the random starting block.
    passes : int
        Number of passes over Z; computing U takes one more.

    Raises
    ------
    SpecError
        If k is out of range, there are no passes, or Z is not a table of real numbers.
    DataError
        If Z contains NaN or infinity; raised on computation.

    Notes
    -----
    Source: Musco and Musco 2015; `docs/numerics.md`, section 11.
    """
    import dask.array as da

    if Z.ndim != 2 or Z.dtype.kind not in "biuf":
        raise SpecError(f"Z has shape {Z.shape} and dtype {Z.dtype}: it must be a table of real numbers")
    if passes < 1:
        raise SpecError(f"passes={passes}: at least one is needed")
    D = Z.shape[1]
    if not 0 < k <= min(Z.shape):
        raise SpecError(f"k={k}: Z of shape {Z.shape} has at most {min(Z.shape)} singular values")
    tall, token = Z.rechunk({1: -1}), uuid4().hex
    names = [f"bigkpca-svd-{name}-{token}" for name in ("inside", "left", "values", "right")]
    layers: dict[str, dict[Key, Any]] = {name: {} for name in names}
    inside, left, values, right = layers.values()

    def node(layer: dict[Key, Any], kind: str, index: tuple[int, ...], function: Any, *arguments: Any) -> Key:
        key = (f"bigkpca-svd-{kind}-{token}", *index)
        layer[key] = (_called, function, *arguments)
        return key

    def image(action: Action, Q: Array, shift: Array | None) -> Array:
        return action.applied(Q, np.zeros(D) if shift is None else shift, center)

    chunks: list[tuple[Key, list[Key]]] = []
    for i, of_chunk in enumerate(chunk_graphs(tall)):
        inside[f"bigkpca-svd-chunk-{token}", i] = of_chunk
        chunks.append(((f"bigkpca-svd-chunk-{token}", i), list(of_chunk.inputs)))

    first = next((i for i, rows in enumerate(tall.chunks[0]) if rows), 0)  # chunks may have no rows
    shift = None  # a row near the mean, about which sums lose no digits
    if center:
        shift = node(inside, "shift", (), lambda Z, given: Z.computed(given).mean(axis=0, dtype=float), *chunks[first])
    # Values that are not keys stay out of the nodes: a number could be a key of the user's graph.
    width = min(D, k + solvers.OVERSAMPLING)
    Q = node(inside, "block", (0,), lambda: solvers.starting_block(D, width, random_stream(random_state, VIEW_START)))
    added = partial(reduce, add)
    basis: list[Key] = []
    images: list[Key] = []
    for number in range(passes):
        sums = [node(inside, "product", (number, 0, i), _action, *chunk, shift, Q) for i, chunk in enumerate(chunks)]
        level = 0
        while len(sums) > 1:  # over a binary tree
            level += 1
            parts = [sums[i : i + 2] for i in range(0, len(sums), 2)]
            sums = [node(inside, "product", (number, level, i), added, part) for i, part in enumerate(parts)]
        basis.append(Q)
        images.append(node(inside, "image", (number,), image, sums[0], Q, shift))
        Q = node(
            inside,
            "block",
            (number + 1,),
            lambda image, *Qs: solvers.next_block(np.hstack(Qs), image),
            images[-1],
            *basis,
        )
    found = node(inside, "ritz", (), partial(_ritz, int(k)), *basis, *images)
    mean = node(inside, "mean", (), Action.mean, sums[0], shift) if center else None
    for i, chunk in enumerate(chunks):
        node(left, "left", (i, 0), _left, *chunk, found, mean)
    node(values, "values", (0,), itemgetter(0), found)
    node(right, "right", (0, 0), lambda found: found[1].T, found)

    depends = {names[0]: set(tall.dask.layers)} | {name: {names[0], *tall.dask.layers} for name in names[1:]}
    graph = HighLevelGraph(dict[str, Any](tall.dask.layers) | layers, dict(tall.dask.dependencies) | depends)
    sizes = [(tall.chunks[0], (k,)), ((k,),), ((k,), (D,))]
    U, s, Vt = (da.Array(graph, name, each, dtype=np.float64) for name, each in zip(names[1:], sizes, strict=True))
    return U, s, Vt


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments) as a task: arrays aligned, BLAS on one thread."""
    return run_function(function, arguments)


def _action(graph: ChunkGraph, inputs: list[Any], shift: Array | None, Q: Array) -> Action:
    V = graph.computed(inputs)
    V = np.array(V, dtype=np.result_type(V, np.float32))  # a copy, since it is overwritten
    if not np.isfinite(V).all():
        raise DataError("Z contains NaN or infinity: remove or impute such rows first")
    return solvers.block_action([(V, np.zeros(len(V)))], np.zeros(V.shape[1]) if shift is None else shift, Q)


def _ritz(k: int, *blocks: Array) -> tuple[Array, Array]:
    """k singular values and the right vectors (D, k), from the blocks of the basis followed by their images."""
    half = len(blocks) // 2
    found = solvers.rayleigh_ritz(np.hstack(blocks[:half]), np.hstack(blocks[half:]), k)
    return np.sqrt(np.maximum(found.values, 0)), found.vectors


def _left(graph: ChunkGraph, inputs: list[Any], found: tuple[Array, Array], mean: Array | None) -> Array:
    s, V = found
    chunk = graph.computed(inputs)
    return np.asarray((chunk if mean is None else chunk - mean) @ (V / np.where(s > 0, s, 1)))
