"""How wrong a model is on rows wherever they are, from exact kernels with a sample of them."""

from __future__ import annotations

import numpy as np

from bigkpca.choose import PROBES, random_stream
from bigkpca.engine import Engine, Progress, single_threaded_blas
from bigkpca.errors import SpecError
from bigkpca.numerics import evaluation
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.numerics.features import GivenKernels, KernelRows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.passes import check_columns, read_rows, sums_with
from bigkpca.sources import Rows
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec


def evaluate_rows(model: Model, rows: Rows, sample: int, seed: int, engine: Engine, progress: Progress) -> Evaluation:
    """Estimates from `sample` exact rows: reads those, and makes one pass.

    Raises SpecError for rows of the wrong width, a sample larger than the data, and models of kernels given as a
    matrix or that keep more than 8192 rows, whose certificates have the residual of every component.
    """
    check_columns(rows, model)
    if isinstance(model.features, GivenKernels):
        raise SpecError(
            f"evaluate computes kernels of rows, and {rows.where} is a matrix of them: the certificate of this model "
            "has the residual of every component"
        )
    n = rows.shape[0]
    if not 1 < sample <= n:
        raise SpecError(f"a sample of {sample} rows: {rows.where} has {n}, of which at least 2 are needed")
    numbers = np.sort(random_stream(seed, PROBES).choice(n, sample, replace=False))
    features = model.features
    if isinstance(features, KernelRows) and features.size > EXACT_MOST_ROWS:
        raise SpecError(
            f"evaluate holds the Gram matrix of the landmarks, at most {EXACT_MOST_ROWS}, and this model keeps "
            f"{features.size} rows; its certificate has the residual of every component"
        )
    X = read_rows(rows, numbers, engine, progress)
    with single_threaded_blas:
        P = model.factor(rank_tolerance(features.dtype))
        given = evaluation.probes(features, model.solution, X, P)
    sums = sums_with(rows, model, given, engine, progress)
    return evaluation.evaluation(sums, given, P, center=FitSpec.of(model).center)
