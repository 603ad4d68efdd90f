"""KernelPCA, the scikit-learn face: names and conventions of scikit-learn, no logic of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from bigkpca import arrays
from bigkpca.data.frames import check_frame, column_names, is_dask_frame, is_data_array
from bigkpca.data.memory import ArrayRows
from bigkpca.data.opening import is_lazy, open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, SpecError
from bigkpca.evaluating import preimage_error
from bigkpca.execution import containers, projection
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress, Silent
from bigkpca.execution.units import parse_bytes
from bigkpca.fitting.fit import fit_within
from bigkpca.fitting.memory import check_fits
from bigkpca.fitting.partial_fit import check_supports_partial_fit, extend
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Kernel, Precomputed, kernel_class
from bigkpca.numerics.methods import Method
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage import models
from bigkpca.workflows.fit import save as save_model
from bigkpca.workflows.scores import open_scores
from bigkpca.workflows.transform import denoise, reconstruct, transform

# Parameters of the face, and the fields of FitSpec that they set.
_FIELDS = {
    "n_components": "components",
    "kernel": "kernel",
    "sigma": "sigma",
    "gamma": "gamma",
    "degree": "degree",
    "coef0": "coef0",
    "method": "method",
    "size": "size",
    "tol": "tol",
    "landmarks": "landmarks",
    "n_directions": "n_directions",
    "center": "center",
    "standardize": "standardize",
    "dtype": "dtype",
    "solver": "solver",
    "refine": "refine",
    "residual_tol": "residual_tol",
    "preimage": "preimage",
    "noise": "noise",
    "random_state": "seed",
    "block_rows": "block_rows",
}
# Kept as they are, since float32 holds their values exactly; all other integers become float64.
_SMALL_INTEGERS = (np.uint8, np.int8, np.uint16, np.int16)


def _precomputed(kernel: Any) -> bool:
    """Whether the data are a matrix of kernels."""
    try:
        return isinstance(kernel, Precomputed) or (isinstance(kernel, str) and kernel_class(kernel) is Precomputed)
    except SpecError:  # no kernel at all, which a fit says
        return False


def _restores_rows(estimator: Any) -> bool:
    """Whether there is a way back to rows, scikit-learn's way to ask: a matrix of kernels has no rows, and some kernels
    no pre-images of the kind that is asked for, as the SpecError says that is raised then."""
    if hasattr(estimator, "model_"):
        estimator.model_.reconstructing(1)
        return True
    spec = _known(estimator)
    if spec is not None and not spec.reconstructs and not spec.precomputed:
        spec.preimage_value.check(spec.kernel_value(1, 1.0), spec.kept_method)
    return not _precomputed(estimator.kernel)


def _takes_more_rows(estimator: Any) -> bool:
    """Whether rows can be added after the fit: where not, the SpecError says why."""
    spec = _known(estimator)
    if spec is not None:
        check_supports_partial_fit(spec)
    return True


def _known(estimator: Any) -> FitSpec | None:
    """The spec of the parameters; None where they do not fit, which is told by a fit."""
    try:
        return estimator._spec(seed=0)
    except SpecError:
        return None


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel PCA of data that need not fit in memory.

    Scores are (v(x) - mean) @ components with v the kernels with the landmarks, for new rows as for old ones;
    eigenvalues are those of the centred Gram matrix (sums over n), as in scikit-learn's KernelPCA.

    Parameters
    ----------
    n_components : int, float in (0, 1), "auto" or None
        How many components, or the share of variance they must explain, "auto" for those before the largest gap
        behind a trustworthy one, or None for the numerical rank.
        Lowered silently to what there is, see `n_components_`.
    kernel : str, a value of bigkpca.kernels, or a callable k(X (b, d), Y (l, d)) -> (b, l)
        "precomputed", with method="exact": what is fitted is the square matrix of kernels, (n, n), and what is
        transformed are kernels with the fitted ones, (m, n). Above 8192 rows it is read in pieces, and never held.
    sigma : float or "median"
        Length of the kernel in the units of the columns; "median" makes the median pair have k = exp(-1).
    gamma : float or None
        Inverse width instead of sigma: 1 / (2 sigma^2) for the Gaussian, 1 / sigma for the Laplacian.
    degree, coef0 : of the polynomial and sigmoid kernels.
    method : "nystroem", "columns", "rff", "rff-pca", "exact" (the whole Gram matrix, up to 8192 rows), or a value
        of bigkpca.methods. "rff" with a polynomial kernel is a tensor sketch.
    size : int or "auto"
        Number of landmarks, or of real random features (sines and cosines both counted).
    tol : float or None
        With size="auto": grow until the certified relative trace error is below it; for random features, the estimated
        error of the kernel. `memory_limit` may end the growth (ToleranceWarning).
    landmarks : "auto", "kmeans", "uniform", "rpcholesky", "leverage", "basic-patterns", a value of bigkpca.landmarks,
        rows (l, d) in the units of the data, or row numbers (l,)
    n_directions : int or "auto"
        Principal axes that rff-pca keeps; "auto" leaves a relative bias of k(x, y) of at most 0.02.
    center : bool
        Whether to centre in feature space.
    standardize : bool
        Whether to bring columns to mean 0 and deviation 1 first; sigma then refers to such columns.
    dtype : "float32", "float64" or None
        Precision of block work; None takes that of the data, at least float32, or float64 where rounding in float32
        would move the bounds or leading eigenvalues by more than 0.01 (said in the choices of the model).
    solver : "auto", "dense" or "randomized"
        Eigensolver of random features; "auto" is randomized above 8192 of them, with no D x D matrix and 4 passes.
    refine : int
        Products with the exact Gram matrix after the fit, at most; the model then keeps its rows.
    residual_tol : float
        Largest |Kc u_j - lambda_j u_j| / lambda_j at which exact (above 8192 rows) and refine stop.
    preimage : "fixed-point", "mds", "linear", "ridge", "denoising", or a value of bigkpca.preimages
        The way back from scores to rows. "ridge" and "denoising" are learned by `fit`, in one more pass.
    noise : float or None
        Standard deviation of the noise, in the units of the data, that pre-images are to undo: "denoising" is trained
        on it, and `score` adds it.
    random_state : int, RandomState or None
        None draws a seed, which the model records.
    block_rows : int or None
        Rows of one task.
    memory_limit : str such as "2 GB", int (bytes) or None
        Refuse a fit whose process would need more. It never changes a result.

    Attributes
    ----------
    eigenvalues_ (r,), explained_variance_ratio_ (r,), n_components_, landmarks_ (l, d; None for random features),
    kernel_, sigma_, certificate_, model_, n_features_in_, feature_names_in_ (of frames, and of datasets
    that have names).

    Passes over the data: a bounded sample and one more; standardize, rff-pca and learned pre-images add one each, the
    randomized solver three, landmarks.RPCholesky(over="all") as many as it needs, and one where the rounding of float32
    would count, so that the fit is made again in float64. The same bits need the same input chunks and block_rows: the
    blocks in which rows are added up are whole chunks. Source: `docs/numerics.md`.

    Examples
    --------
    Rows that share a sentinel are far from all others, and told from each other all the same:

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 5)).astype("f4")
    >>> X[rng.random(3000) < 0.05, 2] = -9999
    >>> kpca = KernelPCA(2, size=300, random_state=0).fit(X)
    >>> kpca.eigenvalues_.round(0), kpca.certificate_.trust
    (array([199., 195.]), ('solid', 'solid'))
    """

    def __init__(
        self,
        n_components: int | float | str | None = 50,
        *,
        kernel: Any = "gaussian",
        sigma: float | str = "median",
        gamma: float | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        method: str | Method = "nystroem",
        size: int | str = "auto",
        tol: float | None = None,
        landmarks: Any = "auto",
        n_directions: int | str = "auto",
        center: bool = True,
        standardize: bool = False,
        dtype: Any = None,
        solver: str = "auto",
        refine: int = 0,
        residual_tol: float = 1e-2,
        preimage: Any = "fixed-point",
        noise: float | None = None,
        random_state: Any = None,
        block_rows: int | None = None,
        memory_limit: str | int | None = None,
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
        self.dtype = dtype
        self.solver = solver
        self.refine = refine
        self.residual_tol = residual_tol
        self.preimage = preimage
        self.noise = noise
        self.random_state = random_state
        self.block_rows = block_rows
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: None = None) -> Self:
        """Fit to a NumPy array, frame, DataArray, Dask array or frame, Zarr array, or a path to one of these or a .npy
        file. What Dask, Zarr and paths hold is streamed, DataArrays over Dask too; the rows of a Dask frame are counted
        first, which is one more pass, over its index alone.

        Raises DataError (a ValueError) for NaN, infinity and constant data, SpecError (a ValueError) for
        parameters that do not fit, MemoryLimitError.
        """
        rows = self._rows(X, reset=True)
        limit = None if self.memory_limit is None else parse_bytes(self.memory_limit)
        with open_engine() as engine:
            # What lies at a path is recorded as the command line does, so that both make the same model.
            identity = rows.fingerprint() if isinstance(X, str | os.PathLike) else None
            self.model_ = fit_within(rows, self._spec(), engine, limit, Silent(), identity)
        return self

    def fit_transform(self, X: Any, y: None = None, **fit_params: Any) -> Any:
        """The same bits as fit(X).transform(X)."""
        return self.fit(X).transform(X)

    @available_if(_takes_more_rows)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: None = None) -> Self:
        """Add rows to a fitted model, a sample of them and one pass: kernel and landmarks stay, moments are added.

        The first call is `fit`. Signs follow the model before. Between calls n_components, noise, memory_limit and a
        random_state that is no number may change; the model keeps the seed of its fit. Raises SpecError for other
        parameters that changed. There is no such method for the exact method, the randomized solver, refined models and
        ways back that are learned.
        """
        if not hasattr(self, "model_"):
            return self.fit(X)
        rows, fixed = self._rows(X, reset=False), isinstance(self.random_state, int | np.integer)
        spec = self._spec() if fixed else self._spec(FitSpec.of(self.model_).seed)
        limit = None if self.memory_limit is None else parse_bytes(self.memory_limit)
        with open_engine() as engine:
            check_fits(rows, resolve(spec, rows), engine, limit)
            self.model_ = extend(self.model_, rows, spec, engine, Silent())
        return self

    def transform(self, X: Any, out: str | os.PathLike[str] | None = None) -> Any:
        """Scores (n, r): NumPy for what is in memory, a lazy Dask array for Dask, Zarr and paths.

        A Dask frame gets a lazy Dask frame, with its index and divisions, taken partition by partition without a count;
        a DataArray gets one with the dim of its rows, their coordinates, and a dim "component", lazy where it is over
        Dask. With `out` they are streamed to a feature store at that path, and its Zarr array is returned.
        """
        check_is_fitted(self)
        if out is not None:
            return transform(self.model_, X, out)
        if is_dask_frame(X):
            return containers.in_frame(self._checked(X), arrays.scores, self.model_, self.get_feature_names_out())
        rows = self._rows(X, reset=False)
        projection.check_columns(rows, self.model_)
        scores = self._made(rows, arrays.scores, projection.score_rows)
        return containers.in_data_array(X, scores, "scores") if is_data_array(X) else scores

    def inverse_transform(self, Y: Any, out: str | os.PathLike[str] | None = None) -> Any:
        """Rows (n, d) that scores Y (n, r) stand for: NumPy for what is in memory, a lazy Dask array for Dask, Zarr and
        paths; in kind for Dask frames and DataArrays, as `transform`, with the names of the columns that were fitted.
        With `out` they are streamed to that path, and its Zarr array is returned.

        Raises SpecError for scores of another width or model and for kernels without a way back, DataError for NaN.
        """
        check_is_fitted(self)
        if out is not None:
            return reconstruct(self.model_, Y, out)
        names = getattr(self, "feature_names_in_", None)
        if is_dask_frame(Y):
            columns = range(self.model_.columns) if names is None else names
            return containers.in_frame(Y, arrays.preimages, self.model_, columns)
        rows = self._made(open_scores(self.model_, Y), arrays.preimages, _preimages)
        return containers.in_data_array(Y, rows, "rows", "feature", names) if is_data_array(Y) else rows

    def denoise(self, X: Any, out: str | os.PathLike[str] | None = None) -> Any:
        """Rows (n, d) as the model sees them: transform and inverse_transform in one, iterations starting at X.

        NumPy for what is in memory, a lazy Dask array for Dask, Zarr and paths; Dask frames and DataArrays as they are,
        with other values, lazy where they are. With `out` a Zarr array at that path.
        """
        check_is_fitted(self)
        if out is not None:
            return denoise(self.model_, X, out)
        if is_dask_frame(X):
            return containers.in_frame(self._checked(X), arrays.denoised, self.model_, X.columns)
        rows = self._rows(X, reset=False)
        projection.check_columns(rows, self.model_)
        found = self._made(rows, arrays.denoised, _denoised)
        return X.copy(data=found) if is_data_array(X) else found

    @available_if(_restores_rows)  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def score(self, X: Any, y: None = None) -> float:
        """Minus the mean squared error of pre-images, over all entries of X (n, d): one pass. Larger is better.

        Pre-images are of the scores alone; with `noise`, of X with that noise added, against X itself.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        projection.check_columns(rows, self.model_)
        with open_engine() as engine:
            return -preimage_error.preimage_error(self.model_, rows, self.noise, engine, Silent())

    def residual(self, X: Any) -> Any:
        """|φ(x) - φ^(x)|² of rows X (n, d), (n,): what their scores leave out of k(x, x), large for novel rows.

        NumPy for what is in memory, a lazy Dask array for Dask, Zarr and paths, a lazy Series for Dask frames, a
        DataArray for DataArrays.
        """
        check_is_fitted(self)
        if is_dask_frame(X):
            return containers.in_frame(self._checked(X), arrays.residuals, self.model_, ["residual"])["residual"]
        rows = self._rows(X, reset=False)
        projection.check_columns(rows, self.model_)
        found = self._made(rows, arrays.residuals, projection.residual_rows)
        return containers.in_data_array(X, found, "residual") if is_data_array(X) else found

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save the fitted model; nothing happens where it is saved already.

        Raises SpecError if something else is there, which `overwrite` replaces where it is a model, or if the kernel is
        a function.
        """
        check_is_fitted(self)
        save_model(self.model_, os.fspath(path), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The estimator of a saved model, with the parameters it was fitted with."""
        model = models.load_model(os.fspath(path))
        spec = FitSpec.of(model)
        parameters = {name: getattr(spec, field) for name, field in _FIELDS.items()}
        loaded = cls(**parameters)
        loaded.model_ = model
        loaded._remember(model.columns, model.names)
        return loaded

    def _spec(self, seed: int | None = None) -> FitSpec:
        values = {field: getattr(self, name) for name, field in _FIELDS.items()}
        values["seed"] = _seed(self.random_state) if seed is None else seed
        if self.dtype is not None:
            with suppress(TypeError):  # what is no dtype, the spec refuses
                values["dtype"] = np.dtype(self.dtype).name
        return FitSpec.checked(**values)

    def _made(self, rows: Rows, lazy: containers.View, now: Callable[..., Any]) -> Any:
        """What is made of each row: at once for rows in memory, else a lazy view."""
        if not isinstance(rows, ArrayRows):
            return lazy(self.model_, rows)
        with open_engine() as engine:
            return now(rows, self.model_, engine, Silent())

    def _checked(self, X: Any, *, reset: bool = False) -> Any:
        """A Dask frame whose columns scikit-learn has seen, as it sees those of a frame in memory."""
        validate_data(self, containers.header(X), reset=reset, skip_check_array=True)
        return X

    def _rows(self, X: Any, *, reset: bool) -> Rows:
        if is_dask_frame(X):
            return open_rows(self._checked(X, reset=reset))
        if is_lazy(X):
            rows = open_rows(X)
            if reset:
                self._remember(rows.shape[1], rows.names)
            return rows
        check_frame(X)
        values = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32, *_SMALL_INTEGERS],
            ensure_all_finite=False,  # the pass checks, and names row and column
            ensure_min_samples=2 if reset else 1,
        )
        return ArrayRows(values, names=column_names(X))

    def _remember(self, columns: int, names: tuple[str, ...] | None) -> None:
        """Keep what scikit-learn compares later rows with."""
        self.n_features_in_ = columns
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @property
    def eigenvalues_(self) -> Array:
        """Eigenvalues of the (centred) Gram matrix, (r,)."""
        return self.model_.solution.eigenvalues

    @property
    def explained_variance_ratio_(self) -> Array:
        """eigenvalues_ / an upper bound on the trace, (r,): never too large for Nyström with a positive semidefinite
        kernel; an estimate for columns, random features and other kernels."""
        return self.model_.solution.explained_variance_ratio

    @property
    def certificate_(self) -> Certificate:
        """How wrong the fit can be: bounds, estimates, and a word for each component."""
        return self.model_.certificate

    @property
    def n_components_(self) -> int:
        """Components kept."""
        return self.model_.components

    @property
    def landmarks_(self) -> Array | None:
        """Landmarks in the units of the data, (l, d); None for random features."""
        features = self.model_.features
        return features.landmarks_in_user_units() if isinstance(features, KernelRows) else None

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its parameters."""
        return self.model_.features.kernel

    @property
    def sigma_(self) -> float | None:
        """Length of the kernel, None if it has none."""
        return getattr(self.kernel_, "sigma", None)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.pairwise = _precomputed(self.kernel)
        return tags


def _preimages(scores: Rows, model: Model, engine: Engine, progress: Progress) -> Array:
    return projection.reconstruct_rows(scores, model, projection.block_preimages, engine, progress).rows


def _denoised(rows: Rows, model: Model, engine: Engine, progress: Progress) -> Array:
    return projection.reconstruct_rows(rows, model, projection.block_denoised, engine, progress).rows


def _seed(random_state: Any) -> int:
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    return int(check_random_state(random_state).randint(2**31))
