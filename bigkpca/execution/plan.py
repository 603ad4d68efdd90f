"""Plans: passes, bytes read and peak memory of a run, computed before it reads anything.

    peak = process + 32 MB + a * max(sample, kept + threads * tile + sums, kept + solution)

Each term is an upper bound, which `docs/scaling.md` derives: a plan is 1 to 2 times what is used.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from bigkpca.data.blocks import READ_BYTES, fit_block_rows, output_block_rows, tile_rows
from bigkpca.data.dask import DaskRows
from bigkpca.data.devices import TALLER, Device
from bigkpca.data.rows import Rows
from bigkpca.errors import MemoryLimitError, SpecError
from bigkpca.execution import returns_freed_memory
from bigkpca.execution.passes import strip_bytes
from bigkpca.execution.tasks import group_size
from bigkpca.numerics import moments, subspace
from bigkpca.numerics.display import ShowsSummary, Summary
from bigkpca.numerics.features import has_landmarks, piece_rows
from bigkpca.numerics.kernels import Kernel, Polynomial
from bigkpca.numerics.kernels.base import SimpleKernel
from bigkpca.numerics.model import Model
from bigkpca.numerics.solvers import OVERSAMPLING, PASSES
from bigkpca.spec import DENSE_MOST_FEATURES, FitSpec, ResolvedFit, resolve_shape

if TYPE_CHECKING:
    from bigkpca.execution.engine import Engine

_LATER = 32_000_000  # of code and pools of threads that come after the plan
_ROUNDED_TO = 64_000_000
_OF_WORKER = 160_000_000  # of a worker that has imported this package, measured: 120 MB
_RETURNED, _KEPT = 1.05, 1.4  # resident bytes per byte of arrays: freed memory is returned at once, or not
_SQUARES = 10  # D x D in float64 of an eigenproblem and its certificate; see `_solution`
_JUDGED = 2048  # rows of each set that is drawn: by which a fit is judged, and on which choices are tried
_MATRIX_BLOCKS = 18  # n x (r + 10) in float64 of products with a matrix: basis, images, and work space


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
        Rows of one task, and the number of tasks of all passes.
    passes : int
        Passes over all rows, the sample not counted.
    bytes_read : int
        By the sample and all passes.
    array_bytes : int
        Arrays of one process at its peak.
    peak_bytes : int
        Resident memory of this process at its peak: with arrays, what it holds already.
    result_bytes : int
        Size of the result.
    refused : str
        Why the allowed memory is not enough; empty if it is.
    """

    rows: int
    columns: int
    size: int
    block_rows: int
    tasks: int
    passes: int
    bytes_read: int
    array_bytes: int
    peak_bytes: int
    result_bytes: int
    refused: str = ""

    def summary(self) -> Summary:
        """The cost in words."""
        facts = {
            "rows": f"{self.rows:,} × {self.columns:,}",
            "features of a row": f"{self.size:,}",
            "passes": f"{self.passes:,}, {self.tasks:,} tasks of up to {self.block_rows:,} rows",
            "read": _megabytes(self.bytes_read),
            "memory of a process": f"{_megabytes(self.peak_bytes)} at most",
            "result": _megabytes(self.result_bytes),
        }
        return Summary("Plan", facts | ({"refused": self.refused} if self.refused else {}))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def over_limit(peak_bytes: int, limit: int, remedy: str) -> MemoryLimitError:
    """The error for a peak above the limit, with both numbers and advice."""
    return MemoryLimitError(
        f"this needs {peak_bytes / 1e6:.0f} MB in a process, but {limit / 1e6:.0f} MB are allowed: {remedy}"
    )


def check_arrays(array_bytes: Callable[[int], int], engine: Engine, limit: int | None, remedy: str) -> None:
    """Raise MemoryLimitError if arrays of this size, for numbers of threads, are too large here or for a worker."""
    peak = in_process(array_bytes(engine.threads))
    if limit is not None and peak > limit:
        raise over_limit(peak, limit, remedy)
    engine.check_memory(lambda threads: in_worker(array_bytes(threads)))


def check_plans(plan: Callable[[int], Plan], engine: Engine, limit: int | None, remedy: str) -> Plan:
    """The plan of this process, from plans for numbers of threads. Raises the errors of `check_arrays`."""
    check_arrays(lambda threads: plan(threads).array_bytes, engine, limit, remedy)
    return plan(engine.threads)


def process_bytes() -> int:
    """Resident bytes of this process (on macOS at most until now), rounded up to whole 64 MB: plans, and a size that a
    limit chooses, then seldom change from run to run."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            found = int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return ceil(found / _ROUNDED_TO) * _ROUNDED_TO


def in_process(array_bytes: int) -> int:
    """The peak of this process with arrays of this size, including what the allocator keeps besides."""
    return process_bytes() + _LATER + _allocated(array_bytes)


def in_worker(array_bytes: int) -> int:
    """The peak of a Dask worker with arrays of this size."""
    return _OF_WORKER + _allocated(array_bytes)


def _allocated(array_bytes: int) -> int:
    return round(array_bytes * (_RETURNED if returns_freed_memory() else _KEPT))


class _Map(NamedTuple):
    """D features, bytes of landmarks or frequencies, itemsize, and values between rows and a feature."""

    D: int
    nbytes: int
    itemsize: int
    between: int = 0


def _map_of(model: Model) -> _Map:
    features = model.features
    nbytes = sum(array.nbytes for array in features.arrays().values())
    between = _between(features.kernel, landmarks=has_landmarks(features))
    return _Map(features.size, nbytes, features.dtype.itemsize, between)


def _between(kernel: Kernel, *, landmarks: bool) -> int:
    if not landmarks:
        return 4 if isinstance(kernel, Polynomial) else 1  # spectra of a sketch, or angles
    in_place = isinstance(kernel, SimpleKernel) and (kernel.radial or kernel.towards is not None)
    return 0 if in_place else 2


def _row(rows: Rows) -> int:
    return rows.shape[1] * rows.dtype.itemsize


def _reading(rows: Rows, tile: int, block: int) -> int:
    """A thread that reads a block in tiles: the last tile and its rest, or their concatenation with what is read, and
    that with its decoded chunks. For a Dask array also the block, and two chunks that it is cut from, a quarter if they
    are sparse, with 8 to 17 % of values other than zero."""
    read = min(block, max(READ_BYTES // _row(rows) // rows.grain, 1) * rows.grain)
    from_graph = (block + 2 * rows.chunk) // (4 if rows.sparse else 1) if isinstance(rows, DaskRows) else 0
    return _row(rows) * (2 * max(min(tile, block), read) + 2 * read + from_graph)


def _tile(rows: Rows, features: _Map, block: int, device: Device | None = None) -> int:
    """A thread that turns a block into features: what it reads, the landmarks, first in float64, and a tile of
    features, with shifted rows and values between for a piece of it."""
    d, (D, of_map, itemsize, between) = rows.shape[1], features
    tile = min(block, tile_rows(d, D, itemsize))
    working = itemsize * (tile * D + min(tile, piece_rows(d, itemsize)) * (3 * d + 4 + between * D))
    read = _reading(rows, tile * (1 if device is None else TALLER), block)
    return read + of_map + max(working, 16 * of_map // itemsize)


def _sums(features: _Map, blocks: int, threads: int, width: int | None) -> int:
    """The sums of a pass, D x D or for a sketch D x width: that of each thread, with the products of a tile, and those
    that wait for others in the tree."""
    D, at_work, group = features.D, min(threads, blocks), group_size(blocks, threads)
    waiting = (ceil(blocks / group) + 1).bit_length() + threads * (group.bit_length() - 1) + (threads + 1) // 2
    if width is None:
        products = (features.itemsize + 8) * moments.most_of_strip(D)
        return 8 * moments.entries(D) * (at_work + min(blocks, waiting)) + at_work * products
    return 8 * D * width * (3 * at_work + min(blocks, waiting) + 2 * PASSES + 4)  # with the Krylov space and its images


def _planned(
    rows: Rows, size: int, block: int, array_bytes: int, result_bytes: int, passes: int = 1, read: int | None = None
) -> Plan:
    """The cost of passes in blocks of this many rows, with arrays of this size; by default, each row is read once."""
    n, d = rows.shape
    return Plan(
        rows=n,
        columns=d,
        size=size,
        block_rows=block,
        tasks=passes * ceil(n / block),
        passes=passes,
        bytes_read=n * _row(rows) if read is None else read,
        array_bytes=array_bytes,
        peak_bytes=in_process(array_bytes),
        result_bytes=result_bytes,
    )


class _Fit:
    """A fit of rows by some threads, and the numbers on which its cost depends."""

    def __init__(self, rows: Rows, fit: ResolvedFit, threads: int, device: Device | None = None) -> None:
        spec, method = fit.spec, fit.spec.method_value
        self.rows, self.fit, self.spec, self.threads, self.device = rows, fit, spec, threads, device
        self.n, self.d, self.D, self.itemsize, self.row = fit.n, fit.d, fit.size, fit.dtype.itemsize, _row(rows)
        self.r = min(spec.n_components, fit.size) if isinstance(spec.n_components, int) else fit.size
        self.judged = min(fit.n, _JUDGED)
        self.block = min(fit.n, fit_block_rows(fit.n, rows.grain, spec.block_rows))
        between = _between(fit.kernel(1.0), landmarks=method.landmarks)
        self.features = _Map(self.D, method.map_bytes(self.d, self.D, self.itemsize), self.itemsize, between)
        # Columns of the block that a randomized solver multiplies; None if D x D is held.
        self.width = self.r + OVERSAMPLING if fit.randomized(self.D) else None
        for_preimages = spec.preimage_rows(fit.sample)
        self.kept = (for_preimages if spec.keeps_sample else 0) + spec.calibration_rows  # rows that the model keeps
        # The work space in which the decoder is made from sampled rows.
        self.making = spec.preimage_value.making_bytes(for_preimages, self.d, self.r) if spec.reconstructs else 0
        self.drawn = (fit.sample + self.judged + spec.calibration_rows) * self.row

    def reading(self) -> int:
        """The sample while it is read, and distances of its pairs."""
        scaled = self.fit.sample * self.d * self.itemsize * self.spec.scales
        return 2 * self.drawn + scaled + self.threads * _reading(self.rows, 0, self.block)

    def choosing(self) -> int:
        """The sample and the sets that are drawn with it, with what chooses from them."""
        m, d, D, fit, itemsize = self.fit.sample, self.d, self.D, self.fit, self.itemsize
        if fit.rule is None:
            found = self.spec.method_value.working_bytes(m, d, D) + 24 * 1024 * D
        else:
            found = fit.rule.working_bytes(m, d, D, itemsize)
            if fit.most_axes:
                found = max(found, subspace.working_bytes(m, d, fit.most_axes, itemsize))
        return self.drawn + found + m * d * itemsize * (1 + self.spec.scales) + self.threads * itemsize * 1024 * D

    def passes(self) -> tuple[int, int]:
        """The number of passes, and what the largest needs: tiles of the threads, and sums."""
        d, row, blocks, sample = self.d, self.row, ceil(self.n / self.block), self.fit.sample * self.row
        axes = _Map(d, 0, self.itemsize)
        drawn = 4 * min(self.n, self.fit.most_drawn) * (row + 16)
        maps = [] if self.spec.exact else [(self.features, self.width, drawn)]
        if self.spec.method_value.principal:  # axes of the columns, beside the sample and with their eigenproblem
            width = 512 + OVERSAMPLING if d > DENSE_MOST_FEATURES else None
            maps.append((axes, width, sample + (48 * d * d if width is None else 0)))
        passes = int(self.spec.standardize) + sum(1 if w is None else min(PASSES, ceil(m.D / w)) for m, w, _ in maps)
        if self.fit.most_axes:
            passes += 1
            maps.append((axes, subspace.LEADING, sample))
        largest = 0
        for features, width, beside in maps:
            tiles = self.threads * _tile(self.rows, features, self.block, self.device)
            largest = max(largest, beside + tiles + _sums(features, blocks, self.threads, width))
        return passes, largest

    def solution(self) -> int:
        """The eigenproblem and what judges it: squares of the features, rows that are drawn and their kernels and
        features, the landmarks in float64, and a tile of each thread."""
        d, D, judged, kept, itemsize = self.d, self.D, self.judged, self.kept, self.itemsize
        found = 8 * judged * (2 * d + judged) + kept * (d * itemsize + 8 * self.r)
        found += self.threads * itemsize * 1024 * (2 * d + 512 + 2 * D * bool(kept)) + self.making
        if self.spec.exact:
            return found + 5 * self.features.nbytes + _matrix(self.spec.n_components, D)
        landmarks = self.spec.method_value.landmarks
        found += 8 * (5 if landmarks else 2) * d * D
        if self.width is None:
            found += 8 * D * (judged + D * ((_SQUARES if landmarks else 6) + 2 * (not self.spec.center)))
        return found


def _matrix(wanted: Any, n: int) -> int:
    """Eigenpairs of a matrix (n, n): the matrix, a centred copy and, if many are wanted, these and work space."""
    return (20 if isinstance(wanted, int) and wanted * 40 <= n else 32) * n * n


def plan_fit(rows: Rows, spec: FitSpec, threads: int, device: Device | None = None) -> Plan:
    """The cost of fitting `spec` to these rows; see `plan_resolved`."""
    return plan_resolved(rows, resolve_shape(spec, *rows.shape, rows.dtype), threads, device)


def plan_resolved(rows: Rows, fit: ResolvedFit, threads: int, device: Device | None = None) -> Plan:
    """The cost of a fit; with a tolerance, of the largest size that may be needed. Raises SpecError for a precomputed
    matrix that is not square."""
    of, n, d, D = _Fit(rows, fit, threads, device), fit.n, fit.d, fit.size
    r, row, kept = of.r, of.row, of.kept
    if fit.spec.precomputed:
        if n != d:
            raise SpecError(
                f"{rows.where} has {n} rows and {d} columns: kernel='precomputed' needs the square matrix of kernels "
                "between all rows; if the rows are vectors, choose another kernel"
            )
        reading = (8 + of.itemsize) * n * n + threads * _reading(rows, of.block, of.block)  # held in float64
        array_bytes = max(reading, _matrix(fit.spec.n_components, n))
        return _planned(rows, n, of.block, array_bytes, 8 * n * (r + 2))
    if fit.matrix_free:  # an approximate fit, the rows in memory, and two products with their Gram matrix
        start = plan_resolved(rows, fit.start(), threads, device)
        held, one, strip = n * d * of.itemsize, 8 * n * (r + OVERSAMPLING + 1), strip_bytes(d, of.itemsize)
        working = max(4 * held + of.making, (_MATRIX_BLOCKS + threads) * one + threads * strip)
        array_bytes = max(start.array_bytes, held + working)
        result_bytes, read = held + 8 * n * (r + 1) + kept * row, start.bytes_read + 2 * n * row
        return _planned(rows, n, start.block_rows, array_bytes, result_bytes, start.passes + 2, read)
    passes, passing = of.passes()
    beside = of.features.nbytes + (2 * of.judged + kept) * row
    array_bytes = max(of.reading(), of.choosing(), beside + max(passing, of.solution()))
    of_sums = 8 * D * (D + 2) if of.width is None else 0
    result_bytes = of.features.nbytes + of_sums + 8 * (D * r + r * d + kept * (r + 1)) + (of.judged + kept) * row
    read = row * (passes * n + min(n, fit.sample * rows.grain))
    return _planned(rows, D, of.block, array_bytes, result_bytes, passes, read)


def worker_bytes(rows: Rows, fit: ResolvedFit, threads: int, device: Device | None = None) -> int:
    """The peak of a worker with this many threads: rows of the sample that it reads, and its share of the passes, with
    as many sums under way as in the process that adds them up. Nothing is chosen, solved or saved there."""
    if fit.spec.precomputed or fit.matrix_free:
        return in_worker(plan_resolved(rows, fit, threads, device).array_bytes)
    of = _Fit(rows, fit, threads, device)
    return in_worker(max(of.reading(), of.features.nbytes + of.passes()[1]))


def sample_bytes(rows: Rows, fit: ResolvedFit, threads: int) -> int:
    """Arrays of a process that reads the sample of a fit, and computes distances of its pairs."""
    return _Fit(rows, fit, threads).reading()


def plan_transform(
    rows: Rows,
    model: Model,
    block_rows: int | None,
    threads: int,
    *,
    judged: bool = False,
    device: Device | None = None,
) -> Plan:
    """The cost of writing the scores of all rows and, if they are `judged`, their residuals and flags."""
    features, r = _map_of(model), model.components
    D, stored, wide = features.D, features.itemsize, 8 if judged else features.itemsize
    block = output_block_rows(rows.shape[0], rows.grain, r * stored, block_rows)
    tile = min(block, tile_rows(rows.shape[1], D, stored))
    one = _tile(rows, features, block, device)
    one += wide * (4 * block * r + D * r) + (wide > stored) * wide * tile * (D + r)
    shared = _model_bytes(model)
    if judged:  # squares of scores, the features of a tile again, and a decomposition of W
        one += 8 * (2 * block * r + tile * (D + 3 * r))
        known = model.decoder is not None and model.decoder.expansion(model.solution) is not None
        shared += 16 * D * (r + 1) + (0 if known or not has_landmarks(model.features) else 56 * D * D)
    result_bytes = rows.shape[0] * (r * stored + (stored + 9) * judged)
    return _planned(rows, D, block, shared + threads * one, result_bytes)


def plan_reconstruct(rows: Rows, model: Model, block_rows: int | None, threads: int) -> Plan:
    """The cost of writing pre-images of scores, or of rows that are denoised, without iterations."""
    n, d, features = rows.shape[0], model.columns, _map_of(model)
    block = output_block_rows(n, rows.grain, d * features.itemsize, block_rows)
    assert model.decoder is not None
    # The pre-images of a block are kept in float64 until its last tile.
    height = min(block, tile_rows(d, features.D, 8))
    one = _tile(rows, features, block) + model.decoder.working_bytes(model.features, height) + 8 * block * d
    return _planned(rows, features.D, block, _model_bytes(model) + threads * one, n * d * features.itemsize)


def evaluation_bytes(rows: Rows, model: Model, sample: int) -> int:
    """Arrays of an evaluation with `sample` exact rows."""
    D = model.features.size
    kernels = 8 * (4 * sample**2 + 2 * sample * (D + model.columns)) + 32 * D * D
    return _model_bytes(model) + 2 * sample * _row(rows) + kernels


def _model_bytes(model: Model) -> int:
    """A model and a copy of its feature map, which every process holds."""
    arrays = [model.solution.components, *([] if model.decoder is None else model.decoder.arrays().values())]
    if model.calibration is not None:
        arrays.append(model.calibration.rows)
    scatter = 8 * model.features.size**2 if model.sums else 0
    return 2 * _map_of(model).nbytes + sum(array.nbytes for array in arrays) + scatter
