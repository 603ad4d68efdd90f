"""A Gram matrix of rows, in every form that users have it in, and fits of it."""

import dask.array as da
import numpy as np

from bigkpca import KernelPCA, kernels
from tests.helpers import oracles
from tests.helpers.fits import fit
from tests.helpers.stores import as_npy, as_zarr

N, NEW, R = 330, 40, 6
X = np.random.default_rng(0).normal(size=(N + NEW, 5)) * [3, 1, 2, 1, 0.5]
KERNEL = kernels.Gaussian(2.5)
WHOLE = KERNEL.gram(X)
K, K_NEW = WHOLE[:N, :N], WHOLE[N:, :N]
OPTIONS = {"kernel": "precomputed", "method": "exact"}


def fitted(data, engine=None, **options):
    given = {"n_components": R, "size": 60, "random_state": 3, "residual_tol": 1e-7} | OPTIONS | options
    return fit(data, engine, **given)


def estimator(**options):
    return KernelPCA(**{"n_components": R, "size": 60, "residual_tol": 1e-7, "random_state": 3} | OPTIONS | options)


SOURCES = {
    "npy": as_npy,
    "Fortran npy": lambda folder, values: as_npy(folder, np.asfortranarray(values)),
    "dask": lambda folder, values: da.from_array(values, chunks=(50, 50)),
    "zarr, odd chunks": lambda folder, values: as_zarr(folder, values, (37, 91)),
    "zarr, shards": lambda folder, values: as_zarr(folder, values, (40, 40), shards=(120, 80)),
}


def with_entry(row, column, value):
    """K with one wrong entry."""
    wrong = K.copy()
    wrong[row, column] = value
    return wrong


def squared_distances(A, B):
    return np.square(A[:, None] - B[None]).sum(axis=2)


DISTANCES = -squared_distances(X[:N], X[:N]) / 2  # what classical scaling takes


def leading(matrix, count=R, center=True):
    """The largest eigenvalues of the centred matrix, descending."""
    return np.linalg.eigvalsh(oracles.centred(matrix) if center else matrix)[::-1][:count]
