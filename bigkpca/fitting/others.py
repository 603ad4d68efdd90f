"""The model of all rows but some, without another pass: to judge what a model has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.blocks import tile_rows
from bigkpca.errors import Array, DataError
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.kernels import squared_norms
from bigkpca.numerics.linalg import Map, rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import ShiftedSums, block_moments
from bigkpca.spec import FitSpec

_TILE_ROWS = 256
_SAME = 1e-8  # squared distance over the mean square of a row, between a row and itself after rounding


def without(model: Model, X: Array, numbers: Array | None, spec: FitSpec, in_order: Map) -> Model | None:
    """The model of all its rows but X (q, d), with the same features: from the sums without these rows or, if it keeps
    its rows and these are their `numbers`, from the others. None with neither, and if the other rows do not vary."""
    features, moments = model.features, model.moments
    if moments is not None:
        moments -= block_moments(features.tiles(*pieces(X, features)), moments.mean)
    elif numbers is not None:
        assert has_landmarks(features)
        features = replace(features, landmarks=np.delete(features.landmarks, numbers, axis=0))
    else:
        return None
    method: Any = model.method  # the exact method has no moments
    tolerance, sums = rank_tolerance(features.dtype), None if moments is None else ShiftedSums.of(moments)
    try:
        solution = method.solve(moments, features, model.components, spec.center, tolerance, in_order=in_order)
    except DataError:
        return None
    return Model(features, solution, sums=sums, provenance=model.provenance)


def with_other_preimages(other: Model, model: Model, X: Array, spec: FitSpec) -> Model | None:
    """`other`, the model without rows X (q, d) of `model`, with pre-images that do not depend on X either.

    The rows that a decoder keeps are used again, without X. None if the pre-images were trained in a pass, or come from
    rows that are gone.
    """
    preimage: Any = spec.preimage_value
    if model.decoder is None or preimage.trained:
        return None
    if (kept := model.decoder.reference_rows) is None:
        return replace(other, decoder=preimage.decoder(other.fitted)) if model.method.landmarks else None
    Z, kept = model.features.shifted(X).astype(np.float64), kept.astype(np.float64)
    distances = squared_norms(kept)[:, None] + squared_norms(Z) - 2 * kept @ Z.T
    kept = kept[distances.min(axis=1) > _SAME * squared_norms(kept).mean()]
    if len(kept) < 2:
        return None
    return replace(other, decoder=preimage.decoder(other.fitted, model.features.unshifted(kept)))


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
