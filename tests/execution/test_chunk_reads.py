"""Passes, counted: how often each stored chunk is read by a fit, and that its plan says the same."""

from functools import partial

import dask
import numpy as np
import pytest

import bigkpca
from bigkpca import arrays, kernels, landmarks, methods, preimages
from bigkpca.data.opening import open_rows
from bigkpca.evaluating import preimage_error
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.fitting.merge import extend
from bigkpca.spec import FitSpec
from tests.helpers.fits import fit, scores
from tests.helpers.stores import as_zarr, counted_reads

OPTIONS = {"n_components": 5, "size": 80, "random_state": 3}
CHUNK = 100


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, digits):
    """900 digits in nine chunks."""
    return as_zarr(tmp_path_factory.mktemp("rows"), digits[:900], (CHUNK, 64))


@pytest.fixture
def reads(monkeypatch):
    """How often each of the nine chunks was read."""
    return counted_reads(monkeypatch, 9, CHUNK)


PASSES = [
    ({}, 1),
    ({"block_rows": 300}, 1),
    ({"method": "rff"}, 1),
    ({"landmarks": [5, 899, 431], "size": "auto", "n_components": 3}, 1),
    ({"standardize": True, "method": "rff-pca", "block_rows": 300}, 3),
    ({"method": "rff-pca", "solver": "randomized"}, 5),
    ({"method": "exact"}, 0),
    ({"method": "rff", "preimage": preimages.Denoising(noise=2.0, size=50)}, 1),
]
MORE_PASSES = [
    ({"method": "columns"}, 1),
    ({"method": "rff", "kernel": "polynomial"}, 1),
    *[({"landmarks": rule, "block_rows": 300}, 1) for rule in landmarks.RULES],
    ({"landmarks": np.eye(40, 64) * 9, "size": "auto"}, 1),
    ({"method": "rff-pca"}, 2),
    ({"method": methods.PrincipalFeatures("sampled-alpha")}, 2),
    ({"standardize": True}, 2),
    ({"method": "rff", "solver": "randomized", "block_rows": 300}, 4),
    ({"method": "rff", "solver": "randomized", "standardize": True}, 5),
    ({"method": "rff", "solver": "randomized", "size": 2 * (OPTIONS["n_components"] + 10)}, 2),
    ({"method": "rff-pca", "solver": "randomized", "size": 2 * (OPTIONS["n_components"] + 10) + 2}, 1 + 3),
    ({"method": "exact", "standardize": True}, 1),
    ({"method": "rff-pca", "preimage": "mds"}, 2),
    ({"method": "exact", "preimage": "ridge"}, 0),
]


@pytest.mark.parametrize("cases", [PASSES, pytest.param(MORE_PASSES, marks=pytest.mark.full)], ids=["some", "all"])
def test_each_chunk_is_read_once_for_the_sample_and_once_for_each_planned_pass(cases, dataset, reads):
    for options, passes in cases:
        reads[:] = 0
        fit(dataset, **OPTIONS | options)
        np.testing.assert_array_equal(reads, 1 + passes, str(options))
        plan = plan_fit(open_rows(dataset), FitSpec.checked(**OPTIONS | options), 1)
        assert (plan.passes, plan.bytes_read) == (passes, (1 + passes) * 900 * 64), options


def test_landmarks_by_number_are_read_with_the_sample(dataset, reads, monkeypatch):
    monkeypatch.setattr("bigkpca.spec.resolved.sample_rows", lambda n, d, size: 3)  # so few that some chunks hold none
    options = {"n_components": 2, "kernel": kernels.Function(np.inner), "random_state": 3}  # no row is read for a bound
    fit(dataset, landmarks="uniform", size=3, **options)
    without = reads - 1
    assert set(without) == {0, 1}
    reads[:] = 0
    numbers = np.flatnonzero(without == 0)[:2] * CHUNK + 7
    fit(dataset, landmarks=numbers, **options)
    without[numbers // CHUNK] = 1
    np.testing.assert_array_equal(reads, 1 + without)


@pytest.mark.parametrize("options", [{"standardize": True}, {"method": "rff"}], ids=str)
def test_adding_rows_and_what_works_block_by_block_read_each_chunk_once(options, dataset, reads, tmp_path):
    model, rows = fit(dataset, **OPTIONS | options), open_rows(dataset)
    reads[:] = 0
    extend(model, rows, FitSpec.checked(**OPTIONS | options), Engine(threads=1))
    assert set(reads) == {2}  # a sample, and the pass
    views = arrays.scores, arrays.feature_map, arrays.leverage, arrays.denoised, arrays.residuals
    for work in (
        lambda: scores(model, dataset),
        lambda: bigkpca.transform(model, dataset, tmp_path / "s.zarr", residual=True, block_rows=CHUNK),
        lambda: bigkpca.denoise(model, dataset, tmp_path / "x.zarr", block_rows=CHUNK),
        lambda: preimage_error(model, rows, None, Engine(threads=1)),
        *(partial(dask.compute, view(model, dataset), scheduler="synchronous") for view in views),
    ):
        reads[:] = 0
        work()
        assert set(reads) == {1}
