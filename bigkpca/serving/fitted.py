"""A fitted kernel PCA that needs NumPy, SciPy and scikit-learn alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.metaestimators import available_if

from bigkpca.errors import Array, DataError, SpecError, check_finite, check_overflow, names_apart
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.preimages import Decoder, check_width, reconstructing

_ROWS = 256  # at once


def _has_decoder(estimator: Any) -> bool:
    return estimator.decoder is not None


class FittedKernelPCA(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scores (v(x) - mean) @ components of rows in memory, by a model that was fitted before: `KernelPCA.to_sklearn`.

    It can be pickled, works on one thread, and imports neither Dask nor Zarr. The same rows get the scores of
    `KernelPCA.transform`, up to rounding. `fit` changes nothing, so that it can stand in a pipeline.

    Parameters
    ----------
    features : FeatureMap
        v.
    solution : Solution
        Mean, components and eigenvalues.
    decoder : Decoder or None
        Maps scores back to rows.
    feature_names : tuple of str or None
        Names of the columns, which frames are compared with.
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
        """This estimator, as it is: what it knows was fitted before."""
        return self

    def transform(self, X: Any) -> Array:
        """Scores (n, r) of rows X (n, d), in the dtype of block work.

        Raises SpecError (a ValueError) for rows of another width or other columns, DataError (a ValueError) for NaN,
        infinity, and where kernels overflow.
        """
        rows = self._rows(X, self.features.columns, self.feature_names)
        project = self._prepared("project", self._projection)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [project(rows[start : start + _ROWS]) for start in range(0, len(rows), _ROWS)]
        scores = parts[0] if len(parts) == 1 else np.concatenate(parts)
        check_overflow(scores, "the rows")
        return scores

    @available_if(_has_decoder)  # type: ignore[untyped-decorator]
    def inverse_transform(self, Y: Any) -> Array:
        """Pre-images (n, d) of scores Y (n, r), in the units of the data.

        Raises SpecError for scores of another width, DataError for NaN and infinity.
        """
        scores = np.asarray(Y)
        check_width(scores.shape, len(self.solution.eigenvalues), "the scores")
        check_finite(scores, 0, "the scores")
        decode = self._prepared("decode", self._decoding)
        parts = [decode(scores[start : start + _ROWS], None).rows for start in range(0, len(scores), _ROWS)]
        return np.concatenate(parts)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the scores: kernelpca0, kernelpca1 and so on."""
        return np.array([f"kernelpca{j}" for j in range(len(self.solution.eigenvalues))], dtype=object)

    @property
    def n_features_in_(self) -> int:
        """d, the number of columns of the rows."""
        return self.features.columns

    @property
    def feature_names_in_(self) -> Array:
        """Names of the columns. Raises AttributeError where they have none."""
        if self.feature_names is None:
            raise AttributeError("the columns have no names")
        return np.array(self.feature_names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Without what threads have prepared."""
        return {name: value for name, value in super().__getstate__().items() if name != "_threads"}

    def _projection(self) -> Callable[[Array], Array]:
        evaluate, project = self.features.evaluation(_ROWS), self.solution.projection(self.features.dtype)
        return lambda X: project(evaluate(X)[0], overwrite=True)

    def _decoding(self) -> Any:
        assert self.decoder is not None  # else there is no such method
        return reconstructing(self.decoder, self.features, self.solution, _ROWS)

    def _prepared(self, name: str, prepare: Callable[[], Any]) -> Any:
        """What belongs to the model, prepared once for each thread, as it has work space."""
        if not hasattr(self, "_threads"):
            self._threads = threading.local()
        if not hasattr(self._threads, name):
            setattr(self._threads, name, prepare())
        return getattr(self._threads, name)

    def _rows(self, X: Any, columns: int, names: tuple[str, ...] | None) -> Array:
        """X as an array of finite numbers with the columns that were fitted."""
        given = getattr(X, "columns", None)
        if given is not None and names is not None and (apart := names_apart(list(given), names, "the model")):
            raise SpecError(f"the frame {apart}")
        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] != columns:
            raise SpecError(f"the rows have shape {rows.shape}: the model takes (n, {columns})")
        if rows.dtype.kind in "mMc":  # which NumPy would convert, with another meaning
            raise DataError(f"the rows hold {rows.dtype} values: rows must be real numbers")
        if rows.dtype.kind not in "buif":
            try:
                rows = rows.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(f"the rows hold {rows.dtype} values, which are no numbers: {error}") from error
        if len(rows) == 0:
            raise DataError("there are no rows")
        check_finite(rows, 0, "the rows", names=names)
        return rows
