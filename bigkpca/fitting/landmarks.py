"""Choose the landmarks of a fit: from the sample by a rule, from all rows by RPCholesky, or as given by the caller."""

from __future__ import annotations

import numpy as np

from bigkpca.data.blocks import sample_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, DataError, SpecError, check_overflow
from bigkpca.execution.by_block import fit_blocks
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import draws_by_residual
from bigkpca.execution.progress import Progress
from bigkpca.fitting.sample import PreparedSample
from bigkpca.numerics import landmarks
from bigkpca.numerics.features import Columns
from bigkpca.numerics.landmarks.rpcholesky import Factor, Proposals, check_diagonal, grown
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.random_streams import LANDMARKS, PROPOSALS, random_stream
from bigkpca.spec import FitSpec, ResolvedFit


def choose_landmarks(prepared: PreparedSample, fit: ResolvedFit, engine: Engine, progress: Progress) -> Array:
    """Landmarks (l, d), shifted and scaled as rows are before kernels are computed.

    Raises SpecError if the caller's landmarks do not fit the rows, DataError if no landmark can be chosen.
    """
    rows, sample, columns, spec = prepared.rows, prepared.sampled.sample, prepared.columns, fit.spec
    if spec.own_landmarks is not None:
        return _own_landmarks(rows, prepared.sampled.own, columns, spec)
    rule, rng = fit.rule, random_stream(spec.seed, LANDMARKS)
    assert rule is not None  # a method of landmarks has one
    size = min(fit.size, len(sample))
    if (most := rule.most_rows(size)) < len(sample):
        sample = sample[np.sort(rng.choice(len(sample), most, replace=False))]
    few = columns.shifted(sample)
    if isinstance(rule, landmarks.RPCholesky) and rule.over == "all":
        chosen = _landmarks_of_all_rows(rows, few, columns, rule, size, spec, engine, progress)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            check_overflow(columns.kernel.diagonal(few), rows.where)
            chosen = rule.choose(few, columns.kernel, size, rng, engine.in_order)
    if not len(chosen):
        raise DataError(
            f"{rows.where}: k(x, x) is zero for all sampled rows, so there is nothing to choose landmarks by"
        )
    if len(chosen) < size:
        progress.note(f"{rule.name}: {len(chosen)} landmarks: more of them would add nothing")
    return chosen


def _own_landmarks(rows: Rows, own: Array, columns: Columns, spec: FitSpec) -> Array:
    """The caller's landmarks (l, d), shifted and scaled, without duplicates."""
    given = spec.landmarks.values if isinstance(spec.landmarks, landmarks.Rows) else own
    if given.shape[1] != rows.shape[1]:
        raise SpecError(f"landmarks have {given.shape[1]} columns, {rows.where} has {rows.shape[1]}")
    return landmarks.distinct(columns.shifted(given))


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
    """RPCholesky over all rows: rejection sampling from upper bounds of the residuals, refreshed by a pass when stale.

    Old bounds stay valid because residuals never grow. A refreshing pass returns as many draws as the sample has rows,
    so that nothing of length n is held.
    """
    kernel, rng = columns.kernel, random_stream(spec.seed, PROPOSALS)
    check_diagonal(kernel.diagonal(sample))
    factor = Factor.empty(kernel, sample)
    proposals, trace, refreshes = Proposals(sample[:0], np.empty(0), 0.0), 0.0, 0
    if kernel.stationary:  # k(x, x) is constant, so that uniform rows are draws in proportion to it
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
    """ResidualDraws in proportion to the residuals of all rows, and Σ k(x, x): one pass."""
    count = -(-sample_rows(*rows.shape, 0) // len(fit_blocks(rows, spec.block_rows)))
    seed = np.random.SeedSequence(spec.seed, spawn_key=(PROPOSALS, number))
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
