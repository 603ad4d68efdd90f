"""Digits that are compared, and comparisons of them made once for all tests of a file."""

import numpy as np
import pytest

import bigkpca
from tests.comparing.options import COMPONENTS, FEW, SIZES


@pytest.fixture(scope="module")
def X(digits):
    return digits[:400].astype(np.float64)


@pytest.fixture(scope="module")
def data(X, tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "digits.npy"
    np.save(path, X)
    return str(path)


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "all"
    return bigkpca.compare(data, out, n_components=COMPONENTS, sizes=SIZES, seeds=1)


@pytest.fixture(scope="module")
def few(data, tmp_path_factory):
    return bigkpca.compare(data, tmp_path_factory.mktemp("compare") / "few", **FEW).path
