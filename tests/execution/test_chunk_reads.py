"""Passes, counted: how often each stored chunk is read by a fit, and that its plan says the same."""

import re

import dask
import numpy as np
import pytest
import zarr

from bigkpca import arrays, landmarks, methods
from bigkpca.data.opening import open_rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.partial_fit import extend
from bigkpca.spec import FitSpec
from tests.helpers.fits import fit
from tests.helpers.progress import Recorder
from tests.helpers.stores import counted_reads

OPTIONS = {"components": 5, "size": 80, "seed": 3}
CHUNK = 100


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, digits):
    """900 digits in nine chunks."""
    path = str(tmp_path_factory.mktemp("rows") / "digits.zarr")
    zarr.create_array(path, shape=(900, 64), dtype=np.uint8, chunks=(CHUNK, 64))[:] = digits[:900]
    return path


@pytest.fixture
def reads(monkeypatch):
    """How often each of the nine chunks was read."""
    return counted_reads(monkeypatch, 9, CHUNK)


def fitted(dataset, progress=None, **options):
    return fit(dataset, progress=progress, **OPTIONS | options)


def planned(dataset, **options):
    return plan_fit(open_rows(dataset), FitSpec.checked(**OPTIONS | options), 1).passes


@pytest.mark.parametrize("block_rows", [None, 300])
@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({}, 1),
        ({"method": "columns"}, 1),
        ({"method": "rff"}, 1),
        ({"method": methods.RandomFeatures("qmc")}, 1),
        ({"method": "rff", "kernel": "polynomial"}, 1),
        *[({"landmarks": rule}, 1) for rule in landmarks.RULES],
        ({"landmarks": np.eye(40, 64) * 9, "size": "auto"}, 1),
        ({"landmarks": [5, 899, 431], "size": "auto"}, 1),
        ({"method": "rff-pca"}, 2),
        ({"method": methods.PrincipalFeatures("sampled-alpha")}, 2),
        ({"standardize": True}, 2),
        ({"standardize": True, "method": "rff"}, 2),
        ({"standardize": True, "method": "rff-pca"}, 3),
        ({"method": "rff", "solver": "randomized"}, 4),
        ({"method": "rff-pca", "solver": "randomized"}, 5),
        ({"method": "rff", "solver": "randomized", "standardize": True}, 5),
        ({"method": "rff", "solver": "randomized", "size": 2 * (OPTIONS["components"] + 10)}, 2),
        ({"method": "rff-pca", "solver": "randomized", "size": 2 * (OPTIONS["components"] + 10) + 2}, 1 + 3),
        ({"method": "exact"}, 0),
        ({"method": "exact", "standardize": True}, 1),
    ],
    ids=str,
)
def test_each_chunk_is_read_once_for_the_sample_and_once_for_each_planned_pass(
    options, passes, block_rows, dataset, reads
):
    fitted(dataset, **options, block_rows=block_rows)
    np.testing.assert_array_equal(reads, 1 + passes)
    assert planned(dataset, **options, block_rows=block_rows) == passes


@pytest.mark.parametrize("options", [{}, {"kernel": "polynomial"}, {"block_rows": 300}], ids=str)
@pytest.mark.parametrize("tol", [0.0, 0.1])
def test_rpcholesky_over_all_rows_makes_the_refreshing_passes_that_it_notes(options, tol, dataset, reads):
    notes = Recorder()
    fitted(dataset, notes, landmarks=landmarks.RPCholesky(over="all", tol=tol), **options)
    (said,) = (re.search(r"landmarks from all rows after (\d+) refreshing passes", note) for note in notes.notes)  # type: ignore[attr-defined]
    assert said is not None
    np.testing.assert_array_equal(reads, 2 + int(said[1]))
    if tol or "kernel" in options:  # making sure of the tolerance, or weights that the sample does not have
        assert int(said[1]) >= 1


def test_landmarks_by_number_are_read_with_the_sample(dataset, reads, monkeypatch):
    monkeypatch.setattr("bigkpca.spec.resolved.sample_rows", lambda n, d, size: 3)  # so few that some chunks hold none
    monkeypatch.setattr("bigkpca.spec.resolved._unseen", lambda spec, n, d: 0)
    fitted(dataset, kernel="linear", landmarks="uniform", size=3)
    without = reads - 1
    assert set(without) == {0, 1}
    reads[:] = 0
    numbers = np.flatnonzero(without == 0)[:2] * CHUNK + 7
    fitted(dataset, kernel="linear", landmarks=numbers, size="auto")
    expected = without.copy()
    expected[numbers // CHUNK] = 1
    np.testing.assert_array_equal(reads, 1 + expected)


@pytest.mark.parametrize("options", [{}, {"method": "rff"}, {"method": "rff-pca"}, {"standardize": True}], ids=str)
def test_adding_rows_and_projecting_read_each_chunk_once(options, dataset, reads):
    model = fitted(dataset, **options)
    spec = FitSpec.checked(**OPTIONS | options)
    reads[:] = 0
    extend(model, open_rows(dataset), spec, Engine(threads=1), Silent())
    assert set(reads) == {2}  # a sample, and the pass
    for work in (
        lambda: score_rows(open_rows(dataset), model, Engine(threads=1), Silent()),
        lambda: arrays.scores(model, dataset).compute(scheduler="synchronous"),
        lambda: arrays.feature_map(model, dataset).compute(scheduler="synchronous"),
        lambda: arrays.leverage(model, dataset).compute(scheduler="synchronous"),
    ):
        reads[:] = 0
        work()
        np.testing.assert_array_equal(reads, 1)


def test_randomized_svd_of_views_reads_each_chunk_once_a_pass(dataset, reads):
    model = fitted(dataset)
    for Z in (arrays.feature_map(model, dataset), arrays.random_features(dataset, 40, model.features.kernel)):
        U, s, _ = arrays.randomized_svd(Z, 3, passes=3)
        for asked, passes in (((s,), 3), ((U, s), 4)):
            reads[:] = 0
            dask.compute(*asked, scheduler="synchronous")
            np.testing.assert_array_equal(reads, passes)


def test_views_read_nothing_before_they_are_computed(dataset, reads):
    model = fitted(dataset)
    reads[:] = 0
    views = [view(model, dataset) for view in (arrays.scores, arrays.feature_map, arrays.leverage)]
    views.append(arrays.random_features(dataset, 20, model.features.kernel))
    views.append(arrays.kernel_blocks(dataset, np.eye(3, 64), model.features.kernel)[0])
    assert reads.sum() == 0
    assert [len(view) for view in views] == [900] * 5
