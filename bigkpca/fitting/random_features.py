"""Random features of a fit: Fourier frequencies, tensor sketches, and the principal axes of rff-pca."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import action_of, sums_of
from bigkpca.execution.progress import Progress
from bigkpca.fitting.sample import PreparedSample, rounded
from bigkpca.numerics.features import Columns, FeatureMap, FourierRows, PrincipalFourierRows, tensor_sketch
from bigkpca.numerics.features.frequencies import Coupling, draw_frequencies
from bigkpca.numerics.features.principal_axes import PrincipalAxes, axes_of_covariance
from bigkpca.numerics.kernels import Gaussian, Kernel, Polynomial
from bigkpca.numerics.methods import PrincipalFeatures, RandomFeatures
from bigkpca.numerics.random_streams import ALPHA, FREQUENCIES, SKETCH, random_stream
from bigkpca.numerics.sketch import OVERSAMPLING, leading_eigenpairs, starting_block
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec, ResolvedFit

_ALPHA_ROWS = 101  # sample size of the thesis for alpha
_MAX_SKETCHED_AXES = 512


def _frequencies(
    kernel: Kernel, coupling: Coupling, form: str, count: int, d: int, dtype: Any, seed: int, axes: Callable[[], Array]
) -> tuple[Array, Array | None]:
    """(frequencies (m, d), phases (m,) or None) for `count` features, in the dtype of block work."""
    rng = random_stream(seed, FREQUENCIES)
    m = count if form == "phase" else count // 2
    found = draw_frequencies(kernel, coupling, m, d, rng, axes() if coupling == "qmc" else None)
    phases = rng.uniform(0, 2 * np.pi, m).astype(dtype) if form == "phase" else None
    return found.astype(dtype), phases


def random_features(prepared: PreparedSample, method: RandomFeatures, fit: ResolvedFit) -> FeatureMap:
    """Random Fourier features, or a tensor sketch for a polynomial kernel.

    Raises SpecError if form='qmc' is asked for with too many columns.
    """
    columns, d = prepared.columns, prepared.columns.columns
    kernel, count, seed = columns.kernel, fit.size, fit.spec.seed
    if isinstance(kernel, Polynomial):
        rng = random_stream(seed, FREQUENCIES)
        return tensor_sketch(kernel, count, columns.offset, columns.scale, rng, columns.dtype)

    def axes() -> Array:
        if d > DENSE_MOST_FEATURES:
            raise SpecError(
                f"form='qmc' needs all principal axes of {d} columns, at most {DENSE_MOST_FEATURES} can be had"
            )
        X = columns.shifted(prepared.sampled.sample).astype(np.float64)
        X -= X.mean(axis=0)
        return axes_of_covariance(np.zeros(d), X.T @ X, len(X)).axes

    frequencies, phases = _frequencies(kernel, method.coupling, method.form, count, d, columns.dtype, seed, axes)
    return FourierRows(kernel, columns.offset, frequencies, phases, scale=columns.scale)


def principal_features(
    prepared: PreparedSample, principal: PrincipalAxes, method: PrincipalFeatures, fit: ResolvedFit
) -> PrincipalFourierRows:
    """Random Fourier features on the leading principal axes of all rows."""
    columns, kernel = prepared.columns, prepared.columns.kernel
    assert isinstance(kernel, Gaussian)  # the spec checks
    count, spec = fit.size, fit.spec
    kept = _directions(principal, kernel, method, spec, count)
    # The mean of all rows, not of the sample: residuals and principal axes are about it.
    moved = principal.mean if columns.scale is None else principal.mean * columns.scale
    columns = replace(columns, offset=rounded(columns.offset + moved, prepared.rows))
    axes = principal.axes[:, :kept].astype(columns.dtype)
    frequencies, phases = _frequencies(
        kernel, method.coupling, method.form, count, kept, columns.dtype, spec.seed, lambda: np.eye(kept)
    )
    factor = _correction(method, kernel, principal, axes, columns, prepared.sampled.sample, spec.seed)
    return PrincipalFourierRows(kernel, columns.offset, frequencies, axes, phases, factor, scale=columns.scale)


def _directions(
    principal: PrincipalAxes, kernel: Gaussian, method: PrincipalFeatures, spec: FitSpec, count: int
) -> int:
    """d*, the number of principal axes that are kept."""
    if spec.n_directions != "auto":
        return spec.n_directions
    components = spec.components if isinstance(spec.components, int) else 1
    return principal.directions(kernel.sigma, components, count // 2 if method.pairs else count)


def principal_axes(prepared: PreparedSample, spec: FitSpec, engine: Engine, progress: Progress) -> PrincipalAxes:
    """Principal axes of all rows: one pass, or the passes of a sketch above 8192 columns.

    Raises SpecError if more axes are asked for than there are columns.
    """
    rows, columns = prepared.rows, prepared.columns
    d, shift, title = columns.columns, np.zeros(columns.columns), "principal axes"
    if spec.n_directions != "auto" and spec.n_directions > d:
        raise SpecError(f"n_directions={spec.n_directions}, but {rows.where} has only {d} columns")
    if d <= DENSE_MOST_FEATURES:
        moments = sums_of(rows, columns, shift, spec.block_rows, engine, progress, title).sums.moments
        return axes_of_covariance(moments.mean, moments.scatter, moments.count)
    count = min(d, _MAX_SKETCHED_AXES) if spec.n_directions == "auto" else spec.n_directions
    seen: list[Any] = []

    def apply(Q: Array) -> Array:
        action, _ = action_of(rows, columns, shift, Q, spec.block_rows, engine, progress, title)
        seen[:] = [action]
        return action.applied(Q, shift, center=True)

    start = starting_block(d, min(d, count + OVERSAMPLING), random_stream(spec.seed, SKETCH))
    found = leading_eigenpairs(apply, start, count)
    (action,) = seen
    n, mean = action.count, action.mean(shift)
    return PrincipalAxes(
        mean, found.vectors, found.values / n, (action.squares_about_zero(shift) - n * float(mean @ mean)) / n
    )


def _correction(
    method: PrincipalFeatures,
    kernel: Gaussian,
    principal: PrincipalAxes,
    axes: Array,
    columns: Columns,
    sample: Array,
    seed: int,
) -> float | None:
    """The factor that corrects features for the axes left out: alpha^(-1/2), 1 for none, None for the pointwise one."""
    if method.correction == "pointwise":
        return None
    if method.correction == "none":
        return 1.0
    if method.correction == "alpha":
        return float(np.exp(-principal.residual(axes.shape[1]) * kernel.gamma))
    # The thesis's estimate: a geometric mean of exp(|r_i - r_(i+1)|² / (2 sigma²)) over pairs of sampled rows,
    # whose residuals are taken in principal coordinates and divided by their number (docs/numerics.md, section 10).
    numbers = random_stream(seed, ALPHA).choice(len(sample), min(_ALPHA_ROWS, len(sample)), replace=False)
    residual = columns.shifted(sample[numbers]).astype(np.float64)
    residual -= (residual @ axes) @ axes.T
    return float(np.exp(-0.5 * np.sum(np.diff(residual, axis=0) ** 2, axis=1).mean() * kernel.gamma))
