"""The error of a model: from exact kernels of sampled rows, and from pre-images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bigkpca.data.blocks import Block, tile_rows
from bigkpca.data.rows import Rows, tiles
from bigkpca.errors import Array, SpecError, check_overflow
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine, sum_by_block
from bigkpca.execution.passes import read_rows
from bigkpca.execution.plan import check_arrays, evaluation_bytes
from bigkpca.execution.projection import check_columns
from bigkpca.numerics.evaluation import Evaluation, evaluation
from bigkpca.numerics.features import shifted_rows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.linear_pca import MOST_VALUES, captured, spread
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, SCORING, random_stream
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec

_REMEDY = "ask for a smaller --sample, or fit a model with fewer landmarks"


def evaluate_rows(
    model: Model, rows: Rows, sample: int, seed: int, engine: Engine, limit: int | None = None
) -> Evaluation:
    """The error of a model, from exact kernels between `sample` rows, which are read; see `bigkpca.evaluate`."""
    check_columns(rows, model)
    spec, features, n = FitSpec.of(model), model.features, rows.shape[0]
    if spec.precomputed:
        raise SpecError(
            f"evaluate needs rows, but {rows.where} is a kernel matrix: see the residual of every component in the "
            "certificate of the model"
        )
    if not 1 < sample <= n:
        raise SpecError(f"sample={sample}: {rows.where} has {n} rows; sample between 2 and all of them")
    if model.method.landmarks and features.size > EXACT_MOST_ROWS:
        raise SpecError(
            f"evaluate holds the Gram matrix of at most {EXACT_MOST_ROWS} landmarks, but this model keeps "
            f"{features.size} rows: see the residual of every component in its certificate"
        )
    check_arrays(lambda _: evaluation_bytes(rows, model, sample), engine, limit, _REMEDY)
    numbers = np.sort(random_stream(seed, PROBES).choice(n, sample, replace=False))
    X = read_rows(rows, numbers, engine)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        P = model.factor(rank_tolerance(features.dtype))
        result = evaluation(features, model.solution, P, X, n, center=spec.center)
        check_overflow(np.array([result.explained.value, result.kernel.value]), rows.where)
        few = X[spread(len(X), max(1, MOST_VALUES // model.columns))]
        Y, own = model.projecting(len(few))(few), model.provenance.get("identity", {}).get("stamp")
        # Other files may have the same rows: then it is not known whether the model has seen them.
        seen = True if own is not None and rows.fingerprint()["stamp"] == own else None
        found = captured(features, few, Y, seen=seen)
    return replace(result, captured=found)


def preimage_error(model: Model, rows: Rows, noise: float | None, engine: Engine) -> float:
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
