"""Scores of few rows in memory, at once: no engine, no tasks, and what belongs to the model is prepared once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeGuard
from weakref import ref

import numpy as np

from bigkpca.data.blocks import Block
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.reading import tiles
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, check_overflow
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.by_block import tile_height
from bigkpca.execution.tasks import named_rows
from bigkpca.numerics.aligned import all_aligned
from bigkpca.numerics.model import Model

_MOST_ROWS = 1024  # more rows are worth tasks on several threads


class _Slot:
    """The projection of one model, for one thread, until the model is gone."""

    def __init__(self, model: Model, most_rows: int) -> None:
        self.project: Callable[[Array], Array] | None = all_aligned(model).projecting(most_rows)
        self._model = ref(model, self._forget)

    def _forget(self, _: ref[Model]) -> None:
        self.project = None

    def projection(self, model: Model) -> Callable[[Array], Array] | None:
        """Its projection, if it is of this model."""
        return self.project if self._model() is model else None


_prepared = threading.local()  # the slot of the model that a thread used last: work space is of one thread


def _projection(model: Model, most_rows: int) -> Callable[[Array], Array]:
    slot: _Slot | None = getattr(_prepared, "slot", None)
    found = None if slot is None else slot.projection(model)
    if found is None:
        _prepared.slot = _Slot(model, most_rows)
        found = _prepared.slot.project
        assert found is not None  # the model is alive
    return found


def are_few(rows: Rows, model: Model) -> TypeGuard[ArrayRows]:
    """Whether these rows are scored at once: those of one block, in memory."""
    most = min(_MOST_ROWS, model.block_rows or _MOST_ROWS)
    return isinstance(rows, ArrayRows) and rows.shape[0] <= most and not model.features.precomputed


def few_scores(rows: ArrayRows, model: Model) -> Array:
    """Scores (n, r) of few rows, the same bits as from a pass of one block.

    Raises DataError for NaN and infinity, and where kernels overflow.
    """
    count, features = rows.shape[0], model.features
    height = min(tile_height(features), _MOST_ROWS)
    project = _projection(model, height)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        found = [project(X) for X in tiles(rows, rows.first, rows.first + count, height)]
    scores = found[0] if len(found) == 1 else np.concatenate(found)
    check_overflow(scores, named_rows(rows, Block(0, rows.first, rows.first + count)))
    return scores
