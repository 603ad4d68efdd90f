"""Digits, two models of them, and scores and rows that were written once for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA
from bigkpca.execution.engine import Engine
from tests.helpers.stores import counted_reads
from tests.workflows.reconstruct.digits import CHUNK, OPTIONS, N


@pytest.fixture(scope="module")
def X(digits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return digits[:N].astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def dataset(folder: Path, X: np.ndarray[Any, Any]) -> str:
    """500 digits in five chunks."""
    path = str(folder / "digits.zarr")
    zarr.create_array(path, shape=X.shape, dtype=X.dtype, chunks=(CHUNK, 64))[:] = X
    return path


@pytest.fixture(scope="module")
def model(folder: Path, dataset: str) -> str:
    bigkpca.fit(dataset, folder / "model.zarr", **OPTIONS)
    return str(folder / "model.zarr")


@pytest.fixture(scope="module")
def other(folder: Path, dataset: str) -> str:
    """Another model of as many components."""
    bigkpca.fit(dataset, folder / "other.zarr", **OPTIONS | {"seed": 4})
    return str(folder / "other.zarr")


@pytest.fixture(scope="module")
def scores(folder: Path, dataset: str, model: str) -> str:
    bigkpca.transform(model, dataset, folder / "scores.zarr", block_rows=CHUNK)
    return str(folder / "scores.zarr")


@pytest.fixture(scope="module")
def back(folder: Path, model: str, scores: str) -> Path:
    """What the scores stand for, written in five shards by threads."""
    bigkpca.reconstruct(model, scores, folder / "back.zarr", block_rows=CHUNK)
    return folder / "back.zarr"


@pytest.fixture(scope="module")
def denoised(folder: Path, model: str, dataset: str) -> Path:
    bigkpca.denoise(model, dataset, folder / "denoised.zarr", block_rows=CHUNK)
    return folder / "denoised.zarr"


@pytest.fixture(scope="module")
def kpca(model: str) -> KernelPCA:
    return KernelPCA.load(model)


@pytest.fixture
def on(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Runs work on this engine."""

    @contextmanager
    def opened(*_: Any) -> Iterator[Engine]:
        yield engine

    monkeypatch.setattr("bigkpca.execution.run_options.open_engine", opened)
    return engine


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> np.ndarray[Any, Any]:
    """How often each of the five chunks was read."""
    return counted_reads(monkeypatch, N // CHUNK, CHUNK)
