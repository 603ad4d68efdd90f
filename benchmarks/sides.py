"""Programs measured beside each other, each run in a process of its own, and compared where they are equally wrong."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import child, exact_eigenvalues, ratios
from benchmarks.machine import PEERS
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec

LEADING = 20  # eigenvalues, of which the error is taken
_HELD = 12_000  # rows, up to which the full matrix is held
_RESIDUAL = 1e-4  # of the products: eigenvalues are off by about its square

DISK_TO_DISK = """
import json, shutil, sys, time
import zarr
import bigkpca
data, model, scores, options, seed = sys.argv[1:]
few = zarr.open_array(data + "/x", mode="r")[:1000]
for first in (True, False):
    for path in (model, scores):
        shutil.rmtree(path, ignore_errors=True)
    if first:  # what is imported and started at the first call
        bigkpca.fit(few, model, transform=scores, **{**json.loads(options), "size": 100})
started = time.perf_counter()
fitted = bigkpca.fit(data, model, transform=scores, seed=int(seed), **json.loads(options))
print(json.dumps([time.perf_counter() - started, fitted.solution.eigenvalues[:20].tolist()]))
"""

IN_MEMORY = """
import json, sys, time
import numpy as np
data, sigma, components, size, seed = sys.argv[1:]
sigma, components, size, seed = float(sigma), int(components), int(size), int(seed)
X = np.load(data.replace(".zarr", ".npy")).astype(np.float32)
few, some = X[:1000].copy(), min(size, 100)  # for the first call, which is not timed
"""  # how programs begin whose rows are in memory


@dataclass(frozen=True)
class Side:
    """A program: Python code that is given `argv` and a seed, and prints JSON: seconds, leading eigenvalues."""

    name: str
    size: int
    code: str
    argv: tuple[str, ...]
    needs: str = "numpy"  # a package that may not be installed
    once: bool = False  # so slow that one run has to do


@dataclass(frozen=True)
class Run:
    """What one run of a side took and found."""

    seconds: float
    peak: float  # MB
    eigenvalues: tuple[float, ...]


Runs = dict[Side, list[Run]]


def runs_of(sides: Sequence[Side], repeats: int) -> Runs:
    """The runs of each side, in turn A B C A B C ... with one seed per turn; none of what is not installed."""
    found: Runs = {side: [] for side in sides}
    for seed in range(repeats):
        for side in sides:
            code = _runnable(side)
            if code is None or (side.once and seed):
                continue
            printed, peak = child(code, *side.argv, str(seed))
            seconds, eigenvalues = json.loads(printed)
            found[side].append(Run(seconds, peak, tuple(eigenvalues)))
            print(f"{side.name}, {side.size}, seed {seed}: {seconds:.2f} s, {peak:.0f} MB", flush=True)
    return found


def _runnable(side: Side) -> str | None:
    """The code of a side, which finds what it needs; None where that is not installed."""
    if find_spec(side.needs) is not None:
        return side.code
    apart = f"import sys\nsys.path.insert(0, {str(PEERS)!r})\n"
    return apart + side.code if (PEERS / side.needs).is_dir() else None


def seconds(runs: Sequence[Run]) -> list[float]:
    """The seconds of each run."""
    return [run.seconds for run in runs]


def neighbouring(above: Sequence[Run], below: Sequence[Run]) -> list[float]:
    """The ratios of seconds of neighbouring runs: as many as the side has that ran less often."""
    count = min(len(above), len(below))
    return ratios(seconds(above)[:count], seconds(below)[:count])


def median_peak(runs: Sequence[Run]) -> float:
    """Median peak memory in MB."""
    return statistics.median(run.peak for run in runs)


def error(runs: Sequence[Run], exact: Array) -> float:
    """Mean relative error of the leading eigenvalues, mean over the runs."""
    return float(np.mean([np.abs(np.array(run.eigenvalues) / exact - 1).mean() for run in runs]))


def smallest_as_accurate(allowed: float, errors: Mapping[int, float]) -> int | None:
    """The smallest size whose error is at most the one allowed; None if no size's is."""
    return min((size for size, found in errors.items() if found <= allowed), default=None)


def leading_eigenvalues(X: Array, path: str, sigma: float, folder: Path) -> Array:
    """The exact leading eigenvalues of the rows X, which are also a dataset at `path`; computed once in each folder.

    Where the full matrix is too large to hold, by products with it until residuals are below 1e-4.
    """
    kept = folder / f"leading-{len(X)}-{sigma:g}.npy"
    if len(X) <= _HELD:
        return exact_eigenvalues(X, sigma, LEADING, kept)
    if not kept.exists():
        spec: Any = FitSpec.checked(components=LEADING, sigma=sigma, method="exact", residual_tol=_RESIDUAL)
        np.save(kept, fit_rows(open_rows(path), spec, Engine()).solution.eigenvalues)
    return np.load(kept)
