"""Scores of rows in a service: an estimator that needs only NumPy, SciPy and scikit-learn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.metaestimators import available_if

from bigkpca.errors import Array, DataError, SpecError, check_finite, check_overflow, names_apart
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.preimages import Decoder, check_width, reconstructing

_ROWS = 256  # at once


class FittedKernelPCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scores (v(x) - mean) @ components of rows in memory, from a fitted model (see `KernelPCA.to_sklearn`).

    It can be pickled, works on one thread, and imports neither Dask nor Zarr. Its scores equal those of
    `KernelPCA.transform`, up to rounding. `fit` changes nothing, so the estimator can be part of a pipeline.
    """

    def __init__(
        self,
        features: FeatureMap,
        solution: Solution,
        decoder: Decoder | None = None,
        feature_names: tuple[str, ...] | None = None,
    ) -> None:
        self.features = features
        self.solution = solution
        self.decoder = decoder
        self.feature_names = feature_names

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Return this estimator unchanged: its model is already fitted."""
        return self

    def transform(self, X: Any) -> Array:
        """Scores (n, r) of rows X (n, d), in the dtype of block work. Sparse rows become dense a few at a time.

        Raises SpecError (a ValueError) for rows with a different width or different columns, DataError (a ValueError)
        for NaN, infinity, and kernels that overflow.
        """
        given, names = getattr(X, "columns", None), self.feature_names
        if given is not None and names is not None and (apart := names_apart(list(given), names, "the model")):
            raise SpecError(f"the frame {apart}")
        rows = _numbers(X, "rows")
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise SpecError(f"the rows have shape {rows.shape}: the model takes (n, {self.n_features_in_})")
        evaluate, project = self._prepared(
            "project", lambda: (self.features.evaluation(_ROWS), self.solution.projection(self.features.dtype))
        )
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [project(evaluate(tile)[0], overwrite=True) for tile in _tiles(rows, "rows", names)]
        scores = parts[0] if len(parts) == 1 else np.concatenate(parts)
        check_overflow(scores, "the rows")
        return scores

    @available_if(lambda estimator: estimator.decoder is not None)  # type: ignore[untyped-decorator]
    def inverse_transform(self, Y: Any) -> Array:
        """Pre-images (n, d) of scores Y (n, r), in the units of the data.

        Raises SpecError for scores of another width, DataError for NaN, infinity, and an empty array.
        """
        scores = _numbers(Y, "scores")
        check_width(scores.shape, len(self.solution.eigenvalues), "the scores")
        decode = self._prepared(
            "decode",
            lambda: reconstructing(self.decoder, self.features, self.solution, _ROWS),  # type: ignore[arg-type]
        )
        return np.concatenate([decode(tile, None).rows for tile in _tiles(scores, "scores")])

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the scores: kernelpca0, kernelpca1, and so on."""
        return np.array([f"kernelpca{j}" for j in range(len(self.solution.eigenvalues))], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """d, the number of columns of the rows."""
        return self.features.columns

    @property
    def feature_names_in_(self) -> Array:
        """Names of the columns. Raises AttributeError if they have none."""
        if self.feature_names is None:
            raise AttributeError("the columns have no names")
        return np.array(self.feature_names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        """The state without the values that threads have prepared."""
        return {name: value for name, value in super().__getstate__().items() if name != "_threads"}

    def _prepared(self, name: str, prepare: Callable[[], Any]) -> Any:
        """A value prepared from the model, once for each thread, since it contains work space."""
        if not hasattr(self, "_threads"):
            self._threads = threading.local()
        if not hasattr(self._threads, name):
            setattr(self._threads, name, prepare())
        return getattr(self._threads, name)


def _numbers(values: Any, what: str) -> Any:
    """Values as an array of real numbers, or in CSR format if they are a SciPy sparse matrix.

    Raises DataError for values that are not numbers, and if there are none.
    """
    found = values.tocsr() if issparse(values) else np.asarray(values)
    if found.dtype.kind in "OUS":
        try:
            found = found.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the {what} contain values that are not numbers ({error}): remove or impute them"
            ) from error
    if found.dtype.kind not in "buif":  # NumPy would convert these, but change their meaning
        raise DataError(f"the {what} contain {found.dtype} values: {what} must be real numbers")
    if found.ndim and not found.shape[0]:
        raise DataError(f"there are no {what}")
    return found


def _tiles(values: Any, what: str, names: tuple[str, ...] | None = None) -> Iterator[Array]:
    """A few rows at a time, dense. Raises DataError naming the first NaN or infinity."""
    for start in range(0, values.shape[0], _ROWS):
        tile = values[start : start + _ROWS]
        tile = tile.toarray() if issparse(tile) else tile
        check_finite(tile, start, f"the {what}", names=names)
        yield tile
