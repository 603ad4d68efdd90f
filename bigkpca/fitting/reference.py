"""Make the reference of a model, which later rows are compared with, from rows that the fit has in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bigkpca.data.blocks import tile_rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import expansion_of
from bigkpca.numerics.drift import REFERENCE_ROWS, reference_of
from bigkpca.numerics.features import has_landmarks
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, residuals
from bigkpca.numerics.random_streams import DRIFT, random_stream

_TILE_ROWS = 256
_SAFETY = 32  # times the unit roundoff: how far features may be off, of which 5 was seen
_MEASURED_ROWS = 64
_LARGEST = 4  # times the mean error of a score, where a fit by products has not converged


class _Scored(NamedTuple):
    """Rows that a model was fitted on: what it says of them, and the sizes that rounding grows with."""

    scores: Array  # (q, r)
    residuals: Array  # (q,)
    diagonal: Array  # (q,), k(x, x)
    lengths: Array  # (q,), |v(x)|


def with_reference(model: Model, X: Array | None, count: int, seed: int, engine: Engine) -> Model:
    """The model with its reference, of rows X (q, d), in the units of the data, among the `count` that were fitted.

    Reads nothing: where X is None, the model keeps its rows. There is no reference where k(x, x) is not known.
    """
    if model.features.precomputed:
        return model
    given = expansion_of(model)
    with engine.small_work() as in_order, np.errstate(over="ignore", invalid="ignore"):
        found = _of_kept_rows(model, seed) if X is None else _of_rows(model, X, given, in_order)
        errors, values = _errors(model, found, given), model.solution.eigenvalues
        return replace(model, reference=reference_of(found.scores, found.residuals, values, count, errors))


def _of_rows(model: Model, X: Array, given: Expansion, in_order: Map) -> _Scored:
    """The rows X (q, d), tile by tile."""
    features, project = model.features, model.solution.projection(model.features.dtype)
    height = min(_TILE_ROWS, tile_rows(features.columns, features.size, 8))

    def of_tile(start: int) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # settings are per thread
            ((V, diagonal),) = features.tiles([X[start : start + height]], height)
            exact = V.astype(np.float64)
            left = residuals(given, model.solution, exact, diagonal)
            return project(V, overwrite=True), left, diagonal, np.sqrt(np.einsum("ij,ij->i", exact, exact))

    parts = in_order(of_tile, range(0, len(X), height))
    return _Scored(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _of_kept_rows(model: Model, seed: int) -> _Scored:
    """Some of the rows that the model keeps, from its eigenvectors: Kc U = U Λ, so that no kernel is computed."""
    features, solution = model.features, model.solution
    assert has_landmarks(features)
    n, diagonal = features.size, features.kernel.diagonal(features.landmarks).astype(np.float64)
    some = np.sort(random_stream(seed, DRIFT).choice(n, min(n, REFERENCE_ROWS), replace=False))
    Y = solution.components[some] * solution.eigenvalues
    squares = diagonal[some] - 2 * solution.mean[some] + solution.mean.mean()  # of the centred rows
    left = np.maximum(squares - np.einsum("ij,ij->i", Y, Y), 0)
    return _Scored(Y, left, diagonal[some], np.sqrt(np.abs(diagonal[some] * diagonal.sum())))


def _errors(model: Model, found: _Scored, given: Expansion) -> Array:
    """How far rounding, or a fit by products that has not converged, may move scores and residual, (q, r + 1)."""
    features, eps = model.features, float(np.finfo(model.features.dtype).eps) / 2
    moved = _SAFETY * eps * (found.lengths + np.linalg.norm(model.solution.mean))
    if has_landmarks(features):  # some kernels are less exact where rows are equal
        Z = features.landmarks[:_MEASURED_ROWS]
        moved += 2 * float(np.abs(np.diag(features.kernel(Z, Z)) - features.kernel.diagonal(Z)).max())
    sizes, of_map = (np.linalg.norm(each, axis=0) for each in (model.solution.components, given.map))
    errors = np.outer(moved, sizes)
    if (unconverged := model.certificate.residuals) is not None:
        errors += _LARGEST * unconverged * np.sqrt(np.mean(found.scores**2, axis=0))
    of_residual = 2 * moved * (np.linalg.norm(given.origin) + np.abs(found.scores) @ of_map)
    return np.column_stack([errors, of_residual + _SAFETY * eps * np.abs(found.diagonal)])
