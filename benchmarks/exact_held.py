"""Exact kernel PCA of a Gram matrix that is held: Lanczos with a proof, next to LAPACK's and scikit-learn's solvers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np
from sklearn.decomposition import KernelPCA as Peer

from benchmarks.common import arguments
from benchmarks.results import Results, table
from bigkpca import KernelPCA
from bigkpca.numerics import solvers

COLUMNS, COMPONENTS, REPETITIONS = 16, (10, 50), 3
SLOW = 10  # seconds, from which on once is enough
SIGMA = 4.0  # about the median distance, over √2


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=8000)
    lines = []
    for n in range(given.rows // 4, given.rows + 1, given.rows // 4):
        X = np.random.default_rng(0).normal(size=(n, COLUMNS))
        for r in COMPONENTS:
            seconds, values = {}, {}
            for name, fit in _ways(r).items():
                found = [_timed(fit, X)]
                while found[0][0] < SLOW and len(found) < REPETITIONS:
                    found.append(_timed(fit, X))
                seconds[name], values[name] = statistics.median(each for each, _ in found), found[0][1]
            off = float(np.abs(values["bigkpca"] / values["bigkpca, LAPACK"] - 1).max())
            lines.append([n, r, *(round(each, 2) for each in seconds.values()), off])
    shown = table(
        f"Exact kernel PCA, normal rows of {COLUMNS} columns, the matrix held: seconds, medians of {REPETITIONS} (one "
        f"above {SLOW})",
        ["rows", "components", *_ways(1), "largest relative difference from LAPACK"],
        lines,
    )
    return Results((shown,))


def _ways(r: int) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    def ours(X: np.ndarray) -> np.ndarray:
        return KernelPCA(r, method="exact", sigma=SIGMA, random_state=0).fit(X).eigenvalues_

    def lapack(X: np.ndarray) -> np.ndarray:
        with mock.patch.object(solvers, "are_few", return_value=False):
            return ours(X)

    def theirs(solver: str) -> Callable[[np.ndarray], np.ndarray]:
        peer = Peer(r, kernel="rbf", gamma=0.5 / SIGMA**2, eigen_solver=solver, random_state=0)
        return lambda X: peer.fit(X).eigenvalues_

    return {
        "bigkpca": ours,
        "bigkpca, LAPACK": lapack,
        "scikit-learn, arpack": theirs("arpack"),
        "scikit-learn, dense": theirs("dense"),
    }


def _timed(fit: Callable[[np.ndarray], np.ndarray], X: np.ndarray) -> tuple[float, np.ndarray]:
    started = time.perf_counter()
    values = fit(X)
    return time.perf_counter() - started, values


if __name__ == "__main__":
    main()
