"""Fits and scores in one call, on one thread unless an engine is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.data.opening import open_rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress, Silent
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec

OPTIONS: dict[str, Any] = {"components": 10, "size": 100, "seed": 3}  # of the fixture `model`


def fit(data: Any, engine: Engine | None = None, progress: Progress | None = None, **options: Any) -> Model:
    """A model of rows of any kind."""
    return fit_rows(open_rows(data), FitSpec.checked(**options), engine or Engine(threads=1), progress or Silent())


def scores(model: Model, data: Any, engine: Engine | None = None) -> np.ndarray[Any, Any]:
    return score_rows(open_rows(data), model, engine or Engine(threads=1), Silent())
