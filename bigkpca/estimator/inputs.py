"""Rows passed to KernelPCA, checked as by scikit-learn, and results of the same kind as the input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, validate_data

from bigkpca import arrays
from bigkpca.data.frames import (
    check_data_array,
    check_names,
    checked,
    column_names,
    is_dask_array,
    is_dask_frame,
    is_data_array,
    is_frame,
    is_of_cupy,
    is_tensor,
    tensor_rows,
)
from bigkpca.data.opening import in_memory, is_lazy, open_rows, open_uncounted
from bigkpca.data.rows import ArrayRows, Rows, check_rows
from bigkpca.data.sparse import sparse_rows
from bigkpca.errors import Array, SpecError
from bigkpca.execution import projection
from bigkpca.execution.engine import Engine, KeptFeatures
from bigkpca.execution.options import RunOptions
from bigkpca.numerics.array_api import astype, moved
from bigkpca.numerics.model import Model

_Class = TypeVar("_Class", bound=type)

# float32 represents the values of these integers exactly; all others become float64.
_KEPT = (np.float64, np.float32, np.uint8, np.int8, np.uint16, np.int16)


@dataclass(frozen=True)
class RowOutput:
    """Values that a model computes for rows: lazily, or at once for rows in memory."""

    lazy: projection.View
    now: Callable[[Rows, Model, Engine], Array]
    few: Callable[[ArrayRows, Model], Array] | None = None  # without an engine

    def of(self, rows: Rows, model: Model, device: str | None = None, kept: KeptFeatures | None = None) -> Any:
        """A NumPy array for rows in memory, computed on a device or from the features that their fit `kept`, if any;
        otherwise a lazy array."""
        if not in_memory(rows):
            return self.lazy(model, rows)
        if self.few is not None and projection.are_few(rows, model):
            return self.few(rows, model)
        with RunOptions(device=device).on(rows).engine() as engine:
            return self.now(rows, model, replace(engine, kept=kept))


SCORES = RowOutput(arrays.scores, projection.score_rows, projection.few_scores)


def like_rows(scores: Any, rows: Any) -> Any:
    """Scores, converted to float32 if the rows are float32, as in scikit-learn, even if the model computes in
    float64."""
    return scores.astype(rows.dtype) if rows.dtype == np.float32 and scores.dtype != rows.dtype else scores


def lazy_scores_like_rows(model: Model, rows: Any) -> Any:
    return like_rows(arrays.scores(model, rows), rows)


PREIMAGES = RowOutput(
    arrays.preimages,
    lambda Y, model, engine: projection.reconstruct_rows(Y, model, projection.block_preimages, engine).rows,
)
DENOISED = RowOutput(
    arrays.denoised,
    lambda X, model, engine: projection.reconstruct_rows(X, model, projection.block_denoised, engine).rows,
)
RESIDUALS = RowOutput(arrays.residuals, projection.residual_rows)


def with_starts(scores: Rows, start: Rows) -> ArrayRows:
    """Scores (n, r) with the rows (n, d) to start from beside them, in memory. Raises SpecError unless there is one for
    each, DataError for NaN and infinity."""
    n = scores.shape[0]
    if start.shape[0] != n:
        raise SpecError(f"start has {start.shape[0]} rows for the scores of {n}: pass one row for each")
    X = start.block(0, n)
    check_rows(start, X, 0)
    return ArrayRows(np.hstack([scores.block(0, n), X]), where=scores.where)


class RowsInput:
    """Opens rows passed by users, and remembers the number and names of columns as scikit-learn does."""

    model_: Model
    n_features_in_: int
    feature_names_in_: Array

    def _rows(self, X: Any, *, reset: bool, counted: bool = True) -> Rows:
        """Rows to fit (`reset`), or to compare with the fitted rows; `counted` if their number is needed."""
        if not reset and self._nothing_to_check(X):
            return ArrayRows(X)
        check_data_array(X)
        if is_dask_frame(X):
            return open_rows(self._checked_frame(X, reset=reset))
        if is_lazy(X):
            rows = open_rows(X) if counted else open_uncounted(X)
            if reset:
                self._remember(rows.shape[1], rows.names)
            return rows
        held = _held(X)
        tensor = tensor_rows(held) if is_tensor(held) else None
        values = checked(X)
        check_names(X)
        names = column_names(X)
        checks: dict[str, Any] = {
            "dtype": list(_KEPT),
            "accept_sparse": "csr",
            "ensure_all_finite": False,  # checked in the pass, which names the row and column
            "ensure_min_samples": 2 if reset else 1,
        }
        if tensor is not None and tensor.device is not None:
            n, d = tensor.shape  # which is all that scikit-learn checks: it would copy the values
            validate_data(self, np.broadcast_to(0.0, (min(n, 2), d)), reset=reset, **checks)
            return ArrayRows(held if tensor.dtype in checks["dtype"] else astype(held, np.float64))
        if tensor is not None:
            values = tensor.values
        named = X
        if is_data_array(X) and names is not None and (reset or hasattr(self, "feature_names_in_")):
            named = X[:0].to_pandas().set_axis(list(names), axis=1)  # whose columns scikit-learn knows
        if is_frame(named):
            validate_data(self, named, reset=reset, skip_check_array=True)  # for the names
            return ArrayRows(check_array(values, estimator=self, **checks), names=names)
        values = validate_data(self, values, reset=reset, **checks)
        return sparse_rows(values) if issparse(values) else ArrayRows(values)

    def _nothing_to_check(self, X: Any) -> bool:
        """Whether scikit-learn would return rows X as they are: for one row, that would take as long as its scores."""
        if type(X) is not np.ndarray or X.dtype not in _KEPT or hasattr(self, "feature_names_in_"):
            return False
        return X.ndim == 2 and len(X) > 0 and X.shape[1] == self.n_features_in_

    def _matching_rows(self, X: Any, *, counted: bool = False) -> Rows:
        """Rows with the same number and names of columns as the fitted rows."""
        rows = self._rows(X, reset=False, counted=counted)
        projection.check_columns(rows, self.model_)
        return rows

    def _checked_frame(self, X: Any, *, reset: bool = False) -> Any:
        """A Dask frame whose columns scikit-learn has checked like those of a frame in memory."""
        check_names(X)
        validate_data(self, projection.header(X), reset=reset, skip_check_array=True)
        return X

    def _remember(self, columns: int, names: tuple[str, ...] | None) -> None:
        """Store what scikit-learn compares later rows with."""
        self.n_features_in_ = columns
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_


def framing_what_is_in_memory(estimator: _Class) -> _Class:
    """Make `transform` and `fit_transform` of a class honour `set_output` only for in-memory input other than tensors.

    scikit-learn turns any result into a frame: it would compute lazy results, and fail for Zarr arrays and devices.
    """

    def in_memory_only(framing: Any) -> Callable[..., Any]:
        plain: Callable[..., Any] = framing.__wrapped__  # of functools.wraps
        arguments = signature(plain)

        @wraps(plain)
        def method(self: Any, X: Any, *args: Any, **options: Any) -> Any:
            to_path = arguments.bind(self, X, *args, **options).arguments.get("out") is not None
            in_its_kind = to_path or is_lazy(X) or is_data_array(X) or is_tensor(X)
            return (plain if in_its_kind else framing)(self, X, *args, **options)

        return method

    for name in ("transform", "fit_transform"):
        setattr(estimator, name, in_memory_only(vars(estimator)[name]))
    return estimator


def in_kind(X: Any, values: Any, name: str, columns: str = "component") -> Any:
    """Values (n, c) or (n,) computed for rows X: for a DataArray one with the dim and coordinates of its rows and the
    dim `columns`, a tensor on the device of X for a tensor, CuPy chunks for such chunks; otherwise unchanged."""
    held = _held(X)
    if is_tensor(held):
        values = moved(values, held)
    elif is_dask_array(held) and is_of_cupy(held._meta):
        values = values.map_blocks(partial(moved, like=held._meta))
    if not is_data_array(X):
        return values
    rows, own = X.dims
    dims = (rows, columns + "_" * (columns == rows))[: values.ndim]  # a dim can occur only once
    return type(X)(values, dims=dims, coords=X.coords.to_dataset().drop_dims(own, errors="ignore").coords, name=name)


def _held(X: Any) -> Any:
    """The array in a DataArray; anything else itself."""
    return X.data if is_data_array(X) else X
