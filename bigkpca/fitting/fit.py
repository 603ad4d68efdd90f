"""Fit a model: choose features on a sample, add up moments in one pass, solve, refine by products where asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bigkpca.data.rows import Rows, anonymous
from bigkpca.errors import Array, RoundingError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.fitting import refine
from bigkpca.fitting.features import Choice, SizeLimits, choices_info, choose_features
from bigkpca.fitting.memory_limits import check_fits, find_size_limits
from bigkpca.fitting.preimage import with_decoder
from bigkpca.fitting.reference import with_reference
from bigkpca.fitting.solve import fit_outcome
from bigkpca.fitting.warnings import (
    moved_by_rounding,
    note_lowered,
    warn_above_tolerance,
    warn_if_indefinite,
    warn_if_narrow,
    warn_of,
)
from bigkpca.numerics.model import Model
from bigkpca.numerics.span import Basis
from bigkpca.spec import FitSpec, ResolvedFit, resolve

Identity = dict[str, Any]  # of rows, by which a saved model is recognised

_COARSE = 0.01  # share: if rounding may move more than this, the fit is repeated in float64


def fit_within(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    limit: int | None,
    progress: Progress,
    identity: Identity | None = None,
    deadline: float | None = None,
) -> Model:
    """Fit rows within memory limits and a deadline, with `tol` growing the size only as far as these allow. Otherwise
    like `fit_rows`. Raises MemoryLimitError, before anything is read, if the plan needs more than `limit` bytes in a
    process or than workers may use, and before a second fit in float64 if that does."""
    fit = resolve(spec, rows)
    if spec.tol is not None:
        size_limits = find_size_limits(rows, fit, engine, limit)
    else:
        check_fits(rows, fit, engine, limit)
        size_limits = SizeLimits(fit.size)
    return fit_rows(rows, spec, engine, progress, identity, replace(size_limits, deadline=deadline, memory=limit))


def fit_rows(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    progress: Progress,
    identity: Identity | None = None,
    size_limits: SizeLimits | None = None,
) -> Model:
    """Fit kernel PCA to rows: one bounded sample, one pass, one small eigenproblem, and the pre-image.

    One more pass each for `standardize`, rff-pca and pre-images that are trained; the randomized solver makes
    `sketch.PASSES` passes in all, RPCholesky over all rows those that it reports. `identity` is the fingerprint of the
    rows, which a saved model is recognised by. `size_limits` bounds the growth of the size to a tolerance; if the
    certificate exceeds the tolerance after all, the size grows again, with one more pass.

    Raises DataError for NaN and infinity (naming row and column) and for constant data, SpecError for a tolerance that
    no size reaches. Warns IndefiniteKernelWarning if the kernel has negative eigenvalues, which are dropped;
    NarrowKernelWarning if the Gram matrix is close to the identity; ToleranceWarning if memory or time ended the
    growth.
    """
    found = _fit_without_decoder(rows, resolve(spec, rows), engine, progress, identity, size_limits)
    model = with_decoder(found.model, rows, found.sample, spec, engine, progress, found.basis)
    return with_reference(model, found.reference, rows.shape[0], spec.seed, engine, spec)


class _Found(NamedTuple):
    """A model without its pre-image and reference, and what these are made from, where it is not kept."""

    model: Model
    sample: Array | None = None  # (m, d), if the pre-image needs it
    reference: Array | None = None  # (q, d)
    basis: Basis | None = None  # of the span of the landmarks


def _fit_without_decoder(
    rows: Rows,
    fit: ResolvedFit,
    engine: Engine,
    progress: Progress,
    identity: Identity | None,
    limits: SizeLimits | None,
) -> _Found:
    """The model without its pre-image and reference."""
    spec = fit.spec
    if spec.precomputed:
        note_lowered(fit, progress)
        model = refine.fit_precomputed(rows, fit, engine, progress)
        warn_if_indefinite(model.solution)
        return _Found(replace(model, provenance={**_origin(rows, spec, identity), **model.provenance}))
    if fit.matrix_free:
        start = _fit_without_decoder(rows, fit.start(), engine, progress, identity, limits).model
        return _Found(refine.refine_by_products(rows, start, spec, engine, progress))
    note_lowered(fit, progress)
    limits = limits or SizeLimits(fit.size)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass names rows that overflow
        chosen = choose_features(rows, fit, limits, engine, progress)
        single = spec.dtype is None and chosen.features.dtype != np.float64
        try:
            found = fit_outcome(rows, chosen, fit, engine, progress)
        except RoundingError:
            if not single:
                raise
            del chosen
            return _in_double_precision(rows, fit, engine, progress, identity, limits)
    if single and moved_by_rounding(found, _COARSE):
        del chosen, found  # sums of the first fit, which the second need not hold
        return _in_double_precision(rows, fit, engine, progress, identity, limits)
    grown, reached = chosen.grown, found.certificate.relative_trace_error
    if grown and not grown.stopped and reached is not None and reached > (spec.tol or 1):
        progress.note(f"size {grown.size} has error {reached:.4g}, above tol={spec.tol}: growing on")
        more = replace(limits, bias=limits.bias * reached / grown.error.value)
        return _fit_without_decoder(rows, fit, engine, progress, identity, more)
    warn_if_narrow(chosen.features, chosen.few, found.solution.unexplained)
    warn_of(found, chosen.features)
    if grown and grown.stopped:
        warn_above_tolerance(grown.size, reached or grown.error.value, grown.stopped, spec)
    choices = (*chosen.choices, *found.choices)
    provenance = _origin(rows, spec, identity) | {"content": found.digest, "choices": choices_info(choices)}
    model = Model(chosen.features, found.solution, found.sums, found.certificate, provenance)
    return _Found(model, chosen.sample, None if spec.exact else chosen.reference, found.basis)


def _in_double_precision(
    rows: Rows, fit: ResolvedFit, engine: Engine, progress: Progress, identity: Identity | None, limits: SizeLimits
) -> _Found:
    """Fit again with block work in float64, and record why."""
    progress.note("rounding in float32 would count here: fitting again in float64")
    double = fit.in_double_precision()
    if fit.spec.tol is None:
        check_fits(rows, double, engine, limits.memory)
    else:
        found_limits = find_size_limits(rows, double, engine, limits.memory)
        limits = replace(limits, largest=found_limits.largest, limited_by=found_limits.limited_by)
    found = _fit_without_decoder(rows, double, engine, progress, identity, limits)
    before = found.model.provenance
    reason = f"rounding in float32 may move the bounds or leading eigenvalues by more than {_COARSE}"
    choices = [*before["choices"], *choices_info((Choice("dtype", "float64", reason),))]
    provenance = {**before, "spec": fit.spec.to_dict(), "choices": choices}
    return found._replace(model=replace(found.model, provenance=provenance))


def _origin(rows: Rows, spec: FitSpec, identity: Identity | None) -> dict[str, Any]:
    """Provenance of a model: spec, identity of the rows, column names."""
    names = {} if rows.names is None else {"column_names": list(rows.names)}
    return {"spec": spec.to_dict(), "identity": identity or anonymous(rows), **names}
