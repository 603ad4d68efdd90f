"""fit + transform of MNIST against scikit-learn's Nystroem + PCA: time, memory, and the variance they capture.

Ours reads a Zarr dataset and writes model and scores to disk; scikit-learn starts from the array in memory,
as float32, and keeps its scores there. Each run is a process of its own; imports and loading are not timed.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.common import MEDIAN_DISTANCE, arguments, child, median_ratio, repeated_dataset, table

_OURS = """
import json, shutil, sys, time
import bigkpca
from bigkpca.execution.clusters import open_engine
data, model, scores, sigma, size, landmarks = sys.argv[1:]
for path in (model, scores):
    shutil.rmtree(path, ignore_errors=True)
bigkpca.fit, bigkpca.transform
started = time.perf_counter()
fitted = bigkpca.fit(data, model, components=50, sigma=float(sigma), size=int(size), landmarks=landmarks)
middle = time.perf_counter()
bigkpca.transform(fitted, data, scores)
ended = time.perf_counter()
top = float(fitted.solution.eigenvalues[:20].sum())
print(json.dumps([ended - started, middle - started, top]))
"""

_SCIKIT_LEARN = """
import json, sys, time
import numpy as np
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem
data, sigma, size = sys.argv[1:]
import zarr
X = zarr.open_group(data, mode="r")["x"][:].astype(np.float32)
started = time.perf_counter()
features = Nystroem(gamma=0.5 / float(sigma) ** 2, n_components=int(size), random_state=0)
Z = features.fit_transform(X)
pca = PCA(50, svd_solver="covariance_eigh").fit(Z)
middle = time.perf_counter()
pca.transform(Z)
ended = time.perf_counter()
print(json.dumps([ended - started, middle - started, float(pca.explained_variance_[:20].sum() * (len(X) - 1))]))
"""


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=60_000)
    data = repeated_dataset(given.folder, given.rows)
    model, scores = str(given.folder / "model.zarr"), str(given.folder / "scores.zarr")
    sides: dict[str, tuple[str, tuple[str, ...]]] = {
        f"bigkpca k-means {size}": (_OURS, (data, model, scores, str(MEDIAN_DISTANCE), str(size), "kmeans"))
        for size in (given.size // 2, given.size)
    }
    sides[f"bigkpca uniform {given.size}"] = (
        _OURS,
        (data, model, scores, str(MEDIAN_DISTANCE), str(given.size), "uniform"),
    )
    peer = f"scikit-learn {given.size}"
    sides[peer] = (_SCIKIT_LEARN, (data, str(MEDIAN_DISTANCE), str(given.size)))
    runs: dict[str, list[tuple[list[float], float]]] = {name: [] for name in sides}
    for _ in range(given.repeats):
        for name, (code, values) in sides.items():
            printed, peak = child(code, *values)
            runs[name].append((json.loads(printed), peak))
    for path in (model, scores):
        shutil.rmtree(path, ignore_errors=True)
    table(
        f"MNIST {given.rows} rows, 50 components, fit + transform; medians of {given.repeats} interleaved runs",
        ["what", "seconds", "of which fit", "times as fast", "peak MB", "of its memory", "top-20 eigenvalues"],
        [_line(name, runs[name], runs[peer]) for name in sides],
    )


def _line(name: str, own: list[tuple[list[float], float]], peer: list[tuple[list[float], float]]) -> list[Any]:
    seconds, theirs = [run[0][0] for run in own], [run[0][0] for run in peer]
    peak, their_peak = statistics.median(run[1] for run in own), statistics.median(run[1] for run in peer)
    fit = statistics.median(run[0][1] for run in own)
    faster = median_ratio(theirs, seconds)
    return [name, statistics.median(seconds), fit, faster, round(peak), peak / their_peak, f"{own[0][0][2]:.1f}"]


if __name__ == "__main__":
    main()
