"""What pre-images cost: planned passes over the rows, and peaks of memory below the plan."""

from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, arrays, preimages
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_evaluate, plan_fit, plan_reconstruct
from bigkpca.execution.projection import residual_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec
from bigkpca.storage.models import load_model
from tests.helpers.commands import peak_bytes, planned_bytes, run
from tests.workflows.reconstruct.digits import CHUNK, OPTIONS, WAYS, N, error_of, fitted, wide_rows

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")


@pytest.mark.parametrize(
    ("way", "method"),
    [
        ("fixed-point", "nystroem"),
        ("denoising", "rff"),
        pytest.param("ridge", "nystroem", marks=pytest.mark.full),
        pytest.param("mds", "rff-pca", marks=pytest.mark.full),
        pytest.param("denoising of the fit's noise", "exact", marks=pytest.mark.full),
        pytest.param("linear", "exact", marks=pytest.mark.full),
    ],
)
def test_ways_back_that_are_learned_cost_one_planned_pass_and_others_none(way, method, dataset, reads):
    spec = FitSpec.checked(**OPTIONS | {"method": method} | WAYS[way])
    passes = {"nystroem": 1, "rff": 1, "rff-pca": 2, "exact": 0}[method] + spec.preimage_value.trained
    fit_rows(open_rows(dataset), spec, Engine(threads=1))
    np.testing.assert_array_equal(reads, 1 + passes)
    plan = plan_fit(open_rows(dataset), spec, 1)
    assert plan.passes == passes
    assert plan.bytes_read == (1 + passes) * N * 64 * 4


@pytest.mark.full
def test_refined_models_learn_the_way_back_in_one_pass_more(dataset, reads):
    counts = []
    for way in ("fixed-point", preimages.Ridge(size=50)):
        reads[:] = 0
        spec = FitSpec.checked(**OPTIONS | {"refine": 1, "preimage": way})
        model = fit_rows(open_rows(dataset), spec, Engine(threads=1))
        counts.append((reads.copy(), plan_fit(open_rows(dataset), spec, 1).passes))
        assert error_of(model, zarr.open_array(dataset)[:]) < 0.6
    (without, planned), (with_ridge, planned_too) = counts
    np.testing.assert_array_equal(with_ridge, without + 1)
    assert planned_too == planned + 1


@pytest.mark.full
def test_the_way_back_reads_each_chunk_once(dataset, model, tmp_path, reads):
    fitted_model = load_model(model)
    for number, work in enumerate(
        (
            lambda out: bigkpca.denoise(model, dataset, out, block_rows=CHUNK),
            lambda out: bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK),
            lambda out: arrays.denoised(fitted_model, dataset).compute(scheduler="synchronous"),
            lambda out: arrays.residuals(fitted_model, dataset).compute(scheduler="synchronous"),
            lambda out: residual_rows(open_rows(dataset), fitted_model, Engine(threads=1)),
            lambda out: KernelPCA.load(model).score(dataset),
        )
    ):
        reads[:] = 0
        work(tmp_path / f"{number}.zarr")
        np.testing.assert_array_equal(reads, 1)


def test_a_way_back_that_does_not_fit_in_memory_is_refused(model, scores, dataset, tmp_path):
    for work in (
        lambda: bigkpca.reconstruct(model, scores, tmp_path / "out.zarr", memory="20 MB"),
        lambda: bigkpca.denoise(model, dataset, tmp_path / "out.zarr", memory=20 * 10**6),
    ):
        with pytest.raises(
            MemoryLimitError, match=r"needs \d+ MB in a process, but 20 MB are allowed: ask for smaller"
        ):
            work()
    assert not (tmp_path / "out.zarr").exists()
    assert run("reconstruct", model, scores, tmp_path / "out.zarr", "--memory", "2 GB", "-q").exit_code == 0


def test_an_evaluation_of_many_rows_by_an_exact_model_of_few_is_planned(X):
    exact = fitted(np.float32(X[:60]), method="exact", n_components=0.5)
    many = ArrayRows(np.broadcast_to(np.float32(0), (10**5, 64)))
    plan = plan_evaluate(many, exact, 100, 800, 2)
    assert plan.array_bytes < plan_evaluate(many, exact, 1000, 8000, 2).array_bytes


def test_a_plan_of_the_way_back_counts_what_takes_memory(model, X):
    fitted_model, rows = load_model(model), ArrayRows(np.broadcast_to(np.float32(0), (10**6, 64)))
    plan = plan_reconstruct(rows, fitted_model, None, 2)
    assert (plan.rows, plan.columns, plan.passes, plan.size) == (10**6, 64, 1, 60)
    assert plan.bytes_read == 10**6 * 64 * 4 == plan.result_bytes
    assert plan.array_bytes < plan_reconstruct(rows, fitted_model, None, 4).array_bytes
    decoder = fitted_model.decoder
    learning = decoder.learning_bytes(fitted_model.features)
    learned = decoder.learned(fitted_model.features, fitted_model.solution)
    assert learning > sum(values.nbytes for values in learned.arrays().values())
    least = fitted(np.float32(X), preimage="fixed-point")
    assert plan.array_bytes - plan_reconstruct(rows, least, None, 2).array_bytes > learning
    longer = ArrayRows(np.broadcast_to(np.float32(0), (10**7, 64)))
    assert plan_reconstruct(longer, fitted_model, None, 2).array_bytes < 1.2 * plan.array_bytes
    of_scores = plan_reconstruct(ArrayRows(np.broadcast_to(np.float32(0), (10**6, 8))), fitted_model, None, 2)
    assert of_scores.bytes_read == 10**6 * 8 * 4
    assert of_scores.result_bytes == plan.result_bytes
    larger = [
        plan_fit(rows, FitSpec.checked(preimage=preimages.Ridge(size=size), size=100), 2).array_bytes
        for size in (1000, 4000)
    ]
    assert larger[1] - larger[0] > 8 * (4000**2 - 1000**2)


def peak_and_plan(*command):
    plan = planned_bytes(*command)  # first: where the output is finished, a command has nothing to refuse
    return peak_bytes(*command, "-q"), plan


@pytest.mark.full
@pytest.mark.alone
@linux
def test_peaks_of_pre_images_stay_below_their_plan(tmp_path):
    rows, model, scores = wide_rows(tmp_path / "rows.npy", 4500, 500), tmp_path / "model.zarr", tmp_path / "scores.zarr"
    bigkpca.fit(rows, model, preimage=preimages.FixedPoint(iterations=2), size=400, n_components=20)
    for least, *command in (
        (0, "transform", "--residual", model, rows, scores),
        (0.5, "reconstruct", model, scores, tmp_path / "reconstructed.zarr"),
        (0.5, "denoise", model, rows, tmp_path / "denoised.zarr"),
    ):
        found, plan = peak_and_plan(*command)
        assert least * plan < found <= plan, (command, found, plan)


@pytest.mark.alone
@pytest.mark.long
@linux
@pytest.mark.parametrize(
    "options", [["ridge"], ["denoising", "--noise", "1"], ["mds"], ["linear"], ["fixed-point"], ["auto"]]
)
@pytest.mark.parametrize("n", [2000, 20_000])
def test_peaks_of_every_way_back_stay_below_their_plan(options, n, tmp_path):
    rows, model = wide_rows(tmp_path / "rows.npy", n, 784), tmp_path / "model.zarr"
    for command in (
        ("fit", rows, model, "--size", 1000, "--preimage", *options),
        ("denoise", model, rows, tmp_path / "denoised.zarr"),
    ):
        found, plan = peak_and_plan(*command)
        assert found <= plan, (command, found, plan)
