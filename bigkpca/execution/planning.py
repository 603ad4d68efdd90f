"""Plans: passes, tasks, bytes read and peak memory of a run, computed before anything runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from bigkpca.data.blocks import READ_BYTES, fit_block_rows, output_block_rows, power_of_two, tile_rows
from bigkpca.data.dask import DaskRows
from bigkpca.data.devices import AT_ONCE, TALLER, Device
from bigkpca.data.matrix_tiles import PART_BYTES, check_square, parts, read_bytes, upper_share
from bigkpca.data.rows import Rows
from bigkpca.errors import MemoryLimitError
from bigkpca.execution import returns_freed_memory
from bigkpca.execution.passes import strip_bytes
from bigkpca.execution.tasks import group_size
from bigkpca.numerics import moments, solvers
from bigkpca.numerics.display import ShowsSummary, Summary
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.features import has_landmarks, piece_rows
from bigkpca.numerics.growth import JUDGING_ROWS, PAIRED_ROWS
from bigkpca.numerics.kernels import Kernel, Polynomial
from bigkpca.numerics.kernels.base import Leaf
from bigkpca.numerics.linear_pca import MOST_RESTORED, MOST_VALUES, ROWS_PER_COMPONENT
from bigkpca.numerics.model import Model
from bigkpca.numerics.rounding import FAR_ROWS, MEASURED_ROWS
from bigkpca.numerics.solvers import OVERSAMPLING, PASSES
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec, ResolvedFit, resolve_shape

# Resident bytes of a process, measured on Linux with Python 3.11 and 3.13: those of a command that has opened its rows,
# those that modules imported by other code add (for distributed, with a running cluster), and those that an
# eigenproblem imports. Just after installation, more of a library is resident than later: 102 MB instead of 65 for
# pandas with PyArrow.
_STARTED = 100_000_000
_OF_MODULES = {
    "pandas": 105_000_000,
    "sklearn": 60_000_000,
    "dask.array": 20_000_000,
    "distributed": 40_000_000,
    "torch": 210_000_000,  # without code for a GPU
}
_SOLVER_BYTES = 25_000_000
_DEVICE_BYTES = 2**28  # of a library: code, 32 MB of work space for the products of each thread, gaps between arrays
_DECODING_BYTES = 32_000_000  # kept by Zarr's own threads, as observed, for each thread that reads small chunks
_SPARSER = 4  # sparse chunks are planned as a quarter of dense ones, which is 8 to 17 % of values other than zero
MOST_SOLVED = 2048  # features of a model that an evaluation solves again: a second or two
_RETURNED, _KEPT = 1.05, 1.4  # largest resident memory per byte in use: freed memory is returned at once, or not


_UNITS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))  # from this many seconds; seconds per unit


@dataclass(frozen=True, repr=False)
class Plan(ShowsSummary):
    """The cost of a run. Bytes are decimal wherever users see them.

    Attributes
    ----------
    rows, columns : int
        Shape of the data, (n, d).
    size : int
        D, features of a row.
    block_rows, tasks : int
        Rows of one task, and the number of tasks.
    passes : int
        Passes over all rows, the sample not counted.
    bytes_read : int
        By the sample and all passes.
    peak_bytes : int
        Resident memory of one process, including the interpreter.
    result_bytes : int
        Size of the result.
    checkpoint_bytes : int
        Maximum on disk beside the output, during the run.
    expected_seconds : float or None
        If it was requested and is known.
    not_timed : str or None
        Why it is not known.
    threads : int
        Threads of all processes, for which the time applies.
    on_workers : bool
        Whether these threads belong to workers, and not to this process.
    refused : str or None
        Why the allowed memory is not enough.
    device : str or None
        The device that computes the passes, if it is not the processor.
    device_bytes : int
        Device memory that one process needs, in bytes.
    """

    rows: int
    columns: int
    size: int
    block_rows: int
    tasks: int
    passes: int
    bytes_read: int
    peak_bytes: int
    result_bytes: int
    checkpoint_bytes: int = 0
    expected_seconds: float | None = None
    not_timed: str | None = None
    threads: int = 0
    on_workers: bool = False
    refused: str | None = None
    device: str | None = None
    device_bytes: int = 0

    def summary(self) -> Summary:
        """The cost in words."""
        facts = {
            "rows": f"{self.rows:,} × {self.columns:,}",
            "features of a row": f"{self.size:,}",
            "passes": f"{self.passes:,}, {self.tasks:,} tasks of up to {self.block_rows:,} rows",
            "read": _megabytes(self.bytes_read),
            "memory of a process": f"{_megabytes(self.peak_bytes)} at most",
            "result": _megabytes(self.result_bytes),
            "checkpoints": f"{_megabytes(self.checkpoint_bytes)} at most",
            "time": self.expected_time,
        }
        if self.device:
            facts[f"memory of {self.device}"] = f"{_megabytes(self.device_bytes)} at most"
        if self.refused:
            facts["refused"] = self.refused
        return Summary("Plan", facts)

    @property
    def expected_time(self) -> str:
        """The expected time to two digits, and the machine it applies to; or why it is not known."""
        seconds = self.expected_seconds
        if seconds is None:
            return f"not known: {self.not_timed or 'it was not estimated'}"
        _, length, unit = next(each for each in _UNITS if seconds >= each[0])
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        where = f"on this machine, {threads}"
        if self.on_workers:
            where = f"on {threads} of workers, if each is as fast as one on this machine"
        return f"about {float(f'{seconds / length:.2g}'):,g} {unit} {where}"

    def check(self, limit: int | None, remedy: str) -> None:
        """Raise MemoryLimitError if the peak is above the limit."""
        check_peak(self.peak_bytes, limit, remedy)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def check_peak(peak_bytes: int, limit: int | None, remedy: str) -> None:
    """Raise MemoryLimitError, with both numbers and advice, if a peak is above the limit."""
    if limit is not None and peak_bytes > limit:
        raise MemoryLimitError(
            f"this needs {peak_bytes / 1e6:.0f} MB in a process, but {limit / 1e6:.0f} MB are allowed: {remedy}"
        )


def tile_bytes(rows: Rows) -> int:
    """Work space of one thread that reads a matrix in tiles: encoded, decoded, in the dtype of block work; for a Dask
    array a part, and the chunks that it is assembled from."""
    return 3 * read_bytes(rows) + _DECODING_BYTES + (2 * PART_BYTES if isinstance(rows, DaskRows) else 0)


def process_bytes() -> int:
    """Resident bytes of a process that has computed nothing, depending on its imports."""
    return _STARTED + sum(size for name, size in _OF_MODULES.items() if name in sys.modules)


def resident(working: int) -> int:
    """Resident bytes of a process whose arrays take `working` bytes, including what the allocator keeps besides."""
    return process_bytes() + round(working * (_RETURNED if returns_freed_memory() else _KEPT))


@dataclass(frozen=True)
class Work:
    """The properties of the feature map from rows (b, d) to features (b, D) on which memory depends: size D, bytes
    `of_map` of landmarks or frequencies, itemsize of block work. landmarks: whether features are kernels with
    landmarks; without a kernel they are the columns themselves, `scaled` if standardised."""

    size: int
    of_map: int
    itemsize: int
    kernel: Kernel | None = None
    landmarks: bool = False
    scaled: bool = False

    def tile_bytes(self, d: int, rows: int, most: int | None = None) -> int:
        """Bytes of a tile of features, and for a piece of it, of at most so many rows: these shifted and scaled, and
        intermediate values."""
        D = self.size
        if self.kernel is None:
            numbers = d
        elif self.landmarks:  # a copy of the row with two more columns; not all kernels are computed in place
            in_place = isinstance(self.kernel, Leaf) and (self.kernel.radial or self.kernel.towards is not None)
            numbers = 2 * (d + 2) + (0 if in_place else 2 * D)
        else:  # angles of pairs of sines and cosines, or the spectra of a sketch
            numbers = 2 * d + 4 * D if isinstance(self.kernel, Polynomial) else d + D // 2
        piece = min(rows, most or piece_rows(d, self.itemsize))
        return self.itemsize * (rows * D + piece * (numbers + d * self.scaled))


def reading_bytes(rows: Rows, tile: int, block: int) -> int:
    """Memory of one thread that reads a block in tiles of `tile` rows: the previous tile and its rest, or their
    concatenation with the next read, and that read with its decoded chunks."""
    row = rows.shape[1] * rows.dtype.itemsize
    read = min(block, max(1, power_of_two(READ_BYTES // row) // rows.grain) * rows.grain)
    return row * (2 * max(min(tile, block), read) + 2 * read)


def streaming_bytes(rows: Rows, work: Work, block: int) -> int:
    """Work space of one thread that turns a block of rows into features: its reads, a tile, and the transposed
    landmarks, which before the first tile are held twice in float64."""
    d = rows.shape[1]
    tile = min(block, tile_rows(d, work.size, work.itemsize))
    first = 2 * 8 * (work.of_map // work.itemsize)
    return reading_bytes(rows, tile, block) + work.of_map + max(work.tile_bytes(d, tile), first)


def _device_tile(rows: Rows, work: Work) -> int:
    """Rows of a tile on a device."""
    return TALLER * tile_rows(rows.shape[1], work.size, work.itemsize)


def _taller_bytes(rows: Rows, work: Work, block: int, threads: int, device: Device | None) -> int:
    """What the threads of a process need to read the taller tiles of a device, if there is one."""
    return min(threads, AT_ONCE) * reading_bytes(rows, _device_tile(rows, work), block) if device else 0


def _stream_bytes(rows: Rows, work: Work, block: int, width: int | None = 0) -> int:
    """Memory of a device for one thread that turns a block of rows into features: a tile as it was read, shifted and
    scaled, its features with one more result of their size, and what rows are compared with; and sums as in `_pass`,
    unless `width` is 0."""
    (_, d), D, itemsize = rows.shape, work.size, work.itemsize
    tile = min(block, _device_tile(rows, work))
    read = 3 * max(itemsize, rows.dtype.itemsize) * tile * d
    features = work.tile_bytes(d, tile, tile) + itemsize * tile * D
    first = 3 * 8 * (work.of_map // itemsize)  # of the landmarks in float64, before the first tile
    sums = 3 * 8 * D * width if width is not None else 8 * moments.entries(D)
    products = 0 if width is not None else (2 * itemsize + 8) * moments.most_of_strip(D)
    return read + work.of_map + max(features, first) + sums + products


def _on_device(plan: Plan, device: Device | None, shared: int, stream: int, threads: int) -> Plan:
    """The plan with its passes on a device, if there is one, where all threads share some bytes."""
    if device is None:
        return plan
    needed = _DEVICE_BYTES + shared + min(threads, AT_ONCE) * stream
    return replace(plan, device=str(device), device_bytes=needed)


def graph_bytes(rows: Rows, block: int) -> int:
    """Additional memory of a thread for a Dask array: the rows of a block, and two chunks that they are cut from."""
    if not isinstance(rows, DaskRows):
        return 0
    dense = (block + 2 * rows.grid[0]) * rows.shape[1] * rows.dtype.itemsize
    return dense // _SPARSER if rows.sparse else dense


def components(spec: FitSpec, D: int) -> int:
    return min(spec.components, D) if isinstance(spec.components, int) else D


_PRODUCTS = 2  # planned for a given matrix
_BLOCKS_HELD = 18  # of n x (r + 10) float64: basis, images, and work space of four products
_SAVING = 4.25  # times an array that is saved: its copies, encoded and not encoded
_LEAST_SIZE = 10  # that is advised
_AXES_WIDTH = 512 + OVERSAMPLING


def plan_fit(rows: Rows, spec: FitSpec, threads: int, device: Device | None = None) -> Plan:
    """The cost of fitting `spec` to these rows; see `plan_resolved`."""
    return plan_resolved(rows, resolve_shape(spec, *rows.shape, rows.dtype), threads, device)


def plan_resolved(rows: Rows, fit: ResolvedFit, threads: int, device: Device | None = None) -> Plan:
    """The cost of a fit: the sample and its passes; with a tolerance, of the largest size that may be needed. The cost
    that RPCholesky over all rows adds depends on the data and is not counted. Raises SpecError for more rows than
    `exact` can handle."""
    if fit.spec.precomputed:
        return _plan_precomputed(rows, fit, threads)
    if fit.matrix_free:
        return _plan_products(rows, fit, threads, device)
    n, d, D, m, spec = fit.n, fit.d, fit.size, fit.sample, fit.spec
    block, work = min(n, fit_block_rows(n, rows.grain, spec.block_rows)), _work(fit)
    blocks = ceil(n / block)
    partial_sums = _partial_sums(blocks, threads)
    passes, stages = _stages(rows, fit, block, threads, partial_sums)
    reading = threads * graph_bytes(rows, block) + _taller_bytes(rows, work, block, threads, device)
    # The model: its feature map, components (D, r), sums (D, D) if it has them, the linear map of its decoder (r, d),
    # the scores and residuals of its reference (q, r + 1), what the pre-image keeps, and calibration rows (c, d) with
    # their statistics (3, c).
    width, r = _sketch_width(fit), components(spec, D)
    numbers = D * r + r * d + min(m, REFERENCE_ROWS) * (r + 1) + (D * (D + 2) if width is None else 0)
    calibration = spec.calibration_rows * (d * rows.dtype.itemsize + 3 * 8)
    summed = moments.entries(D) if width is None else D * width  # numbers of one partial sum
    plan = Plan(
        rows=n,
        columns=d,
        size=D,
        block_rows=block,
        tasks=max(passes, 1) * (2 * blocks - 1) + min(blocks, m),
        passes=passes,
        bytes_read=rows.dtype.itemsize * d * (passes * n + min(n, m * rows.grain)),
        peak_bytes=resident(max(stages) + reading),
        result_bytes=work.of_map + 8 * numbers + _decoder_bytes(fit) + _drawn_in_pass(rows, fit) // 4 + calibration,
        checkpoint_bytes=(partial_sums + passes) * (8 * summed + _far_bytes(rows)) + _drawn_in_pass(rows, fit)
        if passes
        else 0,
    )
    stream = _stream_bytes(rows, work, block, width)
    if spec.method_value.principal:
        stream = max(stream, _stream_bytes(rows, *_columns(fit, block)))
    return _on_device(plan, None if spec.exact else device, work.of_map, stream, threads)


def worker_bytes(rows: Rows, fit: ResolvedFit, threads: int, device: Device | None = None) -> int:
    """The peak of a worker with this many threads: rows of the sample that it reads, and its share of the passes, with
    as many sums under way as in the process that adds them up. Nothing is chosen, solved or saved there."""
    if fit.spec.precomputed or fit.matrix_free:
        return plan_resolved(rows, fit, threads, device).peak_bytes
    block = min(fit.n, fit_block_rows(fit.n, rows.grain, fit.spec.block_rows))
    blocks, row = ceil(fit.n / block), fit.d * rows.dtype.itemsize
    at_work, partial_sums, work = min(threads, blocks), _partial_sums(blocks, threads), _work(fit)
    stages = [
        (fit.sample + fit.reference_rows + fit.spec.calibration_rows) * row + threads * reading_bytes(rows, 0, block)
    ]
    if not fit.spec.exact:
        passes = _pass(streaming_bytes(rows, work, block), work, at_work, partial_sums, _sketch_width(fit))[1]
        kept = (at_work + partial_sums) * _far_bytes(rows) + _drawn_in_pass(rows, fit)
        stages.append(work.of_map + passes[0] + kept)
    if fit.spec.method_value.principal:
        stages.append(_axes_pass(rows, fit, block, at_work, partial_sums)[1][0])
    if fit.spec.preimage_value.trained:
        stages.append(_training_bytes(rows, fit, block, at_work, partial_sums))
    reading = threads * graph_bytes(rows, block) + _taller_bytes(rows, work, block, threads, device)
    return resident(max(stages) + reading)


def _stages(rows: Rows, fit: ResolvedFit, block: int, threads: int, partial_sums: int) -> tuple[int, list[int]]:
    """Number of passes, and the bytes that arrays take in each stage of a fit, one after the other."""
    d, D, m, itemsize, spec, work = fit.d, fit.size, fit.sample, fit.dtype.itemsize, fit.spec, _work(fit)
    at_work = min(threads, ceil(fit.n / block))  # in a pass
    # From the sample to the end: the feature map, rows that bound what landmarks miss, rows on which rounding is
    # measured, calibration rows and, if the pre-image needs it, the sample.
    reference = fit.reference_rows or min(m, REFERENCE_ROWS)
    kept = (
        fit.drawn
        + reference
        + min(m, PAIRED_ROWS)
        + spec.calibration_rows
        + (spec.preimage_rows(m) if spec.keeps_sample else 0)
    )
    held = work.of_map + kept * d * rows.dtype.itemsize
    solving = held + _SOLVER_BYTES
    passes, stages = int(spec.standardize), [_sampling_bytes(rows, fit, block, threads)]
    if spec.method_value.principal:
        more, working = _axes_pass(rows, fit, block, at_work, partial_sums)
        passes += more
        stages.append(_drawn_bytes(rows, fit) + max(working))
    if spec.exact:
        stages.append(solving + _solving_matrix_bytes(spec.components, D))
    else:
        more, working = _pass(streaming_bytes(rows, work, block), work, at_work, partial_sums, _sketch_width(fit))
        passes += more
        working[0] += (at_work + partial_sums) * _far_bytes(rows) + _drawn_in_pass(rows, fit)
        stages += [held + stage for stage in working]
        if _sketch_width(fit) is None:
            stages.append(solving + _solving_bytes(spec, d, D, fit.drawn, itemsize, threads))
    if spec.preimage_value.trained:
        passes += 1
        stages.append(solving + _training_bytes(rows, fit, block, at_work, partial_sums))
    elif spec.keeps_sample:
        # The rows of the sample, shifted, their scores, and for each thread a tile of 1024 rows.
        used = spec.preimage_rows(m)
        drawn = used * (d * itemsize + 8 * components(spec, D)) + threads * min(1024, m) * (2 * d + 2 * D) * itemsize
        stages.append(solving + drawn + (0 if _sketch_width(fit) else 8 * D * D))
    stages.append(solving + _captured_bytes(min(fit.n, REFERENCE_ROWS), d, components(spec, D)))
    stages.append(solving + round(_SAVING * work.of_map))
    return passes, stages


def _captured_bytes(m: int, d: int, r: int) -> int:
    """What r scores of m rows capture: four float64 copies of a bounded part of the rows and of their scores, which are
    fewer, and linear PCA of it."""
    few = min(m, max(1, MOST_VALUES // d))
    return 8 * (4 * few * (d + min(r, few // ROWS_PER_COMPONENT)) + 4 * min(few, d) ** 2)


def _axes_pass(rows: Rows, fit: ResolvedFit, block: int, threads: int, partial_sums: int) -> tuple[int, list[int]]:
    """`_pass` of the principal axes of d columns: from a sketch if d x d is not held."""
    columns, _, width = _columns(fit, block)
    return _pass(streaming_bytes(rows, columns, block), columns, threads, partial_sums, width)


def _columns(fit: ResolvedFit, block: int) -> tuple[Work, int, int | None]:
    """What the principal axes are computed from, in blocks of so many rows, and the width of its sketch."""
    columns = Work(fit.d, 0, fit.dtype.itemsize, scaled=fit.spec.scales)
    return columns, block, _AXES_WIDTH if fit.d > DENSE_MOST_FEATURES else None


def _work(fit: ResolvedFit) -> Work:
    method, itemsize = fit.spec.method_value, fit.dtype.itemsize
    of_map = method.map_bytes(fit.d, fit.size, itemsize)
    return Work(fit.size, of_map, itemsize, fit.kernel(1.0), method.landmarks, fit.spec.scales)


def _partial_sums(blocks: int, threads: int) -> int:
    """Maximum number of partial sums alive at once, besides that of the block that a thread works on: those of whole
    groups of blocks, the one being added or saved, those of the group of each thread, and those that end out of
    order."""
    size = group_size(blocks, threads)
    whole = (ceil(blocks / size) + 1).bit_length() - 1
    return min(blocks, whole + 1 + threads * (size.bit_length() - 1) + (threads + 1) // 2)


def _drawn_bytes(rows: Rows, fit: ResolvedFit) -> int:
    """The sample with the rows that are read with it, and a copy in units of scaled columns for the median."""
    judging, held_out = min(fit.sample, JUDGING_ROWS), 0 if fit.spec.tol is None else JUDGING_ROWS
    drawn = (fit.sample + fit.reference_rows + judging + held_out) * fit.d * rows.dtype.itemsize
    return drawn + (fit.sample * fit.d * fit.dtype.itemsize if fit.spec.scales else 0)


def _sampling_bytes(rows: Rows, fit: ResolvedFit, block: int, threads: int) -> int:
    """Drawing the sample, held twice while it is assembled; choosing landmarks or frequencies; trying sizes."""
    m, d, D, rule, itemsize = fit.sample, fit.d, fit.size, fit.rule, fit.dtype.itemsize
    drawn, row = _drawn_bytes(rows, fit), d * rows.dtype.itemsize
    reading = 2 * (m + fit.reference_rows + fit.spec.calibration_rows) * row + threads * reading_bytes(rows, 0, block)
    if rule is None:
        working = fit.spec.method_value.working_bytes(m, d, D)
    else:  # its candidates, shifted, and its work space
        candidates = m if fit.spec.own_landmarks is not None else min(m, rule.most_rows(D))
        working = candidates * d * itemsize + rule.working_bytes(candidates, d, D, itemsize)
    # The error of random features is estimated from the features of some rows, which are held twice in float64.
    judging = 0 if fit.spec.method_value.landmarks else PAIRED_ROWS * (2 * 8 + 3 * itemsize // 2) * D
    choosing = drawn + max(working + threads * itemsize * 1024 * D, judging)
    trying = 0 if fit.spec.tol is None else drawn + 8 * (2 * D * D + 2 * JUDGING_ROWS * (D + d))
    return max(reading, choosing, trying)


def _far_bytes(rows: Rows) -> int:
    """The farthest rows beside one sum."""
    return FAR_ROWS * (rows.shape[1] * rows.dtype.itemsize + 8)


def _drawn_in_pass(rows: Rows, fit: ResolvedFit) -> int:
    """Rows drawn in a pass, twice as many as are kept, beside all sums together, and once more when these are added."""
    return 4 * fit.drawn * (rows.shape[1] * rows.dtype.itemsize + 16)


def _solving_bytes(spec: FitSpec, d: int, D: int, u: int, itemsize: int, threads: int) -> int:
    """Eigenproblem and certificate, from the sums of a pass of d columns and D features: the largest of these stages,
    which follow one another.

    rounding: the scatter (D, D), packed and not, W or none; 768 rows and their features in both precisions, for which
    landmarks are held four times in float64; and beside these the factors of the products of the basis. basis: ten
    squares (D, D): scatter, W, its basis, the rounding, and the factors of their products. spectral: six squares; and
    for u drawn rows two squares (u, u), (u, D) and their coordinates, with tiles of 512 rows for each thread. Unless
    only a few components are solved for, LAPACK makes copies.
    """
    square, landmarks = 8 * D * D, spec.method_value.landmarks
    measured = MEASURED_ROWS + (256 if landmarks else 0)
    rows = measured * (8 * 4 * d + (8 + itemsize) * D)
    few = isinstance(spec.components, int) and solvers.are_few(spec.components, D)
    copies = (0 if few else 3) + 2 * (not spec.center)
    if not landmarks:
        return max(5 * square + rows, (3 + copies) * square) + 8 * 2 * d * D
    rounding = 7 * square + rows + 8 * 5 * d * D
    basis = (10 + 2 * (not spec.center)) * square + rows
    tiles = threads * 512 * itemsize * (4 * d + 2 * 512)
    spectral = (6 + copies) * square + itemsize * (u * (2 * u + 2 * D + d) + D * D) + tiles
    return max(rounding, basis, spectral)


def _solving_matrix_bytes(wanted: Any, n: int) -> int:
    """Eigenpairs of a matrix (n, n): the matrix, a centred copy and, if many pairs are requested, these and work
    space."""
    few = isinstance(wanted, int) and solvers.are_few(wanted, n)
    return (5 if few else 8) * 8 * n * n // 2


def _training_bytes(rows: Rows, fit: ResolvedFit, block: int, threads: int, partial_sums: int) -> int:
    """The pass that trains the pre-images: the moments, sums, and their linear system; for each thread a block's."""
    trained: Any = fit.spec.preimage_value
    d, D, itemsize = fit.d, fit.size, fit.dtype.itemsize
    one, tile = trained.training_bytes(tile_rows(d, D, itemsize), d)
    of_moments = 0 if fit.spec.exact else 8 * moments.entries(D)
    return (
        of_moments
        + threads * (streaming_bytes(rows, _work(fit), block) + tile + 3 * one // 2)
        + (partial_sums + 3) * one
    )


def _decoder_bytes(fit: ResolvedFit) -> int:
    """Rows that a pre-image keeps."""
    spec = fit.spec
    if not (spec.reconstructs and spec.preimage_value.needs_rows) or spec.preimage_value.trained:
        return 0
    return spec.preimage_rows(fit.sample) * fit.d * fit.dtype.itemsize


def _plan_products(rows: Rows, fit: ResolvedFit, threads: int, device: Device | None) -> Plan:
    """The cost of exact eigenpairs: an approximate fit, its scores, the rows in memory, and products with K."""
    n, d, spec = fit.n, fit.d, fit.spec
    start = plan_resolved(rows, fit.start(), threads, device)
    held = n * d * fit.dtype.itemsize
    block = 8 * n * (components(spec, n) + OVERSAMPLING + 1)
    multiplying = (_BLOCKS_HELD + threads) * block + threads * strip_bytes(d, fit.dtype.itemsize)
    working = _SOLVER_BYTES + held + max(round(_SAVING * held), multiplying)
    # On a device: the block, for each thread the product, and strips of kernels, also in float64.
    products = block + min(threads, AT_ONCE) * (2 * block + 4 * strip_bytes(d, fit.dtype.itemsize))
    return replace(
        start,
        size=n,
        passes=start.passes + 2,
        bytes_read=start.bytes_read + 2 * rows.dtype.itemsize * n * d,
        peak_bytes=max(start.peak_bytes, resident(working)),
        result_bytes=held + 8 * n * (components(spec, n) + 1) + _decoder_bytes(fit),
        checkpoint_bytes=max(start.checkpoint_bytes, (_PRODUCTS + _partial_sums(n // 4096 + 1, threads)) * block),
        device_bytes=max(start.device_bytes, _DEVICE_BYTES + products) if device else 0,
    )


def _plan_precomputed(rows: Rows, fit: ResolvedFit, threads: int) -> Plan:
    """The cost of a precomputed matrix: held whole in float64, or checked once and read for each of two products."""
    check_square(rows)
    n, itemsize, spec = fit.n, fit.dtype.itemsize, fit.spec
    cut, reading = parts(rows, spec.block_rows, upper=False), threads * tile_bytes(rows)
    r = components(spec, n)
    passes, tasks, share = 1, len(cut), 1.0
    working = max(8 * n * n + itemsize * n * n + reading, _SOLVER_BYTES + _solving_matrix_bytes(spec.components, n))
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


def _sketch_width(fit: ResolvedFit) -> int | None:
    """Columns of the block that a randomized solver multiplies; None if D x D is held."""
    return components(fit.spec, fit.size) + OVERSAMPLING if fit.randomized(fit.size) else None


def _pass(streaming: int, work: Work, threads: int, partial_sums: int, width: int | None) -> tuple[int, list[int]]:
    """(passes, bytes of each stage) of adding up features of all rows, and of an eigenproblem of the sums. Each thread
    holds the sum of its block, packed (D, D) or (D, width) for a sketch, and the product of a tile (b, D)."""
    D = work.size
    if width is None:
        sums = 8 * moments.entries(D)
        # The products of a tile, and those of its far rows in float64.
        product = (work.itemsize + 8) * moments.most_of_strip(D)
        return 1, [threads * (streaming + sums + product) + partial_sums * sums, 6 * 8 * D * D * (work.kernel is None)]
    thin = 8 * D * width
    blocks = 2 * PASSES + 4  # of the Krylov space, and their images
    return min(PASSES, ceil(D / width)), [threads * (streaming + 3 * thin) + (partial_sums + blocks) * thin]


def sample_bytes(rows: Rows, fit: ResolvedFit, threads: int) -> int:
    """The peak of a process that reads the sample of a fit, and computes distances of its pairs."""
    row = fit.d * rows.dtype.itemsize
    drawn = _drawn_bytes(rows, fit) + threads * 2**22
    reading = threads * reading_bytes(rows, 0, fit_block_rows(fit.n, rows.grain))
    return resident(max(drawn, 2 * (fit.sample + fit.reference_rows) * row + reading))


def largest_size_that_fits(
    rows: Rows, fit: ResolvedFit, threads: int, limit: int, device: Device | None = None, of: str = "peak_bytes"
) -> int | None:
    """The largest size, to two digits, whose fit stays within `limit` bytes, or within those on a device if `of` is
    "device_bytes"; even if features come in pairs; None if no size does."""
    step = 2 if fit.spec.method_value.pairs else 1
    for power in reversed(range(len(str(fit.size)))):
        for size in (digits * 10**power for digits in range(99, _LEAST_SIZE - 1, -1)):
            if size >= fit.size or size % step:
                continue
            if getattr(_plan_at(size, rows, fit, threads, device), of) <= limit:
                return size
    return None


def smallest(rows: Rows, fit: ResolvedFit, threads: int, device: Device | None = None, of: str = "peak_bytes") -> str:
    """A description of what a fit of the smallest size needs."""
    needed = getattr(_plan_at(_LEAST_SIZE, rows, fit, threads, device), of)
    return f"even a size of {_LEAST_SIZE} needs {needed / 1e6:.0f} MB"


def _plan_at(size: int, rows: Rows, fit: ResolvedFit, threads: int, device: Device | None) -> Plan:
    """The cost of a fit of this size; with landmarks instead of the exact method."""
    sized = fit.changed(size=size, **({"method": "nystroem"} if fit.spec.exact else {}))
    return plan_resolved(rows, sized, threads, device)


_EXPANSION_SQUARES = 7  # of D x D float64: W, its decomposition, and products with the moments


def plan_transform(
    rows: Rows,
    model: Model,
    block_rows: int | None,
    threads: int,
    *,
    residual: bool = False,
    flag: bool = False,
    dtype: Any = None,
    device: Device | None = None,
) -> Plan:
    """The cost of writing the scores of all rows, their residuals, and flags: one pass, one chunk per block."""
    n, d = rows.shape
    itemsize = model.features.dtype.itemsize
    stored = np.dtype(dtype or model.features.dtype).itemsize
    row_bytes, widest = model.components * stored, max(itemsize, stored)
    block = output_block_rows(n, rows.grain, row_bytes, block_rows)
    D, fixed, work = model.features.size, _model_bytes(model), _work_of_model(model)
    fixed += _taller_bytes(rows, work, block, threads, device)
    if model.features.precomputed:  # rows are read in tiles, and multiplied by components
        reading = tile_bytes(rows) + D * model.components * widest
    else:
        reading = streaming_bytes(rows, work, block)
        if widest > itemsize:  # the features of a tile in the wider precision, and the components
            reading += (tile_rows(d, D, itemsize) + model.components) * D * widest
    one = reading + 4 * block * model.components * widest + graph_bytes(rows, block)
    peak = fixed + threads * one
    if residual or flag:
        one += flag * 2 * 8 * block * model.components  # scores in float64, and their squares
        expansion = 2 * 8 * D * (model.components + 1)
        known = model.decoder is not None and model.decoder.expansion(model.solution) is not None
        solved = model.sums is not None and has_landmarks(model.features) and not known
        preparing = _EXPANSION_SQUARES * 8 * D * D if solved else 0
        # The features of a tile in float64, twice, and values computed from them.
        tile = min(block, tile_rows(d, D, itemsize)) * 8 * (2 * D + 3 * model.components)
        peak = fixed + expansion + max(preparing, threads * (one + tile))
    plan = _one_pass(rows, model, block, peak, n * (row_bytes + residual * stored + 9 * flag))
    # On a device: components, the features of a tile in the precision of scores and, for residuals, in float64.
    wide = 8 if residual or flag else widest
    tile = wide * min(block, _device_tile(rows, work)) * (2 * D + 2 * model.components)
    weights = wide * (D + 1) * (2 if residual or flag else 1) * model.components
    return _on_device(plan, device, work.of_map + weights, _stream_bytes(rows, work, block) + tile + weights, threads)


def _one_pass(rows: Rows, model: Model, block: int, working: int, result_bytes: int) -> Plan:
    """The cost of one pass in blocks of this many rows, whose arrays take `working` bytes."""
    n, d = rows.shape
    return Plan(
        rows=n,
        columns=d,
        size=model.features.size,
        block_rows=block,
        tasks=ceil(n / block),
        passes=1,
        bytes_read=rows.dtype.itemsize * d * n,
        peak_bytes=resident(working),
        result_bytes=result_bytes,
    )


def plan_reconstruct(
    rows: Rows, model: Model, block_rows: int | None, threads: int, *, denoising: bool = False
) -> Plan:
    """The cost of writing pre-images of all scores or, if `denoising`, of all rows: one pass, one chunk per block.
    Iterations depend on the data and are not counted."""
    n, d, D, itemsize = rows.shape[0], model.columns, model.features.size, model.features.dtype.itemsize
    row_bytes = d * itemsize
    block = output_block_rows(n, rows.grain, row_bytes, block_rows)
    assert model.decoder is not None
    decoder = sum(array.nbytes for array in model.decoder.arrays().values())
    height = min(block, tile_rows(d, D, 8))
    reading = streaming_bytes(rows, _work_of_model(model), block) if denoising else reading_bytes(rows, height, block)
    # The pre-images of a block are kept in float64 until its last tile.
    one = reading + model.decoder.working_bytes(model.features, height) + 8 * block * d
    learning = model.decoder.learning_bytes(model.features)
    working = _model_bytes(model) + decoder + learning + threads * (one + graph_bytes(rows, block))
    return _one_pass(rows, model, block, working, n * row_bytes)


def plan_evaluate(
    rows: Rows, model: Model, sample: int, pooled: int, threads: int, device: Device | None = None
) -> Plan:
    """The cost of an evaluation with `sample` exact rows, chosen from `pooled` rows that are read, and one pass."""
    n, d = rows.shape
    D, r, itemsize = model.features.size, model.components, model.features.dtype.itemsize
    fixed = _model_bytes(model)
    pool = 2 * pooled * d * rows.dtype.itemsize
    factor = 8 * D * D if has_landmarks(model.features) else 0
    probes = 8 * sample * (2 * D + d + r)
    height = tile_rows(d, D, itemsize)
    block = min(n, fit_block_rows(n, rows.grain, model.block_rows))
    # For each thread: landmarks, probes and their coordinates in the dtype of block work; features of a tile a second
    # time for its scores, and its kernels and errors.
    work = _work_of_model(model)
    one = streaming_bytes(rows, work, block) + itemsize * (sample * (D + 2 * d) + height * (D + 3 * sample))
    one += 3 * 8 * r * (sample + D + r)
    learning = model.decoder.learning_bytes(model.features) if model.decoder else 0
    choosing = pool + 5 * factor + tile_rows(d, D, 8) * 8 * (3 * D + 2 * d) + learning
    judging = _judging_bytes(rows, model, pooled, threads)
    passing = threads * one + _taller_bytes(rows, work, block, threads, device)
    working = fixed + max(choosing, pool + factor + probes + max(passing, judging))
    plan = _one_pass(rows, model, block, working, 8 * 5 * r)
    sampled = rows.dtype.itemsize * d * min(n, pooled * rows.grain)
    plan = replace(plan, tasks=2 * plan.tasks - 1, bytes_read=plan.bytes_read + sampled)
    tile = min(block, _device_tile(rows, work))
    stream = _stream_bytes(rows, work, block) + 8 * (sample * (D + 2 * d + 3 * r) + tile * (D + 3 * sample))
    return _on_device(plan, device, work.of_map + 8 * D * r + probes, stream, threads)


def _judging_bytes(rows: Rows, model: Model, m: int, threads: int) -> int:
    """What scores of m rows capture and pre-images lose, from the model of the other rows; one step after the other."""
    features, spec, d, decoder = model.features, FitSpec.of(model), rows.shape[1], model.decoder
    restoring, own = 0, 2 * _map_bytes(model) + model.solution.components.nbytes
    if decoder is not None:
        few, kept = min(m, MOST_RESTORED), sum(array.nbytes for array in decoder.arrays().values())
        decoding = decoder.working_bytes(features, few) + 4 * 8 * few * d
        restoring = kept + max(decoding, decoder.learning_bytes(features))
    if features.size > MOST_SOLVED:
        return _captured_bytes(m, d, model.components) + restoring
    if spec.exact or spec.refine:
        solving = _solving_matrix_bytes(model.components, features.size)
    else:
        solving = _solving_bytes(spec, d, features.size, 0, features.dtype.itemsize, threads)
        own += 8 * moments.entries(features.size)
    return _captured_bytes(m, d, model.components) + max(solving, own + restoring)


def _work_of_model(model: Model) -> Work:
    features, of_map = model.features, _map_bytes(model)
    landmarks, scaled = has_landmarks(features), features.scale is not None
    return Work(features.size, of_map, features.dtype.itemsize, features.kernel, landmarks, scaled)


def _map_bytes(model: Model) -> int:
    """Bytes of the arrays of the feature map."""
    return sum(array.nbytes for array in model.features.arrays().values())


def _model_bytes(model: Model) -> int:
    """Bytes of a model and of a copy of its feature map, which every process holds."""
    calibration = 0 if model.calibration is None else model.calibration.rows.nbytes
    scatter = 8 * model.features.size**2 if model.sums else 0
    return 2 * _map_bytes(model) + model.solution.components.nbytes + calibration + scatter
