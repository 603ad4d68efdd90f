"""Make the reference of a model, with which later rows are compared, and find what its scores capture of the columns,
from rows that the fit has in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bigkpca.data.blocks import tile_rows
from bigkpca.errors import Array, DataError
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import expansion_of
from bigkpca.numerics.drift import REFERENCE_ROWS, reference_of
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.linalg import Map, rank_tolerance
from bigkpca.numerics.linear_pca import MOST_VALUES, captured, spread
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import ShiftedSums, block_moments
from bigkpca.numerics.preimages import Expansion, residuals
from bigkpca.numerics.random_streams import DRIFT, random_stream
from bigkpca.spec import FitSpec

_TILE_ROWS = 256
_SAFETY = 32  # times the unit roundoff: how far features may be off; up to 5 was observed
_MEASURED_ROWS = 64
_LARGEST = 4  # times the mean error of a score, if a fit by products has not converged
_OVERFITTED = 0.003  # times the variance of the last component: below, the standard deviation of a score is off by 5 %


class _Scored(NamedTuple):
    """Values of a model for rows that it was fitted on, and the sizes with which rounding grows."""

    scores: Array  # (q, r)
    residuals: Array  # (q,)
    diagonal: Array  # (q,), k(x, x)
    lengths: Array  # (q,), |v(x)|


def with_reference(
    model: Model, X: Array | None, count: int, seed: int, engine: Engine, spec: FitSpec | None = None
) -> Model:
    """The model with its reference, made from rows X (q, d) of `count` rows, in the units of the data and in random
    order, and with what its scores capture of these rows, unless it has that already.

    Reads nothing: if X is None, the model keeps its rows. `spec` is that of the fit, if these rows were fitted. There
    is no reference if k(x, x) is not known.
    """
    if model.features.precomputed:
        return model
    given, held_out = expansion_of(model), None
    # Variance p lambda_r / n behind component r, spread over p directions, moves an eigenvalue of its size by a factor
    # of (1 + √(p / n))² (Marchenko and Pastur 1967): in flat spectra, components may be chance directions.
    values = model.solution.eigenvalues
    behind = model.solution.total_variance - values.sum()
    overfitted = spec is not None and bool(behind > _OVERFITTED * count * values[-1])
    halved = overfitted and (model.sums is not None if X is not None else model.certificate.residuals is None)
    most = min(max(count // 2, 1), REFERENCE_ROWS) if halved else REFERENCE_ROWS
    some = np.empty(0, np.intp)
    with engine.small_work() as in_order, np.errstate(over="ignore", invalid="ignore"):
        if X is None:
            some = np.sort(random_stream(seed, DRIFT).choice(count, min(count, most), replace=False))
            found, others = _of_kept_rows(model, some), np.delete(np.arange(count), some)
        else:
            X, others = X[:most], None
            found = _of_rows(model, X, given, in_order)
        if spec is not None and overfitted:
            held_out = _held_out(model, X, others, spec, in_order) if halved else None
            held_out = held_out or (np.zeros_like(found.scores), found.residuals + np.sum(found.scores**2, axis=1))
        errors = _errors(model, found, given)
        reference = reference_of(found.scores, found.residuals, values, count, errors, held_out)
        about = model.captured
        if about is None:
            at = spread(len(found.scores), max(1, MOST_VALUES // model.columns))
            known = _kept_rows(model, some[at]) if X is None else X[at]
            about = captured(model.features, known, found.scores[at])
        return replace(model, reference=reference, captured=about)


def _held_out(
    model: Model, X: Array | None, others: Array | None, spec: FitSpec, in_order: Map
) -> tuple[Array, Array] | None:
    """Scores (q, r) and residuals (q,) of the reference rows in a model of all other rows, with the same features: from
    the sums without these rows, or from the other rows that an exact model keeps. None if these do not vary."""
    features, moments = model.features, model.moments
    if moments is not None and X is not None:
        height = _height(features)
        pieces = (X[start : start + height] for start in range(0, len(X), height))
        moments -= block_moments(features.tiles(pieces, height), moments.mean)
    else:
        assert others is not None
        assert has_landmarks(features)
        X = features.unshifted(np.delete(features.landmarks, others, axis=0))
        features = replace(features, landmarks=features.landmarks[others])
    method: Any = model.method  # the exact method has no moments
    tolerance, sums = rank_tolerance(features.dtype), None if moments is None else ShiftedSums.of(moments)
    try:
        solution = method.solve(moments, features, model.components, spec.center, tolerance, in_order=in_order)
    except DataError:
        return None
    other = Model(features, solution, sums=sums, provenance=model.provenance)
    again = _of_rows(other, X, other.expansion(), in_order)
    missing = model.components - again.scores.shape[1]  # the number of components that the other rows do not have
    return np.pad(again.scores, ((0, 0), (0, missing))), again.residuals


def _height(features: FeatureMap) -> int:
    """Rows of a tile."""
    return min(_TILE_ROWS, tile_rows(features.columns, features.size, 8))


def _of_rows(model: Model, X: Array, given: Expansion, in_order: Map) -> _Scored:
    """The rows X (q, d), tile by tile."""
    features, project = model.features, model.solution.projection(model.features.dtype)
    height = _height(features)

    def of_tile(start: int) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # settings are per thread
            ((V, diagonal),) = features.tiles([X[start : start + height]], height)
            exact = V.astype(np.float64)
            left = residuals(given, model.solution, exact, diagonal)
            return project(V, overwrite=True), left, diagonal, np.sqrt(np.einsum("ij,ij->i", exact, exact))

    parts = in_order(of_tile, range(0, len(X), height))
    return _Scored(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _of_kept_rows(model: Model, some: Array) -> _Scored:
    """Rows that the model keeps, by their numbers, from its eigenvectors: Kc U = U Λ, without kernels."""
    features, solution = model.features, model.solution
    assert has_landmarks(features)
    diagonal = features.kernel.diagonal(features.landmarks).astype(np.float64)
    Y = solution.components[some] * solution.eigenvalues
    squares = diagonal[some] - 2 * solution.mean[some] + solution.mean.mean()  # of the centred rows
    left = np.maximum(squares - np.einsum("ij,ij->i", Y, Y), 0)
    return _Scored(Y, left, diagonal[some], np.sqrt(np.abs(diagonal[some] * diagonal.sum())))


def _kept_rows(model: Model, some: Array) -> Array:
    """Rows that the model keeps, by their numbers, in the units of the data."""
    assert has_landmarks(model.features)
    return model.features.unshifted(model.features.landmarks[some])


def _errors(model: Model, found: _Scored, given: Expansion) -> Array:
    """How far rounding, or a fit by products that has not converged, may move scores and residual, (q, r + 1)."""
    features, eps = model.features, float(np.finfo(model.features.dtype).eps) / 2
    moved = _SAFETY * eps * (found.lengths + np.linalg.norm(model.solution.mean))
    if has_landmarks(features):  # some kernels are less accurate for equal rows
        Z = features.landmarks[:_MEASURED_ROWS]
        moved += 2 * float(np.abs(np.diag(features.kernel(Z, Z)) - features.kernel.diagonal(Z)).max())
    sizes, of_map = (np.linalg.norm(each, axis=0) for each in (model.solution.components, given.map))
    errors = np.outer(moved, sizes)
    if (unconverged := model.certificate.residuals) is not None:
        errors += _LARGEST * unconverged * np.sqrt(np.mean(found.scores**2, axis=0))
    of_residual = 2 * moved * (np.linalg.norm(given.origin) + np.abs(found.scores) @ of_map)
    return np.column_stack([errors, of_residual + _SAFETY * eps * np.abs(found.diagonal)])
