"""The expected time of a fit, from the speed of one thread of this machine.

seconds = Σ over terms of coefficient · operations / (speed of one thread · threads that share them)

Speeds are measured, so the coefficients apply to other machines: with a coefficient of 1 an operation is as fast as in
the probe. For n rows of d columns, D features, q frequencies or landmarks, t threads that work on blocks and h threads
of the driver; P passes, b = max(rows of a block, n / t), the rows of the busiest thread; m sampled rows, r components:

    reading       bytes that are read, decoded and digested      P b d itemsize, and those of the sample / t
    features      rows converted; kernels, or sines and cosines  P b d + b D; p D for the p sampled rows of pre-images
    products      X S' and half of the symmetric V'V             b d q + b D² / 2; p d q
    sample        entries that are copied and looked at          m d
    k-means       rows compared with centres                     iterations · rows · D / h
    bound         kernels of u drawn rows, and their residuals  (u² d / 2 + u D (d + D)) / h
    krylov        products with the square of these residuals    10 u² / h
    rounding      512 rows in float64, and                       512 D (d + D)
                  regressions of pre-images                      (p + D) g (g + d) with g = 500 + r
    span          Cholesky's factor, its inverse, congruences    D³ / h
    eigenproblem  by LAPACK, of all and of half the features     D³ + (D / 2)³
    all pairs     every eigenvector, for column sampling         D³
    lanczos       few eigenvectors, in place of `eigenproblem`   D² r / h
    constant      what every fit takes                           1 second

The term of one pass over the columns to standardise them is in `reading` and `features`. Steps that depend on the
values of the rows are not included: repeating the fit in float64, and eigenvectors if Cholesky's factor is not
accurate.

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
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.landmarks import KMeans, Uniform
from bigkpca.numerics.methods import ColumnSampling
from bigkpca.numerics.preimages import Automatic
from bigkpca.numerics.rounding import MEASURED_ROWS
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
_PRODUCTS = 10  # with the square of residuals, for the 95 % bound

# 0 if the measured fits cannot separate a term from others: growth with d, or with D³, was attributed to those.
COEFFICIENTS = {
    "reading": 0.0,
    "features": 15.2,
    "products": 0.826,
    "sample": 22.0,
    "k-means": 9.3,
    "bound": 1.86,
    "krylov": 0.443,
    "rounding": 8.06,
    "span": 2.32,
    "eigenproblem": 0.266,
    "all pairs": 6.97,
    "lanczos": 0.0,
    "constant": 0.237,
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
    entries = plan.passes * busiest * d + (busiest + decoded) * D
    # Of the sample.
    compared = rule.iterations * min(m, rule.most_rows(D)) * D if isinstance(rule, KMeans) else 0
    # Of the solution.
    assert isinstance(fit.spec.components, int)
    r, cube, h = min(fit.spec.components, D), float(D) ** 3, driver
    # (size, whether few eigenpairs are found by Lanczos) of the model and of that of half the features
    solved = [(size, method.landmarks and solvers.are_few(r, size)) for size in (D, D // 2)]
    return {
        "reading": (plan.passes * busiest * d * fit.stored.itemsize + sampled / threads) / speed.entries,
        "features": entries * fit.dtype.itemsize / 4 / speed.entries,
        "products": (busiest * D * D / 2 + (busiest + decoded) * d * frequencies) / product,
        "sample": m * d / speed.entries,
        "k-means": compared / h / speed.entries,
        "bound": ((u * u * d / 2 + u * D * (d + D)) / h if u else 0) / product,
        "krylov": u * u * _PRODUCTS / h / speed.entries,
        "rounding": MEASURED_ROWS * D * (d + D) / speed.double,
        "span": (cube / h if method.landmarks else 0) / speed.double,
        "eigenproblem": sum(size**3 for size, few in solved if not few) / speed.double,
        "all pairs": (cube if isinstance(method, ColumnSampling) else 0) / speed.double,
        "lanczos": sum(size**2 * r for size, few in solved if few) / h / speed.double,
        "constant": 1.0,
    }
