"""The feature map of a fit, from a bounded sample: offset and scale, sigma, size, landmarks or random features.

Every automatic choice is recorded with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.errors import Array, DataError, SpecError, check_overflow
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import action_of, axes_of, mean_features, sums_of
from bigkpca.fitting.sample import PreparedSample, rounded
from bigkpca.numerics import landmarks, subspace
from bigkpca.numerics.features import (
    FeatureMap,
    FourierRows,
    KernelRows,
    PrincipalAxes,
    PrincipalFourierRows,
    SubspaceRows,
    axes_of_covariance,
    draw_frequencies,
    tensor_sketch,
)
from bigkpca.numerics.kernels import Gaussian, Kernel, Polynomial
from bigkpca.numerics.methods import PrincipalFeatures, RandomFeatures
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Rounding
from bigkpca.numerics.preimages.base import spread
from bigkpca.numerics.random_streams import ALPHA, FREQUENCIES, LANDMARKS, SKETCH, random_stream
from bigkpca.numerics.solvers import OVERSAMPLING, leading_eigenpairs, starting_block
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec, ResolvedFit


def choose_landmarks(prepared: PreparedSample, fit: ResolvedFit, engine: Engine) -> Array:
    """Landmarks (l, d), shifted and scaled like the rows. Raises SpecError if the caller's landmarks do not fit the
    rows, DataError if none can be chosen."""
    rows, sampled, columns, spec = prepared.rows, prepared.sampled, prepared.columns, fit.spec
    if spec.own_landmarks is not None:
        own = spec.landmarks.values if isinstance(spec.landmarks, landmarks.OwnRows) else sampled.own
        if own.shape[1] != rows.shape[1]:
            raise SpecError(f"landmarks have {own.shape[1]} columns, {rows.where} has {rows.shape[1]}")
        own = columns.shifted(own)
        check_overflow(own, rows.where)
        return landmarks.distinct(own)
    rule, rng = fit.rule, random_stream(spec.random_state, LANDMARKS)
    assert rule is not None  # a method of landmarks has one
    size = min(fit.size, len(sampled.sample))
    certain, few = map(columns.shifted, sampled.for_landmarks(size, rule.most_rows(size), rng))
    count = size - len(certain)
    with np.errstate(over="ignore", invalid="ignore"):
        check_overflow(columns.kernel.diagonal(few), rows.where)
        chosen = rule.choose(few, columns.kernel, count, rng)
    if len(certain):
        chosen = np.concatenate([certain, chosen])
    if not len(chosen):
        raise DataError(f"{rows.where}: k(x, x) is zero for all sampled rows, so landmarks cannot be chosen")
    check_overflow(chosen, rows.where)  # bounded kernels may be finite at landmarks that are not
    if len(chosen) < size:
        engine.progress.note(f"{rule.name}: {len(chosen)} landmarks; more would add nothing")
    return chosen


_ALPHA_ROWS = 101  # sample size of the thesis for alpha
_MAX_SKETCHED_AXES = 512


def _frequencies(
    kernel: Kernel, method: RandomFeatures | PrincipalFeatures, count: int, d: int, dtype: Any, seed: int
) -> tuple[Array, Array | None]:
    """(frequencies (m, d), phases (m,) or None) for `count` features, in the dtype of block work."""
    rng = random_stream(seed, FREQUENCIES)
    m = count // 2 if method.pairs else count
    found = draw_frequencies(kernel, method.coupling, m, d, rng)
    phases = None if method.pairs else rng.uniform(0, 2 * np.pi, m).astype(dtype)
    return found.astype(dtype), phases


def random_features(prepared: PreparedSample, method: RandomFeatures, fit: ResolvedFit) -> FeatureMap:
    """Random Fourier features, or a tensor sketch for a polynomial kernel."""
    columns = prepared.columns
    kernel, count, seed = columns.kernel, fit.size, fit.spec.random_state
    if isinstance(kernel, Polynomial):
        rng = random_stream(seed, FREQUENCIES)
        return tensor_sketch(kernel, count, columns.offset, columns.scale, rng, columns.dtype)
    frequencies, phases = _frequencies(kernel, method, count, columns.columns, columns.dtype, seed)
    return FourierRows(kernel, columns.offset, frequencies, phases, scale=columns.scale)


def principal_features(
    prepared: PreparedSample, principal: PrincipalAxes, method: PrincipalFeatures, fit: ResolvedFit
) -> PrincipalFourierRows:
    """Random Fourier features on the leading principal axes of all rows."""
    columns, kernel = prepared.columns, prepared.columns.kernel
    assert isinstance(kernel, Gaussian)  # the spec checks
    count, spec, sample = fit.size, fit.spec, prepared.sampled.sample
    kept = spec.n_directions
    if kept == "auto":
        components = spec.n_components if isinstance(spec.n_components, int) else 1
        kept = principal.directions(kernel.sigma, components, count // 2 if method.pairs else count)
    axes = principal.axes[:, :kept]
    # Residuals are about the mean of all rows, not of the sample. Projections can be about any point: they stay about
    # the one near most rows, since a few far rows may pull the mean so far away that rounding makes all others equal.
    mean = principal.mean - axes @ (axes.T @ principal.mean) if kept < columns.columns else np.zeros(columns.columns)
    columns = replace(columns, offset=rounded(columns.offset + columns.unscaled(mean), prepared.rows))
    axes = axes.astype(columns.dtype)
    frequencies, phases = _frequencies(kernel, method, count, kept, columns.dtype, spec.random_state)
    # The factor that corrects features for the axes left out: alpha^(-1/2), 1 for none, None for the pointwise one.
    factor: float | None = None
    if method.correction == "none":
        factor = 1.0
    elif method.correction == "alpha":
        factor = float(np.exp(-principal.residual(axes.shape[1]) * kernel.gamma))
    elif method.correction != "pointwise":
        # The thesis's estimate: a geometric mean of exp(|r_i - r_(i+1)|² / (2 sigma²)) over pairs of sampled rows,
        # with residuals taken in principal coordinates and divided by their number (docs/numerics.md, section 10).
        numbers = random_stream(spec.random_state, ALPHA).choice(
            len(sample), min(_ALPHA_ROWS, len(sample)), replace=False
        )
        residual = columns.shifted(sample[numbers]).astype(np.float64)
        residual -= (residual @ axes) @ axes.T
        factor = float(np.exp(-0.5 * np.sum(np.diff(residual, axis=0) ** 2, axis=1).mean() * kernel.gamma))
    return PrincipalFourierRows(kernel, columns.offset, frequencies, axes, phases, factor, scale=columns.scale)


def principal_axes(prepared: PreparedSample, spec: FitSpec, engine: Engine) -> PrincipalAxes:
    """Principal axes of all rows, from one pass, or from those of a sketch above 8192 columns. Raises SpecError for
    more axes than columns."""
    rows, columns = prepared.rows, prepared.columns
    d, shift, title = columns.columns, np.zeros(columns.columns), "principal axes"
    if spec.n_directions != "auto" and spec.n_directions > d:
        raise SpecError(f"n_directions={spec.n_directions}, but {rows.where} has only {d} columns")
    if d <= DENSE_MOST_FEATURES:
        moments = sums_of(rows, columns, shift, Rounding.unknown(d), spec.block_rows, engine).sums.moments
        return axes_of_covariance(moments.mean, moments.scatter, moments.weight)
    count = min(d, _MAX_SKETCHED_AXES) if spec.n_directions == "auto" else spec.n_directions
    seen: list[Any] = []

    def apply(Q: Array) -> Array:
        action, _ = action_of(rows, columns, shift, Q, spec.block_rows, engine, title)
        seen[:] = [action]
        return action.applied(Q, shift, center=True)

    start = starting_block(d, min(d, count + OVERSAMPLING), random_stream(spec.random_state, SKETCH))
    found = leading_eigenpairs(apply, start, count)
    (action,) = seen
    n, mean = action.weight, action.mean(shift)
    return PrincipalAxes(
        mean, found.vectors, found.values / n, (action.squares_about_zero(shift) - n * float(mean @ mean)) / n
    )


def _in_subspace(prepared: PreparedSample, fit: ResolvedFit, engine: Engine) -> SubspaceRows | None:
    """Landmarks by k-means in the leading principal subspace, if it is small enough; its leading axes take a pass."""
    rows, columns, sampled, spec = prepared.rows, prepared.columns, prepared.sampled, fit.spec
    kernel, rule, most = columns.kernel, fit.rule, fit.most_axes
    if not most or not isinstance(rule, landmarks.KMeans):
        return None
    size, rng = min(fit.size, len(sampled.sample)), random_stream(spec.random_state, LANDMARKS)
    certain, few = sampled.for_landmarks(size, rule.most_rows(size), rng)
    if len(certain) or len(few) <= size:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        some = columns.shifted(sampled.few[: subspace.MEASURED_ROWS])
        components = spec.n_components if isinstance(spec.n_components, int) else size // 20
        least = subspace.missed(subspace.spectrum(kernel, some), components, size)
        if not least > 0 or not (rate := subspace.rate(kernel, some)) > 0:
            return None
        axes = subspace.leading_axes(columns, few, some, least / rate, most, rng)
    if axes is None:
        return None
    leading = axes_of(rows, columns, axes[:, : subspace.LEADING], spec.block_rows, engine)
    if not (np.isfinite(leading).all() and np.isfinite(axes).all()):  # squares of a far row overflow
        return None
    axes = np.linalg.qr(np.hstack([leading, axes[:, subspace.LEADING :]]))[0]
    axes = subspace.contracted(axes, columns.dtype)
    places = subspace.coordinates(columns, few, axes)
    chosen = rule.choose_in_subspace(places, subspace.LEADING, size, rng)
    return SubspaceRows(kernel, columns.offset, chosen, axes, scale=columns.scale)


def feature_map(prepared: PreparedSample, fit: ResolvedFit, engine: Engine) -> FeatureMap:
    """The feature map of a fit; the principal axes of rff-pca take one pass."""
    method: Any = fit.spec.method_value
    columns = prepared.columns
    if method.principal:
        return principal_features(prepared, principal_axes(prepared, fit.spec, engine), method, fit)
    if not method.landmarks:
        return random_features(prepared, method, fit)
    if (found := _in_subspace(prepared, fit, engine)) is not None:
        return found
    every = fit.spec.exact
    chosen = columns.shifted(prepared.sampled.sample) if every else choose_landmarks(prepared, fit, engine)
    return KernelRows(columns.kernel, columns.offset, chosen, scale=columns.scale)


Choice = dict[str, Any]  # of an option that was left open; JSON-ready


def choice(option: str, value: Any, reason: str) -> Choice:
    return {"option": option, "value": value, "reason": reason}


@dataclass(frozen=True)
class ChosenFeatures:
    """The feature map of a fit, with the statistics and rows of the sample that the later steps need."""

    features: FeatureMap
    shift: Array  # (D,), a fixed vector near the mean of v over all rows
    choices: tuple[Choice, ...]
    sample: Array | None  # (m, d), if the pre-image needs it
    few: Array  # (q, d) of the sample: the kernel is judged on these rows, and rounding is measured
    few_weights: Array | None  # (q,) of `few`; None if all are 1
    apart: Array  # (c, d) rows that take no part in the fit
    weight: float  # of all rows, their number without weights


def choose_features(prepared: PreparedSample, fit: ResolvedFit, engine: Engine) -> ChosenFeatures:
    """Choose the feature map of a fit from its sample; one pass for the principal axes of rff-pca.

    Raises DataError for constant data, SpecError for options that do not suit these rows.
    """
    features, spec, sampled = feature_map(prepared, fit, engine), fit.spec, prepared.sampled
    shift = np.zeros(features.size) if spec.exact else mean_features(features, sampled.few)
    shift = shift.astype(features.dtype).astype(np.float64)  # rounded as when it is subtracted from tiles
    return ChosenFeatures(
        features,
        shift,
        tuple(_choices(prepared, fit, features)),
        spread(sampled.sample, spec.preimage_rows(len(sampled.sample))) if spec.keeps_sample else None,
        sampled.few,
        sampled.few_weights,
        sampled.apart,
        sampled.weight(prepared.rows),
    )


def _choices(prepared: PreparedSample, fit: ResolvedFit, features: FeatureMap) -> Iterator[Choice]:
    """The automatic choices of a fit, for options of the spec that were left open."""
    spec = fit.spec
    if spec.needs_median:
        sigma = getattr(prepared.columns.kernel, "sigma", None)
        yield choice("sigma", sigma, "from the median distance between sampled rows")
    if spec.needs_variance:
        kernel = prepared.columns.kernel
        name = "sigma" if hasattr(kernel, "sigma") else "gamma"
        yield choice(name, getattr(kernel, name), "gamma = 1 / (columns × variance of the sampled rows)")
    if fit.rule is not None and spec.landmarks == "auto":
        yield choice("landmarks", fit.rule.name, fit.rule_reason)
    if spec.own_landmarks is not None and features.size < spec.own_landmarks:
        repeated = spec.own_landmarks - features.size
        reason = f"of {spec.own_landmarks} given rows; {repeated} of them repeat others"
        yield choice("landmarks", features.size, reason)
    if spec.size == "auto" and not spec.exact and spec.own_landmarks is None:
        yield choice("size", features.size, fit.size_reason)
    if isinstance(features, SubspaceRows):
        reason = f"of {fit.d}: the other axes change the kernel by less than so many landmarks miss"
        yield choice("axes", features.axes.shape[1], reason)
    if features.directions is not None and spec.n_directions == "auto":
        reason = "a relative bias of the kernel of at most 0.02, and an axis for each component"
        yield choice("n_directions", features.directions, reason)


def kept_choices(model: Model) -> list[Choice]:
    """The choices of a model that apply to every model with its features."""
    solved_for = ("n_components", "directions")
    return [each for each in model.provenance["choices"] if each["option"] not in solved_for]
