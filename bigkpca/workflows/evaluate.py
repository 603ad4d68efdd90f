"""Evaluate a model on rows."""

from __future__ import annotations

from typing import Any

from bigkpca.data.opening import open_rows
from bigkpca.evaluating.error import evaluate_rows
from bigkpca.execution.clusters import open_engine
from bigkpca.execution.progress import Progress, Silent
from bigkpca.execution.units import parse_bytes
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.storage import models
from bigkpca.storage.models import AnyModel

_SAMPLE = 500  # rows: intervals of a few percent of the largest eigenvalues


def evaluate(
    model: AnyModel,
    data: Any,
    *,
    sample: int | None = None,
    seed: int = 0,
    array: str | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    memory: str | int | None = None,
    progress: Progress = Silent(),
) -> Evaluation:
    """Estimate how wrong a model is on `data`, those it was fitted on or others, from exact kernels with `sample` rows,
    by default 500 or all.

    Reads the sampled rows, and makes one pass: `sample` kernels a row. Raises SpecError for rows of the wrong width and
    a sample larger than the data, MemoryLimitError where `memory`, or a worker, allows less than the plan needs.
    """
    fitted = models.model_of(model)
    rows = open_rows(data, array)
    limit = None if memory is None else parse_bytes(memory)
    with open_engine(scheduler, workers) as engine:
        sample = min(_SAMPLE, rows.shape[0]) if sample is None else sample
        return evaluate_rows(fitted, rows, sample, seed, engine, progress, limit)
