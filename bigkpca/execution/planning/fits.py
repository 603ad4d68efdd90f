"""Plan a fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, log2
from typing import Any

from bigkpca.data.blocks import fit_block_rows, tile_rows
from bigkpca.data.matrix_tiles import check_square, parts, upper_share
from bigkpca.data.rows import Rows
from bigkpca.execution.gram import strip_bytes
from bigkpca.execution.planning.base import Plan, components, graph_bytes, resident, streaming_bytes, tile_bytes
from bigkpca.execution.tasks import group_size
from bigkpca.numerics import packed
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.growth import JUDGING_ROWS, PAIRED_ROWS
from bigkpca.numerics.rounding import MEASURED_ROWS
from bigkpca.numerics.sketch import OVERSAMPLING, PASSES
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec, ResolvedFit, resolve

_PRODUCTS = 2  # that a given matrix is planned for
_BLOCKS_HELD = 18  # of n x (r + 10) float64: basis, images, and work space of four products
_LEAST_SIZE = 10  # that is advised
_AXES_WIDTH = 512 + OVERSAMPLING


def plan_fit(rows: Rows, spec: FitSpec, threads: int) -> Plan:
    """The cost of fitting `spec` to these rows, see `plan_resolved`."""
    return plan_resolved(rows, resolve(spec, rows), threads)


def plan_resolved(rows: Rows, fit: ResolvedFit, threads: int) -> Plan:
    """The cost of a fit: the sample and its passes. Raises SpecError for more rows than `exact` can hold.

    With a tolerance it is the cost of the largest size that may be needed. What RPCholesky over all rows adds depends
    on the data and is not counted.
    """
    if fit.spec.precomputed:
        return _plan_precomputed(rows, fit, threads)
    if fit.matrix_free:
        return _plan_products(rows, fit, threads)
    n, d, D, m, spec = fit.n, fit.d, fit.size, fit.sample, fit.spec
    block = min(n, fit_block_rows(n, rows.grain, spec.block_rows))
    blocks = ceil(n / block)
    partial_sums = _partial_sums(blocks, threads)
    held = _held_bytes(rows, fit)
    passes, stages = 0, [_sampling_bytes(rows, fit)]
    if spec.exact:
        stages.append(4 * 8 * D * D + m * d * rows.dtype.itemsize + held)  # the sample is all rows
    else:
        passes, working = _features_pass(rows, fit, threads, partial_sums)
        stages += working
    if spec.method_value.principal:
        more, working_bytes = _pass(rows, d, 0, fit.dtype.itemsize, threads, partial_sums, _axes_width(d))
        passes += more
        stages.append(m * d * rows.dtype.itemsize + working_bytes)
    if spec.keeps_sample:
        stages = [stage + m * d * rows.dtype.itemsize for stage in stages]
    if spec.preimage_value.trained:
        passes += 1
        stages.append(_training_bytes(rows, fit, held, threads, partial_sums))
    passes += spec.standardize
    return Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=max(passes, 1) * (2 * blocks - 1) + min(blocks, m),
        passes=passes,
        bytes_read=rows.dtype.itemsize * d * (passes * n + min(n, m * rows.grain)),
        peak_bytes=resident(max(stages) + threads * graph_bytes(rows, block)),
        result_bytes=held + 8 * D * components(spec, D) + (0 if _sketch_width(fit) else 8 * D * (D + 2)),
        checkpoint_bytes=(partial_sums + passes) * 8 * _summed(fit) if passes else 0,
    )


def _partial_sums(blocks: int, threads: int) -> int:
    """Partial sums that are alive at once: of whole groups of blocks, and those that each thread adds up to one."""
    within_groups = group_size(blocks, threads).bit_length() - 1
    return min(blocks, ceil(log2(blocks + 1)) - within_groups + (3 + within_groups) * threads + 1)


def _held_bytes(rows: Rows, fit: ResolvedFit) -> int:
    """The feature map, and rows that are kept for the certificate of a pass and for the reference."""
    held = fit.spec.method_value.map_bytes(fit.d, fit.size, fit.dtype.itemsize)
    kept = fit.unseen + PAIRED_ROWS if fit.unseen else min(fit.sample, REFERENCE_ROWS)
    return held if fit.spec.exact else held + kept * fit.d * rows.dtype.itemsize


def _scaled_bytes(fit: ResolvedFit) -> int:
    """A copy of the sample with standardised columns, for the median."""
    return fit.sample * fit.d * fit.dtype.itemsize if fit.spec.standardize else 0


def _sampling_bytes(rows: Rows, fit: ResolvedFit) -> int:
    """Work space beside the sample: what chooses landmarks or frequencies, or tries sizes."""
    d, D = fit.d, fit.size
    sample = fit.sample * d * rows.dtype.itemsize
    choosing = sample + _scaled_bytes(fit) + _choosing_bytes(fit)
    trying = 0 if fit.spec.tol is None else sample + 8 * (2 * D * D + 2 * JUDGING_ROWS * (D + d))
    return max(choosing, trying)


def _features_pass(rows: Rows, fit: ResolvedFit, threads: int, partial_sums: int) -> tuple[int, list[int]]:
    """Number of passes that add up features, and the bytes of each stage: the passes, then the certificate."""
    width, held, itemsize = _sketch_width(fit), _held_bytes(rows, fit), fit.dtype.itemsize
    passes, working = _pass(rows, fit.size, held, itemsize, threads, partial_sums, width)
    stages = [held + _scaled_bytes(fit) + working]  # allocators keep what held the copy
    if width is None:
        stages.append(held + _certificate_bytes(fit, threads))
    return passes, stages


def _summed(fit: ResolvedFit) -> int:
    """Numbers of one partial sum of a pass."""
    width = _sketch_width(fit)
    return packed.entries(fit.size) if width is None else fit.size * width


def _axes_width(d: int) -> int | None:
    """Columns of the sketch that finds the principal axes of d columns; None where d x d is held."""
    return _AXES_WIDTH if d > DENSE_MOST_FEATURES else None


def _certificate_bytes(fit: ResolvedFit, threads: int) -> int:
    """Work space of the certificate: squares of the sums, of W and of their rounding, and the upper half of the square
    of kernels of the unseen rows, with tiles of it and their coordinates."""
    d, D, unseen, itemsize, spec = fit.d, fit.size, fit.unseen, fit.dtype.itemsize, fit.spec
    few = isinstance(spec.components, int) and spec.method_value.name == "nystroem"  # else LAPACK solves, with copies
    squares = (7 if few else 9) + (not spec.center)
    rounding = 8 * 8 * D * D + 3 * MEASURED_ROWS * 8 * D
    spectral = itemsize * (unseen * unseen // 2 + unseen * (2 * D + 7 * d + 2 * 512 * threads)) + 8 * unseen * 400
    return max(rounding, squares * 8 * D * D + spectral)


def _training_bytes(rows: Rows, fit: ResolvedFit, held: int, threads: int, partial_sums: int) -> int:
    """Work space of the pass that trains the pre-images, and of its linear system."""
    trained: Any = fit.spec.preimage_value
    d, D, itemsize = fit.d, fit.size, fit.dtype.itemsize
    one, tile = trained.training_bytes(tile_rows(d, D, itemsize), d)
    moments = 0 if fit.spec.exact else 8 * D * D
    return moments + threads * (streaming_bytes(rows, D, held, itemsize) + tile + 2 * one) + (partial_sums + 3) * one


def _plan_products(rows: Rows, fit: ResolvedFit, threads: int) -> Plan:
    """The cost of exact eigenpairs: an approximate fit, its scores, the rows in memory, and products with K."""
    n, d, spec = fit.n, fit.d, fit.spec
    start = plan_resolved(rows, fit.start(), threads)
    held = n * d * fit.dtype.itemsize
    block = 8 * n * (components(spec, n) + OVERSAMPLING + 1)
    multiplying = (_BLOCKS_HELD + threads) * block + threads * strip_bytes(d, fit.dtype.itemsize)
    working = max(2 * held, held + multiplying)
    return replace(
        start,
        size=n,
        passes=start.passes + 2,
        bytes_read=start.bytes_read + 2 * rows.dtype.itemsize * n * d,
        peak_bytes=max(start.peak_bytes, resident(working)),
        result_bytes=held + 8 * n * (components(spec, n) + 1),
        checkpoint_bytes=max(start.checkpoint_bytes, (_PRODUCTS + _partial_sums(n // 4096 + 1, threads)) * block),
    )


def _plan_precomputed(rows: Rows, fit: ResolvedFit, threads: int) -> Plan:
    """The cost of a given matrix: held whole in float64, or looked at once and read for each of two products.

    Products beyond those depend on the data and are not counted.
    """
    check_square(rows)
    n, itemsize, spec = fit.n, fit.dtype.itemsize, fit.spec
    cut, reading = parts(rows, spec.block_rows, upper=False), threads * tile_bytes(rows)
    r = components(spec, n)
    passes, tasks, share = 1, len(cut), 1.0
    working = 4 * 8 * n * n + itemsize * n * n + reading
    if fit.matrix_free:
        passes, share = 1 + _PRODUCTS, 1 + _PRODUCTS * upper_share(rows)
        tasks += _PRODUCTS * (2 * len(parts(rows, spec.block_rows, upper=share < passes)) - 1)
        l = fit.start().size  # noqa: E741
        block = 8 * n * (r + 2 * OVERSAMPLING + 1)
        starting = n * l * itemsize + (3 * threads + 6) * 8 * l * l
        working = reading + max(2 * n * l * itemsize, starting, (_BLOCKS_HELD + threads) * block)
    return Plan(
        rows=n,
        columns=rows.shape[1],
        size=n,
        block_rows=cut[0].shape[0],
        tasks=tasks,
        passes=passes,
        bytes_read=round(share * rows.dtype.itemsize * n * n),
        peak_bytes=resident(working),
        result_bytes=8 * n * (r + 2),
    )


def _choosing_bytes(fit: ResolvedFit) -> int:
    """Work space of choosing landmarks or frequencies, beside the sample."""
    m, d, D, rule, itemsize = fit.sample, fit.d, fit.size, fit.rule, fit.dtype.itemsize
    if rule is None:
        return fit.spec.method_value.working_bytes(m, d, D)
    candidates = m if fit.spec.own_landmarks is not None else min(m, rule.most_rows(D))
    return rule.working_bytes(candidates, d, D, itemsize)


def _sketch_width(fit: ResolvedFit) -> int | None:
    """Columns of the block that a randomized solver multiplies; None where D x D is held."""
    return components(fit.spec, fit.size) + OVERSAMPLING if fit.randomized(fit.size) else None


def _pass(
    rows: Rows, D: int, held: int, itemsize: int, threads: int, partial_sums: int, width: int | None
) -> tuple[int, int]:
    """(passes, bytes) of adding up features of a map of `held` bytes, and of the eigenproblem that follows.

    `partial_sums` of them are held at once. `width` is that of a sketch, None where D x D is held.
    """
    streaming = streaming_bytes(rows, D, held, itemsize)
    if width is None:
        # Two sums and what they add up to, and the products of a tile; the eigenproblem holds six squares.
        sums = 8 * packed.entries(D)
        return 1, max(threads * (streaming + 3 * sums + sums // 2) + partial_sums * sums, 6 * 8 * D * D)
    thin = 8 * D * width
    return min(PASSES, ceil(D / width)), threads * (streaming + 3 * thin) + partial_sums * thin + (
        2 * PASSES + 4
    ) * thin


def sample_bytes(rows: Rows, fit: ResolvedFit, threads: int) -> int:
    """The peak of a process that reads the sample of a fit, and takes distances of its pairs."""
    m, d, itemsize = fit.sample, fit.d, fit.dtype.itemsize
    drawn = 3 * m * d * rows.dtype.itemsize + (m * d * itemsize if fit.spec.standardize else 0)
    return resident(drawn + threads * streaming_bytes(rows, d, 0, itemsize))


def largest_size_that_fits(rows: Rows, fit: ResolvedFit, threads: int, limit: int) -> int | None:
    """The largest size, of two digits, whose fit stays within `limit` bytes; None if none does."""
    for size in _two_digit_sizes(fit.size):
        if _bytes_at(size, rows, fit, threads) <= limit:
            return size
    return None


def smallest(rows: Rows, fit: ResolvedFit, threads: int) -> str:
    """What a fit of the smallest size needs, in words."""
    return f"even a size of {_LEAST_SIZE} needs {_bytes_at(_LEAST_SIZE, rows, fit, threads) / 1e6:.0f} MB"


def _bytes_at(size: int, rows: Rows, fit: ResolvedFit, threads: int) -> int:
    """The peak of a fit of this size; of landmarks in place of the exact method."""
    sized = fit.changed(size=size, **({"method": "nystroem"} if fit.spec.exact else {}))
    return plan_resolved(rows, sized, threads).peak_bytes


def _two_digit_sizes(below: int) -> Iterator[int]:
    """10 to 99 times powers of ten, from `below` down to 10, the least that is advised."""
    for power in reversed(range(len(str(below)))):
        yield from (digits * 10**power for digits in reversed(range(10, 100)) if digits * 10**power < below)
