"""Digits, two models of them, and scores and rows that are written once for all tests of this folder."""

import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA
from tests.helpers.stores import as_zarr
from tests.workflows.reconstruct.digits import CHUNK, OPTIONS, N


@pytest.fixture(autouse=True)
def _quiet(quiet_signals):
    """Commands run in this process."""


@pytest.fixture(scope="session")
def X(digits):
    return digits[:N].astype(np.float32)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def dataset(folder, X):
    """500 digits in five chunks."""
    return as_zarr(folder, X, (CHUNK, 64), "digits.zarr")


@pytest.fixture(scope="session")
def model(folder, dataset):
    bigkpca.fit(dataset, folder / "model.zarr", **OPTIONS)
    return str(folder / "model.zarr")


@pytest.fixture(scope="session")
def other(folder, dataset):
    """Another model of as many components."""
    bigkpca.fit(dataset, folder / "other.zarr", **OPTIONS | {"random_state": 4})
    return str(folder / "other.zarr")


@pytest.fixture(scope="session")
def scores(folder, dataset, model):
    bigkpca.transform(model, dataset, folder / "scores.zarr", block_rows=CHUNK)
    return str(folder / "scores.zarr")


@pytest.fixture(scope="session")
def back(folder, model, scores):
    """What the scores stand for, written in five shards by threads."""
    bigkpca.reconstruct(model, scores, folder / "back.zarr", block_rows=CHUNK)
    return folder / "back.zarr"


@pytest.fixture(scope="session")
def denoised(folder, model, dataset):
    bigkpca.denoise(model, dataset, folder / "denoised.zarr", block_rows=CHUNK)
    return folder / "denoised.zarr"


@pytest.fixture(scope="session")
def kpca(model):
    return KernelPCA.load(model)
