"""Make the reference of a model, with which later rows are compared, and find what its scores capture of the columns,
from rows that the fit has in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bigkpca.errors import Array
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import MOST_SOLVED
from bigkpca.execution.projection import expansion_of
from bigkpca.fitting.others import Mapped, mapped, padded, scored_without, tile_height, without
from bigkpca.numerics.drift import REFERENCE_ROWS, reference_of
from bigkpca.numerics.features import has_landmarks
from bigkpca.numerics.linalg import in_parts
from bigkpca.numerics.linear_pca import MOST_VALUES, Captured, captured, held_out_rows, spread
from bigkpca.numerics.model import Model
from bigkpca.numerics.preimages import Expansion, expansion, residuals
from bigkpca.numerics.random_streams import DRIFT, random_stream
from bigkpca.numerics.span import Span
from bigkpca.spec import FitSpec

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
    model: Model,
    X: Array | None,
    count: int,
    seed: int,
    engine: Engine,
    spec: FitSpec | None = None,
    span: Span | None = None,
    weights: Array | None = None,
    weight: float | None = None,
) -> Model:
    """The model with its reference, made from rows X (q, d) of `count` rows, in the units of the data and in random
    order, with their `weights` (q,) in the fit, in which all rows have this `weight` together, and with what its scores
    capture of these rows, unless it has that already.

    Reads nothing: if X is None, the model keeps its rows. `spec` is that of the fit, if these rows were fitted, and
    `span` that of its landmarks, if it is known. There is no reference if k(x, x) is not known.
    """
    if model.features.precomputed:
        return model
    given, held_out, expected, of_known = expansion_of(model), None, None, None
    # Variance p lambda_r / n behind component r, spread over p directions, moves an eigenvalue of its size by a factor
    # of (1 + √(p / n))² (Marchenko and Pastur 1967): in flat spectra, components may be chance directions.
    values = model.solution.eigenvalues
    behind = model.solution.total_variance - values.sum()
    overfitted = spec is not None and bool(behind > _OVERFITTED * count * values[-1])
    separable = spec is not None and (
        model.sums is not None if X is not None else bool(np.isnan(model.certificate.residuals).all())
    )
    halved = overfitted and separable
    most = min(max(count // 2, 1), REFERENCE_ROWS) if halved else REFERENCE_ROWS
    own = None
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        if X is None:
            some = np.sort(random_stream(seed, DRIFT).choice(count, min(count, most), replace=False))
            found, known = _of_kept_rows(model, some), _kept_rows(model, some)
        else:
            some, known = None, X[:most]
            own = None if weights is None else weights[:most]
            if model.features.size <= MOST_SOLVED:  # else they would take too much memory
                of_known = mapped(model.features, known, own)
            found = _of_rows(model, known, of_known, given)
        if spec is not None and overfitted:
            held_out = _held_out(model, known, of_known, some, spec, span, own) if halved else None
            expected = held_out or (np.zeros_like(found.scores), found.residuals + np.sum(found.scores**2, axis=1))
        errors = _errors(model, found, given)
        total = count if own is None or weight is None else weight
        reference = reference_of(found.scores, found.residuals, values, total, errors, expected, own)
        about = model.captured
        if about is None and spec is not None and (count <= REFERENCE_ROWS or (separable and held_out is None)):
            about = _captured_unseen(model, X, of_known, count, spec, span, weights)
        if about is None:
            at = spread(len(known), max(1, MOST_VALUES // model.columns))
            Y = found.scores if held_out is None else held_out[0]
            about = captured(model.features, known[at], Y[at], seen=held_out is None)
        return replace(model, reference=reference, captured=about)


def _held_out(
    model: Model,
    X: Array,
    known: Mapped | None,
    numbers: Array | None,
    spec: FitSpec,
    span: Span | None,
    weights: Array | None,
) -> tuple[Array, Array] | None:
    """Scores (q, r) and residuals (q,) of the reference rows X (q, d) in a model of all other rows; see `without`."""
    if known is None and numbers is None:
        known = mapped(model.features, X, weights)
    other = without(model, known, numbers, spec, span)
    if other is None:
        return None
    given = expansion(replace(other.fitted, basis=None if span is None else span.basis))
    again = _of_rows(other, X, known if numbers is None else None, given)
    return padded(again.scores, model.components), again.residuals


def _captured_unseen(
    model: Model,
    X: Array | None,
    known: Mapped | None,
    count: int,
    spec: FitSpec,
    span: Span | None,
    weights: Array | None,
) -> Captured | None:
    """What scores capture of the columns of some rows, where those that are judged are left out of kernel PCA as they
    are left out of linear PCA; None if they cannot be. `known` are the features of the first of the rows X."""
    most, numbers = min(REFERENCE_ROWS, max(1, MOST_VALUES // model.columns)), None
    if X is None:
        numbers = random_stream(spec.random_state, DRIFT).permutation(count)[:most]
        X = _kept_rows(model, numbers)
    X = X[:most]
    known = None if known is None or len(known.V) < len(X) else known.part(slice(len(X)))
    if known is None and weights is not None and numbers is None:
        known = mapped(model.features, X, weights[: len(X)])
    found = scored_without(model, X, held_out_rows(len(X)), numbers, spec, known, span)
    if found is None:
        return None
    scores, seen = found.scores, found.seen
    del found  # the sums of a model
    return captured(model.features, X, scores, seen=seen)


def _of_rows(model: Model, X: Array, known: Mapped | None, given: Expansion) -> _Scored:
    """The rows X (q, d), tile by tile; `known` are their features, if they are known."""
    features, project = model.features, model.solution.projection(model.features.dtype)
    height = tile_height(features)

    def of_tile(start: int) -> Any:
        own = slice(start, start + height)
        with np.errstate(over="ignore", invalid="ignore"):  # settings are per thread
            V, diagonal, _ = mapped(features, X[own]) if known is None else known.part(own)
            exact = V.astype(np.float64)
            left = residuals(given, model.solution, exact, diagonal)
            return project(V), left, diagonal, np.sqrt(np.einsum("ij,ij->i", exact, exact))

    parts = in_parts(of_tile, range(0, len(X), height))
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
    unconverged = np.nan_to_num(model.certificate.residuals, nan=0.0)
    errors += _LARGEST * unconverged * np.sqrt(np.mean(found.scores**2, axis=0))
    of_residual = 2 * moved * (np.linalg.norm(given.origin) + np.abs(found.scores) @ of_map)
    return np.column_stack([errors, of_residual + _SAFETY * eps * np.abs(found.diagonal)])
