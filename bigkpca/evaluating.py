"""The error of a model: from exact kernels of sampled rows, and from pre-images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, sample_rows, tile_rows
from bigkpca.data.rows import Rows, tiles
from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine, sum_by_block
from bigkpca.execution.passes import block_evaluation, read_rows
from bigkpca.execution.plan import Plan, check_plans, plan_evaluate
from bigkpca.execution.projection import check_columns
from bigkpca.fitting.others import Judged, judged_without
from bigkpca.numerics import evaluation
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.numerics.features import shifted_rows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.linear_pca import (
    MOST_RESTORED,
    MOST_VALUES,
    Captured,
    Lost,
    Reconstruction,
    captured,
    held_out_rows,
    reconstruction,
    some_held_out,
    spread,
)
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, SCORING, random_stream
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec

_REMEDY = "ask for a smaller --sample, or fit a model with fewer landmarks"
_POOL_FACTOR = 8  # rows read for each row that is compared with all rows


def evaluate_rows(
    model: Model, rows: Rows, sample: int, seed: int, engine: Engine, limit: int | None = None
) -> Evaluation:
    """Estimate the error of a model from `sample` exact rows.

    Reads eight times as many rows, draws the sample from them, and makes one pass over all rows.

    Raises SpecError for rows of the wrong width, a sample larger than the data, models of precomputed kernels, and
    models that keep more than 8192 rows (the last two have residuals in their certificates). Raises MemoryLimitError,
    before anything is read, if the plan needs more than `limit` bytes in a process or than workers may use.
    """
    check_columns(rows, model)
    spec = FitSpec.of(model)
    if spec.precomputed:
        raise SpecError(
            f"evaluate needs rows, but {rows.where} is a kernel matrix: see the residual of every component in the "
            "certificate of the model"
        )
    n = rows.shape[0]
    if not 1 < sample <= n:
        raise SpecError(f"sample={sample}: {rows.where} has {n} rows; sample between 2 and all of them")
    features = model.features
    if model.method.landmarks and features.size > EXACT_MOST_ROWS:
        raise SpecError(
            f"evaluate holds the Gram matrix of at most {EXACT_MOST_ROWS} landmarks, but this model keeps "
            f"{features.size} rows: see the residual of every component in its certificate"
        )
    rng, center = random_stream(seed, PROBES), spec.center
    pooled = min(_POOL_FACTOR * sample, sample_rows(n, rows.shape[1], sample))

    def plan(threads: int) -> Plan:
        return plan_evaluate(rows, model, sample, pooled, threads, engine.device)

    check_plans(plan, engine, limit, _REMEDY)
    pooled_numbers = np.sort(rng.choice(n, pooled, replace=False))
    X = read_rows(rows, pooled_numbers, engine)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        P = model.factor(rank_tolerance(features.dtype))
        height = tile_rows(model.columns, features.size, 8)
        tiles_of_pool = (X[start : start + height] for start in range(0, len(X), height))
        pool = evaluation.pool(features, model.solution, tiles_of_pool, P, min(height, len(X)))
        sizes = evaluation.sizes(pool, center=center)
        numbers, drawn = evaluation.draw(sizes, sample, n, rng)
        given = evaluation.probes(features, model.solution, X[numbers], P, drawn)
        some = spread(len(X), max(1, MOST_VALUES // model.columns))
        found, lost = _judged(model, X[some], pool.Y[some], pooled_numbers[some], rows, engine)
    sums = sum_by_block("evaluating", block_evaluation, rows, (engine.placed(model), given), model.block_rows, engine)
    result = evaluation.evaluation(sums, given, P, center=center)
    return replace(result, captured=found, lost=lost)


def _judged(
    model: Model, X: Array, Y: Array, numbers: Array, rows: Rows, engine: Engine
) -> tuple[Captured | None, Lost | None]:
    """What scores Y (m, r) capture of sampled rows X (m, d), and what pre-images lose of them, beside linear PCA.

    If these are the rows of the fit, with these numbers, the rows that are judged are left out of kernel PCA, too.
    """
    own, judged, spec = fitted_to(model, rows.fingerprint), held_out_rows(len(X)), FitSpec.of(model)
    of_scores = of_preimages = Judged(model, Y, own)
    if own:
        kept = numbers if spec.exact or spec.refine else None
        with single_threaded_blas:
            of_scores, of_preimages = judged_without(of_scores, X, judged, kept, spec)
    found = captured(model.features, X, of_scores.scores, seen=of_scores.seen)
    if found is None:
        return None, None
    restored = reconstructed(of_preimages.model, X, of_preimages.scores, seen=of_preimages.seen)
    return found, None if restored is None else restored.lost


def fitted_to(model: Model, fingerprint: Callable[[], dict[str, Any]]) -> bool | None:
    """True if a model was fitted to the rows with this fingerprint; None if that is not known, since other files may
    have the same rows."""
    own = model.provenance.get("identity", {}).get("stamp")
    return True if own is not None and fingerprint()["stamp"] == own else None


_LEAST_RESTORED = 8  # rows whose pre-images are compared with linear PCA
_RESTORED_PRODUCTS = 1_000_000_000  # rows x features x columns


def reconstructed(model: Model, X: Array, Y: Array, *, seen: bool | None = True) -> Reconstruction | None:
    """Up to 500 of the held-out rows of X (m, d), from their scores Y (m, s), s >= r, beside linear PCA of the others.

    None for models without pre-images, and for rows that do not vary.
    """
    if model.decoder is None:
        return None
    numbers = some_held_out(len(X), _most_restored(model.features.size, model.columns))
    if not len(numbers):
        return None
    restored = model.reconstructing(len(numbers))(Y[numbers, : model.components], None).rows
    return reconstruction(model.features, X, numbers, restored, model.components, seen=seen)


def _most_restored(size: int, columns: int) -> int:
    """The largest number of rows that are restored."""
    return max(_LEAST_RESTORED, min(MOST_RESTORED, _RESTORED_PRODUCTS // (size * columns)))


def preimage_error(
    model: Model,
    rows: Rows,
    noise: float | None,
    engine: Engine,
) -> float:
    """Mean over all entries of (x - x^)², where x^ is the pre-image of the scores of x, in one pass.

    Entries are in standard deviations of the columns if the model standardises, and times their weights. With `noise`,
    a standard deviation in the units of the data, x^ is the pre-image of x plus noise, where the noise is a function of
    the row number, and iterations start at the noisy row. Raises SpecError for models without pre-images.
    """
    model.check_preimages()
    total, count = sum_by_block("scoring", _squared_error, rows, (model, noise), model.block_rows, engine)
    return float(total / count)


def noise_of_rows(first: int, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers (b, d), float32, for rows number `first`, `first` + 1, ...: the same in any block."""
    noise = np.empty(shape, np.float32)
    for number, row in enumerate(noise, first):
        np.random.Generator(np.random.Philox(key=SCORING, counter=[0, 0, 0, number])).standard_normal(
            dtype=np.float32, out=row
        )
    return noise


def _squared_error(rows: Rows, block: Block, model: Model, noise: float | None) -> Array:
    """Sum of the squared errors of the entries of one block, and the number of entries, (2,)."""
    height = tile_rows(model.columns, model.features.size, 8)
    most_rows = min(height, len(block))
    errors = np.empty((most_rows, model.columns))
    decode = model.reconstructing(most_rows)
    total, first = 0.0, block.start
    for X in tiles(rows, block.start, block.stop, height):
        given = X if noise is None else X + np.float32(noise) * noise_of_rows(first, X.shape)
        (Y,) = model.project([given], most_rows)
        found = decode(Y, None if noise is None else given)
        shifted_rows(X.astype(np.float64), found.rows, model.features.scale, errors[: len(X)])
        total += float(np.sum(errors[: len(X)] ** 2))
        first += len(X)
    return np.array([total, len(block) * model.columns])
