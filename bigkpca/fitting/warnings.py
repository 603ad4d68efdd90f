"""Warnings and notes of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import (
    Array,
    DataError,
    DominantVariableWarning,
    FarRowsWarning,
    FewerComponentsWarning,
    IndefiniteKernelWarning,
    NarrowKernelWarning,
    RoundingWarning,
    ToleranceWarning,
    UniformLandmarksWarning,
    UnseenClusterWarning,
    column_called,
    warn,
)
from bigkpca.execution.progress import Progress
from bigkpca.fitting.solve import Solved
from bigkpca.numerics import bandwidth, solvers
from bigkpca.numerics.certificates import MISSED
from bigkpca.numerics.certificates.spectral import sampled_error
from bigkpca.numerics.display import share_at_least
from bigkpca.numerics.dominance import dominant_columns
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.linalg import Map, rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PAIRS, random_stream
from bigkpca.numerics.span import Basis
from bigkpca.spec import FitSpec, ResolvedFit
from bigkpca.spec.weights import OPTION

_NOTICEABLY_NEGATIVE = -1e-8  # rounding alone gives eigenvalues of about -1e-15 of the largest
_LONG = 1000  # times the median distance
_MOSTLY_UNEXPLAINED = 0.5
_MOST_UNNAMED = 32  # columns of a table without names; the smallest images have 64 pixels
_MORE = 2  # times what landmarks leave of earlier rows
_TOO_COARSE = 0.05  # share that rounding may move before a warning


def note_lowered(fit: ResolvedFit, progress: Progress) -> None:
    """Note that fewer landmarks than requested are used, for lack of rows."""
    size, spec = fit.size, fit.spec
    if not spec.exact and spec.size != "auto" and size < spec.size:
        progress.note(f"size lowered from {spec.size} to {size}: there are no more rows")


def warn_if_fewer(model: Model, fit: ResolvedFit, progress: Progress) -> None:
    """Warn that the model has fewer components than requested; only note it if that number is the default."""
    spec, kept, asked = fit.spec, model.components, fit.spec.n_components
    if not isinstance(asked, int) or kept >= asked:
        return
    what = "rows" if spec.exact else "landmarks" if spec.method_value.landmarks else "random features"
    why = f"there are {fit.size} {what}" if fit.size < asked else "the others would be rounding errors"
    message = f"{asked} components were requested, but {kept} are kept: {why}"
    if asked == FitSpec.model_fields["n_components"].default:
        progress.note(message)
    else:
        warn(message, FewerComponentsWarning)


def warn_of(
    found: Solved, features: FeatureMap, double: str = "omit dtype or use float64, or ", far: str | None = None
) -> None:
    """Warn of negative eigenvalues, noticeable rounding, and rows without a landmark: a cluster, or those of which
    `far` is a sentence. `double` is the advice on how to get block work in float64."""
    warn_if_indefinite(found.solution)
    if moved_by_rounding(found, _TOO_COARSE):
        advice = "" if features.dtype == np.float64 else double
        worst, eigenvalues = found.certificate.rounding, ""
        if worst is not None:
            eigenvalues = f", of the first {min(5, len(worst))} eigenvalues at most {worst[:5].max():.2g}"
        warn(
            f"rounding in {features.dtype} may move the bounds by more than {_TOO_COARSE} of the variance{eigenvalues}"
            f": {advice}subtract what is common to all rows, or scale columns to similar size",
            RoundingWarning,
        )
    # Only stationary kernels show that rows are far.
    cluster = found.certificate.cluster if features.kernel.stationary else None
    if cluster is not None and cluster > found.solution.eigenvalues[-1]:
        warn(
            "rows that are similar to each other but to no landmark would form a component with an eigenvalue of about "
            f"{cluster:.3g}, which is missing: use a larger size, or landmarks='rpcholesky'",
            UnseenClusterWarning,
        )
    elif far is not None:
        warn(far, FarRowsWarning)


def warn_if_indefinite(solution: Solution) -> None:
    """Warn if negative eigenvalues beyond rounding were dropped."""
    if solution.negative < _NOTICEABLY_NEGATIVE:
        warn(
            f"the kernel is indefinite on these rows: its most negative eigenvalue is {solution.negative:.2g} "
            "of the largest; the negative part was dropped",
            IndefiniteKernelWarning,
        )


def moved_by_rounding(found: Solved, share: float) -> bool:
    """Whether rounding may move the trace error, or an eigenvalue, by more than `share`.

    The trace error counts relative to the variance, an eigenvalue relative to itself; components count until 99.9 % of
    the variance of all components is reached. If landmarks may miss more than a third of an eigenvalue, rounding of
    less than a tenth of that does not count: float64 would take twice as long without being more informative.
    """
    certified, values = found.certificate, found.solution.eigenvalues
    proven, trace = certified.relative_trace_error, certified.trace_error
    if proven is not None and trace is not None and proven - trace / found.solution.total_variance > share:
        return True
    if certified.rounding is None:
        return False
    leading = int(np.searchsorted(np.cumsum(values), 0.999 * values.sum())) + 1
    missed = np.zeros(len(values)) if certified.missed is None else certified.missed
    allowed = np.maximum(share, np.where(missed > MISSED, missed / 10, 0))
    return bool((certified.rounding > allowed)[:leading].any())


def warn_if_not_uniform(spec: FitSpec) -> None:
    """Warn if the method needs landmarks drawn uniformly from all rows, but they are from some of the rows."""
    if spec.method_value.uniform:
        warn(
            f"{spec.method_value} assumes that landmarks are drawn uniformly from all rows, but these are from some of "
            "them: its eigenvalues may be far off; use method='nystroem', or fit again on all rows",
            UniformLandmarksWarning,
        )


def warn_above_tolerance(size: int, error: float, stopped: str, spec: FitSpec) -> None:
    """Warn that memory or time ended the growth of the size before its error met the tolerance."""
    warn(
        f"tol={spec.tol} was not met: {stopped} ended the growth at size {size}, which leaves an error of {error:.3g}",
        ToleranceWarning,
    )


def warn_if_beyond_tolerance(found: Solved, spec: FitSpec) -> bool:
    """Warn if a size chosen for other rows leaves an error above the tolerance on these. Returns whether it does."""
    error = found.certificate.relative_trace_error
    beyond = spec.tol is not None and error is not None and error > spec.tol
    if beyond:
        warn(
            f"tol={spec.tol} is not met: the features were chosen for the rows fitted first, and leave an error of "
            f"{error:.3g} on all rows; fit again on all of them",
            ToleranceWarning,
        )
    return beyond


def far_from_landmarks(model: Model, basis: Basis, X: Array, where: str, in_order: Map) -> str | None:
    """A sentence if new rows, of which X (q, d) are some, are far from all landmarks: these leave more of them than of
    earlier rows, and what they leave is common to many of the new ones. None otherwise, and if that is not known."""
    trace_error, features, sums = model.certificate.trace_error, model.features, model.sums
    if trace_error is None or sums is None or basis.indefinite or not has_landmarks(features):
        return None
    found = sampled_error(features.in_precision(np.dtype(np.float64)), basis, X, np.ones(len(X)), in_order)
    earlier, left = trace_error / sums.trace, float(found.diagonal.sum() / found.kernels.sum())
    if not (np.isfinite(found.E).all() and left > _MORE * earlier and found.in_common):
        return None
    return (
        f"{where}: these rows are far from all landmarks: {left:.1%} of their Σ k(x, x) is unexplained, compared with "
        f"{earlier:.1%} for earlier rows. Adding rows does not change the landmarks, so components of these rows are "
        "missing: fit again on a dataset with all rows, or add rows in random order"
    )


def check_length(features: FeatureMap, X: Array) -> None:
    """Raise DataError if the length of the kernel far exceeds the distances of sampled rows X (q, d)."""
    sigma, distance = getattr(features.kernel, "sigma", None), features.kernel.distance
    if sigma is None or distance is None:
        return
    distances = bandwidth.pair_distances(features.shifted(X), distance, random_stream(0, PAIRS))
    median = bandwidth.candidate_lengths(distances, distance)["median"].sigma
    if sigma > _LONG * median:
        raise DataError(
            f"sigma={sigma:g} is {sigma / median:.0e} times the length from the median distance between rows, so all "
            f"rows look equal to the kernel: use sigma={median:.4g}, or leave it out"
        )


def dominance(rows: Rows, X: Array, features: FeatureMap, spec: FitSpec) -> str | None:
    """A sentence on the column that makes nearly all of the distances between some of the rows, X (q, d), and on the
    options that change this; None if there is none.

    Columns without names are compared only where they may be those of a table: a few, of floating-point numbers. The
    pixels of an image, of one unit, are more. Columns of strings and of kernels that are functions are not compared,
    nor does a column count that has a weight above 1, which was given to make it count.
    """
    kernel, d = features.kernel, rows.shape[1]
    as_table = rows.names is not None or (rows.dtype.kind == "f" and d <= _MOST_UNNAMED)
    if not (as_table and kernel.on_vectors and kernel.savable):
        return None
    found = dominant_columns(features.shifted(X), (each.columns for each in rows.one_hot))
    if found is None:
        return None
    first = found.columns.start
    whole = next((each.name for each in rows.one_hot if each.start == first), None)
    name = column_called(first, rows.names) if whole is None else f"the column of categories {whole!r}"
    weights: Any = spec.for_rows(rows).column_weights  # one for each column
    if weights is not None and max(weights[found.columns]) > 1:
        return None
    scale = "" if spec.standardize else "scale the columns with --standardize (standardize=True in Python), or "
    return (
        f"{name} makes {share_at_least(found.share, 1)} of the mean squared distance between rows, so the other "
        f"columns hardly matter: {scale}set weights with {OPTION}"
    )


def warn_if_dominated(rows: Rows, X: Array, features: FeatureMap, spec: FitSpec) -> None:
    """Warn if one column makes nearly all of the distances between sampled rows X (q, d); see `dominance`."""
    if (message := dominance(rows, X, features, spec)) is not None:
        warn(f"{rows.where}: {message}", DominantVariableWarning)


def warn_if_narrow(features: FeatureMap, X: Array, by_fit: float | None) -> None:
    """Warn if K is close to the identity: neither the fit nor every second one of the sampled rows X (q, d) explains
    most of Σ k(x, x)."""
    kernel = features.kernel
    if not kernel.stationary or (by_fit is not None and by_fit <= _MOSTLY_UNEXPLAINED):
        return
    X = features.shifted(X)
    S, others = X[::2], X[1::2]
    P = solvers.nystroem_map(kernel.gram(S), rank_tolerance(X.dtype))
    explained = float(np.sum((kernel(others, S).astype(np.float64) @ P) ** 2))
    least = 1 - explained / float(kernel.diagonal(others).sum())
    least = least if by_fit is None else min(least, by_fit)
    if least > _MOSTLY_UNEXPLAINED:
        warn(
            f"{kernel} is narrow for these rows: landmarks leave {least:.0%} of Σ k(x, x) unexplained, and above "
            "50 % the Gram matrix is close to the identity, which cannot be compressed; `bigkpca sigma` prints "
            "lengths that suit the data",
            NarrowKernelWarning,
        )
