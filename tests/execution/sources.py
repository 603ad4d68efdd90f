"""Kernels, and one matrix as every kind of source, for tests of products with Gram matrices."""

import dask.array as da
import numpy as np
import zarr

from bigkpca import kernels

KERNELS = [
    kernels.Gaussian(2.0),
    kernels.Polynomial(0.1),
    kernels.Gaussian(3.0) * kernels.Linear() + 0.5 * kernels.Laplacian(2.0),
    kernels.Function(lambda X, Y: 1 / (1 + np.square(X[:, None] - Y[None]).sum(axis=2))),
]


def some_rows(n, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def sources(X, folder, chunk=30):
    stored = zarr.create_array(str(folder / "rows.zarr"), shape=X.shape, dtype=X.dtype, chunks=(chunk, X.shape[1]))
    stored[:] = X
    return {"array": X, "zarr": stored, "path": str(folder / "rows.zarr"), "dask": da.from_array(X, chunks=(40, -1))}
