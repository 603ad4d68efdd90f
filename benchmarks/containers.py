"""Peak resident memory of a fit of the same rows in several containers, compared with that of a Dask array."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import zarr
from scipy import sparse

from benchmarks.common import arguments, child
from benchmarks.results import Results, Target, table

COLUMNS = 200
_BLOCK = 10_000  # rows of a chunk of Zarr, a file of Parquet, and a partition
_ARRAY = "import dask.array as da; X = da.from_zarr(path + '.zarr')"
_PARQUET = "import dask.dataframe as dd; X = dd.read_parquet(path + '.parquet')"
CONTAINERS = {  # X of the rows at `path`, and the bytes of it that are in memory
    "Dask array": (_ARRAY, "0"),
    "DataArray over it": (f"{_ARRAY}; import xarray as xr; X = xr.DataArray(X, dims=('row', 'column'))", "0"),
    "Dask DataFrame over it": (f"{_ARRAY}; import dask.dataframe as dd; X = dd.from_dask_array(X)", "0"),
    "Dask array of Parquet": (f"{_PARQUET}.to_dask_array(lengths=True)", "0"),
    "Dask DataFrame of Parquet": (_PARQUET, "0"),
    "sparse matrix": (
        "from scipy import sparse; X = sparse.load_npz(path + '.npz')",
        "X.data.nbytes + X.indices.nbytes + X.indptr.nbytes",
    ),
}
# Each beside the Dask array of what it reads: Dask's reader of Parquet itself needs more memory than that of Zarr.
REFERENCES = {
    "DataArray over it": "Dask array",
    "Dask DataFrame over it": "Dask array",
    "Dask DataFrame of Parquet": "Dask array of Parquet",
    "sparse matrix": "Dask array",
}
_FIT = """
import sys
path, size = sys.argv[1], int(sys.argv[2])
{make}
print({held})
from bigkpca import KernelPCA
KernelPCA(10, size=size, random_state=0).fit(X)
"""


def made(folder: Path, rows: int) -> str:
    """The path, without a suffix, of rows of which nine of ten values are 0: Zarr, Parquet and a sparse matrix."""
    path = folder / f"containers-{rows}"
    if path.with_suffix(".npz").exists():
        return str(path)
    path.with_suffix(".parquet").mkdir(parents=True, exist_ok=True)
    rng, height = np.random.default_rng(0), min(_BLOCK, rows)
    axes = rng.normal(size=(10, COLUMNS)).astype(np.float32)
    stored: Any = zarr.create_array(
        str(path.with_suffix(".zarr")), shape=(rows, COLUMNS), chunks=(height, COLUMNS), dtype="f4", overwrite=True
    )
    parts = []
    for number, start in enumerate(range(0, rows, height)):
        count = min(height, rows - start)
        X = rng.normal(size=(count, 10)).astype(np.float32) @ axes
        X += rng.normal(size=X.shape).astype(np.float32)
        X[rng.random(X.shape) < 0.9] = 0
        stored[start : start + count] = X
        pd.DataFrame(X).rename(columns=str).to_parquet(path.with_suffix(".parquet") / f"{number:05}.parquet")
        parts.append(sparse.csr_array(X))
    sparse.save_npz(path.with_suffix(".npz"), sparse.vstack(parts, format="csr"))
    return str(path)


def peak(container: str, path: str, size: int) -> tuple[float, float]:
    """Peak in MB of a process that fits the rows in this container, and MB of the container that are in memory."""
    make, held = CONTAINERS[container]
    output, found = child(_FIT.format(make=make, held=held), path, str(size))
    return found, int(output) / 1e6


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=400_000, repeats=2, size=500)
    path = made(given.folder, given.rows)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTAINERS}
    for _ in range(given.repeats):
        for name, runs in found.items():
            runs.append(peak(name, path, given.size))
    peaks = {name: statistics.median(most for most, _ in runs) for name, runs in found.items()}
    ratios = {name: peaks[name] / peaks[other] for name, other in REFERENCES.items()}
    dense = given.rows * COLUMNS * 4 / 1e6
    shown = table(
        f"Peak resident memory of a fit in MB, {given.rows} rows x {COLUMNS} columns ({dense:.0f} MB of float32), "
        f"{given.size} landmarks; medians of {given.repeats}",
        ["rows in", "peak", "container in memory", "times that of its Dask array"],
        [[name, f"{peaks[name]:.0f}", f"{runs[0][1]:.0f}", ratios.get(name, 1.0)] for name, runs in found.items()],
    )
    what = "peak memory of a fit of a container / of its Dask array, largest"
    return Results((shown,), (Target(what, max(ratios.values()), "at most", 1.2),))


if __name__ == "__main__":
    main()
