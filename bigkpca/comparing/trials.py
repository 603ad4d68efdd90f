"""The fits of a comparison: the grid, the reference, and each fit with its cost and errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from bigkpca.data.blocks import sample_rows, tile_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, MemoryLimitError, SpecError, unknown_name
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_rows
from bigkpca.execution.plan import check_peak, plan_fit, plan_resolved
from bigkpca.execution.progress import Progress
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.memory_limits import largest_size_that_fits
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics import landmarks, measures, methods
from bigkpca.numerics.display import counted
from bigkpca.numerics.linear_pca import restored_by_pca, share_lost, some_held_out
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.spec import EXACT_MOST_ROWS, VARIED, FitSpec, resolve


def timed_fit(rows: Rows, spec: FitSpec, engine: Engine) -> tuple[Model, float]:
    """A fit without its progress and warnings, and its seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # errors are measured here anyway
        started = perf_counter()
        model = fit_rows(rows, spec, replace(engine, progress=Progress()))
    return model, perf_counter() - started


def planned_mb(rows: Rows, spec: FitSpec, engine: Engine) -> float:
    """Memory that the arrays of a fit need at most, in MB."""
    return plan_fit(rows, spec, engine.threads).array_bytes / 1e6


COMPARED_ROWS = 4096
"""Rows at which scores are compared, fewer if rows are very wide; sampling changes an error by about 1 %."""

_MAX_WORK = 4e12
"""n² d up to which the reference is exact by products with the Gram matrix: about a minute on two cores."""

_MAX_LANDMARKS = 4000


@dataclass(frozen=True)
class ReferenceSolution:
    """Eigenvalues (r,) and sampled rows (m, d) with their scores (m, r), which errors are measured against.

    `pca_error` is the error of linear PCA with as many components as the reference, as `TrialResult.preimage_error`.
    `description` states how they were computed and how accurate they are. `sigma` is the median length, None if the
    spec sets one. `seconds` and `planned_mb` are the cost of the exact fit, None if the reference is sampled.
    """

    eigenvalues: Array
    scores: Array
    rows: Array
    description: str
    sigma: float | None
    seconds: float | None
    planned_mb: float | None
    pca_error: float | None = None


def why_not_exact(rows: Rows, spec: FitSpec, limit: int | None, threads: int) -> str | None:
    """The reason why an exact fit is not feasible; None if it is feasible."""
    (n, d), exact = rows.shape, spec.model_copy(update={"method": "exact"})
    if n > EXACT_MOST_ROWS and n * n * d > _MAX_WORK:
        return f"products with the Gram matrix of {n:,} rows would take hours"
    needed = plan_fit(rows, exact, threads).peak_bytes
    if limit is not None and needed > limit:
        return f"an exact fit needs {needed / 1e6:.0f} MB, {limit / 1e6:.0f} MB are allowed"
    return None


def compared_row_numbers(rows: Rows) -> Array:
    """Numbers (m,) of the rows at which scores are compared, the same for all fits."""
    n, d = rows.shape
    m = min(COMPARED_ROWS, sample_rows(n, d, 0))
    return np.sort(random_stream(0, PROBES).choice(n, m, replace=False))


def exact_reference(rows: Rows, spec: FitSpec, engine: Engine) -> ReferenceSolution:
    """Fit exact kernel PCA, and measure its time."""
    sigma = _median_sigma(rows, spec, engine)
    exact = with_sigma(spec, sigma).model_copy(update={"method": "exact"})
    model, seconds = timed_fit(rows, exact, engine)
    certificate, how = model.certificate, "the whole Gram matrix"
    if certificate.of_products:
        how = f"by products, residuals at most {certificate.residuals.max():.1g}"
    numbers, eigenvalues = compared_row_numbers(rows), model.solution.eigenvalues
    # Scores of fitted rows are sqrt(lambda) u, components u / sqrt(lambda): no kernels need to be computed.
    scores, X = model.solution.components[numbers] * eigenvalues, read_rows(rows, numbers, Engine())
    description = f"exact kernel PCA of {rows.shape[0]:,} rows ({how})"
    pca, planned = _pca_error(model, X, len(eigenvalues)), planned_mb(rows, exact, engine)
    return ReferenceSolution(eigenvalues, scores, X, description, sigma, seconds, planned, pca)


def sampled_size(rows: Rows, spec: FitSpec, largest: int, limit: int | None, threads: int) -> int:
    """Size of a sampled reference: twice the largest size in the grid, or the largest that memory allows."""
    size = min(2 * largest, _MAX_LANDMARKS, rows.shape[0])
    if limit is None or plan_fit(rows, spec.at(size), threads).peak_bytes <= limit:
        return size
    fit = resolve(spec, rows)
    return largest_size_that_fits(fit, limit, lambda fit: plan_resolved(rows, fit, threads).peak_bytes) or largest


def sampled_reference(rows: Rows, spec: FitSpec, size: int, engine: Engine) -> ReferenceSolution:
    """Fit a Nyström model of this size, with eigenvalues corrected for their bias."""
    sigma = _median_sigma(rows, spec, engine)
    model, _ = timed_fit(rows, with_sigma(spec, sigma).at(size), engine)
    estimate = model.certificate.estimate
    eigenvalues = np.where(np.isnan(estimate), model.solution.eigenvalues, estimate)
    X = read_rows(rows, compared_row_numbers(rows), Engine())
    description = (
        f"a sampled reference, since an exact one is too large: Nyström with {size:,} landmarks, with the estimated "
        f"eigenvalues of its certificate; trust in its components: {counted(model.certificate.trust)}"
    )
    scores, pca = scores_in_memory(model, X), _pca_error(model, X, len(eigenvalues))
    return ReferenceSolution(eigenvalues, scores, X, description, sigma, None, None, pca)


def with_sigma(spec: FitSpec, sigma: float | None) -> FitSpec:
    """The spec with this sigma, or unchanged if None."""
    return spec if sigma is None else spec.model_copy(update={"sigma": sigma})


def _median_sigma(rows: Rows, spec: FitSpec, engine: Engine) -> float | None:
    """The kernel length, if it comes from the median length; otherwise None."""
    if not spec.needs_median:
        return None
    lengths = sample_lengths(rows, resolve(spec, rows), replace(engine, progress=Progress()))
    return spec.length(lengths["median"].sigma)


def scores_in_memory(model: Model, X: Array) -> Array:
    """Scores (m, r), float64, of rows X (m, d) in memory."""
    step = min(len(X), tile_rows(model.columns, model.features.size, model.features.dtype.itemsize))
    tiles = (X[start : start + step] for start in range(0, len(X), step))
    return np.concatenate(list(model.project(tiles, step))).astype(np.float64)


_SHARES = (8, 4, 2, 1)


@dataclass(frozen=True)
class MethodVariant:
    """A method, with its landmark rule if there is a choice of rules."""

    method: str
    landmarks: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.landmarks}".rstrip()

    def spec(self, base: FitSpec, size: int, seed: int) -> FitSpec:
        """The spec of a fit of this variant. Raises SpecError if kernel and method conflict."""
        rule = {"landmarks": self.landmarks} if self.landmarks else {}
        values: dict[str, Any] = {key: getattr(base, key) for key in FitSpec.model_fields if key not in VARIED}
        return FitSpec.checked(**values, method=self.method, size=self.even(size), random_state=seed, **rule)

    def even(self, size: int) -> int:
        """The size, rounded up to an even number if features come in pairs."""
        return size + size % 2 if methods.named(self.method).pairs else size


@dataclass(frozen=True)
class Candidate:
    variant: MethodVariant
    size: int
    seed: int


def all_variants() -> tuple[MethodVariant, ...]:
    """All variants: Nyström with each landmark rule, and the other approximate methods."""
    approximate = [name for name in methods.METHODS if name not in (methods.Nystroem.name, methods.Exact.name)]
    ruled = [MethodVariant(methods.Nystroem.name, rule) for rule in landmarks.RULES]
    return (*ruled, *map(MethodVariant, approximate))


def parse_variants(names: Sequence[str]) -> tuple[MethodVariant, ...]:
    """The variants named "rff", "nystroem" (with all landmark rules), "nystroem/kmeans" ... Raises SpecError."""
    found: dict[MethodVariant, None] = {}
    for name in names:
        method, slash, rule = name.strip().partition("/")
        chosen = [
            variant
            for variant in all_variants()
            if variant.method == methods.named(method).name and rule in ("", variant.landmarks)
        ]
        if not chosen or (slash and not rule):
            raise unknown_name(
                "method to compare",
                name,
                [f"{variant.method}/{variant.landmarks}".rstrip("/") for variant in all_variants()],
            )
        found |= dict.fromkeys(chosen)
    return tuple(found)


def default_sizes(spec: FitSpec, rows: Rows) -> tuple[int, ...]:
    """An eighth, a quarter, half and all of the default size of a fit, at most the number of rows."""
    most = resolve(FitSpec(n_components=spec.n_components), rows).size
    return tuple(sorted({max(most // share, 2) for share in _SHARES}))


def candidates(chosen: Sequence[MethodVariant], sizes: Sequence[int], seeds: int, n: int) -> Iterator[Candidate]:
    """All fits of the grid, small sizes first, so that a comparison stopped early has results."""
    grid: dict[Candidate, None] = {}
    for size in sorted(sizes):
        for seed in range(seeds):
            for variant in chosen:
                fits = min(size, n) if methods.named(variant.method).landmarks else variant.even(size)
                grid[Candidate(variant, fits, seed)] = None
    return iter(grid)


def feasible_fits(
    grid: Iterator[Candidate],
    rows: Rows,
    spec: FitSpec,
    limit: int | None,
    asked: Sequence[str] | None,
    engine: Engine,
) -> list[tuple[Candidate, FitSpec]]:
    """The candidates that suit the kernel and memory limit, with their specs; notes the others, each once.

    Raises SpecError if a requested method does not suit the kernel, or if no candidate is left.
    """
    found: list[tuple[Candidate, FitSpec]] = []
    noted: set[tuple[MethodVariant, int]] = set()
    for candidate in grid:
        try:
            own = candidate.variant.spec(spec, candidate.size, candidate.seed)
            needed = plan_fit(rows, own, engine.threads).peak_bytes
            check_peak(needed, limit, f"{candidate.variant} is left out at {candidate.size:,}")
            found.append((candidate, own))
            continue
        except MemoryLimitError as error:
            key, message = (candidate.variant, candidate.size), str(error)
        except SpecError as error:
            if asked is not None:
                raise
            key, message = (candidate.variant, 0), f"{candidate.variant} is left out: {error}"
        if key not in noted:
            engine.progress.note(message)
        noted.add(key)
    if not found:
        raise SpecError("nothing is left to compare: allow more memory, or use smaller sizes")
    return found


_RECONSTRUCTED_ROWS = 256


@dataclass(frozen=True)
class TrialResult:
    """Cost and errors of one fit, a row of compare.csv; None if an error is unknown, and for the exact reference.

    Attributes
    ----------
    method, landmarks : str
        The method and its landmark rule; "" if it has none.
    size, seed : int
        Number of landmarks or features, and the seed of the fit.
    seconds, planned_mb : float
        Time of the fit, and the memory that its arrays need in a process by its plan.
    relative_trace_error : float or None
        Proven, from the certificate of the fit.
    eigenvalue_error : float or None
        Mean over components of |lambda_j^ - lambda_j| / lambda_j.
    subspace_cosine : float or None
        Cosine of the largest angle between the column spaces of both score matrices, at sampled rows.
    score_error : float or None
        |Y - Y^ B|_F / |Y|_F with the best B, i.e. the part that no linear map of the scores restores.
    preimage_error : float or None
        Squared distance of pre-images from up to 256 rows, over the squared distance of these from the mean of other
        rows; in standard deviations of the columns if the fit standardised them.
    """

    method: str
    landmarks: str
    size: int
    seed: int
    seconds: float
    planned_mb: float
    relative_trace_error: float | None = None
    eigenvalue_error: float | None = None
    subspace_cosine: float | None = None
    score_error: float | None = None
    preimage_error: float | None = None


def run_trial(
    rows: Rows, spec: FitSpec, candidate: Candidate, reference: ReferenceSolution, engine: Engine
) -> TrialResult:
    """Fit a candidate, and compare it with the reference. Passes: those of the fit."""
    model, seconds = timed_fit(rows, spec, engine)
    r = reference.scores.shape[1]
    with single_threaded_blas:
        Y = scores_in_memory(model, reference.rows)
        return TrialResult(
            method=candidate.variant.method,
            landmarks=candidate.variant.landmarks,
            size=candidate.size,
            seed=candidate.seed,
            seconds=seconds,
            planned_mb=planned_mb(rows, spec, engine),
            relative_trace_error=model.certificate.unexplained,
            eigenvalue_error=measures.eigenvalue_error(reference.eigenvalues, model.solution.eigenvalues),
            # With fewer components, an exact direction is outside their span.
            subspace_cosine=measures.subspace_cosine(reference.scores, Y) if Y.shape[1] >= r else 0.0,
            score_error=measures.score_error(reference.scores, Y),
            **_preimage_error(model, reference.rows, Y),
        )


def _preimage_error(model: Model, X: Array, Y: Array) -> dict[str, float | None]:
    """Fields of a trial on pre-images of some of the rows X (m, d), from their scores Y (m, r); none without
    pre-images."""
    numbers = some_held_out(len(X), _RECONSTRUCTED_ROWS)
    if model.decoder is None or not len(numbers):
        return {}
    scores = Y[numbers, : model.components].astype(model.features.dtype)
    with single_threaded_blas:
        restored = model.reconstructing(len(numbers))(scores, None).rows
    return {"preimage_error": share_lost(model.features, X, numbers, restored)}


def _pca_error(model: Model, X: Array, r: int) -> float | None:
    """The share of the variance of the same rows of X (m, d) that is lost by linear PCA with r components of the other
    rows; None for rows that are not vectors or do not vary, and if there are too few others."""
    if not model.features.kernel.on_vectors or model.features.precomputed:
        return None
    numbers = some_held_out(len(X), _RECONSTRUCTED_ROWS)
    with single_threaded_blas:
        restored = restored_by_pca(model.features, X, numbers, r)
    return None if restored is None else share_lost(model.features, X, numbers, restored)
