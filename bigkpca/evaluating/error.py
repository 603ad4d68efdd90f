"""Estimate the error of a model from exact kernels between sampled rows and all rows."""

from __future__ import annotations

import numpy as np

from bigkpca.data.blocks import sample_rows, tile_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_rows, sums_with
from bigkpca.execution.planning import plan_evaluate
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import check_columns
from bigkpca.numerics import evaluation
from bigkpca.numerics.evaluation import Evaluation, Pool
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec

_REMEDY = "ask for a smaller --sample, or fit a model with fewer landmarks"
_POOL_FACTOR = 8  # rows read for each row that is compared with all


def evaluate_rows(
    model: Model, rows: Rows, sample: int, seed: int, engine: Engine, progress: Progress, limit: int | None = None
) -> Evaluation:
    """Estimate the error of a model from `sample` exact rows.

    Reads eight times as many rows, from which these are drawn, and makes one pass over all rows.

    Raises SpecError for rows of the wrong width, a sample larger than the data, models of precomputed kernels, and
    models that keep more than 8192 rows (the last two have residuals in their certificates); MemoryLimitError, before
    anything is read, if the plan needs more than `limit` bytes in a process or than workers may use.
    """
    check_columns(rows, model)
    spec = FitSpec.of(model)
    if spec.precomputed:
        raise SpecError(
            f"evaluate needs rows, and {rows.where} is a kernel matrix: the certificate of the model has the residual "
            "of every component"
        )
    n = rows.shape[0]
    if not 1 < sample <= n:
        raise SpecError(f"a sample of {sample} rows: {rows.where} has {n}, of which at least 2 are needed")
    features = model.features
    if model.method.landmarks and features.size > EXACT_MOST_ROWS:
        raise SpecError(
            f"evaluate holds the Gram matrix of the landmarks, at most {EXACT_MOST_ROWS}, and this model keeps "
            f"{features.size} rows; its certificate has the residual of every component"
        )
    rng, center = random_stream(seed, PROBES), spec.center
    pooled = min(_POOL_FACTOR * sample, sample_rows(n, rows.shape[1], sample))
    plan_evaluate(rows, model, sample, pooled, engine.threads).check(limit, _REMEDY)
    engine.check_memory(lambda threads: plan_evaluate(rows, model, sample, pooled, threads).peak_bytes)
    X = read_rows(rows, np.sort(rng.choice(n, pooled, replace=False)), engine, progress)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        P = model.factor(rank_tolerance(features.dtype))
        sizes = evaluation.sizes(_pool(model, X, P), center=center)
        numbers, drawn = evaluation.draw(sizes, sample, n, rng)
        given = evaluation.probes(features, model.solution, X[numbers], P, drawn)
    sums = sums_with(rows, model, given, engine, progress)
    return evaluation.evaluation(sums, given, P, center=center)


def _pool(model: Model, X: Array, P: Array | None) -> Pool:
    """Statistics of the pooled rows X (M, d), from which the exact rows are drawn."""
    height = tile_rows(model.columns, model.features.size, 8)
    tiles = (X[start : start + height] for start in range(0, len(X), height))
    return evaluation.pool(model.features, model.solution, tiles, P, min(height, len(X)))
