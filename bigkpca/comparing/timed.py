"""One fit of a comparison, timed: on threads, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter
from typing import NamedTuple

from bigkpca.comparing.process import peak_mb
from bigkpca.data.rows import Rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.memory_limits import check_fits
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, resolve

Opener = Callable[[], AbstractContextManager[Engine]]


class TimedFit(NamedTuple):
    """A model, and what its fit took."""

    model: Model
    seconds: float
    peak_mb: float  # of this process


def timed_fit(rows: Rows, spec: FitSpec, engine: Engine) -> TimedFit:
    """Fit rows, on workers of a cluster that see them and have the memory for it. Raises as `fit_within`."""
    if engine.client is not None:
        engine.check_paths(rows.fingerprint()["path"])
        check_fits(rows, resolve(spec, rows), engine, None)
    started = perf_counter()
    model = fit_rows(rows, spec, engine, Silent())
    return TimedFit(model, perf_counter() - started, peak_mb())
