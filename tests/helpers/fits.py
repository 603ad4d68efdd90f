"""Fits and scores in one call, on one thread unless an engine is given."""

from bigkpca.data.opening import open_rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec

OPTIONS = {"n_components": 10, "size": 100, "random_state": 3}  # of the fixture `model`


def fit(data, engine=None, progress=None, **options):
    """A model of rows of any kind."""
    return fit_rows(
        open_rows(data), FitSpec.checked(**options), engine or Engine(threads=1, progress=progress or Progress())
    )


def scores(model, data, engine=None):
    return score_rows(open_rows(data), model, engine or Engine(threads=1))
