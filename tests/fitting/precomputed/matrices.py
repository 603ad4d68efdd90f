"""A Gram matrix of rows, in every form that users have it in, and fits of it."""

import shutil
from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np

from bigkpca import KernelPCA, kernels
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.execution.planning import plan_fit
from bigkpca.spec import FitSpec
from bigkpca.storage.models import save_model
from tests.helpers import oracles
from tests.helpers.fits import fit
from tests.helpers.stores import as_npy, as_zarr

N, NEW, R = 330, 40, 6
X = np.random.default_rng(0).normal(size=(N + NEW, 5)) * [3, 1, 2, 1, 0.5]
KERNEL = kernels.Gaussian(2.5)
WHOLE = KERNEL.gram(X)
K, K_NEW = WHOLE[:N, :N], WHOLE[N:, :N]
OPTIONS = {"kernel": "precomputed", "method": "exact"}
Damage = Callable[[Any], None]


def fitted(data, engine=None, progress=None, **options):
    given = {"components": R, "size": 60, "seed": 3, "residual_tol": 1e-7} | OPTIONS | options
    return fit(data, engine, progress, **given)


def estimator(**options):
    return KernelPCA(**{"n_components": R, "size": 60, "residual_tol": 1e-7, "random_state": 3} | OPTIONS | options)


SOURCES = {
    "numpy": lambda folder, values: values,
    "npy": as_npy,
    "Fortran npy": lambda folder, values: as_npy(folder, np.asfortranarray(values)),
    "dask": lambda folder, values: da.from_array(values, chunks=(50, 50)),
    "dask, strips": lambda folder, values: da.from_array(values, chunks=(33, -1)),
    "zarr": lambda folder, values: as_zarr(folder, values, (50, 50)),
    "zarr v2": lambda folder, values: as_zarr(folder, values, (50, 50), zarr_format=2),
    "zarr, rows": lambda folder, values: as_zarr(folder, values, (32, values.shape[1])),
    "zarr, odd chunks": lambda folder, values: as_zarr(folder, values, (37, 91)),
    "zarr, shards": lambda folder, values: as_zarr(folder, values, (40, 40), shards=(120, 80)),
    "zarr, one chunk": lambda folder, values: as_zarr(folder, values, values.shape),
}


def saved(model, out):
    shutil.rmtree(out, ignore_errors=True)
    save_model(model, str(out))
    return {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}


def swapped(values):
    values[[20, 30]] = values[[30, 20]]


def one_entry(values):
    values[201, 77] += 0.25


def indefinite(share, seed=0):
    """K and one negative direction, its eigenvalue a share of the largest."""
    u = np.random.default_rng(seed).normal(size=N)
    u -= u.mean()
    largest = np.linalg.eigvalsh(oracles.centred(K))[-1]
    return K - share * largest * np.outer(u, u) / (u @ u)


def squared(A, B):
    return np.square(A[:, None] - B[None]).sum(axis=2)


def scaled(D2, r):
    """Classical scaling as Torgerson has it: eigenvalues of -H D² H / 2, and coordinates."""
    return oracles.gram_kpca(-D2 / 2, r)


def planned(n, chunks=(1, 1), dtype=np.float32, **options):
    rows = ArrayRows(np.broadcast_to(np.zeros(1, dtype), (n, n)), grid=chunks)
    return plan_fit(rows, FitSpec.checked(**{"components": 20} | OPTIONS | options), 2)
