"""The expected time of a fit, from the speed of one thread of this machine.

seconds = Σ over terms of coefficient · operations / (speed of one thread · threads that share them)

Speeds are measured, so the coefficients apply to other machines: with a coefficient of 1 an operation is as fast as in
the probe. For n rows of d columns, D features, q frequencies or landmarks, t threads that work on blocks and h threads
of the driver; P passes, b = max(rows of a block, n / t), the rows of the busiest thread; m sampled rows, p pairs of
them from whose distances sigma comes, u rows drawn for the certificate:

    reading       bytes that are read, decoded and digested      P b d itemsize, and those of the sample / t
    features      rows converted; kernels, or sines and cosines  P b d + b D; s D for the s sampled rows of pre-images
    products      X S', half of V'V, residuals by D / 4 of V     b d q + b D² / 2 + b D² / 16; s d q
    sample        entries that are copied and looked at          m d + p d / h
    k-means       rows compared with centres                     iterations · rows · D / h
    error         kernels of drawn rows, and their residuals     (u² d / 2 + u D (d + D)) / h
    span          Cholesky's factor, its inverse, congruences    D³ / h
    eigenproblem  by LAPACK; of half the random features; again  D³ + (D / 2)³ + D³
                  for column sampling, which needs all pairs
    constant      what every fit takes                           1 second

The term of one pass over the columns to standardise them is in `reading` and `features`. Rows of sparse matrices and
columns of 0 and 1 made from text count like others, since tasks work on dense tiles. Steps that depend on the values
of the rows are not included: repeating the fit in float64, and eigenvectors if Cholesky's factor is not accurate.

`python -m benchmarks.cost_model` measures fits, and prints coefficients with their errors for settings that were not
used to fit them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import thread_time
from typing import Any

import numpy as np

from bigkpca.data.dask import DaskRows
from bigkpca.data.rows import Rows
from bigkpca.data.stores.base import is_url
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.planning import Plan
from bigkpca.numerics import solvers
from bigkpca.numerics.bandwidth import PAIRS
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.landmarks import KMeans, Uniform
from bigkpca.numerics.methods import ColumnSampling
from bigkpca.numerics.preimages import Automatic
from bigkpca.spec import ResolvedFit

_SQUARE = 512  # rows of the matrices that are multiplied
_ENTRIES = 2**20  # entries whose exponentials are computed: more than the cache of a processor core
_REPEATS = 5  # runs, of which the fastest counts: other processes only make them slower


@dataclass(frozen=True)
class Speed:
    """Operations of one thread per second: multiplications, each with its addition, in products of float32 (single) and
    float64 (double) matrices, and exponentials of a float32 array (entries)."""

    single: float
    double: float
    entries: float


def measured_speed() -> Speed:
    """The speed of one thread here and now."""
    X = np.random.default_rng(0).random((_SQUARE, _SQUARE))
    vector = np.linspace(-10, 0, _ENTRIES, dtype=np.float32)
    values = np.empty_like(vector)

    def product(A: Any) -> float:
        out = np.empty_like(A)
        return _SQUARE**3 / _seconds(lambda: np.matmul(A, A, out=out))

    with single_threaded_blas:
        return Speed(product(X.astype(np.float32)), product(X), _ENTRIES / _seconds(lambda: np.exp(vector, out=values)))


def _seconds(work: Callable[[], Any]) -> float:
    """Seconds of work of the thread itself, the minimum of several runs without the first."""
    found = []
    for _ in range(1 + _REPEATS):
        started = thread_time()
        work()
        found.append(thread_time() - started)
    return max(min(found[1:]), 1e-9)


_TIMED_METHODS = ("nystroem", "columns", "rff")  # kernels whose fits were measured
_DRAWING = 1 / 16  # of the products of V with itself: residuals of every 4th landmark, by which rows are drawn

COEFFICIENTS = {
    "reading": 6.04,
    "features": 0.683,
    "products": 1.12,
    "sample": 5.93,
    "k-means": 4.1,
    "error": 5.65,
    "span": 7.21,
    "eigenproblem": 4.71,
    "constant": 0.531,
}


def timed(plan: Plan, fit: ResolvedFit, speed: Speed, threads: int, driver: int) -> Plan:
    """The plan of a fit with its expected time, from opened rows to the saved model, on this many threads that work on
    blocks, here or on workers, and this many of the driver; without a time if it is `not_timed`."""
    found = terms(fit, plan, speed, threads, driver)
    return replace(plan, expected_seconds=sum(COEFFICIENTS[name] * seconds for name, seconds in found.items()))


def not_timed(rows: Rows, fit: ResolvedFit) -> str | None:
    """Why the time of a fit cannot be predicted; None if it can."""
    spec, rule, method = fit.spec, fit.rule, fit.spec.method_value
    if spec.precomputed or fit.matrix_free:
        return "the number of products depends on the data"
    if spec.tol is not None:
        return "the size depends on the data"
    if method.name not in _TIMED_METHODS:
        return f"not measured for method {method.name}"
    if method != type(method)():
        return f"not measured for method {method.name} with options"
    if not isinstance(fit.kernel(1.0), Gaussian):
        return "not measured for this kernel"
    if rule is not None and not isinstance(rule, KMeans | Uniform) and spec.own_landmarks is None:
        return f"not measured for landmarks by {rule.name}"
    if fit.randomized(fit.size):
        return "not measured for the randomized solver"
    if not isinstance(spec.components, int):
        return "the number of components depends on the data"
    if spec.preimage_value.trained:
        return "not measured for trained pre-images"
    if isinstance(rows, DaskRows):
        return "the time to compute the chunks of a Dask array is not known"
    if is_url(rows.where):
        return "the response time of an object store is not known"
    return None


def terms(fit: ResolvedFit, plan: Plan, speed: Speed, threads: int, driver: int) -> dict[str, float]:
    """Seconds of each term, if its operations were as fast as those of the probe."""
    n, d, D, m, u, method, rule = fit.n, fit.d, fit.size, fit.sample, fit.drawn, fit.spec.method_value, fit.rule
    product = speed.double if fit.dtype == np.float64 else speed.single
    # Of the passes.
    busiest = max(plan.block_rows, n / threads)
    sampled = plan.bytes_read - plan.passes * n * d * fit.stored.itemsize
    frequencies = D // 2 if method.pairs else D
    # Pre-images come from scores of sampled rows; those of "auto" are learned later.
    learned_later = isinstance(fit.spec.preimage_value, Automatic)
    decoded = fit.spec.preimage_rows(m) if fit.spec.keeps_sample and not learned_later else 0
    passed = plan.passes * busiest * d
    entries = passed + (busiest + decoded) * D
    multiplied = busiest * D * D * (1 / 2 + (_DRAWING if u else 0))
    # Of the sample.
    compared = rule.iterations * min(m, rule.most_rows(D)) * D if isinstance(rule, KMeans) else 0
    pairs = min(PAIRS, m * (m - 1) // 2) if fit.spec.needs_median else 0
    # Of the solution.
    assert isinstance(fit.spec.components, int)
    cube, h = float(D) ** 3, driver
    by_lapack = 0 if method.landmarks and solvers.are_few(min(fit.spec.components, D), D) else cube
    again = cube if isinstance(method, ColumnSampling) else 0 if method.landmarks else cube / 8
    return {
        "reading": (passed * fit.stored.itemsize + sampled / threads) / speed.entries,
        "features": entries * fit.dtype.itemsize / 4 / speed.entries,
        "products": (multiplied + (busiest + decoded) * d * frequencies) / product,
        "sample": (m + pairs / h) * d / speed.entries,
        "k-means": compared / h / speed.entries,
        "error": (u * u * d / 2 + u * D * (d + D) if u else 0) / h / product,
        "span": (cube / h if method.landmarks else 0) / speed.double,
        "eigenproblem": (by_lapack + again) / speed.double,
        "constant": 1.0,
    }
