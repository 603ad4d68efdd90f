"""The feature map of a fit, from its sample: landmarks or random features, and the choices that were left open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, SpecError, check_overflow
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import action_of, axes_of, sums_of
from bigkpca.fitting.sample import Sample, rounded
from bigkpca.numerics import landmarks, subspace
from bigkpca.numerics.features import (
    Columns,
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
from bigkpca.numerics.methods import PrincipalFeatures
from bigkpca.numerics.moments import Rounding
from bigkpca.numerics.random_streams import ALPHA, FREQUENCIES, LANDMARKS, SKETCH, random_stream
from bigkpca.numerics.solvers import OVERSAMPLING, Action, Ritz, leading_eigenpairs, starting_block
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec, ResolvedFit

_ALPHA_ROWS = 101  # sample size of the thesis for alpha
_MAX_SKETCHED_AXES = 512


def choose_features(sample: Sample, columns: Columns, fit: ResolvedFit, engine: Engine) -> FeatureMap:
    """The feature map of a fit; the principal axes of rff-pca, and of a principal subspace, take one pass.

    Raises DataError for constant data, SpecError for options that do not suit these rows.
    """
    method: Any = fit.spec.method_value
    if method.principal:
        return _principal_features(sample, columns, fit, engine)
    if not method.landmarks:
        return _random_features(columns, fit)
    if (found := _in_subspace(sample, columns, fit, engine)) is not None:
        return found
    chosen = columns.shifted(sample.X) if fit.spec.exact else choose_landmarks(sample, columns, fit, engine)
    return KernelRows(columns.kernel, columns.offset, chosen, scale=columns.scale)


def choose_landmarks(sample: Sample, columns: Columns, fit: ResolvedFit, engine: Engine) -> Array:
    """Landmarks (l, d), shifted and scaled like the rows. Raises SpecError if the caller's landmarks do not fit the
    rows, DataError if none can be chosen."""
    where, d, spec = sample.rows.where, columns.columns, fit.spec
    if spec.given_landmarks is not None:
        own = spec.landmarks.values if isinstance(spec.landmarks, landmarks.OwnRows) else sample.own
        if own.shape[1] != d:
            raise SpecError(f"landmarks have {own.shape[1]} columns, {where} has {d}")
        own = columns.shifted(own)
        check_overflow(own, where)
        return landmarks.distinct(own)
    rule, rng = fit.rule, random_stream(spec.random_state, LANDMARKS)
    assert rule is not None  # a method of landmarks has one
    size = min(fit.size, len(sample.X))
    certain = columns.shifted(landmarks.distinct(sample.X[sample.certain(size)]))
    candidates = columns.shifted(sample.candidates(size, rule.most_rows(size), rng))
    check_overflow(columns.kernel.diagonal(candidates), where)
    chosen = rule.choose(candidates, columns.kernel, size - len(certain), rng)
    if len(certain):
        chosen = np.concatenate([certain, chosen])
    if not len(chosen):
        raise DataError(f"{where}: k(x, x) is zero for all sampled rows, so landmarks cannot be chosen")
    check_overflow(chosen, where)  # bounded kernels may be finite at landmarks that are not
    if len(chosen) < size:
        engine.progress.note(f"{rule.name}: {len(chosen)} landmarks; more would add nothing")
    return chosen


def _in_subspace(sample: Sample, columns: Columns, fit: ResolvedFit, engine: Engine) -> SubspaceRows | None:
    """Landmarks by k-means in the leading principal subspace, if it is small enough; its leading axes take a pass."""
    kernel, rule, most, spec = columns.kernel, fit.rule, fit.most_axes, fit.spec
    if not most or not isinstance(rule, landmarks.KMeans):
        return None
    size, rng = min(fit.size, len(sample.X)), random_stream(spec.random_state, LANDMARKS)
    candidates = sample.candidates(size, rule.most_rows(size), rng)
    if sample.certain(size).any() or len(candidates) <= size:
        return None
    some = columns.shifted(sample.probes.X[: subspace.MEASURED_ROWS])
    components = spec.n_components if isinstance(spec.n_components, int) else size // 20
    least = subspace.missed(subspace.spectrum(kernel, some), components, size)
    if not least > 0 or not (rate := subspace.rate(kernel, some)) > 0:
        return None
    axes = subspace.leading_axes(columns, candidates, some, least / rate, most, rng)
    if axes is None:
        return None
    leading = axes_of(sample.rows, columns, axes[:, : subspace.LEADING], spec.block_rows, engine)
    if not (np.isfinite(leading).all() and np.isfinite(axes).all()):  # squares of a far row overflow
        return None
    axes = np.linalg.qr(np.hstack([leading, axes[:, subspace.LEADING :]]))[0]
    axes = subspace.contracted(axes, columns.dtype)
    places = subspace.coordinates(columns, candidates, axes)
    chosen = rule.choose_in_subspace(places, subspace.LEADING, size, rng)
    return SubspaceRows(kernel, columns.offset, chosen, axes, scale=columns.scale)


def _random_features(columns: Columns, fit: ResolvedFit) -> FeatureMap:
    """Random Fourier features, or a tensor sketch for a polynomial kernel."""
    if isinstance(columns.kernel, Polynomial):
        rng = random_stream(fit.spec.random_state, FREQUENCIES)
        return tensor_sketch(columns.kernel, fit.size, columns.offset, columns.scale, rng, columns.dtype)
    frequencies, phases = _frequencies(columns.kernel, fit, columns.columns, columns.dtype)
    return FourierRows(columns.kernel, columns.offset, frequencies, phases, scale=columns.scale)


def _frequencies(kernel: Kernel, fit: ResolvedFit, d: int, dtype: np.dtype[Any]) -> tuple[Array, Array | None]:
    """(frequencies (m, d), phases (m,) or None), in the dtype of block work."""
    method: Any = fit.spec.method_value
    rng = random_stream(fit.spec.random_state, FREQUENCIES)
    m = fit.size // 2 if method.pairs else fit.size
    found = draw_frequencies(kernel, method.coupling, m, d, rng)
    phases = None if method.pairs else rng.uniform(0, 2 * np.pi, m).astype(dtype)
    return found.astype(dtype), phases


def _principal_features(sample: Sample, columns: Columns, fit: ResolvedFit, engine: Engine) -> PrincipalFourierRows:
    """Random Fourier features on the leading principal axes of all rows."""
    kernel, spec, method = columns.kernel, fit.spec, fit.spec.method_value
    assert isinstance(kernel, Gaussian)  # the spec checks
    assert isinstance(method, PrincipalFeatures)
    principal = _principal_axes(sample.rows, columns, spec, engine)
    kept = spec.n_directions
    if kept == "auto":
        components = spec.n_components if isinstance(spec.n_components, int) else 1
        kept = principal.directions(kernel.sigma, components, fit.size // 2 if method.pairs else fit.size)
    axes = principal.axes[:, :kept]
    # Residuals are about the mean of all rows, not of the sample. Projections can be about any point: they stay about
    # the one near most rows, since a few far rows may pull the mean so far away that rounding makes all others equal.
    mean = principal.mean - axes @ (axes.T @ principal.mean) if kept < columns.columns else np.zeros(columns.columns)
    columns = replace(columns, offset=rounded(columns.offset + columns.unscaled(mean), sample.rows))
    axes = axes.astype(columns.dtype)
    frequencies, phases = _frequencies(kernel, fit, kept, columns.dtype)
    # The factor that corrects features for the axes left out: alpha^(-1/2), 1 for none, None for the pointwise one.
    factor: float | None = None
    if method.correction == "none":
        factor = 1.0
    elif method.correction == "alpha":
        factor = float(np.exp(-principal.residual(axes.shape[1]) * kernel.gamma))
    elif method.correction != "pointwise":
        # The thesis's estimate: a geometric mean of exp(|r_i - r_(i+1)|² / (2 sigma²)) over pairs of sampled rows,
        # with residuals taken in principal coordinates and divided by their number (docs/numerics.md, section 10).
        m, rng = len(sample.X), random_stream(spec.random_state, ALPHA)
        numbers = rng.choice(m, min(_ALPHA_ROWS, m), replace=False)
        residual = columns.shifted(sample.X[numbers]).astype(np.float64)
        residual -= (residual @ axes) @ axes.T
        factor = float(np.exp(-0.5 * np.sum(np.diff(residual, axis=0) ** 2, axis=1).mean() * kernel.gamma))
    return PrincipalFourierRows(kernel, columns.offset, frequencies, axes, phases, factor, scale=columns.scale)


def _principal_axes(rows: Rows, columns: Columns, spec: FitSpec, engine: Engine) -> PrincipalAxes:
    """Principal axes of all rows, from one pass, or from those of a sketch above 8192 columns. Raises SpecError for
    more axes than columns."""
    d, shift, title = columns.columns, np.zeros(columns.columns), "principal axes"
    if spec.n_directions != "auto" and spec.n_directions > d:
        raise SpecError(f"n_directions={spec.n_directions}, but {rows.where} has only {d} columns")
    if d <= DENSE_MOST_FEATURES:
        moments = sums_of(rows, columns, shift, Rounding.unknown(d), spec.block_rows, engine).sums.moments
        return axes_of_covariance(moments.mean, moments.scatter, moments.weight)
    count = min(d, _MAX_SKETCHED_AXES) if spec.n_directions == "auto" else spec.n_directions
    found, action = leading_by_passes(
        lambda Q: action_of(rows, columns, shift, Q, spec.block_rows, engine, title), shift, count, spec, center=True
    )
    n, mean = action.weight, action.mean(shift)
    return PrincipalAxes(
        mean, found.vectors, found.values / n, (action.squares_about_zero(shift) - n * float(mean @ mean)) / n
    )


def leading_by_passes(
    action: Callable[[Array], Action], shift: Array, count: int, spec: FitSpec, *, center: bool
) -> tuple[Ritz, Action]:
    """The `count` leading eigenpairs of the scatter of features, about the mean or about zero; and the sums of the last
    pass."""
    seen: list[Action] = []

    def apply(Q: Array) -> Array:
        seen[:] = [action(Q)]
        return seen[0].applied(Q, shift, center)

    D = len(shift)
    start = starting_block(D, min(D, count + OVERSAMPLING), random_stream(spec.random_state, SKETCH))
    return leading_eigenpairs(apply, start, count), seen[0]


def choice(option: str, value: Any, reason: str) -> dict[str, Any]:
    return {"option": option, "value": value, "reason": reason}


def choices_of(features: FeatureMap, fit: ResolvedFit) -> Iterator[dict[str, Any]]:
    """What a fit chose for options of the spec that were left open, with reasons."""
    spec, kernel = fit.spec, features.kernel
    if spec.needs_median:
        yield choice("sigma", getattr(kernel, "sigma", None), "from the median distance between sampled rows")
    if spec.needs_variance:
        name = "sigma" if hasattr(kernel, "sigma") else "gamma"
        yield choice(name, getattr(kernel, name), "gamma = 1 / (columns × variance of the sampled rows)")
    if fit.rule is not None and spec.landmarks == "auto":
        yield choice("landmarks", fit.rule.name, fit.rule_reason)
    if spec.given_landmarks is not None and features.size < spec.given_landmarks:
        repeated = spec.given_landmarks - features.size
        reason = f"of {spec.given_landmarks} given rows; {repeated} of them repeat others"
        yield choice("landmarks", features.size, reason)
    if spec.size == "auto" and not spec.exact and spec.given_landmarks is None:
        yield choice("size", features.size, fit.size_reason)
    if isinstance(features, SubspaceRows):
        reason = f"of {fit.d}: the other axes change the kernel by less than so many landmarks miss"
        yield choice("axes", features.axes.shape[1], reason)
    if isinstance(features, PrincipalFourierRows) and spec.n_directions == "auto":
        reason = "a relative bias of the kernel of at most 0.02, and an axis for each component"
        yield choice("n_directions", features.axes.shape[1], reason)
