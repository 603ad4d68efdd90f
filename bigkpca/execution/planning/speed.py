"""How fast one thread of this machine is, measured in a twentieth of a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time
from typing import Any

import numpy as np

from bigkpca.execution.blas import single_threaded_blas

_SQUARE = 512  # rows of the matrices that are multiplied
_ENTRIES = 2**20  # whose exponentials are computed: more than the cache of a processor core
_REPEATS = 5  # of which the fastest counts: what else runs only makes them slower


@dataclass(frozen=True)
class Speed:
    """What one thread does in a second.

    single, double: multiplications, each with its addition, in products of float32 and of float64 matrices. entries:
    exponentials of an array of float32.
    """

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
    """Seconds that the thread itself works, the least of some runs; the first one is not counted."""
    found = []
    for _ in range(1 + _REPEATS):
        started = thread_time()
        work()
        found.append(thread_time() - started)
    return max(min(found[1:]), 1e-9)
