"""A folder with a file of rows, their dataset, a model and scores."""

import contextlib
import shutil

import numpy as np
import pytest

import bigkpca
from bigkpca.ingesting import ingest
from tests.storage.outputs import FIT, X


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with a file of rows, their dataset, a model and scores, which tests copy."""
    folder = tmp_path_factory.mktemp("made")
    with contextlib.chdir(folder):
        np.save("a.npy", X)
        ingest(["a.npy"], "d.zarr", block_rows=32)
        bigkpca.fit("d.zarr", "m.zarr", **FIT)
        bigkpca.transform("m.zarr", "d.zarr", "s.zarr", block_rows=32)
    return folder


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    """A copy of it: the current folder, and that of the user. Its scores name the first folder's dataset."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path
