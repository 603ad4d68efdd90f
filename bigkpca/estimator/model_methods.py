"""What a fitted KernelPCA does with rows: scores, pre-images, residuals."""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bigkpca.data.frames import is_dask_frame, is_data_array
from bigkpca.data.stores import AnyPath
from bigkpca.errors import SpecError
from bigkpca.estimator.attributes import FittedAttributes
from bigkpca.estimator.inputs import (
    DENOISED,
    PREIMAGES,
    RESIDUALS,
    SCORES,
    RowsInput,
    framing_what_is_in_memory,
    in_kind,
)
from bigkpca.estimator.parameters import restores_rows
from bigkpca.evaluating import preimage_error
from bigkpca.execution.containers import are_maps, of_rows_there, stacked_rows
from bigkpca.execution.progress import Silent
from bigkpca.execution.run_options import RunOptions
from bigkpca.fitting.preimage import of_leading
from bigkpca.serving.fitted import FittedKernelPCA
from bigkpca.workflows.export import export_model
from bigkpca.workflows.scores import open_scores
from bigkpca.workflows.transform import denoise, reconstruct, transform


@framing_what_is_in_memory
class ModelMethods(FittedAttributes, RowsInput, ClassNamePrefixFeaturesOutMixin, TransformerMixin):  # type: ignore[misc]
    """Methods of KernelPCA that use its model. `set_output` reaches those of classes with scikit-learn's mixin."""

    noise: float | None

    def transform(self, X: Any, out: AnyPath | None = None, *, dtype: Any = None, components: int | None = None) -> Any:
        """Scores (n, r): NumPy for what is in memory, a lazy Dask array for Dask, Zarr and paths.

        A Dask frame gets a lazy Dask frame, with its index and divisions, taken partition by partition without a count;
        a DataArray gets one with the dim of its rows, their coordinates, and a dim "component", lazy where it is over
        Dask; rows that were stacked of several dims have these again. With `out` they are streamed to a feature store
        at that path, and its Zarr array is returned;
        `dtype` and `components` say what is stored there, as in `bigkpca.transform`.

        A Dask array of unknown chunk sizes is taken chunk by chunk without a count, and its scores have as many. Where
        `set_output` asks for a frame, what is in memory gets one; all else stays as it is, lazy.

        Raises SpecError for rows of another width or other columns, DataError for NaN and infinity. One pass.
        """
        check_is_fitted(self)
        if out is not None:
            return transform(self.model_, X, out, dtype=dtype, components=components)
        if dtype is not None or components is not None:
            raise SpecError(
                "dtype and components are of scores that are stored: give out, or take scores[:, :k].astype(dtype)"
            )
        if is_dask_frame(X):
            return SCORES.of_frame(self._checked_frame(X), self.model_, self.get_feature_names_out())
        return in_kind(X, SCORES.of(self._matching_rows(X, self.model_), self.model_), "scores")

    def inverse_transform(self, Y: Any, out: AnyPath | None = None) -> Any:
        """Pre-images (n, d) of scores Y (n, r): NumPy for what is in memory, a lazy Dask array for Dask, Zarr and
        paths; in kind for Dask frames and DataArrays, as `transform`, with the names or the dim and coordinates of the
        columns that were fitted.
        With `out` they are streamed to that path, and its Zarr array is returned.

        Raises SpecError for scores of another width or model and for kernels without pre-images, DataError for NaN.
        One pass.
        """
        check_is_fitted(self)
        if out is not None:
            return reconstruct(self.model_, stacked_rows(Y) if are_maps(Y) else Y, out)
        if are_maps(Y):
            return of_rows_there(Y, self.inverse_transform)
        names = getattr(self, "feature_names_in_", None)
        if is_dask_frame(Y):
            return PREIMAGES.of_frame(Y, self.model_, range(self.model_.columns) if names is None else names)
        like, scores = getattr(self, "_columns_like", names), open_scores(self.model_, Y, counted=False)
        found = PREIMAGES.of(scores, of_leading(self.model_, scores.shape[1]))
        return in_kind(Y, found, "rows", "feature", like)

    def denoise(self, X: Any, out: AnyPath | None = None) -> Any:
        """Rows (n, d) as the model sees them: transform and inverse_transform in one, iterations starting at X.

        NumPy for what is in memory, a lazy Dask array for Dask, Zarr and paths; Dask frames and DataArrays as they are,
        with other values, lazy where they are. With `out` a Zarr array at that path.

        Raises as `transform`, and SpecError for kernels without pre-images. One pass.
        """
        check_is_fitted(self)
        if out is not None:
            return denoise(self.model_, X, out)
        if is_dask_frame(X):
            return DENOISED.of_frame(self._checked_frame(X), self.model_, X.columns)
        found = DENOISED.of(self._matching_rows(X, self.model_), self.model_)
        return X.copy(data=found) if is_data_array(X) else found

    @available_if(restores_rows)  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: None = None) -> float:
        """Minus the mean squared error of pre-images, over all entries of X (n, d): one pass. Larger is better.

        Pre-images are of the scores alone; with `noise`, of X with that noise added, against X itself. Raises as
        `transform`.
        """
        check_is_fitted(self)
        rows = self._matching_rows(X, self.model_, counted=True)
        with RunOptions().engine() as engine:
            return -preimage_error.preimage_error(self.model_, rows, self.noise, engine, Silent())

    def residual(self, X: Any) -> Any:
        """|φ(x) - φ^(x)|² of rows X (n, d), (n,): what their scores leave out of k(x, x), large for novel rows.

        NumPy for what is in memory, a lazy Dask array for Dask, Zarr and paths, a lazy Series for Dask frames, a
        DataArray for DataArrays. Raises as `transform`. One pass.
        """
        check_is_fitted(self)
        if is_dask_frame(X):
            return RESIDUALS.of_frame(self._checked_frame(X), self.model_, ["residual"])["residual"]
        return in_kind(X, RESIDUALS.of(self._matching_rows(X, self.model_), self.model_), "residual")

    def to_sklearn(self) -> FittedKernelPCA:
        """A fitted estimator with the same scores, and pre-images where there are some, that can be pickled and needs
        NumPy, SciPy and scikit-learn alone: for serving. No pass."""
        check_is_fitted(self)
        model = self.model_
        return FittedKernelPCA(model.features, model.solution, model.decoder, model.names)

    def to_onnx(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the scores as a graph of ONNX to a file, from "rows" (n, d) to "scores" (n, r). No pass.

        Raises SpecError for a kernel or features without operators in ONNX, where the library onnx is missing, and for
        a file that is there already, unless it may be replaced.
        """
        check_is_fitted(self)
        export_model(self.model_, path, overwrite=overwrite)
