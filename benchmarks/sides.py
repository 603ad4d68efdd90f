"""Programs measured beside each other, each run in a process of its own, and compared where they are equally wrong."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.common import Eigenpairs, child, exact_eigenpairs, kept_eigenpairs, ratios
from benchmarks.machine import PEERS
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec

LEADING = 20  # components, whose eigenvalues and span are compared with the exact ones
_HELD = 12_000  # rows, up to which the full matrix is held
_RESIDUAL = 1e-5  # of the products: eigenvalues are off by about its square, and spans by itself over a gap

DISK_TO_DISK = """
import json, shutil, sys, time
import numpy as np
import zarr
import bigkpca
data, model, written, options, seed, leading = sys.argv[1:]
few = zarr.open_array(data + "/x", mode="r")[:1000]
for first in (True, False):
    for path in (model, written):
        shutil.rmtree(path, ignore_errors=True)
    if first:  # what is imported and started at the first call
        bigkpca.fit(few, model, transform=written, **{**json.loads(options), "size": 100})
started = time.perf_counter()
fitted = bigkpca.fit(data, model, transform=written, random_state=int(seed), **json.loads(options))
took = time.perf_counter() - started
values, estimates = fitted.solution.eigenvalues, fitted.certificate.estimate
scores = zarr.open_array(written + "/scores", mode="r")
"""

IN_MEMORY = """
import json, sys, time
import numpy as np
data, sigma, components, size, seed, leading = sys.argv[1:]
sigma, components, size, seed = float(sigma), int(components), int(size), int(seed)
X = np.load(data.replace(".zarr", ".npy")).astype(np.float32)
few, some = X[:1000].copy(), min(size, 100)  # for the first call, which is not timed
estimates = None
"""  # how programs begin whose rows are in memory

FITTED = """
took, values = time.perf_counter() - started, model.eigenvalues_
estimates = model.certificate_.estimate
"""  # how those of KernelPCA end

PCA_FITTED = """
took, values = time.perf_counter() - started, pca.explained_variance_ * (len(X) - 1.0)
"""  # and those of a PCA

_REPORT = f"""
estimates = values if estimates is None else estimates
print(json.dumps([took, *(each[:{LEADING}].tolist() for each in (values, estimates))]))
np.save(leading, scores[:, :{LEADING}])
"""


@dataclass(frozen=True)
class Side:
    """A program: Python code that is given `argv`, a seed and a path, and leaves seconds `took`, eigenvalues `values`,
    better `estimates` of them or None, and `scores`."""

    name: str
    size: int
    code: str
    argv: tuple[str, ...]
    needs: str = "numpy"  # a package that may not be installed
    once: bool = False  # so slow that one run has to do


@dataclass(frozen=True)
class Run:
    """What one run of a side took, and how wrong its leading components are.

    error, estimated : mean relative error of the eigenvalues, and of the best estimates of them
    cosine : the smallest cosine between the span of the scores and that of the exact ones
    """

    seconds: float
    peak: float  # MB
    error: float
    estimated: float
    cosine: float


Runs = dict[Side, list[Run]]


def runs_of(sides: Sequence[Side], repeats: int, exact: Eigenpairs) -> Runs:
    """The runs of each side, in turn A B C A B C ... with one seed per turn; none of what is not installed."""
    found: Runs = {side: [] for side in sides}
    with TemporaryDirectory() as folder:
        leading = Path(folder) / "leading.npy"
        for seed in range(repeats):
            for side in sides:
                code = _runnable(side)
                if code is None or (side.once and seed):
                    continue
                printed, peak = child(code + _REPORT, *side.argv, str(seed), str(leading))
                took, *values = json.loads(printed)
                plain, estimated = (float(np.abs(np.array(each) / exact.values - 1).mean()) for each in values)
                run = Run(took, peak, plain, estimated, smallest_cosine(np.load(leading), exact.vectors))
                found[side].append(run)
                print(f"{side.name}, {side.size}, seed {seed}: {run}", flush=True)
    return found


def _runnable(side: Side) -> str | None:
    """The code of a side, which finds what it needs; None where that is not installed."""
    if find_spec(side.needs) is not None:
        return side.code
    apart = f"import sys\nsys.path.insert(0, {str(PEERS)!r})\n"
    return apart + side.code if (PEERS / side.needs).is_dir() else None


def smallest_cosine(scores: Array, vectors: Array) -> float:
    """The smallest cosine between the spans of the columns of scores (n, r) and of orthonormal vectors (n, r)."""
    Q, _ = np.linalg.qr(scores.astype(np.float64))
    return float(np.linalg.svd(Q.T @ vectors, compute_uv=False)[-1])


def mean(runs: Sequence[Run], of: Callable[[Run], float]) -> float:
    """The mean of a figure over the runs."""
    return statistics.mean(map(of, runs))


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


def smallest_as_accurate(allowed: float, errors: Mapping[int, float]) -> int | None:
    """The smallest size from which on all errors are at most the one allowed; None if that of the largest is not."""
    above = max((size for size, found in errors.items() if found > allowed), default=0)
    return min((size for size in errors if size > above), default=None)


def leading_eigenpairs(X: Array, path: str, sigma: float, folder: Path) -> Eigenpairs:
    """The exact leading eigenpairs of the rows X, which are also a dataset at `path`; computed once in each folder.

    Where the full matrix is too large to hold, by the exact method, until residuals are below 1e-5.
    """
    kept = folder / f"leading-{len(X)}-{sigma:g}.npz"
    if len(X) <= _HELD:
        return exact_eigenpairs(X, sigma, LEADING, kept)

    def found() -> tuple[Array, Array]:
        spec: Any = FitSpec.checked(n_components=LEADING, sigma=sigma, method="exact", residual_tol=_RESIDUAL)
        solution = fit_rows(open_rows(path), spec, Engine()).solution
        return solution.eigenvalues, solution.components * np.sqrt(solution.eigenvalues)

    return kept_eigenpairs(kept, found)
