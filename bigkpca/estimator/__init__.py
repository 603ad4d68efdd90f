"""KernelPCA, an estimator with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bigkpca import evaluating
from bigkpca.data.frames import is_dask_frame, is_data_array
from bigkpca.data.opening import is_lazy
from bigkpca.data.rows import Rows, identity_of
from bigkpca.data.sample_weights import weighted
from bigkpca.data.stores import AnyPath, is_path
from bigkpca.errors import Array, SpecError
from bigkpca.estimator.inputs import (
    DENOISED,
    PREIMAGES,
    RESIDUALS,
    SCORES,
    RowsInput,
    framing_what_is_in_memory,
    in_kind,
    lazy_scores_like_rows,
    like_rows,
    with_starts,
)
from bigkpca.estimator.parameters import check_restores_rows, check_takes_more_rows, only_if, spec_of
from bigkpca.execution.engine import KeptFeatures
from bigkpca.execution.options import RunOptions
from bigkpca.execution.progress import Progress, shown
from bigkpca.execution.projection import in_frame
from bigkpca.fitting.merge import extend, of_first_batch, spec_like
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.features import has_landmarks
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linear_pca import Captured
from bigkpca.numerics.model import Model
from bigkpca.serving import FittedKernelPCA
from bigkpca.spec import FitSpec
from bigkpca.spec.checks import is_precomputed
from bigkpca.storage import models
from bigkpca.storage.models import AnyModel
from bigkpca.workflows.fit import fit_model, merge
from bigkpca.workflows.fit import save as save_model
from bigkpca.workflows.inputs import open_scores
from bigkpca.workflows.transform import denoise, reconstruct, transform

if TYPE_CHECKING:
    from bigkpca.arrays import LazyArray
    from bigkpca.data.zarr import Stored

    Lazy = LazyArray | Stored | AnyPath  # inputs whose results are lazy


@framing_what_is_in_memory
class KernelPCA(RowsInput, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel PCA for data that do not fit in memory.

    Scores are (v(x) - mean) @ components, where v(x) are the kernels of a row with the landmarks, or its random
    features, for both fitted and new rows. Eigenvalues are those of the centred Gram matrix (sums over n), as in
    scikit-learn's KernelPCA.

    Parameters
    ----------
    n_components : int, float in (0, 1), or None
        Number of components, the share of variance that they must explain, or None for the numerical rank. Fewer are
        kept if the rank is smaller, with a FewerComponentsWarning unless the number is the default.
    kernel : str, value of bigkpca.kernels, or callable k(X (b, d), Y (l, d)) -> (b, l)
        A name in `bigkpca.kernels.KERNELS`, with options such as "matern:nu=2.5,sigma=3". With "precomputed", `fit`
        takes the kernel matrix (n, n), which is held in memory, and `transform` kernels with the fitted rows, (m, n).
    sigma : float, "median", or a multiple such as "3 median"
        Length of the kernel in the units of the columns; "median" is the median distance between sampled rows over √2,
        so that a Gaussian kernel of the median pair is exp(-1), or for the Laplacian kernel the median L1 distance.
    gamma : float, "scale" or None
        Inverse width instead of sigma: 1 / (2 sigma^2) for the Gaussian, 1 / sigma for the Laplacian; "scale" means
        1 / (d var), with the variance of the sampled rows. Defaults to 1 / d for the polynomial and sigmoid kernels.
    degree : int
        Degree of the polynomial kernel.
    coef0 : float
        Constant of the polynomial and sigmoid kernels.
    method : "auto", "nystroem", "columns", "rff", "rff-pca", "exact", or value of bigkpca.methods
        "auto" is "exact" for a precomputed kernel matrix, otherwise "nystroem". "exact" holds the whole Gram matrix up
        to 8192 rows; above, it multiplies by the matrix without holding it. "rff" with a polynomial kernel is a tensor
        sketch.
    size : int or "auto"
        Number of landmarks, or of real random features (counting both sines and cosines).
    tol : float or None
        With size="auto": double the size, from 100 on, until the unexplained share of the variance is at most this; for
        random features and indefinite kernels, until the largest eigenvalue of the error of the kernel matrix is at
        most this share of the first eigenvalue. `memory_limit` can end the growth (ToleranceWarning).
    landmarks : str, value of bigkpca.landmarks, rows (l, d) in the units of the data, or row numbers (l,)
        "auto", or a name in `bigkpca.landmarks.RULES`, e.g. "kmeans", "uniform" or "rpcholesky".
    n_directions : int or "auto"
        Number of principal axes that rff-pca keeps; "auto" leaves a relative bias of k(x, y) of at most 0.02.
    center : bool
        Whether to centre in feature space.
    standardize : bool
        Whether to scale columns to mean 0 and standard deviation 1 first; sigma then refers to the scaled columns. The
        columns of 0 and 1 of a column of categories, in a dataset of `ingest`, are scaled as one column.
    column_weights : mapping of str to float, (d,) array of float, or None
        Factors w_c of the columns, after standardising: squared distances count w_c² times. A mapping sets those of
        some columns by name, e.g. {"distance": 2.5}. Gridded data usually have sqrt(cos(latitude)). A column of weight
        0 has no influence, and its mean as pre-image.
    dtype : "float32", "float64" or None
        Precision of block work. None uses that of the data, but at least float32, or float64 where rounding in float32
        would change the bounds or leading eigenvalues by more than 0.01. With None, scores of float32 rows are float32.
    solver : "auto", "dense" or "randomized"
        Eigensolver for random features; "auto" uses randomized above 8192 features, in 4 passes without a D x D matrix.
    refine : int
        Maximum number of products with the exact Gram matrix after the fit; the model then keeps its rows.
    residual_tol : float
        Largest |Kc u_j - lambda_j u_j| / lambda_j at which exact (above 8192 rows) and refine stop.
    preimage : str or value of bigkpca.preimages
        How to turn scores back into rows: a name in `bigkpca.preimages.PREIMAGES`, e.g. "fixed-point" or "ridge".
    noise : float or None
        Standard deviation, in the units of the data, of the noise that pre-images remove: "denoising" is fitted with
        it, and `score` adds it.
    calibration_rows : int
        Number of rows that take no part in the fit, at most half of all, by which other rows are judged (see
        `KernelPCADetector`), and what the scores explain of the columns (`captured_`).
    calibration : "random" or "last"
        Which rows these are. The last ones suit rows that come in time.
    random_state : int, RandomState or None
        Seed of all random numbers. None draws a seed, which the model records.
    block_rows : int or None
        Rows per task.
    memory_limit : str such as "2 GB", int (bytes) or None
        Refuse a fit whose process would need more; with `tol`, stop the growth of the size.
    device : str or None
        Device that computes the passes of a fit, and scores and residuals of rows in memory: "cuda" for a GPU, other
        names as in `bigkpca.fit`. None: the device that holds the rows, or else the processor, which always computes
        lazy results, results for at most 1024 rows, and pre-images. Experimental.
    verbose : bool or Progress
        True shows the progress of a fit, as bars or, without a terminal, as lines. A Progress object receives it.

    Attributes
    ----------
    eigenvalues_ : (r,) float64
        Eigenvalues of the (centred) Gram matrix, descending.
    explained_variance_ratio_ : (r,) float64
        eigenvalues_ over an upper bound of the trace: never too large for Nyström with a positive semidefinite kernel;
        otherwise an estimate.
    n_components_ : int
        Number of components kept, r.
    landmarks_ : (l, d) or None
        Landmarks in the units of the data; None for random features.
    eigenvectors_ : (n, r) float64
        Unit eigenvectors of the (centred) Gram matrix, only of models that keep all rows (method="exact", `refine`).
    kernel_ : Kernel
        The kernel with its parameters.
    sigma_, gamma_ : float or None
        Length of the kernel, and its inverse width as in scikit-learn.
    certificate_ : Certificate
        Error bounds and estimates of the fit, and a trust rating for each component.
    captured_ : Captured or None
        The share of the columns that the scores explain, beside linear PCA with as many components, from sampled rows.
        None for few rows, rows that are not vectors, and after `partial_fit`.
    model_ : Model
        The model, which `bigkpca.transform` and other functions take.
    n_features_in_ : int
        Number of columns, d.
    feature_names_in_ : (d,) of str
        Names of the columns, for frames and for datasets with names.

    Notes
    -----
    Passes over the data: a bounded sample and one full pass; standardize and rff-pca add one each, and the randomized
    solver adds three. Identical bits require the same input chunks and block_rows, since sums run over blocks of whole
    chunks. Source: `docs/numerics.md`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(3000, 5))
    >>> kpca = KernelPCA(2, size=300, random_state=0).fit(X)
    >>> kpca.transform(X).shape, kpca.certificate_.trust
    ((3000, 2), ('solid', 'solid'))
    """

    def __init__(
        self,
        n_components: int | float | None = 50,
        *,
        kernel: Any = "gaussian",
        sigma: float | str = "median",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        method: Any = "auto",
        size: int | str = "auto",
        tol: float | None = None,
        landmarks: Any = "auto",
        n_directions: int | str = "auto",
        center: bool = True,
        standardize: bool = False,
        column_weights: Any = None,
        dtype: Any = None,
        solver: str = "auto",
        refine: int = 0,
        residual_tol: float = 1e-2,
        preimage: Any = "fixed-point",
        noise: float | None = None,
        calibration_rows: int = 0,
        calibration: str = "random",
        random_state: Any = None,
        block_rows: int | None = None,
        memory_limit: str | int | None = None,
        device: str | None = None,
        verbose: bool | Progress = False,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.sigma = sigma
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.method = method
        self.size = size
        self.tol = tol
        self.landmarks = landmarks
        self.n_directions = n_directions
        self.center = center
        self.standardize = standardize
        self.column_weights = column_weights
        self.dtype = dtype
        self.solver = solver
        self.refine = refine
        self.residual_tol = residual_tol
        self.preimage = preimage
        self.noise = noise
        self.calibration_rows = calibration_rows
        self.calibration = calibration
        self.random_state = random_state
        self.block_rows = block_rows
        self.memory_limit = memory_limit
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: None = None, sample_weight: Any = None, *, like: AnyModel | None = None) -> Self:
        """Fit to rows (n, d), and return this estimator.

        Raises DataError for NaN, infinity and constant data, SpecError for parameters that conflict with each other or
        with the data, both of which are ValueErrors, and MemoryLimitError.

        Parameters
        ----------
        X : NumPy, Dask, Zarr or sparse array, frame, DataArray, or path to a Zarr array, dataset or .npy file
            PyTorch tensors and CuPy arrays are also accepted, and results stay on their device. Dask, Zarr and path
            inputs are streamed. The rows of a Dask frame, or of a Dask array with unknown chunk sizes, are counted
            first, which takes one more pass.
        sample_weight : array (n,), or path, optional
            Weights of the rows, finite numbers of at least 0: components are those of the weighted mean and scatter.
            Whole numbers have the effect of repeated rows, 0 that of a row left out. As in `bigkpca.fit`.
        like : path, Model or fitted KernelPCA, optional
            Fit with the features of this model: its kernel, landmarks or frequencies, offset and scale. Parameters left
            at their defaults are taken from its fit; only noise can differ. Estimators fitted this way to different
            rows can be added: a + b.
        """
        rows = weighted(self._rows(X, reset=True), sample_weight)
        # Paths are recorded as the command line records them, so that both make the same model.
        return self._fitted(rows, like, identity_of(rows) if is_path(X) else None)

    def _run(self, rows: Rows) -> RunOptions:
        """The options of a run over these rows."""
        options = RunOptions(memory=self.memory_limit, device=self.device, progress=shown(self.verbose))
        return options.on(rows)

    def _fitted(
        self,
        rows: Rows,
        like: AnyModel | None,
        identity: dict[str, Any] | None = None,
        kept: KeptFeatures | None = None,
        spec: FitSpec | None = None,
    ) -> Self:
        run = self._run(rows)
        before = None if like is None else models.model_of(like)
        with run.engine() as engine:
            if spec is None:
                spec = spec_of(self) if before is None else spec_like(before, dict(self._spec_after(before)))
            self.model_ = fit_model(rows, spec, replace(engine, kept=kept), run, before, identity)
        return self

    def _spec_after(self, model: Model) -> FitSpec:
        """The spec of the parameters, with the seed of an earlier model unless random_state is a number."""
        before, fixed = FitSpec.of(model), isinstance(self.random_state, int | np.integer)
        spec = spec_of(self, None if fixed else before.random_state)
        if isinstance(before.size, int) and spec.size == "auto" and spec.tol is None:  # which a first batch chose
            return spec.at(before.size)
        return spec

    @overload
    def fit_transform(self, X: Array, y: None = None, sample_weight: Any = None, *, like: Any = None) -> Array: ...
    @overload
    def fit_transform(self, X: Lazy, y: None = None, sample_weight: Any = None, *, like: Any = None) -> LazyArray: ...
    @overload
    def fit_transform(self, X: Any, y: None = None, sample_weight: Any = None, *, like: Any = None) -> Any: ...
    def fit_transform(self, X: Any, y: None = None, sample_weight: Any = None, *, like: AnyModel | None = None) -> Any:
        """Same bits as fit(X, sample_weight=sample_weight, like=like).transform(X).

        For in-memory rows, features computed in the pass of the fit are kept and reused: as many as `memory_limit`
        leaves room for beside the plan or, without it, up to twice the size of the rows, at least 96 MB, if that holds
        a third of all features.
        """
        if is_lazy(X):
            return self.fit(X, sample_weight=sample_weight, like=like).transform(X)
        rows, kept = weighted(self._rows(X, reset=True), sample_weight), KeptFeatures()
        self._fitted(rows, like, kept=kept)
        return in_kind(X, self._scores(rows, kept), "scores")

    def _scores(self, rows: Rows, kept: KeptFeatures | None = None) -> Any:
        """Scores of rows, lazy unless these are in memory, in float32 for rows in float32 unless a dtype is set."""
        found = SCORES.of(rows, self.model_, self.device, kept)
        return found if self.dtype else like_rows(found, rows)

    @only_if(check_takes_more_rows)
    def partial_fit(self, X: Any, y: None = None, sample_weight: Any = None) -> Self:
        """Add rows to a fitted model: kernel and landmarks stay, and moments are added.

        The first call is `fit`, with at least five rows for each landmark or component that is asked for; if the size
        is left open, there are at most a fifth as many landmarks as rows. Later calls, and all after `fit` and `load`,
        make one pass over the new rows, and signs follow the previous model. If they are far from all landmarks, a
        FarRowsWarning reports it. Between calls, n_components, noise, memory_limit, device and a random_state that is
        not a number can change. X and sample_weight are as in `fit`. Raises SpecError for too few rows in the first
        call and for other changes, and the errors of `fit`. Does not exist for the exact method, the randomized solver
        and refined models.
        """
        first = not hasattr(self, "model_")
        rows = weighted(self._rows(X, reset=first), sample_weight)
        if first:
            spec = of_first_batch(spec_of(self), rows)
            return self._fitted(rows, None, identity_of(rows) if is_path(X) else None, spec=spec)
        run, spec = self._run(rows), self._spec_after(self.model_)
        with run.engine() as engine:
            if "like" in self.model_.provenance:  # defaults stand for the values of the model
                spec = spec_like(self.model_, dict(spec))
            self.model_ = extend(self.model_, rows, spec, engine, run.memory_limit)
        return self

    def __add__(self, other: KernelPCA) -> Self:
        """The estimator of the rows of both, if fitted with the same features: see `bigkpca.merge`. No pass."""
        if not isinstance(other, KernelPCA):
            return NotImplemented
        check_is_fitted(self)
        check_is_fitted(other)
        return self._of(merge([self, other]))

    def __radd__(self, other: Any) -> Self:
        """Support `sum`, which starts at 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def eigenvalues_(self) -> Array:
        """Eigenvalues of the (centred) Gram matrix, (r,)."""
        return self.model_.solution.eigenvalues

    @property
    def explained_variance_ratio_(self) -> Array:
        """Shares of the variance, (r,)."""
        return self.model_.solution.explained_variance_ratio

    @property
    def certificate_(self) -> Certificate:
        """Error bounds and estimates of the fit, and a trust rating for each component."""
        return self.model_.certificate

    @property
    def captured_(self) -> Captured | None:
        """The share of the columns that the scores explain, beside linear PCA; None if it is not known."""
        return self.model_.captured

    @property
    def n_components_(self) -> int:
        """Number of components kept."""
        return self.model_.components

    _n_features_out = n_components_  # as ClassNamePrefixFeaturesOutMixin asks for it

    @property
    def landmarks_(self) -> Array | None:
        """Landmarks in the units of the data, (l, d); None for random features."""
        return self.model_.features.landmarks_in_user_units()

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its parameters."""
        return self.model_.features.kernel

    @property
    def sigma_(self) -> float | None:
        """Length of the kernel; None if it has none."""
        return getattr(self.kernel_, "sigma", None)

    @property
    def gamma_(self) -> float | None:
        """Inverse width of the kernel as in scikit-learn, 1 / (2 sigma²) for the Gaussian; None if it has none."""
        given = self.model_.provenance.get("spec", {}).get("gamma")
        return given if isinstance(given, float) else getattr(self.kernel_, "gamma", None)

    @property
    def eigenvectors_(self) -> Array:
        """Unit eigenvectors of the (centred) Gram matrix of the fitted rows, (n, r); scores of these rows are
        eigenvectors_ √eigenvalues_, as far as iterations have converged. Raises AttributeError for models that do not
        keep all rows."""
        model = self.model_
        if model.sums is not None or not (has_landmarks(model.features) or model.features.precomputed):
            raise AttributeError(
                "only models fitted with method='exact' or refine have eigenvectors_; for other models, scores of the "
                "fitted rows divided by sqrt(eigenvalues_) approximate them"
            )
        return model.solution.components * np.sqrt(model.solution.eigenvalues)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    @overload
    def transform(self, X: Array) -> Array: ...
    @overload
    def transform(self, X: Lazy) -> LazyArray: ...
    @overload
    def transform(self, X: Any, out: AnyPath) -> Stored: ...
    @overload
    def transform(self, X: Any, out: None = None) -> Any: ...
    def transform(self, X: Any, out: AnyPath | None = None) -> Any:
        """Scores (n, r): a NumPy array for in-memory input, a lazy Dask array for Dask, Zarr and paths.

        A PyTorch tensor or CuPy array gives one on the same device; a Dask frame gives a lazy Dask frame with the same
        index and divisions; a DataArray gives one with the dim and coordinates of its rows and a dim "component", lazy
        if it is backed by Dask. Rows of Dask frames, and of Dask arrays with unknown chunk sizes, are not counted. If
        `set_output` requests a frame, in-memory input other than tensors gives one; other results stay lazy.

        With `out`, scores are streamed to a feature store at that path, and its Zarr array is returned, as by
        `bigkpca.transform`. xarray.open_zarr opens it, too.

        Raises SpecError for rows of another width or other columns, and DataError for NaN and infinity. One pass.
        """
        check_is_fitted(self)
        if out is not None:
            return transform(self.model_, X, out, device=self.device)
        if is_dask_frame(X):
            view = SCORES.lazy if self.dtype else lazy_scores_like_rows
            return in_frame(self._checked_frame(X), view, self.model_, self.get_feature_names_out())
        return in_kind(X, self._scores(self._matching_rows(X)), "scores")

    def inverse_transform(self, Y: Any, out: AnyPath | None = None, *, start: Any = None) -> Any:
        """Pre-images (n, d) of scores Y (n, r), in the containers of `transform`: the columns are "feature" in a
        DataArray, and have the names of the fit in a Dask frame. With `out`, pre-images are streamed to that path, and
        its Zarr array is returned.

        `start` are rows (n, d) at which iterations start, instead of a linear map of the scores; only for scores and
        rows in memory, and without effect on methods that do not iterate.

        Raises SpecError for scores of another width or model and for kernels without pre-images, and DataError for NaN.
        One pass.
        """
        check_is_fitted(self)
        if start is not None and (out is not None or is_lazy(Y) or is_lazy(start)):
            raise SpecError(
                "start works only with scores and rows in memory and without out: load them, or use denoise"
            )
        if out is not None:
            return reconstruct(self.model_, Y, out)
        names = getattr(self, "feature_names_in_", None)
        if is_dask_frame(Y):
            return in_frame(Y, PREIMAGES.lazy, self.model_, range(self.model_.columns) if names is None else names)
        scores = open_scores(self.model_, Y, counted=False)
        if start is not None:
            scores = with_starts(scores, self._matching_rows(start))
        found = PREIMAGES.of(scores, self.model_)
        return in_kind(Y, found, "rows", "feature")

    def denoise(self, X: Any, out: AnyPath | None = None) -> Any:
        """Denoised rows (n, d): transform and inverse_transform in one step, with iterations that start at X.

        In the containers of `transform`; with `out`, a Zarr array at that path. Raises the errors of `transform`, and
        SpecError for kernels without pre-images. One pass.
        """
        check_is_fitted(self)
        if out is not None:
            return denoise(self.model_, X, out)
        if is_dask_frame(X):
            return in_frame(self._checked_frame(X), DENOISED.lazy, self.model_, X.columns)
        found = DENOISED.of(self._matching_rows(X), self.model_)
        return X.copy(data=found) if is_data_array(X) else in_kind(X, found, "rows")

    @only_if(check_restores_rows)
    def score(self, X: Any, y: None = None) -> float:
        """Negative mean squared error of pre-images over all entries of X (n, d), in one pass. Larger is better.

        Errors are in the units of the data, with `standardize` in standard deviations of the columns, and times
        `column_weights`: a grid search cannot choose these two parameters. With `noise`, pre-images are those of X with
        that noise added. Raises the errors of `transform`.
        """
        check_is_fitted(self)
        rows = self._matching_rows(X, counted=True)
        with RunOptions().engine() as engine:
            return -evaluating.preimage_error(self.model_, rows, self.noise, engine)

    def residual(self, X: Any) -> Any:
        """Residuals |φ(x) - φ^(x)|² of rows X (n, d), (n,): the part of k(x, x) not captured by the scores.

        Residuals are large for novel rows. In the containers of `transform`, but a lazy Series for Dask frames. Raises
        the errors of `transform`. One pass.
        """
        check_is_fitted(self)
        if is_dask_frame(X):
            return in_frame(self._checked_frame(X), RESIDUALS.lazy, self.model_, ["residual"])["residual"]
        return in_kind(X, RESIDUALS.of(self._matching_rows(X), self.model_, self.device), "residual")

    def to_sklearn(self) -> FittedKernelPCA:
        """A fitted estimator for serving, with the same scores and, if available, pre-images. No pass.

        It can be pickled, and needs only NumPy, SciPy and scikit-learn."""
        check_is_fitted(self)
        model = self.model_
        return FittedKernelPCA(model.features, model.solution, model.decoder, model.names)

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Save the fitted model; does nothing if it is already saved at `path`.

        Raises SpecError if something else is at `path` (`overwrite` replaces it if it is a model), or if the kernel is
        a function.
        """
        check_is_fitted(self)
        save_model(self.model_, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """The estimator of a saved model, with the parameters it was fitted with.

        Raises SpecError if there is no model, and CorruptionError if its content does not match its digest.
        """
        return cls._of(models.load_model(path))

    @classmethod
    def _of(cls, model: Model) -> Self:
        """The estimator of a model, with the parameters it was fitted with."""
        spec = FitSpec.of(model)
        values = {name: getattr(spec, name) for name in FitSpec.model_fields}
        if spec.method == FitSpec(kernel=spec.kernel).method:  # a spec has the method that "auto" means
            values["method"] = "auto"
        made = cls(**values)
        made.model_ = model
        made._remember(model.columns, model.names)
        return made

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"] if self.dtype is None else []
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        tags.input_tags.sparse = True
        return tags


__all__ = ["KernelPCA"]
