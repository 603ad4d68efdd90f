"""The model of all rows but some, without another pass: to judge a model on rows that it was not fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bigkpca.data.blocks import tile_rows
from bigkpca.errors import Array, DataError
from bigkpca.execution.plan import MOST_SOLVED
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.kernels import squared_norms
from bigkpca.numerics.linalg import at_once, in_parts, rank_tolerance
from bigkpca.numerics.methods import Nystroem
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Moments, Rounding, ShiftedSums, shifted_sums
from bigkpca.numerics.solvers import nystroem
from bigkpca.numerics.span import Span
from bigkpca.spec import FitSpec

_TILE_ROWS = 256
_SAME = 1e-8  # squared distance between a row and itself after rounding, over the square of the row


class Mapped(NamedTuple):
    """Features V (q, D) of rows, k(x, x) (q,), and their weights (q,); None if all are 1."""

    V: Array
    diagonal: Array
    weights: Array | None = None

    def part(self, rows: Any) -> Mapped:
        """Those of some of the rows."""
        weights = None if self.weights is None else self.weights[rows]
        return Mapped(self.V[rows], self.diagonal[rows], weights)

    def moments(self, V: Array, about: Array) -> Moments:
        """Moments of V (q, m), which is overwritten, in the place of these features; `about` is near their mean."""
        weights = None if self.weights is None else [self.weights]
        return shifted_sums([(V, self.diagonal)], about, Rounding.unknown(len(about)), weights).moments


def mapped(features: FeatureMap, X: Array, weights: Array | None = None) -> Mapped:
    """The features of rows X (q, d) with these weights (q,), tile by tile."""
    height = tile_height(features)

    def of_tile(start: int) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # settings are per thread
            return next(iter(features.tiles([X[start : start + height]], height)))

    parts = in_parts(of_tile, range(0, len(X), height))
    V, diagonal = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Mapped(V, diagonal, weights)


def without(
    model: Model, some: Mapped | None, numbers: Array | None, spec: FitSpec, span: Span | None = None
) -> Model | None:
    """The model of all its rows but some, with the same features: from the sums without their features or, if it keeps
    its rows and these are their `numbers`, from the others. None with neither, if the method takes landmarks for a
    sample of the rows, which may contain them, and if the other rows do not vary.

    `span` is that of the landmarks with all rows, if the fit already has it: then the components of all rows lead to
    those of the others, see `start` of `solvers.nystroem`."""
    features, moments = model.features, model.moments
    if model.method.uniform:
        return None
    if moments is not None and some is not None:
        moments, span = _sums_without(moments, some, span)
    elif numbers is not None:
        assert has_landmarks(features)
        features = replace(features, landmarks=np.delete(features.landmarks, numbers, axis=0))
    else:
        return None
    method: Any = model.method  # the exact method has no moments
    tolerance, count = rank_tolerance(features.dtype), model.components
    try:
        if span is not None and method == Nystroem():
            solution = nystroem(span, count, center=spec.center, tolerance=tolerance)
        else:
            solution = method.solve(moments, features, count, spec.center, tolerance, span)
    except DataError:
        return None
    sums = None if moments is None else ShiftedSums.of(moments)
    certificate = Certificate.of(len(solution.eigenvalues))
    return Model(features, solution, certificate=certificate, sums=sums, provenance=model.provenance)


def _sums_without(moments: Moments, some: Mapped, span: Span | None) -> tuple[Moments, Span | None]:
    """The moments without those of some rows, and the span with them."""
    if span is None:
        return moments - some.moments(some.V.copy(), moments.mean), None
    P, own = span.basis.P, span.coordinates
    left, coordinates = at_once(
        lambda: moments - some.moments(some.V.copy(), moments.mean),
        lambda: own - some.moments(some.V @ P, own.mean),
    )
    return left, Span(span.basis, left, coordinates)


class Judged(NamedTuple):
    """A model, the scores (m, r) of rows in it, and whether it was fitted to those that are judged; None: not known."""

    model: Model
    scores: Array
    seen: bool | None


def scored_without(
    model: Model,
    X: Array,
    judged: Array,
    numbers: Array | None,
    spec: FitSpec,
    known: Mapped | None = None,
    span: Span | None = None,
) -> Judged | None:
    """The model `without` those of the rows X (m, d) that are `judged` (m,), and scores of all of X in it, zero for
    components that it lacks; `known` are the features of X, if they are known. None also for more than 2048 features,
    which take long to solve for again."""
    if model.features.size > MOST_SOLVED or not judged.any() or model.method.uniform:
        return None
    if known is None and model.sums is not None:
        known = mapped(model.features, X)
    some = None if known is None else known.part(judged)
    other = without(model, some, None if numbers is None else numbers[judged], spec, span)
    if other is None:
        return None
    if known is not None and model.sums is not None:
        Y = other.projection()(known.V)
    else:
        Y = np.concatenate(list(other.project(*pieces(X, model.features))))
    return Judged(other, padded(Y, model.components), False)


def judged_without(
    given: Judged, X: Array, judged: Array, numbers: Array | None, spec: FitSpec
) -> tuple[Judged, Judged]:
    """What the scores and the pre-images of rows X (m, d) are judged by: as `scored_without`, and with other
    pre-images, where there are such models; otherwise `given`."""
    other = scored_without(given.model, X, judged, numbers, spec)
    if other is None:
        return given, given
    used = with_other_preimages(other.model, given.model, X[judged], spec)
    return other, given if used is None else other._replace(model=used)


def with_other_preimages(other: Model, model: Model, X: Array, spec: FitSpec) -> Model | None:
    """`other`, the model without rows X (q, d) of `model`, with pre-images that do not depend on X either.

    The rows that a decoder keeps are used again, without X. None if the pre-images come from landmarks some of which
    are in X.
    """
    preimage: Any = spec.preimage_value
    if model.decoder is None:
        return None
    Z = model.features.shifted(X)
    kept = model.decoder.kept_rows(model.features)
    if not len(kept):
        if not has_landmarks(other.features) or _among(other.features.landmarks, Z).any():
            return None
        return replace(other, decoder=preimage.decoder(other.fitted, kept))
    kept = kept[~_among(model.features.shifted(kept), Z)]
    if len(kept) < 2:
        return None
    return replace(other, decoder=preimage.decoder(other.fitted, kept))


def _among(rows: Array, others: Array) -> Array:
    """Whether each of the rows (m, d) is one of the others (q, d) up to rounding, (m,)."""
    A, B = rows.astype(np.float64), others.astype(np.float64)
    same: Any = squared_norms(B) - 2 * A @ B.T <= (_SAME - 1) * squared_norms(A)[:, None]
    return np.asarray(same.any(axis=1))


def tile_height(features: FeatureMap) -> int:
    """Rows of a tile."""
    return min(_TILE_ROWS, tile_rows(features.columns, features.size, 8))


def pieces(X: Array, features: FeatureMap) -> tuple[Iterator[Array], int]:
    """The tiles of rows X (q, d), and the largest number of rows of one."""
    height = tile_height(features)
    return (X[start : start + height] for start in range(0, len(X), height)), height


def padded(Y: Array, components: int) -> Array:
    """Scores Y (q, s) with columns of zeros for the components that other rows do not have."""
    return np.pad(Y, ((0, 0), (0, components - Y.shape[1])))
