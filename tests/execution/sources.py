"""Kernels, one matrix as every kind of source, and engines, for tests of passes."""

import dask.array as da
import numpy as np
import pytest
import zarr

from bigkpca import kernels
from tests.helpers.stores import as_zarr

KERNELS = [
    kernels.Gaussian(2.0),
    kernels.Polynomial(0.1),
    kernels.Gaussian(3.0) * kernels.Linear() + 0.5 * kernels.Laplacian(2.0),
    kernels.Function(lambda X, Y: 1 / (1 + np.square(X[:, None] - Y[None]).sum(axis=2))),
]


def some_rows(n, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def sources(X, folder, chunk=30):
    path = as_zarr(folder, X, (chunk, X.shape[1]))
    return [X, zarr.open_array(path, mode="r"), path, da.from_array(X, chunks=(40, -1))]


# On threads in quick, on a cluster in full: what the fixture `engine` needs no third place for.
threads_and_processes = pytest.mark.parametrize(
    "engine", ["threads", pytest.param("processes", marks=pytest.mark.full)], indirect=True
)
