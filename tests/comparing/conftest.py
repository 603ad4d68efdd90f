"""Digits that are compared, and comparisons of them made once for all tests of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigkpca
from bigkpca.comparing import Comparison
from tests.comparing.options import COMPONENTS, FEW, SIZES


@pytest.fixture(scope="module")
def X(digits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return digits[:400].astype(np.float64)


@pytest.fixture(scope="module")
def data(X: np.ndarray[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("compare") / "digits.npy"
    np.save(path, X)
    return str(path)


@pytest.fixture(scope="module")
def compared(data: str, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    out = tmp_path_factory.mktemp("compare") / "all"
    return bigkpca.compare(data, out, components=COMPONENTS, sizes=SIZES, seeds=2)


@pytest.fixture(scope="module")
def few(data: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return bigkpca.compare(data, tmp_path_factory.mktemp("compare") / "few", **FEW).path
