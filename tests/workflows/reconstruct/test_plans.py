"""What scores and pre-images cost: passes over the rows, bytes that are written, and peaks of memory below the plan."""

from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA, arrays, preimages
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit, plan_reconstruct, plan_transform
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec
from bigkpca.storage.models import load_model
from tests.helpers.commands import peak_bytes, planned_bytes, run
from tests.helpers.stores import counted_reads
from tests.workflows.reconstruct.digits import CHUNK, DENOISING, OPTIONS, N, fitted


@pytest.fixture
def reads(monkeypatch):
    """How often each of the five chunks was read."""
    return counted_reads(monkeypatch, N // CHUNK, CHUNK)


@pytest.mark.parametrize(
    ("way", "method", "passes"),
    [
        ("fixed-point", "nystroem", 1),
        (DENOISING, "rff", 1),
        pytest.param("mds", "rff-pca", 2, marks=pytest.mark.full),
        pytest.param("ridge", "exact", 0, marks=pytest.mark.full),
    ],
)
def test_ways_back_make_no_pass(way, method, passes, dataset, reads):
    spec = FitSpec.checked(**OPTIONS | {"method": method, "preimage": way})
    fit_rows(open_rows(dataset), spec, Engine(threads=1))
    np.testing.assert_array_equal(reads, 1 + passes)
    plan = plan_fit(open_rows(dataset), spec, 1)
    assert (plan.passes, plan.bytes_read) == (passes, (1 + passes) * N * 64 * 4)


@pytest.mark.full
def test_what_works_block_by_block_reads_each_chunk_once(dataset, model, tmp_path, reads):
    loaded = load_model(model)
    for number, work in enumerate(
        (
            lambda out: bigkpca.denoise(model, dataset, out, block_rows=CHUNK),
            lambda out: bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK),
            lambda out: arrays.denoised(loaded, dataset).compute(scheduler="synchronous"),
            lambda out: arrays.residuals(loaded, dataset).compute(scheduler="synchronous"),
            lambda out: KernelPCA.load(model).score(dataset),
        )
    ):
        reads[:] = 0
        work(tmp_path / f"{number}.zarr")
        np.testing.assert_array_equal(reads, 1)


def test_a_way_back_that_does_not_fit_in_memory_is_refused(model, scores, dataset, tmp_path):
    refused = r"needs \d+ MB in a process, but 20 MB are allowed: ask for smaller"
    for write, given in ((bigkpca.reconstruct, scores), (bigkpca.denoise, dataset)):
        with pytest.raises(MemoryLimitError, match=refused):
            write(model, given, tmp_path / "out.zarr", memory="20 MB")
    assert not (tmp_path / "out.zarr").exists()
    assert run("reconstruct", model, scores, tmp_path / "out.zarr", "--memory", "2 GB", "-q").exit_code == 0


def test_plans_count_the_scores_and_flags_that_are_stored(model, dataset):
    found, rows = load_model(model), open_rows(dataset)
    of_all, few = (plan_transform(rows, each, 100, 2) for each in (found, found.leading(3)))
    wide, judged = (plan_transform(rows, found, 100, 2, **how) for how in ({"dtype": "float64"}, {"judged": True}))
    assert (of_all.result_bytes, few.result_bytes, wide.result_bytes) == (500 * 8 * 4, 500 * 3 * 4, 500 * 8 * 8)
    assert few.array_bytes < of_all.array_bytes < wide.array_bytes
    assert judged.result_bytes - of_all.result_bytes == 500 * (4 + 9)  # residuals and flags
    assert judged.array_bytes > of_all.array_bytes


def test_a_plan_of_the_way_back_counts_what_takes_memory(model, X):
    def plan(model, rows=10**6, columns=64, threads=2):
        rows = ArrayRows(np.broadcast_to(np.float32(0), (rows, columns)))
        return plan_reconstruct(rows, model, None, threads)

    loaded = load_model(model)
    found = plan(loaded)
    assert (found.rows, found.columns, found.passes, found.size) == (10**6, 64, 1, 60)
    assert found.bytes_read == 10**6 * 64 * 4 == found.result_bytes
    assert found.array_bytes < plan(loaded, threads=4).array_bytes
    assert plan(loaded, rows=10**7).array_bytes < 1.2 * found.array_bytes
    kept = plan(fitted(X, preimage="mds"))  # which keeps 500 rows of 64 columns
    assert kept.array_bytes - plan(fitted(X, preimage="mds:rows=100")).array_bytes == 4 * 400 * (64 + 2 * (8 + 1))
    of_scores = plan(loaded, columns=8)
    assert (of_scores.bytes_read, of_scores.result_bytes) == (10**6 * 8 * 4, found.result_bytes)


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
def test_peaks_of_pre_images_stay_below_their_plan(tmp_path):
    rows, model, scores = (tmp_path / name for name in ("rows.npy", "model.zarr", "scores.zarr"))
    rng = np.random.default_rng(0)  # ten strong directions, as data have
    X = rng.normal(size=(4500, 10)) @ rng.normal(size=(10, 500)) + rng.normal(size=(4500, 500))
    np.save(rows, X.astype(np.float32))
    bigkpca.fit(rows, model, preimage=preimages.FixedPoint(iterations=2), size=400, n_components=20)
    bigkpca.transform(model, rows, scores)
    for command, given in (("reconstruct", scores), ("denoise", rows)):
        words = command, model, given, tmp_path / f"{command}.zarr"
        planned = planned_bytes(*words)
        found = peak_bytes(*words, "-q")
        assert 0.5 * planned < found <= planned, (command, found, planned)
