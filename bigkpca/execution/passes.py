"""Passes over all rows: sums of features, draws of rows, products with the Gram matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from operator import add

import numpy as np

from bigkpca.data.blocks import Block, split, tile_rows
from bigkpca.data.rows import Rows, SampleWeights, take, tile_weights, tiles
from bigkpca.data.sample_weights import check_weights
from bigkpca.errors import Array, DataError, check_overflow
from bigkpca.execution import release_freed_memory
from bigkpca.execution.engine import Engine, KeptFeatures, block_tiles, fit_blocks, sum_by_block, tile_height
from bigkpca.execution.tasks import Carried, Task, block_tasks, named_rows
from bigkpca.numerics.array_api import moved, on_host
from bigkpca.numerics.drawn_rows import Draw, DrawnRows, Sampler
from bigkpca.numerics.features import Columns, FeatureMap
from bigkpca.numerics.linalg import aligned
from bigkpca.numerics.moments import ColumnMoments, Rounding, ShiftedSums, column_moments, shifted_sums, weighted_tiles
from bigkpca.numerics.precision import InSingle, in_single
from bigkpca.numerics.random_streams import random_stream
from bigkpca.numerics.solvers import Action, add_strip, block_action


def read_rows(rows: Rows, numbers: Array, engine: Engine) -> Array:
    """Rows of the given ascending numbers, (m, d); see `read_sets`."""
    return read_sets(rows, engine, numbers)[0]


def read_sets(rows: Rows, engine: Engine, *sets: Array) -> list[Array]:
    """Rows of each of these sets of numbers, (m, d), in the dtype of the data; each storage chunk is read once."""
    wanted = np.unique(np.concatenate(sets))
    tasks = []
    for block in fit_blocks(rows, None):
        numbers = wanted[np.searchsorted(wanted, block.start) : np.searchsorted(wanted, block.stop)]
        if len(numbers):
            part = rows.part(block.start, block.stop)
            tasks.append(Task(take, (part, numbers), len(numbers), named_rows(rows, block)))
    X = np.concatenate([np.empty((0, rows.shape[1]), rows.dtype), *engine.each("sampling rows", tasks)])
    return [X if np.array_equal(numbers, wanted) else X[np.searchsorted(wanted, numbers)] for numbers in sets]


def block_columns(rows: Rows, block: Block) -> ColumnMoments:
    """Means and deviations of the columns of a block."""
    height = tile_rows(rows.shape[1], rows.shape[1], 8)
    X_tiles, weights = tiles(rows, block.start, block.stop, height), tile_weights(rows, block.start, block.stop, height)
    return reduce(add, map(column_moments, X_tiles, repeat(None) if weights is None else weights))


@dataclass(frozen=True)
class BlockSums:
    """Sums over the features, and the rows that were drawn."""

    sums: ShiftedSums
    drawn: DrawnRows | None = None

    def __add__(self, other: BlockSums) -> BlockSums:
        drawn = None if self.drawn is None or other.drawn is None else self.drawn + other.drawn
        return BlockSums(self.sums + other.sums, drawn)


def sums_of(
    rows: Rows,
    features: FeatureMap,
    shift: Array,
    rounding: Rounding,
    block_rows: int | None,
    engine: Engine,
    draw: Draw | None = None,
) -> BlockSums:
    """Sums of the features of all rows with their rounding, and the rows that `draw` draws: one pass. `shift` (D,) is
    near the mean of the features. The features of the fit, whose rows are drawn, are kept by the engine."""
    kept = None
    if draw is not None and engine.kept is not None:
        engine.kept.begin()
        kept = engine.kept if engine.device is None else None  # the next pass may compute elsewhere
    # What the choice of landmarks has freed is not used again by the threads of the pass.
    release_freed_memory(features.size)
    given = engine.placed(features), shift, rounding, draw
    title = "principal axes" if draw is None else "fitting"
    found = sum_by_block(title, sums_of_block, rows, given, block_rows, engine, kept)
    release_freed_memory(features.size)  # the work space of all threads, before that of the eigenproblem
    return found


def axes_of(rows: Rows, columns: Columns, Q: Array, block_rows: int | None, engine: Engine) -> Array:
    """Σ w_i x_i x_i'Q (d, b) over all rows, shifted and scaled: one pass. Not finite if squares of a row overflow."""
    given = engine.placed(columns), Q.astype(columns.dtype)
    found: Array = sum_by_block("principal axes", _scatter, rows, given, block_rows, engine)
    return found


def action_of(
    rows: Rows,
    features: FeatureMap,
    shift: Array,
    Q: Array,
    block_rows: int | None,
    engine: Engine,
    title: str = "fitting",
) -> Action:
    """The action of the features' scatter on a block Q (D, b): one pass."""
    given = engine.placed(features), shift, Q
    found: Action = sum_by_block(title, _action, rows, given, block_rows, engine)
    return found


@np.errstate(over="ignore", invalid="ignore")
def sums_of_block(
    rows: Rows,
    block: Block,
    features: FeatureMap,
    shift: Array,
    rounding: Rounding,
    draw: Draw | None,
    kept: KeptFeatures | None = None,
) -> BlockSums:
    """What a fit does with a block: read it in tiles, map them to features, draw rows, and add up their sums."""
    X_tiles, most_rows = block_tiles(rows, block, features)
    weights = tile_weights(rows, block.start, block.stop, tile_height(features))
    sampler = None if draw is None else Sampler(draw, block.start)
    if sampler is not None:
        X_tiles = _seen(X_tiles, sampler.see)
    V_tiles: Iterable[tuple[Array, Array]] = features.tiles(X_tiles, most_rows)
    if kept is not None:
        V_tiles = kept.keeping(block.start, V_tiles)
    if sampler is not None:
        V_tiles = sampler.drawing(V_tiles, weights)
    sums = shifted_sums(V_tiles, shift, rounding, weights)
    check_overflow(sums.products, named_rows(rows, block))
    return BlockSums(sums, None if sampler is None else sampler.found)


def _seen(X_tiles: Iterable[Array], see: Callable[[Array], None]) -> Iterator[Array]:
    """The tiles, each after `see` has received it."""
    for X in X_tiles:
        see(X)
        yield X


@np.errstate(over="ignore", invalid="ignore")
def _action(rows: Rows, block: Block, features: FeatureMap, shift: Array, Q: Array) -> Action:
    X_tiles, most_rows = block_tiles(rows, block, features)
    weights = tile_weights(rows, block.start, block.stop, tile_height(features))
    action = block_action(features.tiles(X_tiles, most_rows), shift, Q, weights)
    check_overflow(action.products, named_rows(rows, block))
    return action


@np.errstate(over="ignore", invalid="ignore")
def _scatter(rows: Rows, block: Block, columns: Columns, Q: Array) -> Array:
    X_tiles, most_rows = block_tiles(rows, block, columns)
    weights = tile_weights(rows, block.start, block.stop, tile_height(columns))
    found, right = np.zeros(Q.shape), moved(Q, columns.offset)
    for X, _, w in weighted_tiles(columns.tiles(X_tiles, most_rows), weights):
        image = X @ right
        if w is not None:
            image *= moved(w.astype(columns.dtype), X)[:, None]
        found += on_host(X.T @ image)
    return found


def computed_in_single(features: FeatureMap, X: Array, shift: Array, engine: Engine) -> InSingle:
    """What a pass would compute in float32 for rows X (q, d), where it would run."""
    single = features.in_precision(np.dtype(np.float32))
    if engine.device is None:
        return in_single(single, X, shift)
    found: InSingle = engine.each("measuring rounding", [Task(in_single, (engine.placed(single), X, shift), 0)])[0]
    return found


def mean_features(features: FeatureMap, X: Array) -> Array:
    """Mean of v over rows X (m, d) in memory, (D,), float64."""
    height = tile_height(features)
    pieces = (X[start : start + height] for start in range(0, len(X), height))
    return np.add.reduce([V.sum(axis=0, dtype=np.float64) for V, _ in features.tiles(pieces, height)]) / len(X)


@dataclass(frozen=True)
class WeightedDraw:
    """Row numbers (m,) that are drawn without replacement, one after the other in proportion to weights; of all rows,
    the sum, the sum of squares and the largest of the weights, and the number of positive ones.

    Row i has the key E_i / w_i with an exponential number E_i of its own, and the smallest keys are drawn first
    (Efraimidis and Spirakis 2006).
    """

    keys: Array
    numbers: Array
    most: int
    weight: float
    squares: float
    largest: float
    count: int

    def __add__(self, other: WeightedDraw) -> WeightedDraw:
        return WeightedDraw(
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.numbers, other.numbers]),
            self.most,
            self.weight + other.weight,
            self.squares + other.squares,
            max(self.largest, other.largest),
            self.count + other.count,
        )._first()

    def _first(self) -> WeightedDraw:
        """Without the keys that are not drawn; the others are not in order."""
        if len(self.keys) <= self.most:
            return self
        kept = np.argpartition(self.keys, self.most)[: self.most]
        return replace(self, keys=self.keys[kept], numbers=self.numbers[kept])

    @property
    def effective(self) -> int:
        """How many rows of equal weight tell as much about a mean: (Σ w)² / Σ w² (Kish 1965)."""
        return int(self.weight**2 / self.squares)


_LARGEST_WEIGHT = 1e-15, 1e15  # products of features and weights in float32 stay far from over- and underflow


def weighted_draw(
    rows: Rows, most: int, seed: int, purpose: int, engine: Engine, *, equal: bool = False
) -> WeightedDraw:
    """At most `most` rows drawn by their weights, with `equal` chances for all of positive weight. Reads only the
    weights. Raises DataError for those that cannot be used."""
    assert rows.weights is not None
    given, tasks = (rows.where, most, seed, purpose, equal), []
    for block in fit_blocks(rows, None):
        arguments = rows.weights.part(block.start, block.stop), block, *given
        tasks.append(Task(_draw, arguments, len(block), named_rows(rows, block)))
    if rows.weights.held:  # a pass would take longer than the work
        found: WeightedDraw = reduce(add, (_draw(*task.arguments) for task in tasks))
    else:
        found = engine.total("drawing rows", tasks, *given[1:], rows.weights.stamp)
    if not found.count:
        raise DataError(f"{rows.where}: all sample weights are zero: at least one must be positive")
    least, most_allowed = _LARGEST_WEIGHT
    if not least <= found.largest <= most_allowed:
        raise DataError(
            f"{rows.where}: the largest sample weight is {found.largest:g}: divide all weights by a number, so that it "
            f"is between {least:g} and {most_allowed:g}; a common factor of all weights changes only the eigenvalues"
        )
    order = np.lexsort([found.numbers, found.keys])
    return replace(found, keys=found.keys[order], numbers=found.numbers[order])


def _draw(
    weights: SampleWeights, block: Block, where: str, most: int, seed: int, purpose: int, equal: bool
) -> WeightedDraw:
    w = weights.of(block.start, block.stop)
    check_weights(w, block.start, where)
    positive = np.flatnonzero(w)
    # One random number for each row, whichever block it is in.
    keys = -np.log1p(-random_stream(seed, purpose, block.start).random(len(w))[positive])
    with np.errstate(over="ignore"):
        keys /= 1 if equal else w[positive]
        weight, squares, largest = float(w.sum()), float(w @ w), float(w.max(initial=0.0))
    return WeightedDraw(keys, positive + block.start, most, weight, squares, largest, len(positive))._first()


_STRIP_ROWS = 2048


def strip_bytes(d: int, itemsize: int) -> int:
    """Work space of one thread that multiplies strips of kernels between rows in R^d."""
    tile = tile_rows(d, _STRIP_ROWS, itemsize)
    return itemsize * (tile * (_STRIP_ROWS + d + 2) + 4 * _STRIP_ROWS * (d + 2))


def gather(rows: Rows, columns: Columns, engine: Engine) -> Array:
    """All rows, shifted and scaled, in memory (n, d): one pass."""
    X = aligned(np.empty(rows.shape, columns.dtype))  # so that tasks get the array itself, not a copy
    # Threads fill it; blocks joined at the end would stay resident beside it, kept by the allocator.
    given = columns, X if engine.client is None else None
    pieces = engine.each("gathering rows", block_tasks(_shifted, rows, fit_blocks(rows, None), given))
    return X if engine.client is None else np.concatenate(pieces, out=X)


def _shifted(rows: Rows, block: Block, columns: Columns, into: Array | None) -> Array | None:
    out = np.empty((len(block), columns.columns), columns.dtype) if into is None else into[block.start : block.stop]
    X_tiles, most_rows = block_tiles(rows, block, columns)
    done = 0
    for V, _ in columns.tiles(X_tiles, most_rows):
        out[done : done + len(V)] = V
        done += len(V)
    return out if into is None else None


def gram_product(rows: Rows, columns: Columns, B: Array, engine: Engine, title: str) -> Array:
    """K B (n, c), float64, for the kernel and the rows of `columns`, tile by tile: n² / 2 kernels. A task takes one
    strip of tiles from the upper half of K and one from its end, so all tasks are alike; it reads the rows of the strip
    and of all later ones, a block at a time."""
    strips = split(rows.shape[0], _STRIP_ROWS)  # whatever the chunks of the source
    given = Carried(columns) if engine.device is None else engine.placed(columns), Carried(B.astype(columns.dtype))
    tasks = []
    for first in range((len(strips) + 1) // 2):
        own = sorted({first, len(strips) - 1 - first})
        parts = [rows.part(strip.start, strip.stop) for strip in strips[first:]]
        work = sum(len(strips[i]) for i in own)
        first_rows = f"{strips[first].start} to {strips[first].stop - 1}"
        name = f"products with the kernels of rows {first_rows} and of as many others"
        tasks.append(Task(_strips, (strips[first:], [i - first for i in own], *given, *parts), work, name))
    return engine.total(title, tasks, columns.kernel, B, *engine.devices)


def _strips(strips: tuple[Block, ...], own: list[int], columns: Columns, B: Array, *parts: Rows) -> Array:
    out, B = moved(np.zeros(B.shape), columns.offset), moved(B, columns.offset)
    tile = tile_rows(columns.columns, len(strips[0]), columns.dtype.itemsize)
    # Rows that were gathered are shifted already: a copy for each tile would take a tenth of the time.
    as_given = columns.scale is None and not on_host(columns.offset).any()

    def loaded(i: int) -> tuple[slice, Array]:
        block = strips[i]
        X = parts[i].block(block.start, block.stop)
        X = moved(X, columns.offset) if as_given and X.dtype == columns.dtype else columns.shifted(X)
        return slice(block.start, block.stop), X

    for i in own:
        rows, X = loaded(i)
        add_strip(out, columns.kernel, B, rows, X, map(loaded, range(i + 1, len(strips))), tile)
    return on_host(out)
