"""From a bounded sample of rows to a feature map: offset and scale, sigma, then landmarks or frequencies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.blocks import sample_rows
from bigkpca.engine import Engine, Progress
from bigkpca.errors import Array, DataError, SpecError
from bigkpca.numerics import bandwidth, landmarks, solvers
from bigkpca.numerics.bandwidth import Length
from bigkpca.numerics.cholesky import Factor, Proposals, check_diagonal, grown
from bigkpca.numerics.features import (
    Columns,
    FeatureMap,
    FourierRows,
    KernelRows,
    PrincipalFourierRows,
    tensor_sketch,
)
from bigkpca.numerics.frequencies import Coupling, draw_frequencies
from bigkpca.numerics.kernels import Gaussian, Kernel, Polynomial
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.methods import PrincipalFeatures, RandomFeatures
from bigkpca.numerics.principal import PrincipalAxes, axes_of_covariance
from bigkpca.numerics.sketch import OVERSAMPLING, leading_eigenpairs, starting_block
from bigkpca.passes import action_of, columns_of, draws_by_residual, fit_blocks, mean_features, moments_of, read_rows
from bigkpca.sources import Rows
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec

# What randomness is for: each purpose has a stream of its own, so that one more draw here changes nothing there.
_SAMPLE, _PAIRS, _LANDMARKS, _FREQUENCIES, _PROPOSALS, _ALPHA, SKETCH, PROBES = range(8)
_SHIFT_ROWS = 1024  # give a mean feature row near enough to the mean of all; the whole sample would cost 0.3 s
_ALPHA_ROWS = 101  # the thesis's sample for its alpha
_MOST_SKETCHED_AXES = 512


def random_stream(seed: int, purpose: int) -> np.random.Generator:
    """The random numbers of one purpose, the same on every machine and for every number of workers."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose,)))


@dataclass(frozen=True)
class Chosen:
    """A feature map; a vector near the mean of v over all rows; and, for kernels of x - y, the share of Σ k(x, x) that
    512 sampled rows as landmarks would leave unexplained."""

    features: FeatureMap
    near_mean: Array
    unexplained: float | None


def choose(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> Chosen:
    """The feature map of a fit. Reads the bounded sample, which is let go before the pass, and makes one pass each for
    `standardize` and for the principal axes of rff-pca, and those that RPCholesky over all rows asks for.

    Raises DataError for constant data, SpecError for options that do not fit these rows.
    """
    sample, own = draw_sample(rows, spec, engine, progress)
    columns = _columns(rows, sample, spec, engine, progress)
    features = _features(rows, sample, own, columns, spec, engine, progress)
    few = sample[:: max(1, len(sample) // _SHIFT_ROWS)]
    near_mean = np.zeros(features.size) if spec.exact else mean_features(features, few)
    near_mean = near_mean.astype(features.dtype).astype(np.float64)  # what is subtracted from tiles is the rounded one
    share = _unexplained(columns.kernel, columns.shifted(few)) if columns.kernel.stationary else None
    return Chosen(features, near_mean, share)


def draw_sample(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> tuple[Array, Array]:
    """The one bounded sample of a fit, uniform without replacement, and the rows that are landmarks by their numbers.

    Both in the order and dtype of the data; the second has 0 rows where no numbers are given.

    Raises DataError if all sampled rows are equal.
    """
    n, d = rows.shape
    m = sample_rows(n, d, n if spec.exact else _landmark_count(spec, n))
    numbers = np.sort(random_stream(spec.seed, _SAMPLE).choice(n, m, replace=False))
    given = np.empty(0, np.intp)
    if isinstance(spec.landmarks, landmarks.RowNumbers):
        given = spec.landmarks.numbers
        if given.max() >= n:
            raise SpecError(f"landmark {given.max()} is not a row of {rows.where}, whose {n} rows are counted from 0")
        given = given.astype(np.intp)
    wanted = np.union1d(numbers, given)
    found = read_rows(rows, wanted, engine, progress)
    sample = found if len(wanted) == m else found[np.searchsorted(wanted, numbers)]
    if (sample[-1] == sample[0]).all() and (sample == sample[0]).all():  # the first alone tells most data apart
        raise DataError(
            f"{rows.where}: all {m} sampled rows are equal: constant data have no kernel principal components"
        )
    return sample, found[np.searchsorted(wanted, given)]


def _landmark_count(spec: FitSpec, n: int) -> int:
    return spec.feature_count(n) if spec.method_value.landmarks else 0


def sample_lengths(rows: Rows, spec: FitSpec, engine: Engine, progress: Progress) -> dict[str, Length]:
    """Candidate lengths sigma of the kernel, from the same sample and pairs as a fit with this spec would draw."""
    sample, _ = draw_sample(rows, spec, engine, progress)
    shift = _shift(rows, sample, spec, engine, progress)
    return bandwidth.candidate_lengths(_distances(sample, shift, spec, engine), spec.distance)


def _distances(sample: Array, columns: Columns, spec: FitSpec, engine: Engine) -> Array:
    """Distances of sampled pairs, in units of the standardised columns where there are such."""
    scaled = sample if columns.scale is None else columns.shifted(sample)
    return bandwidth.pair_distances(scaled, spec.distance, random_stream(spec.seed, _PAIRS), engine.in_order)


def _columns(rows: Rows, sample: Array, spec: FitSpec, engine: Engine, progress: Progress) -> Columns:
    """Rows shifted and scaled as the kernel will see them, and the kernel."""
    columns = _shift(rows, sample, spec, engine, progress)
    if not spec.needs_median:
        return columns
    median = bandwidth.median_sigma(_distances(sample, columns, spec, engine), spec.distance)
    return replace(columns, kernel=spec.kernel_value(rows.shape[1], median))


def _shift(rows: Rows, sample: Array, spec: FitSpec, engine: Engine, progress: Progress) -> Columns:
    """The offset and scale of a fit, with a kernel of any length."""
    offset, scale = np.zeros(rows.shape[1]), None
    if spec.standardize:
        found = columns_of(rows, spec.block_rows, engine, progress)
        offset, scale = _rounded(found.mean, rows), found.scale
    elif spec.stationary:
        offset = _rounded(sample.mean(axis=0, dtype=np.float64), rows)
    return Columns(spec.kernel_value(rows.shape[1], 1.0), offset, spec.block_dtype(rows.dtype), scale=scale)


def _rounded(mean: Array, rows: Rows) -> Array:
    """A mean in the precision of the data, so that every row has it subtracted without a rounding of its own."""
    return mean.astype(np.result_type(rows.dtype, np.float32)).astype(np.float64)


def _features(
    rows: Rows, sample: Array, own: Array, columns: Columns, spec: FitSpec, engine: Engine, progress: Progress
) -> FeatureMap:
    method = spec.method_value
    if isinstance(method, PrincipalFeatures):
        return _principal_features(rows, sample, columns, method, spec, engine, progress)
    if isinstance(method, RandomFeatures):
        return _random_features(sample, columns, method, spec)
    chosen = columns.shifted(sample) if spec.exact else _landmarks(rows, sample, own, columns, spec, engine, progress)
    return KernelRows(columns.kernel, columns.offset, chosen, scale=columns.scale)


# Landmarks


def _landmarks(
    rows: Rows, sample: Array, own: Array, columns: Columns, spec: FitSpec, engine: Engine, progress: Progress
) -> Array:
    if spec.own_landmarks is not None:
        return _own_landmarks(rows, own, columns, spec)
    rule, rng = spec.landmark_rule(), random_stream(spec.seed, _LANDMARKS)
    size = min(spec.feature_count(rows.shape[0]), len(sample))
    candidates = np.sort(rng.choice(len(sample), min(rule.most_rows(size), len(sample)), replace=False))
    few = columns.shifted(sample[candidates])
    if isinstance(rule, landmarks.RPCholesky) and rule.over == "all":
        return _landmarks_of_all_rows(rows, few, columns, rule, size, spec, engine, progress)
    with np.errstate(over="ignore", invalid="ignore"):
        chosen = rule.choose(few, columns.kernel, size, rng, engine.in_order)
    if not len(chosen):
        raise DataError(
            f"{rows.where}: k(x, x) is zero for all sampled rows, so there is nothing to choose landmarks by"
        )
    if len(chosen) < size:
        progress.note(f"{rule.name}: {len(chosen)} landmarks, beyond which {len(few)} sampled rows have nothing to add")
    return chosen


def _own_landmarks(rows: Rows, own: Array, columns: Columns, spec: FitSpec) -> Array:
    given = spec.landmarks.values if isinstance(spec.landmarks, landmarks.Rows) else own
    if given.shape[1] != rows.shape[1]:
        raise SpecError(f"landmarks have {given.shape[1]} columns, {rows.where} has {rows.shape[1]}")
    chosen = columns.shifted(given)
    landmarks.check_distinct(chosen)
    return chosen


def _landmarks_of_all_rows(
    rows: Rows,
    sample: Array,
    columns: Columns,
    rule: landmarks.RPCholesky,
    size: int,
    spec: FitSpec,
    engine: Engine,
    progress: Progress,
) -> Array:
    """RPCholesky over all rows by rejection from upper bounds of residuals, which passes refresh when they are stale.

    Bounds stay valid because residuals never grow; a pass leaves as many draws as the sample has rows.
    """
    kernel, rng = columns.kernel, random_stream(spec.seed, _PROPOSALS)
    check_diagonal(kernel.diagonal(sample))
    factor = Factor.empty(kernel, sample)
    proposals, trace, refreshes = Proposals(sample[:0], np.empty(0), 0.0), 0.0, 0
    if kernel.stationary:  # rows of the sample are draws in proportion to k(x, x), which is the same for all
        order = rng.permutation(len(sample))
        trace = float(rows.shape[0] * kernel.diagonal(sample[:1])[0])
        proposals = Proposals(sample[order], kernel.diagonal(sample), trace)
    while True:
        before = len(factor.landmarks)
        factor = grown(factor, proposals, size, rule.least_accepted, rule.tol * trace, rng)
        if len(factor.landmarks) == size or (refreshes and len(factor.landmarks) == before):
            break
        refreshes += 1
        proposals, trace = _refreshed(rows, columns, factor, spec, refreshes, rng, engine, progress)
        if proposals.total <= max(rule.tol, rank_tolerance(columns.dtype)) * trace:
            break
    progress.note(f"rpcholesky: {len(factor.landmarks)} landmarks from all rows after {refreshes} refreshing passes")
    return factor.landmarks


def _refreshed(
    rows: Rows,
    columns: Columns,
    factor: Factor,
    spec: FitSpec,
    number: int,
    rng: np.random.Generator,
    engine: Engine,
    progress: Progress,
) -> tuple[Proposals, float]:
    """Draws in proportion to the residuals of all rows, and Σ k(x, x): one pass."""
    count = -(-sample_rows(*rows.shape, 0) // len(fit_blocks(rows, spec.block_rows)))
    seed = np.random.SeedSequence(spec.seed, spawn_key=(_PROPOSALS, number))
    draws = draws_by_residual(rows, columns, factor, count, seed, spec.block_rows, engine, progress)
    totals = np.array([block.total for block in draws])
    trace = sum(block.trace for block in draws)
    if not totals.sum() > 0:
        return Proposals(draws[0].rows[:0], np.empty(0), 0.0), trace
    picks = rng.choice(len(draws), count * len(draws), p=totals / totals.sum())
    # The k-th pick of a block takes its k-th draw; the first pick beyond a block's draws ends the sequence.
    turn = np.zeros(len(picks), np.intp)
    for number_of_block in np.unique(picks):
        mine = picks == number_of_block
        turn[mine] = np.arange(np.count_nonzero(mine))
    spent = np.flatnonzero(turn >= count)
    end = spent[0] if len(spent) else len(picks)
    chosen = np.array([draws[b].rows[t] for b, t in zip(picks[:end], turn[:end], strict=True)])
    bounds = np.array([draws[b].residuals[t] for b, t in zip(picks[:end], turn[:end], strict=True)])
    return Proposals(chosen, bounds, float(totals.sum())), trace


# Random features


def _frequencies(
    kernel: Kernel, coupling: Coupling, form: str, count: int, d: int, dtype: Any, seed: int, axes: Callable[[], Array]
) -> tuple[Array, Array | None]:
    """(frequencies (m, d), phases (m,) or None) for `count` features, in the dtype of block work."""
    rng = random_stream(seed, _FREQUENCIES)
    m = count if form == "phase" else count // 2
    found = draw_frequencies(kernel, coupling, m, d, rng, axes() if coupling == "qmc" else None)
    phases = rng.uniform(0, 2 * np.pi, m).astype(dtype) if form == "phase" else None
    return found.astype(dtype), phases


def _random_features(sample: Array, columns: Columns, method: RandomFeatures, spec: FitSpec) -> FeatureMap:
    kernel, d = columns.kernel, columns.columns
    count = spec.feature_count(len(sample))
    if isinstance(kernel, Polynomial):
        rng = random_stream(spec.seed, _FREQUENCIES)
        return tensor_sketch(kernel, count, columns.offset, columns.scale, rng, columns.dtype)

    def axes() -> Array:
        if d > DENSE_MOST_FEATURES:
            raise SpecError(
                f"form='qmc' needs all principal axes of {d} columns, at most {DENSE_MOST_FEATURES} can be had"
            )
        X = columns.shifted(sample).astype(np.float64)
        X -= X.mean(axis=0)
        return axes_of_covariance(np.zeros(d), X.T @ X, len(X)).axes

    frequencies, phases = _frequencies(kernel, method.coupling, method.form, count, d, columns.dtype, spec.seed, axes)
    return FourierRows(kernel, columns.offset, frequencies, phases, scale=columns.scale)


def _principal_features(
    rows: Rows,
    sample: Array,
    columns: Columns,
    method: PrincipalFeatures,
    spec: FitSpec,
    engine: Engine,
    progress: Progress,
) -> PrincipalFourierRows:
    kernel, d = columns.kernel, columns.columns
    assert isinstance(kernel, Gaussian)  # the spec checks
    if spec.n_directions != "auto" and spec.n_directions > d:
        raise SpecError(f"n_directions={spec.n_directions}, but {rows.where} has only {d} columns")
    principal = _principal_axes(rows, columns, spec, engine, progress)
    kept = _directions(principal, kernel, spec)
    # The mean of all rows, not of the sample: residuals and principal axes start there.
    moved = principal.mean if columns.scale is None else principal.mean * columns.scale
    columns = replace(columns, offset=_rounded(columns.offset + moved, rows))
    axes = principal.axes[:, :kept].astype(columns.dtype)
    frequencies, phases = _frequencies(
        kernel,
        method.coupling,
        method.form,
        spec.feature_count(len(sample)),
        kept,
        columns.dtype,
        spec.seed,
        lambda: np.eye(kept),
    )
    factor = _correction(method, kernel, principal, axes, columns, sample, spec.seed)
    progress.note(f"rff-pca: {kept} of {d} principal axes")
    return PrincipalFourierRows(kernel, columns.offset, frequencies, axes, phases, factor, scale=columns.scale)


def _directions(principal: PrincipalAxes, kernel: Gaussian, spec: FitSpec) -> int:
    if spec.n_directions != "auto":
        return spec.n_directions
    components = spec.components if isinstance(spec.components, int) else 1
    return principal.directions(kernel.sigma, components, spec.feature_count(0) // 2)


def _principal_axes(rows: Rows, columns: Columns, spec: FitSpec, engine: Engine, progress: Progress) -> PrincipalAxes:
    """Principal axes of all rows: one pass, or a sketch's passes above 8192 columns."""
    d, shift, title = columns.columns, np.zeros(columns.columns), "principal axes"
    if d <= DENSE_MOST_FEATURES:
        moments, _ = moments_of(rows, columns, shift, spec.block_rows, engine, progress, title)
        return axes_of_covariance(moments.mean, moments.scatter, moments.count)
    count = min(d, _MOST_SKETCHED_AXES) if spec.n_directions == "auto" else spec.n_directions
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
    """The factor of all features: alpha^(-1/2), 1 for no correction, or None for the pointwise one."""
    if method.correction == "pointwise":
        return None
    if method.correction == "none":
        return 1.0
    if method.correction == "alpha":
        return float(np.exp(-principal.residual(axes.shape[1]) * kernel.gamma))
    # The thesis's estimate: a geometric mean of exp(|r_i - r_(i+1)|² / (2 sigma²)) over pairs of sampled rows,
    # whose residuals are taken in principal coordinates and divided by their number (docs/numerics.md, section 10).
    numbers = random_stream(seed, _ALPHA).choice(len(sample), min(_ALPHA_ROWS, len(sample)), replace=False)
    residual = columns.shifted(sample[numbers]).astype(np.float64)
    residual -= (residual @ axes) @ axes.T
    return float(np.exp(-0.5 * np.sum(np.diff(residual, axis=0) ** 2, axis=1).mean() * kernel.gamma))


def _unexplained(kernel: Kernel, X: Array) -> float:
    """The share of Σ k(x, x) that every other row of X, as a landmark, leaves of the others."""
    S, others = X[::2], X[1::2]
    P = solvers.nystroem_map(kernel.gram(S), rank_tolerance(X.dtype))
    explained = float(np.sum((kernel(others, S).astype(np.float64) @ P) ** 2))
    return 1 - explained / float(kernel.diagonal(others).sum())
