"""KernelPCADetector, an outlier detector with the scikit-learn interface."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.utils.validation import check_is_fitted

from bigkpca import arrays
from bigkpca.data.frames import is_dask_frame, is_tensor
from bigkpca.data.opening import in_memory
from bigkpca.data.rows import ArrayRows, Rows, identity_of
from bigkpca.data.sample_weights import number_and_weight, weighted, without
from bigkpca.data.stores import AnyPath, is_path
from bigkpca.errors import Array, SpecError
from bigkpca.estimator import KernelPCA
from bigkpca.estimator.inputs import RowOutput, RowsInput, in_kind
from bigkpca.estimator.parameters import only_if
from bigkpca.execution import projection
from bigkpca.execution.options import RunOptions
from bigkpca.numerics.array_api import astype
from bigkpca.numerics.calibration import (
    CALIBRATION_ROWS,
    COMBINED,
    REASONS,
    STATISTICS,
    Calibration,
    Limit,
    usual_errors,
)
from bigkpca.numerics.display import at_most
from bigkpca.numerics.model import Model

_STATISTICS = RowOutput(arrays.statistics, projection.statistics_of_rows, projection.few_statistics)
_FITS = 3  # each without the rows that the one before found to be the most unusual


def _check_leaves_none_out(detector: Any) -> bool:
    """Raise SpecError for a contamination, with which no rows can be added after the fit."""
    if _share(detector.contamination) is not None:
        raise SpecError(f"contamination={detector.contamination}: partial_fit leaves no rows out; use 'auto', or fit")
    return True


class KernelPCADetector(RowsInput, OutlierMixin, BaseEstimator):  # type: ignore[misc]
    """Find unusual rows, of data that do not fit in memory, by kernel PCA.

    A row is unusual if the components leave much of it out (its residual), or if it is far from the mean along the
    components (its distance, Hotelling's T²). Whichever is rarer is compared with a limit from rows that took no part
    in the fit: a new row of the same distribution, whatever it is, exceeds it with a probability of at most `alpha`.

    Parameters
    ----------
    kpca : KernelPCA, optional
        The kernel PCA to fit, by default KernelPCA(0.9, sigma="3 median", size=300, random_state=0): residuals tell
        rows apart best if the components of a wide kernel explain most of the variance, but not all. Use `standardize`
        for columns in different units.
    alpha : float
        The share of ordinary rows that may be flagged: the probability of a false alarm.
    contamination : "auto", or float in (0, 0.5]
        "auto": rows above the limit for `alpha` are flagged. A share of unusual rows among the fitted ones: that many
        rows, those with the largest statistics, are left out, and the fit is repeated without them until they stay the
        same, at most three times; the limit then flags this share of the fitted rows.
    calibration_rows : int
        Rows that are set aside for the limit: at most half of all rows and, unless `alpha` needs more, a quarter.
    random_state : int, optional
        Seed of all random numbers; by default that of `kpca`.

    Attributes
    ----------
    kpca_ : KernelPCA
        The fitted kernel PCA.
    model_ : Model
        Its model, with the calibration.
    offset_ : float
        Rows whose `score_samples` are below this are flagged.
    left_out_ : int
        Number of rows that were left out of the fit as contamination.
    false_alarms_ : (float, float)
        Range of the share of ordinary rows above the limit for `alpha`, with a probability of 95 % over the choice of
        the calibration rows.
    n_features_in_ : int
        Number of columns, d.
    feature_names_in_ : (d,) of str
        Names of the columns, for frames and for datasets with names.

    Notes
    -----
    Passes are those of `KernelPCA.fit`; with a contamination, of at most three such fits and as many passes that
    compute statistics. Source: `docs/numerics.md`, section 23.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(2000, 4))
    >>> detector = bigkpca.KernelPCADetector(alpha=0.01).fit(X)
    >>> detector.predict([[0, 0, 0, 0], [9, 9, 9, 9]])
    array([ 1, -1])
    """

    def __init__(
        self,
        kpca: KernelPCA | None = None,
        *,
        alpha: float = 0.01,
        contamination: float | str = "auto",
        calibration_rows: int = CALIBRATION_ROWS,
        random_state: int | None = None,
    ) -> None:
        self.kpca = kpca
        self.alpha = alpha
        self.contamination = contamination
        self.calibration_rows = calibration_rows
        self.random_state = random_state

    def fit(self, X: Any, y: None = None, sample_weight: Any = None) -> Self:
        """Fit to rows X (n, d), in any container that `KernelPCA.fit` takes; `y` is not used.

        Raises SpecError for an `alpha` that so few rows cannot show, for a `contamination` that is not a share, and for
        a method that does not take weights; and the errors of `KernelPCA.fit`.
        """
        share, alpha = _share(self.contamination), _alpha(self.alpha)
        rows = weighted(self._rows(X, reset=True), sample_weight)
        n, identity = number_and_weight(rows)[0], identity_of(rows, stamped=is_path(X))
        kpca = self._unfitted(rows)._fitted(rows, None, identity)
        if share is None:
            return self._limited(kpca, _limit_for(alpha, kpca.model_))
        count, before = max(1, round(share * n)), np.empty(0, np.intp)
        for number in range(_FITS):
            values = _values(rows, kpca)
            unusual = np.sort(np.argsort(_evidence(values), kind="stable")[-count:])
            if number == _FITS - 1 or np.array_equal(unusual, before):
                break
            kpca, before = clone(kpca)._fitted(without(rows, unusual), None, identity), unusual
        return self._limited(
            kpca, Limit(float(np.sort(values[:, COMBINED])[-count - 1 :][:2].mean()), alpha, share, count)
        )

    @only_if(_check_leaves_none_out)
    def partial_fit(self, X: Any, y: None = None, sample_weight: Any = None) -> Self:
        """Add rows to the kernel PCA, as `KernelPCA.partial_fit`, and some of them to the calibration rows, where they
        replace random ones in proportion to the weights: so the limit follows the rows. The first call sets
        aside as many rows as `fit` would, and its default number of landmarks is at most a fifth of them.

        Not available with a contamination. Raises the errors of `fit` and of `KernelPCA.partial_fit`.
        """
        if hasattr(self, "kpca_"):
            kpca, left_out = self.kpca_, self.left_out_
            _limit_for(self.alpha, kpca.model_)  # raises SpecError before rows are added
        else:
            rows = weighted(self._rows(X, reset=True), sample_weight)
            kpca, left_out = self._unfitted(rows), 0
            if self.kpca is None:
                kpca.set_params(size=max(1, min(kpca.size, rows.shape[0] // 5)))
        kpca.partial_fit(X, None, sample_weight)
        return self._limited(kpca, _limit_for(self.alpha, kpca.model_, left_out))

    def _unfitted(self, rows: Rows) -> KernelPCA:
        """The kernel PCA for these rows, with the number of calibration rows."""
        n, count = number_and_weight(rows)[0], cast(Any, self.calibration_rows)
        if not isinstance(count, int | np.integer) or count < 1:
            raise SpecError(f"calibration_rows={count!r}: give a number of at least 1")
        kpca = KernelPCA(0.9, sigma="3 median", size=300, random_state=0) if self.kpca is None else clone(self.kpca)
        alpha = _alpha(self.alpha) if _share(self.contamination) is None else 1.0
        needed = int(np.ceil(2 / alpha * (1 - 1e-12))) - 1
        count = min(int(count), max(n // 4, needed), max(n // 2, 1))
        if count < needed and n:  # without any weight, the fit raises a clearer error
            smaller = f"an alpha of at least {at_most(2 / (count + 1), 2):g}, or " if count > 1 else ""
            raise SpecError(
                f"alpha={alpha:g} needs {needed:,} calibration rows, and {n:,} rows allow {count:,}: give "
                f"{smaller}more rows or calibration_rows"
            )
        seed = kpca.random_state if self.random_state is None else self.random_state
        return kpca.set_params(calibration_rows=count, random_state=seed)

    def _limited(self, kpca: KernelPCA, limit: Limit) -> Self:
        """The detector with this kernel PCA and limit, which the model keeps."""
        calibration = replace(kpca.model_.check_calibrated(), limit=limit)
        kpca.model_ = replace(kpca.model_, calibration=calibration)
        self.kpca_, self.model_, self.offset_, self.left_out_ = kpca, kpca.model_, -limit.value, limit.left_out
        for each in (self, kpca):
            each._remember(kpca.model_.columns, kpca.model_.names)
        self.__dict__.pop("_usual_errors", None)
        return self

    @property
    def calibration_(self) -> Calibration:
        """The calibration rows, which took no part in the fit, and their statistics."""
        return self.model_.check_calibrated()

    @property
    def false_alarms_(self) -> tuple[float, float]:
        """Range of the share of ordinary rows above the limit for `alpha`."""
        return self.calibration_.range(self.alpha)

    def statistics(self, X: Any) -> Any:
        """How unusual each row of X (n, d) is, (n, 3): its residual, its distance, and both combined. One pass.

        A NumPy array for rows in memory, a lazy Dask array or frame for Dask, Zarr and paths, and for tensors and
        DataArrays the same kind. Raises the errors of `KernelPCA.transform`.
        """
        check_is_fitted(self)
        if is_dask_frame(X):
            return projection.in_frame(self._checked_frame(X), _STATISTICS.lazy, self.model_, STATISTICS)
        return in_kind(X, self._statistics(X), "statistics", "statistic")

    def _statistics(self, X: Any) -> Any:
        rows = self._matching_rows(X)
        return _STATISTICS.of(rows, self.model_, self.kpca_.device)

    def score_samples(self, X: Any) -> Any:
        """Minus the combined statistic of each row of X (n, d), (n,), as `statistics`: lower for more unusual rows."""
        values = self.statistics(X)
        return -(values[STATISTICS[COMBINED]] if is_dask_frame(X) else values[:, COMBINED])

    def decision_function(self, X: Any) -> Any:
        """`score_samples` less `offset_`, (n,): negative for rows that are flagged."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Any:
        """-1 for rows that are flagged and 1 for others, (n,)."""
        flagged = self.decision_function(X) < 0
        return 1 - 2 * (astype(flagged, np.int64) if is_tensor(flagged) else flagged.astype(int))

    def p_values(self, X: Any) -> Array:
        """The share of ordinary rows that are at least as unusual as each row of X (n, d), (n,), in memory. For rows of
        the distribution of the fit it is at most α with a probability of at most α, unless rows were left out."""
        values = self._in_memory(X)
        return self.calibration_.p_values(values[:COMBINED])[COMBINED]

    def reasons(self, X: Any) -> Array:
        """Which part makes up most of the combined statistic of each row of X (n, d), (n,): "residual" or "distance",
        and "" for rows that are not flagged."""
        values = self._in_memory(X)
        return np.array(REASONS)[self.calibration_.flags(values, -self.offset_)]

    def contributions(self, X: Any) -> Array:
        """What is unusual about rows X (n, d) in memory, by column, (n, d).

        The difference between a row and its pre-image, over the root mean square of this difference for calibration
        rows: about 1 for ordinary rows. A pass over both. Raises SpecError for kernels without pre-images.
        """
        check_is_fitted(self)
        rows = self._matching_rows(X, counted=True)
        return (rows.block(0, rows.shape[0]) - self._restored(rows)) / self._usual_errors

    @cached_property
    def _usual_errors(self) -> Array:
        """Root mean squares (d,) of the differences between the calibration rows and their pre-images."""
        known = self.calibration_.rows
        return usual_errors(known, self._restored(ArrayRows(known)))

    def _restored(self, rows: Rows) -> Array:
        """The rows that the scores of rows represent, (n, d), in memory."""
        with RunOptions().engine() as engine:
            return projection.restored_rows(rows, self.model_, engine)

    def _in_memory(self, X: Any) -> Array:
        """The statistics (3, n) of rows X (n, d)."""
        check_is_fitted(self)
        return np.asarray(self._statistics(X.compute() if is_dask_frame(X) else X)).T

    def save(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Save the model with its calibration and limit, as `KernelPCA.save`."""
        check_is_fitted(self)
        self.kpca_.save(path, overwrite=overwrite)

    @classmethod
    def load(cls, path: AnyPath, *, alpha: float | None = None) -> Self:
        """The detector of a saved model, with the limit that it was saved with or, if given, the limit for `alpha`.

        A model that no detector saved, of a fit with `calibration_rows`, has the limit for 0.01. Raises SpecError for a
        model that was fitted without them, and for an `alpha` that its calibration rows cannot show; and the errors of
        `KernelPCA.load`.
        """
        kpca = KernelPCA.load(path)
        limit = kpca.model_.check_calibrated().limit
        if limit is None or alpha is not None:
            limit = _limit_for(0.01 if alpha is None else alpha, kpca.model_, 0 if limit is None else limit.left_out)
        contamination = "auto" if limit.contamination is None else limit.contamination
        made = cls(kpca, alpha=limit.alpha, contamination=contamination, calibration_rows=kpca.calibration_rows)
        return made._limited(kpca, limit)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "offset_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _limit_for(alpha: Any, model: Model, left_out: int = 0) -> Limit:
    """The limit that ordinary rows exceed with a probability of at most `alpha`."""
    alpha = _alpha(alpha)
    return Limit(float(model.check_calibrated().limits(alpha)[COMBINED]), alpha, left_out=left_out)


def _values(rows: Rows, kpca: KernelPCA) -> Array:
    """The statistics of all rows, (n, 3), in memory; less than any other for rows of weight 0."""
    found = _STATISTICS.of(rows, kpca.model_, kpca.device)
    values = np.asarray(found if in_memory(rows) else found.compute())
    return values if rows.weights is None else np.where(rows.weights.of(0, len(values))[:, None] > 0, values, -np.inf)


def _evidence(values: Array) -> Array:
    """How unusual rows with these statistics (n, 3) are among themselves, (n,): the sum of residual and distance, each
    from its median on, in units of the way from there to the upper quartile. Both count, since unusual rows of which
    some were fitted often have a residual and a distance that are both large.
    """
    own = values[:, :COMBINED]
    middle, upper = np.quantile(own[np.isfinite(own).all(axis=1)], [0.5, 0.75], axis=0)
    units = np.maximum(upper - middle, np.finfo(float).eps * np.abs(upper) + np.finfo(float).tiny)
    return np.asarray(((own - middle) / units).sum(axis=1))


def _share(contamination: Any) -> float | None:
    """The share of unusual rows; None for "auto". Raises SpecError for anything else than a share up to a half."""
    if isinstance(contamination, str) and contamination == "auto":
        return None
    if isinstance(contamination, float | int | np.number) and 0 < contamination <= 0.5:
        return float(contamination)
    raise SpecError(f'contamination={contamination!r}: give "auto", or a share above 0 and up to 0.5')


def _alpha(alpha: Any) -> float:
    """A share of ordinary rows. Raises SpecError for anything else."""
    if isinstance(alpha, float | np.floating) and 0 < alpha < 1:
        return float(alpha)
    raise SpecError(f"alpha={alpha!r}: give the share of ordinary rows that may be flagged, between 0 and 1")


__all__ = ["KernelPCADetector"]
