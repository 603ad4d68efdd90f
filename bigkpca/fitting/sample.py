"""Draw the bounded sample of a fit, and derive offset and scale of the columns and the kernel from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, SpecError, column_called
from bigkpca.execution.engine import Engine, fit_blocks, sum_by_block
from bigkpca.execution.passes import WeightedDraw, block_columns, read_sets, weighted_draw
from bigkpca.numerics import bandwidth, landmarks
from bigkpca.numerics.bandwidth import Lengths
from bigkpca.numerics.features import Columns
from bigkpca.numerics.kernels import Sigmoid
from bigkpca.numerics.moments import ColumnMoments, represented
from bigkpca.numerics.random_streams import FEW, PAIRS, SAMPLE, random_stream
from bigkpca.spec import FitSpec, ResolvedFit
from bigkpca.spec.weights import OPTION

FEW_ROWS = 1024
_ROWS_PER_LANDMARK = 10  # at least, of rows from which landmarks are chosen by weights
_FLAT = 6.0  # argument beyond which tanh is within 1e-5 of 1 or -1


@dataclass(frozen=True)
class SampledRows:
    """Rows read by number, in the order and dtype of the data."""

    sample: Array  # (m, d), uniform without replacement: the rows that all choices are made from
    few: Array  # at most 1024 of the sample, on which choices are judged; drawn, since strides may hit periods
    own: Array  # landmarks that the caller gave by row numbers; 0 rows if none
    apart: Array  # rows that take no part in the fit, by which other rows are judged
    few_weights: Array | None  # weights of `few`; None if all are 1
    by_weight: DrawnByWeight | None  # None if rows have no weights

    def weight(self, rows: Rows) -> float:
        """The weight of all rows, their number without weights."""
        return rows.shape[0] if self.by_weight is None else self.by_weight.draw.weight

    @property
    def shares(self) -> Array | None:
        """The weight of all rows that each row of the sample stands for, (m,); None if rows have no weights."""
        return None if self.by_weight is None else represented(self.by_weight.weights, self.by_weight.draw.weight)

    def for_landmarks(self, size: int, most: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Rows that are landmarks for certain, and at most `most` rows from which the others of `size` are chosen, in
        the order of the sample.

        These are drawn with equal chances or, if rows have weights, by these: few enough to be drawn in proportion to
        them, so that all count the same from there on. A row with more than a `size`-th of all weight is a landmark.
        """
        m, weighted = len(self.sample), self.by_weight
        if weighted is None:
            every = most >= m
            return self.sample[:0], self.sample if every else self.sample[np.sort(rng.choice(m, most, replace=False))]
        certain = weighted.weights > weighted.draw.weight / size
        count = min(most - int(certain.sum()), max(_ROWS_PER_LANDMARK * size, weighted.draw.effective))
        others = weighted.order[~certain[weighted.order]][:count]
        own = self.sample[certain]
        if len(own) > 1:  # equal rows are one landmark
            own = own[np.sort(np.unique(own, axis=0, return_index=True)[1])]
        return own, self.sample if len(others) == m else self.sample[np.sort(others)]


@dataclass(frozen=True)
class DrawnByWeight:
    """How a sample (m, d) of rows with weights was drawn: the `order` (m,) of its rows, their `weights` (m,), and the
    `draw` from all rows."""

    order: Array
    weights: Array
    draw: WeightedDraw


@dataclass(frozen=True)
class PreparedSample:
    """The sample of a fit, with the offset, scale and kernel derived from it."""

    rows: Rows
    sampled: SampledRows
    columns: Columns


def prepare_sample(rows: Rows, fit: ResolvedFit, engine: Engine) -> PreparedSample:
    """Draw the sample, and derive offset, scale and kernel from it; one more pass for `standardize`. Raises the same
    errors as `draw_sample`."""
    sampled, spec = draw_sample(rows, fit, engine), fit.spec
    columns = _shift(rows, sampled, fit, engine)
    _check_sizes(rows, columns.shifted(sampled.few), spec, 0, float(np.finfo(fit.dtype).max))
    if spec.needs_median:
        distances, pairs = _distances(rows, sampled, columns, spec, engine)
        median = bandwidth.median_sigma(distances, spec.distance, pairs)
        columns = replace(columns, kernel=fit.kernel(median))
    if spec.needs_variance:
        # As in scikit-learn, the variance of all entries, which includes the means of columns unless standardised.
        about = columns if spec.standardize else replace(columns, offset=np.zeros(fit.d))
        gamma = bandwidth.scale_gamma(_scaled(sampled.sample, about), sampled.shares)
        columns = replace(columns, kernel=fit.kernel(gamma))
    if isinstance(columns.kernel, Sigmoid):
        _check_saturation(columns.kernel, columns.shifted(sampled.few), rows.where)
    return PreparedSample(rows, sampled, columns)


def _check_sizes(rows: Rows, scaled: Array, spec: FitSpec, least: float, most: float) -> None:
    """Raise DataError naming the column of the largest number of scaled rows (m, d), unless its size is in range, or
    all numbers are zero."""
    sizes = np.maximum(scaled.max(axis=0), -scaled.min(axis=0).astype(np.float64))
    j = int(sizes.argmax())  # of NaN, if there is any
    if sizes[j] <= most and not 0 < sizes[j] < least:
        return
    weights: Any = spec.column_weights
    weight = 1.0 if weights is None else weights[j]
    large = not sizes[j] < least
    times = "" if weight == 1 else f", times the weight {weight:g},"
    remedy = "leave it out" if weight == 1 else f"change the weight with {OPTION}"
    raise DataError(
        f"{rows.where}: the numbers of {column_called(j, rows.names)}{times} are too {'large' if large else 'small'}: "
        f"distances between rows {'over' if large else 'under'}flow; scale the column, or {remedy}"
    )


def _check_saturation(kernel: Sigmoid, X: Array, where: str) -> None:
    """Raise SpecError suggesting a better gamma, if tanh is saturated for 99 % of pairs of the rows X (m, d)."""
    products = np.einsum("ij,ij->i", X[:-1], X[1:], dtype=np.float64)
    flat = np.mean(np.abs(kernel.gamma * products + kernel.coef0) > _FLAT) if len(products) else 0
    if flat >= 0.99:
        suits = 0.5 / max(float(np.median(np.abs(products))), np.finfo(float).tiny)
        far = abs(kernel.coef0) > _FLAT / 2
        advice = "a coef0 near 0" if far else f"a smaller gamma, about {suits:.1g} for these rows"
        raise SpecError(
            f"{where}: the sigmoid kernel tanh(gamma <x, y> + coef0) is 1 or -1 for {flat:.0%} of sampled pairs of "
            f"rows, with gamma={kernel.gamma:.3g} and coef0={kernel.coef0:g}: use {advice}"
        )


def draw_sample(rows: Rows, fit: ResolvedFit, engine: Engine) -> SampledRows:
    """Draw the bounded sample, and read all individual rows of the fit at once. Raises DataError if all sampled rows
    are equal."""
    n, m, spec = fit.n, fit.sample, fit.spec
    own, draw = np.empty(0, np.intp), None
    if rows.weights is None:
        numbers = np.sort(random_stream(spec.random_state, SAMPLE).choice(n, m, replace=False))
    else:
        draw = weighted_draw(rows, m, spec.random_state, SAMPLE, engine)
        numbers = np.sort(draw.numbers)
    if isinstance(spec.landmarks, landmarks.RowNumbers):
        if (last := spec.landmarks.numbers.max()) >= n:
            raise SpecError(f"landmark {last} is not a row of {rows.where}, which has {n} rows, counted from 0")
        own = spec.landmarks.numbers.astype(np.intp)
    sample, own_rows, apart = read_sets(rows, engine, numbers, own, fit.apart)
    # The first comparison settles most cases cheaply.
    if (sample[-1] == sample[0]).all() and (sample == sample[0]).all():
        those = "" if draw is None else " of positive weight"
        raise DataError(
            f"{rows.where}: all {len(sample)} sampled rows{those} are equal: constant data have no kernel principal "
            "components"
        )
    weights = weights_of(rows, numbers)
    if draw is None or weights is None:
        few = random_stream(spec.random_state, FEW).choice(m, min(FEW_ROWS, m), replace=False)
        return SampledRows(sample, sample[few], own_rows, apart, None, None)
    by_weight = DrawnByWeight(np.searchsorted(numbers, draw.numbers), weights, draw)
    few = by_weight.order[:FEW_ROWS]
    return SampledRows(sample, sample[few], own_rows, apart, weights[few], by_weight)


class DrawnNumbers(NamedTuple):
    """Numbers of rows, in the order in which they were drawn, and the weight of all rows."""

    numbers: Array
    weight: float


def drawn_numbers(
    rows: Rows, count: int, seed: int, purpose: int, engine: Engine, *, equal: bool = False
) -> DrawnNumbers:
    """At most `count` rows, drawn without replacement one after the other, in proportion to their weights or, if those
    are positive, with `equal` chances."""
    if rows.weights is None:
        n = rows.shape[0]
        return DrawnNumbers(random_stream(seed, purpose).choice(n, min(count, n), replace=False), n)
    found = weighted_draw(rows, count, seed, purpose, engine, equal=equal)
    return DrawnNumbers(found.numbers, found.weight)


def weights_of(rows: Rows, numbers: Array) -> Array | None:
    """The weights of the rows with these numbers, (m,); None if all are 1."""
    if rows.weights is None:
        return None
    found = np.empty(len(numbers))
    for block in fit_blocks(rows, None):
        here = (numbers >= block.start) & (numbers < block.stop)
        if here.any():
            found[here] = rows.weights.of(block.start, block.stop)[numbers[here] - block.start]
    return found


def sample_lengths(rows: Rows, fit: ResolvedFit, engine: Engine) -> Lengths:
    """Candidate lengths sigma of the kernel, from the sample and pairs that this fit would draw."""
    sampled, spec = draw_sample(rows, fit, engine), fit.spec
    with np.errstate(over="ignore", invalid="ignore"):  # a column that overflows is named
        shift = _shift(rows, sampled, fit, engine)
        distances, _ = _distances(rows, sampled, shift, spec, engine)
    return bandwidth.candidate_lengths(distances, spec.distance)


def _distances(
    rows: Rows, sampled: SampledRows, columns: Columns, spec: FitSpec, engine: Engine
) -> tuple[Array, Array | None]:
    """Distances of sampled pairs, and their weights, in units of the standardised and weighted columns. Raises
    DataError naming a column that makes them over- or underflow."""
    scaled = _scaled(sampled.sample, columns)
    limits, d = np.finfo(np.float64), scaled.shape[1]
    if spec.distance == "sqeuclidean":
        _check_sizes(rows, scaled, spec, float(np.sqrt(limits.tiny)), float(np.sqrt(limits.max / d) / 2))
    else:
        _check_sizes(rows, scaled, spec, 0, float(limits.max / d / 2))
    rng = random_stream(spec.random_state, PAIRS)
    return bandwidth.weighted_pairs(scaled, spec.distance, rng, sampled.shares)


def _scaled(sample: Array, columns: Columns) -> Array:
    """Sampled rows as they are or, if columns are standardised or weighted, in the units of these."""
    return sample if columns.scale is None else columns.shifted(sample)


def _shift(rows: Rows, sampled: SampledRows, fit: ResolvedFit, engine: Engine) -> Columns:
    """Offset and scale of a fit, with a kernel of any length."""
    offset, found, kernel, spec = np.zeros(fit.d), None, fit.kernel(1.0), fit.spec
    if spec.standardize:
        found = sum_by_block("standardising", block_columns, rows, (), spec.block_rows, engine)
        offset = rounded(found.mean, rows)
    elif kernel.allows_shift(spec.center):
        offset = rounded(np.median(sampled.few, axis=0), rows)  # the median, which outliers and sentinels do not move
    scale = scale_of(rows, spec, found)
    if scale is not None and found is None:  # pre-images of columns of weight 0 are their offset
        mean = rounded(sampled.sample.mean(axis=0, dtype=np.float64), rows)
        offset = np.where(np.isinf(scale), mean, offset)
    return Columns(kernel, offset, fit.dtype, scale=scale)


def scale_of(rows: Rows, spec: FitSpec, moments: ColumnMoments | None) -> Array | None:
    """What columns (d,) are divided by: deviations, if `moments` of the columns are given, over the weights of `spec`,
    one for each column; None without either. Raises DataError for a variance that overflows."""
    scale: Any = 1.0
    weights = np.ones(rows.shape[1]) if spec.column_weights is None else np.array(spec.column_weights)
    if moments is not None:
        scale = moments.scale(each.columns for each in rows.one_hot)
        lost = (weights > 0) & np.logical_not(np.isfinite(moments.squares))
        if lost.any():
            raise DataError(
                f"{rows.where}: the variance of {column_called(int(lost.argmax()), rows.names)} overflows: scale the "
                "column, or leave it out"
            )
    elif spec.column_weights is None:
        return None
    with np.errstate(divide="ignore"):
        found: Array = np.where(weights > 0, scale / weights, np.inf)
    return found


def rounded(mean: Array, rows: Rows) -> Array:
    """A mean in the precision of the data, so that subtracting it from a row adds no rounding error; finite also where
    the sum of a column overflows."""
    return np.nan_to_num(mean.astype(np.result_type(rows.dtype, np.float32))).astype(np.float64)
