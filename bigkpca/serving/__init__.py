"""Scores of rows in a service: an estimator that needs only NumPy, SciPy and scikit-learn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.metaestimators import available_if

from bigkpca.errors import Array, DataError, SpecError, check_finite, check_overflow, column_called, names_apart
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.preimages import Decoder, check_width, reconstructing
from bigkpca.serving.onnx import onnx_model

_ROWS = 256  # at once


class FittedKernelPCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scores (v(x) - mean) @ components of rows in memory, from a fitted model (see `KernelPCA.to_sklearn`).

    It can be pickled, works on one thread, and imports neither Dask nor Zarr. Its scores equal those of
    `KernelPCA.transform`, up to rounding. `fit` changes nothing, so the estimator can be part of a pipeline.

    Parameters
    ----------
    features : FeatureMap
        v.
    solution : Solution
        Mean, components and eigenvalues.
    decoder : Decoder or None
        Maps scores back to rows.
    feature_names : tuple of str or None
        Names of the columns, with which those of frames are compared.
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
        rows = _array(X)
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise SpecError(f"the rows have shape {rows.shape}: the model takes (n, {self.n_features_in_})")
        rows = _checked(rows, "rows", names)
        evaluate, project = self._prepared(
            "project", lambda: (self.features.evaluation(_ROWS), self.solution.projection(self.features.dtype))
        )
        with np.errstate(over="ignore", invalid="ignore"):
            tiles = (_dense(rows[start : start + _ROWS]) for start in range(0, rows.shape[0], _ROWS))
            parts = [project(evaluate(X)[0], overwrite=True) for X in tiles]
        scores = parts[0] if len(parts) == 1 else np.concatenate(parts)
        check_overflow(scores, "the rows")
        return scores

    @available_if(lambda estimator: estimator.decoder is not None)  # type: ignore[untyped-decorator]
    def inverse_transform(self, Y: Any) -> Array:
        """Pre-images (n, d) of scores Y (n, r), in the units of the data.

        Raises SpecError for scores of another width, DataError for NaN, infinity, and an empty array.
        """
        scores = _array(Y)
        check_width(scores.shape, len(self.solution.eigenvalues), "the scores")
        scores = _checked(scores, "scores")
        decode = self._prepared(
            "decode",
            lambda: reconstructing(self.decoder, self.features, self.solution, _ROWS),  # type: ignore[arg-type]
        )
        starts = range(0, scores.shape[0], _ROWS)
        parts = [decode(_dense(scores[start : start + _ROWS]), None).rows for start in starts]
        return np.concatenate(parts)

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


def _array(X: Any) -> Any:
    """X as an array, or in CSR format if it is a SciPy sparse matrix."""
    return X.tocsr() if issparse(X) else np.asarray(X)


def _checked(values: Any, what: str, names: tuple[str, ...] | None = None) -> Any:
    """`values` (two axes) as finite numbers. Raises DataError if it is empty, or naming the first value that is not
    one."""
    if values.dtype.kind in "mMc":  # NumPy would convert these, but change their meaning
        raise DataError(f"the {what} contain {values.dtype} values: {what} must be real numbers")
    if values.dtype.kind not in "buif":
        values = _as_numbers(values, what, names)
    if values.shape[0] == 0:
        raise DataError(f"there are no {what}")
    if not issparse(values):
        check_finite(values, 0, f"the {what}", names=names)
    elif values.dtype.kind == "f" and not np.isfinite(values.data).all():
        at = int(np.argmin(np.isfinite(values.data)))
        row = int(np.searchsorted(values.indptr, at, side="right")) - 1
        check_finite(_dense(values[row : row + 1]), row, f"the {what}", names=names)
    return values


def _dense(rows: Any) -> Array:
    """Rows of an array or a sparse matrix, as an array."""
    if not issparse(rows):
        return rows
    values: Array = rows.toarray()
    return values


def _as_numbers(values: Array, what: str, names: tuple[str, ...] | None) -> Array:
    """Objects or strings (n, d) as numbers. Raises DataError naming the first that is not a number."""

    def number(place: tuple[int, int]) -> float:
        try:
            return float(values[place])
        except (TypeError, ValueError) as error:
            raise DataError(
                f"the {what} contain {values.dtype} values: row {place[0]}, {column_called(place[1], names)} is "
                f"{values[place]!r} (both counted from 0), which is not a number; remove or impute such rows first"
            ) from error

    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):  # pandas has missing values that are not numbers
        found: Array = np.reshape([number(place) for place in np.ndindex(values.shape)], values.shape)
        return found


__all__ = ["FittedKernelPCA", "onnx_model"]
