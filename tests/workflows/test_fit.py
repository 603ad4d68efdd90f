"""Fits from path to path: the same bits everywhere, nothing done twice, nothing of others replaced."""

import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import score_rows
from bigkpca.storage import groups
from bigkpca.storage.models import load_model
from tests.data.cases import refused
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import OPTIONS
from tests.helpers.progress import Recorder


@pytest.fixture
def model(dataset, tmp_path):
    """A model that remembers the path of `dataset`."""
    bigkpca.fit(dataset, tmp_path / "model.zarr", **OPTIONS)
    return str(tmp_path / "model.zarr")


@pytest.mark.bits
def test_models_and_stored_scores_are_the_same_bytes_on_threads_and_processes(dataset, model, tmp_path, two_processes):
    bigkpca.transform(model, dataset, tmp_path / "threads.zarr", block_rows=200)
    with two_processes.client.as_current():
        bigkpca.transform(model, dataset, tmp_path / "processes.zarr", block_rows=200)
        bigkpca.fit(dataset, tmp_path / "model-of-processes.zarr", **OPTIONS)
    assert tree_bytes(tmp_path / "processes.zarr") == tree_bytes(tmp_path / "threads.zarr")
    assert tree_bytes(tmp_path / "model-of-processes.zarr") == tree_bytes(model)


@pytest.mark.full
def test_workers_in_another_folder_find_what_was_named_from_here(digits, tmp_path, two_processes, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", digits[:300])
    with two_processes.client.as_current():
        bigkpca.fit("few.npy", "model.zarr", n_components=3, size=20)
        bigkpca.transform("model.zarr", "few.npy", "scores.zarr")
    assert two_processes.client.submit(os.getcwd).result() != str(tmp_path)
    scores = score_rows(ArrayRows(digits[:300]), bigkpca.load("model.zarr"), Engine())
    np.testing.assert_array_equal(groups.open_main("scores.zarr", "features")[:], scores)


def test_a_model_needs_no_training_data_and_scores_the_same_rows_in_memory(dataset, model, digits, tmp_path):
    stored = bigkpca.transform(model, dataset, tmp_path / "scores.zarr", block_rows=4096)
    shutil.rmtree(dataset)
    fitted = bigkpca.load(model)
    scores = score_rows(ArrayRows(digits), fitted, Engine())
    np.testing.assert_array_equal(stored[:], scores)
    np.testing.assert_allclose((scores.astype(float) ** 2).sum(axis=0), fitted.solution.eigenvalues, rtol=1e-4)


def test_other_rows_in_memory_are_not_taken_for_the_same(digits, model, tmp_path):
    out, scores, notes = tmp_path / "memory.zarr", tmp_path / "scores.zarr", Recorder()
    for _ in range(2):
        bigkpca.fit(digits, out, progress=notes, **OPTIONS)
        bigkpca.transform(model, digits, scores, progress=notes)
    assert len(notes.notes) == 2
    assert all("nothing to do" in note for note in notes.notes)
    others, message = digits[::-1], r"of other rows \(1,?797 rows\)"
    refused(partial(bigkpca.fit, **OPTIONS), (others, out, SpecError, f"a model {message}"))
    refused(bigkpca.transform, (model, others, scores, SpecError, f"a feature store {message}"))


def test_the_same_fit_again_does_nothing_and_another_in_the_way_is_named_and_kept(dataset, model):
    before, notes = tree_bytes(model), Recorder()
    changed = {path: path.stat().st_mtime_ns for path in Path(model).rglob("*")}
    bigkpca.fit(dataset, model, progress=notes, **OPTIONS)
    assert "nothing to do" in notes.notes[0]
    assert {path: path.stat().st_mtime_ns for path in Path(model).rglob("*")} == changed
    smaller = partial(bigkpca.fit, **OPTIONS | {"size": 50})
    message = r"already holds a model made with other options .*size is 100 there and 50 here.*--overwrite"
    refused(smaller, (dataset, model, SpecError, message))
    assert tree_bytes(model) == before
    smaller(dataset, model, overwrite=True)
    assert load_model(model).features.size == 50
    assert sorted(path.name for path in Path(model).parent.iterdir()) == ["digits.zarr", "model.zarr"]
