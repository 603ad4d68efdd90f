"""Draw the bounded sample of a fit, and derive offset and scale of the columns and the kernel from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, SpecError, column_called
from bigkpca.execution.engine import Engine, fit_blocks, sum_by_block
from bigkpca.execution.passes import block_columns, read_sets, weighted_draw
from bigkpca.numerics import bandwidth, landmarks
from bigkpca.numerics.bandwidth import Lengths
from bigkpca.numerics.features import Columns
from bigkpca.numerics.moments import ColumnMoments, represented
from bigkpca.numerics.random_streams import FEW, PAIRS, SAMPLE, random_stream
from bigkpca.spec import FitSpec, ResolvedFit
from bigkpca.spec.column_weights import OPTION

PROBE_ROWS = 1024
NO_ROWS = np.empty(0, np.intp)
_ROWS_PER_LANDMARK = 10  # at least, of rows from which landmarks are chosen by weights


@dataclass(frozen=True)
class Probes:
    """A few rows of a sample, on which choices are judged: all that a pass needs of it."""

    rows: Rows  # from which they were drawn
    X: Array  # (q, d), at most 1024; drawn, since strides may hit periods
    weights: Array | None  # of X (q,); None if all are 1
    weight: float  # of all rows, their number without weights


@dataclass(frozen=True)
class Sample:
    """Rows of a fit that were read by number, in the order and dtype of the data.

    Rows with weights are drawn in proportion to them, all others uniformly, without replacement.
    """

    probes: Probes  # some of X
    X: Array  # (m, d): the rows that all choices are made from
    weights: Array | None  # of X (m,); None if all are 1
    order: Array  # of rows with weights, that in which they were drawn (m,); of others, a few drawn numbers
    effective: int  # how many rows of equal weight tell as much about a mean as all rows
    own: Array  # landmarks that the caller gave by row numbers; 0 rows if none
    set_aside: Array  # rows that take no part in the fit

    @property
    def rows(self) -> Rows:
        """The rows from which it was drawn."""
        return self.probes.rows

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return self.probes.weight

    @property
    def shares(self) -> Array | None:
        """The weight of all rows that each row of the sample stands for, (m,); None if rows have no weights."""
        return None if self.weights is None else represented(self.weights, self.weight)

    def certain(self, size: int) -> Array:
        """Which rows have more than a `size`-th of all weight, and so are landmarks for certain: (m,) of bool."""
        if self.weights is None:
            return np.zeros(len(self.X), bool)
        return np.asarray(self.weights > self.weight / size)

    def candidates(self, size: int, most: int, rng: np.random.Generator) -> Array:
        """At most `most` rows from which landmarks are chosen beside the certain ones of `size`, in the order of X.

        They are drawn with equal chances or, if rows have weights, by these: few enough to be drawn in proportion to
        them, so that all count the same from there on.
        """
        m = len(self.X)
        if self.weights is None:
            return self.X if most >= m else self.X[np.sort(rng.choice(m, most, replace=False))]
        certain = self.certain(size)
        count = min(most - int(certain.sum()), max(_ROWS_PER_LANDMARK * size, self.effective))
        others = self.order[~certain[self.order]][:count]
        return self.X if len(others) == m else self.X[np.sort(others)]


def draw_sample(rows: Rows, fit: ResolvedFit, engine: Engine, set_aside: Array = NO_ROWS) -> Sample:
    """Draw the bounded sample, and read all individual rows of the fit at once, with those numbered `set_aside`. Raises
    DataError if all sampled rows are equal."""
    m, spec, own = fit.sample, fit.spec, NO_ROWS
    effective, weight = m, float(fit.n)
    if rows.weights is None:
        numbers = np.sort(random_stream(spec.random_state, SAMPLE).choice(fit.n, m, replace=False))
        order = random_stream(spec.random_state, FEW).choice(m, min(PROBE_ROWS, m), replace=False)
    else:
        draw = weighted_draw(rows, m, spec.random_state, SAMPLE, engine)
        numbers, effective, weight = np.sort(draw.numbers), draw.effective, draw.weight
        order = np.searchsorted(numbers, draw.numbers)
    if isinstance(spec.landmarks, landmarks.RowNumbers):
        if (last := spec.landmarks.numbers.max()) >= fit.n:
            raise SpecError(f"landmark {last} is not a row of {rows.where}, which has {fit.n} rows, counted from 0")
        own = spec.landmarks.numbers.astype(np.intp)
    X, own_rows, aside = read_sets(rows, engine, numbers, own, set_aside)
    # The first comparison settles most cases cheaply.
    if (X[-1] == X[0]).all() and (X[0] == X).all():
        those = "" if rows.weights is None else " of positive weight"
        raise DataError(
            f"{rows.where}: all {len(X)} sampled rows{those} are equal: constant data have no kernel principal "
            "components"
        )
    weights, few = weights_of(rows, numbers), order[:PROBE_ROWS]
    probes = Probes(rows, X[few], None if weights is None else weights[few], weight)
    return Sample(probes, X, weights, order, effective, own_rows, aside)


def drawn_numbers(
    rows: Rows, count: int, seed: int, purpose: int, engine: Engine, *, equal: bool = False
) -> tuple[Array, float]:
    """The numbers of at most `count` rows, drawn one after the other in proportion to their weights or, if those are
    positive, with `equal` chances; and the weight of all rows."""
    if rows.weights is None:
        n = rows.shape[0]
        return random_stream(seed, purpose).choice(n, min(count, n), replace=False), n
    found = weighted_draw(rows, count, seed, purpose, engine, equal=equal)
    return found.numbers, found.weight


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


def scaled_columns(sample: Sample, fit: ResolvedFit, engine: Engine) -> Columns:
    """Offset and scale of the columns, and the kernel, from the sample; `standardize` takes one pass."""
    spec = fit.spec
    columns = _shifted_columns(sample, fit, engine)
    probes = columns.shifted(sample.probes.X)
    _check_sizes(sample.rows, probes, spec, 0, float(np.finfo(fit.dtype).max))
    if spec.needs_median:
        distances, pairs = _distances(sample, columns, spec)
        columns = replace(columns, kernel=fit.kernel(bandwidth.median_sigma(distances, spec.distance, pairs)))
    if spec.needs_variance:
        # As in scikit-learn, the variance of all entries, which includes the means of columns unless standardised.
        about = columns if spec.standardize else replace(columns, offset=np.zeros(fit.d))
        gamma = bandwidth.scale_gamma(_scaled(sample, about), sample.shares)
        columns = replace(columns, kernel=fit.kernel(gamma))
    return columns


def sample_lengths(rows: Rows, fit: ResolvedFit, engine: Engine) -> Lengths:
    """Candidate lengths sigma of the kernel, from the sample and pairs that this fit would draw."""
    sample = draw_sample(rows, fit, engine)
    with np.errstate(over="ignore", invalid="ignore"):  # a column that overflows is named
        distances, _ = _distances(sample, _shifted_columns(sample, fit, engine), fit.spec)
    return bandwidth.candidate_lengths(distances, fit.spec.distance)


def _shifted_columns(sample: Sample, fit: ResolvedFit, engine: Engine) -> Columns:
    """Offset and scale of the columns, with a kernel of any length."""
    rows, spec, moments, kernel = sample.rows, fit.spec, None, fit.kernel(1.0)
    offset = np.zeros(fit.d)
    if spec.standardize:
        moments = sum_by_block("standardising", block_columns, rows, (), spec.block_rows, engine)
        offset = rounded(moments.mean, rows)
    elif kernel.allows_shift(spec.center):
        offset = rounded(np.median(sample.probes.X, axis=0), rows)  # which outliers and sentinels do not move
    scale = scale_of(rows, spec, moments)
    if scale is not None and moments is None:  # pre-images of columns of weight 0 are their offset
        mean = rounded(sample.X.mean(axis=0, dtype=np.float64), rows)
        offset = np.where(np.isinf(scale), mean, offset)
    return Columns(kernel, offset, fit.dtype, scale=scale)


def scale_of(rows: Rows, spec: FitSpec, moments: ColumnMoments | None) -> Array | None:
    """What columns (d,) are divided by: deviations, if `moments` of the columns are given, over the weights of `spec`;
    None without either. Raises DataError for a variance that overflows."""
    if moments is None and spec.column_weights is None:
        return None
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
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(weights > 0, scale / weights, np.inf))


def _distances(sample: Sample, columns: Columns, spec: FitSpec) -> tuple[Array, Array | None]:
    """Distances of sampled pairs, and their weights, in units of the standardised and weighted columns. Raises
    DataError naming a column that makes them over- or underflow."""
    scaled = _scaled(sample, columns)
    limits, d = np.finfo(np.float64), scaled.shape[1]
    if spec.distance == "sqeuclidean":
        _check_sizes(sample.rows, scaled, spec, float(np.sqrt(limits.tiny)), float(np.sqrt(limits.max / d) / 2))
    else:
        _check_sizes(sample.rows, scaled, spec, 0, float(limits.max / d / 2))
    return bandwidth.pair_distances(scaled, spec.distance, random_stream(spec.random_state, PAIRS), sample.shares)


def _scaled(sample: Sample, columns: Columns) -> Array:
    """Sampled rows as they are or, if columns are standardised or weighted, in the units of these."""
    return sample.X if columns.scale is None else columns.shifted(sample.X)


def rounded(mean: Array, rows: Rows) -> Array:
    """A mean in the precision of the data, so that subtracting it adds no rounding error; finite if sums overflow."""
    return np.nan_to_num(mean.astype(np.result_type(rows.dtype, np.float32))).astype(np.float64)


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
