"""Warnings and notes of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import (
    Array,
    DominantVariableWarning,
    FewerComponentsWarning,
    IndefiniteKernelWarning,
    NarrowKernelWarning,
    RoundingWarning,
    column_called,
    warn,
)
from bigkpca.execution.progress import Progress
from bigkpca.numerics import solvers
from bigkpca.numerics.display import share_at_least
from bigkpca.numerics.dominance import dominant_columns
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, ResolvedFit
from bigkpca.spec.column_weights import OPTION

_NOTICEABLY_NEGATIVE = -1e-8  # rounding alone gives eigenvalues of about -1e-15 of the largest
_MOSTLY_UNEXPLAINED = 0.5
_MOST_UNNAMED = 32  # columns of a table without names; the smallest images have 64 pixels
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


def warn_of(model: Model) -> None:
    """Warn of negative eigenvalues, and of noticeable rounding."""
    warn_if_indefinite(model.solution)
    values, rounding, dtype = model.solution.eigenvalues, model.certificate.rounding, model.features.dtype
    # Components count until 99.9 % of the variance of all components is reached.
    leading = int(np.searchsorted(np.cumsum(values), 0.999 * values.sum())) + 1
    if (worst := float(rounding[:leading].max(initial=0.0))) > _TOO_COARSE:
        advice = "" if dtype == np.float64 else "omit dtype or use float64, or "
        warn(
            f"rounding in {dtype} may move an eigenvalue by {worst:.2g} of itself: {advice}subtract what is common to "
            "all rows, or scale columns to similar size",
            RoundingWarning,
        )


def warn_if_indefinite(solution: Solution) -> None:
    """Warn if negative eigenvalues beyond rounding were dropped."""
    if solution.negative < _NOTICEABLY_NEGATIVE:
        warn(
            f"the kernel is indefinite on these rows: its most negative eigenvalue is {solution.negative:.2g} "
            "of the largest; the negative part was dropped",
            IndefiniteKernelWarning,
        )


def warn_if_dominated(rows: Rows, X: Array, features: FeatureMap, spec: FitSpec) -> None:
    """Warn if one column makes nearly all of the distances between some of the rows, X (q, d).

    Columns without names are compared only where they may be those of a table: a few, of floating-point numbers. The
    pixels of an image, of one unit, are more. Columns of strings and of kernels that are functions are not compared,
    nor does a column count that has a weight above 1, which was given to make it count.
    """
    kernel, d = features.kernel, rows.shape[1]
    as_table = rows.names is not None or (rows.dtype.kind == "f" and d <= _MOST_UNNAMED)
    if not (as_table and kernel.on_vectors and kernel.savable):
        return
    found = dominant_columns(features.shifted(X), (each.columns for each in rows.one_hot))
    if found is None:
        return
    first = found.columns.start
    whole = next((each.name for each in rows.one_hot if each.start == first), None)
    name = column_called(first, rows.names) if whole is None else f"the column of categories {whole!r}"
    weights: Any = spec.for_rows(rows).column_weights  # one for each column
    if weights is not None and max(weights[found.columns]) > 1:
        return
    scale = "" if spec.standardize else "scale the columns with --standardize (standardize=True in Python), or "
    warn(
        f"{rows.where}: {name} makes {share_at_least(found.share, 1)} of the mean squared distance between rows, so "
        f"the other columns hardly matter: {scale}set weights with {OPTION}",
        DominantVariableWarning,
    )


def warn_if_narrow(features: FeatureMap, X: Array, by_fit: float | None) -> None:
    """Warn if K is close to the identity: neither the fit nor every second one of the sampled rows X (q, d) explains
    most of Σ k(x, x)."""
    kernel = features.kernel
    if not kernel.stationary or (by_fit is not None and by_fit <= _MOSTLY_UNEXPLAINED):
        return
    X = features.shifted(X)
    S, others = X[::2], X[1::2]
    P = solvers.nystroem_map(kernel.gram(S), rank_tolerance(X.dtype), positive=kernel.positive)
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
