"""Scores and models that lead to no rows, and rows that are far or did not converge."""

import json
import re
import shutil
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, preimages
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import block_denoised, reconstruct_rows, residual_rows
from bigkpca.spec import FitSpec
from bigkpca.storage import block_arrays
from bigkpca.storage.models import load_model, model_digest, save_model
from tests.helpers.commands import run
from tests.helpers.progress import Recorder
from tests.workflows.reconstruct.digits import N, error_of, fitted


def test_scores_of_another_model_are_refused_with_both_digests(other, model, scores, dataset, tmp_path):
    theirs, own = (model_digest(load_model(path))[:12] for path in (model, other))
    message = rf"scores\.zarr.* holds scores of the model {theirs}, this is the model {own}"
    stored = zarr.open_group(scores, mode="r")["scores"]
    kpca, loaded = KernelPCA.load(other), load_model(other)
    for work in (
        lambda: bigkpca.reconstruct(other, scores, tmp_path / "out.zarr"),
        lambda: bigkpca.reconstruct(other, stored, tmp_path / "out.zarr"),
        lambda: kpca.inverse_transform(Path(scores)),
        lambda: kpca.inverse_transform(stored),
        lambda: arrays.preimages(loaded, str(Path(scores, "scores"))),
        lambda: arrays.preimages(loaded, stored),
    ):
        with pytest.raises(SpecError, match=message):
            work()
    assert not (tmp_path / "out.zarr").exists()
    result = run("reconstruct", other, scores, tmp_path / "out.zarr")
    assert result.exit_code == 2
    assert re.search(message, result.stderr)


def test_scores_that_are_not_finished_are_refused(model, scores, tmp_path):
    half = tmp_path / "scores.zarr"
    shutil.copytree(scores, half)
    (half / "scores" / "manifest.json").unlink()
    (half / "scores" / "c" / "2" / "0").unlink()
    with pytest.raises(IncompleteError, match="is not finished: run the same bigkpca transform command again"):
        bigkpca.reconstruct(model, half, tmp_path / "out.zarr")
    result = run("reconstruct", model, half, tmp_path / "out.zarr")
    assert result.exit_code == 6
    (half / "scores" / "manifest.json").write_text("{")
    with pytest.raises(CorruptionError, match="does not parse"):
        bigkpca.reconstruct(model, half, tmp_path / "out.zarr")


def test_scores_of_another_width_are_refused(model, kpca, tmp_path):
    for work in (
        lambda: bigkpca.reconstruct(model, np.ones((10, 5)), tmp_path / "out.zarr"),
        lambda: kpca.inverse_transform(np.ones((10, 5))),
        lambda: kpca.inverse_transform(da.ones((10, 5))),
        lambda: arrays.preimages(kpca.model_, da.ones((10, 5))),
    ):
        with pytest.raises(SpecError, match=r"scores of shape \(10, 5\), but the model has 8 components"):
            work()
    with pytest.raises(SpecError, match="has 5 columns, the model was fitted on 64"):
        bigkpca.denoise(model, np.ones((10, 5)), tmp_path / "out.zarr")
    for lazy in (arrays.denoised, arrays.residuals):
        with pytest.raises(SpecError, match="has 5 columns, the model was fitted on 64"):
            lazy(kpca.model_, da.ones((10, 5)))
    np.save(tmp_path / "narrow.npy", np.ones((10, 5)))
    result = run("reconstruct", model, tmp_path / "narrow.npy", tmp_path / "out.zarr")
    assert result.exit_code == 2
    assert "the model has 8 components" in result.stderr
    assert not (tmp_path / "out.zarr").exists()


def test_scores_that_are_not_finite_are_named(model, kpca, tmp_path):
    Y = np.zeros((N, 8))
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        Y[234, 5] = value
        np.save(tmp_path / "scores.npy", Y)
        for work in (
            lambda: bigkpca.reconstruct(model, Y, tmp_path / "out.zarr"),
            lambda: kpca.inverse_transform(Y),
            lambda: kpca.inverse_transform(tmp_path / "scores.npy").compute(),
        ):
            with pytest.raises(DataError, match=f"row 234, column 5 is {word}"):
                work()
    result = run("reconstruct", model, tmp_path / "scores.npy", tmp_path / "out.zarr")
    assert result.exit_code == 3
    assert "row 234, column 5 is infinity" in result.stderr
    assert not (tmp_path / "out.zarr").exists()


def test_a_kernel_without_a_way_back_says_what_works(X, tmp_path):
    path, rows = tmp_path / "model.zarr", tmp_path / "rows.npy"
    np.save(rows, X)
    laplacian = bigkpca.fit(rows, path, kernel="laplacian", components=3, size=40)
    assert laplacian.decoder is None
    with pytest.raises(SpecError, match="this model has no pre-images: fit it again with preimage='ridge'"):
        fitted(X).leading(3).reconstructing(1)
    message = "pre-images of the laplacian kernel have no fixed point: use 'ridge', 'denoising' or 'linear'"
    kpca = KernelPCA.load(path)
    Y = kpca.transform(X)
    for work in (
        lambda: bigkpca.reconstruct(path, Y, tmp_path / "out.zarr"),
        lambda: bigkpca.denoise(path, X, tmp_path / "out.zarr"),
        lambda: kpca.inverse_transform(Y),
        lambda: kpca.inverse_transform(da.from_array(Y)),
        lambda: kpca.denoise(X),
        lambda: kpca.denoise(da.from_array(X)),
    ):
        with pytest.raises(SpecError, match=message):
            work()
    with pytest.raises(AttributeError) as caught:
        kpca.score(X)
    assert message in str(caught.value.__cause__)
    result = run("denoise", path, rows, tmp_path / "out.zarr")
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
    assert not (tmp_path / "out.zarr").exists()
    assert json.loads(run("info", path, "--json").stdout)["preimage"] is None
    taught = fitted(X, kernel="laplacian", preimage="linear")
    assert error_of(taught, X) < 0.4


def test_a_matrix_of_kernels_leads_to_no_rows(X, tmp_path):
    K = kernels.Gaussian(25.0)(X[:80].astype(float), X[:80].astype(float))
    kpca = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    np.save(tmp_path / "kernels.npy", K)
    kpca.save(tmp_path / "model.zarr")
    for work in (
        lambda: kpca.inverse_transform(kpca.transform(K)),
        lambda: kpca.denoise(K),
        lambda: bigkpca.reconstruct(tmp_path / "model.zarr", np.ones((4, 3)), tmp_path / "out.zarr"),
    ):
        with pytest.raises(SpecError, match="pre-images of the precomputed kernel have no fixed point"):
            work()
    assert not hasattr(kpca, "score")
    assert run("denoise", tmp_path / "model.zarr", tmp_path / "kernels.npy", tmp_path / "out.zarr").exit_code == 2
    for way in ("ridge", "linear", "mds"):
        with pytest.raises(SpecError, match=f"preimage='{way}' gives rows, and kernel='precomputed' has"):
            FitSpec.checked(kernel="precomputed", method="exact", preimage=way)


def test_ways_back_that_cannot_be_are_refused_before_anything_is_read():
    for options, message in (
        ({"preimage": "rigde"}, "unknown preimage 'rigde': did you mean 'ridge'"),
        ({"preimage": 3}, "preimage"),
        ({"preimage": "denoising"}, "need the standard deviation of the noise: give noise="),
        ({"preimage": preimages.Denoising(noise=1.0), "noise": 2.0}, "both give the noise"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"noise": float("inf")}, "noise=inf"),
        ({"preimage": "mds", "kernel": "linear"}, "need a kernel that is a decreasing function"),
        ({"preimage": preimages.FixedPoint(anchor=0.1), "kernel": "laplacian"}, "no fixed point"),
    ):
        with pytest.raises(SpecError, match=message):
            FitSpec.checked(**options)


def test_far_rows_become_the_mean_are_flagged_and_counted(model, X, tmp_path):
    given, fitted_model, notes = X.copy(), load_model(model), Recorder()
    given[[3, 250]] += 1e4
    stored = bigkpca.denoise(model, given, tmp_path / "rows.zarr", progress=notes)
    np.testing.assert_array_equal(np.flatnonzero(block_arrays.values(str(tmp_path / "rows.zarr"), "far")), [3, 250])
    assert notes.notes == ["2 of 500 rows are far from all data and became the mean: see the array far"]
    mean = fitted_model.decoder.mean_row + fitted_model.features.offset
    np.testing.assert_allclose(stored[[3, 250]], np.tile(mean, (2, 1)), rtol=1e-6)
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1.5)
    np.save(tmp_path / "rows.npy", given)
    shown = run("denoise", model, tmp_path / "rows.npy", tmp_path / "again.zarr")
    assert shown.exit_code == 0
    assert "2 of 500 rows are far from all data" in shown.stderr
    assert re.search(r"^far +2$", shown.stdout, re.M)
    assert re.search(r"^not converged +0$", shown.stdout, re.M)
    quiet = run("denoise", model, tmp_path / "rows.npy", tmp_path / "third.zarr", "-q")
    assert quiet.stderr == ""


def test_rows_that_did_not_converge_are_counted(X, tmp_path):
    fitted_model = fitted(X, preimage=preimages.FixedPoint(iterations=1))
    save_model(fitted_model, str(tmp_path / "model.zarr"))
    np.save(tmp_path / "rows.npy", X[:40])
    shown = run("denoise", tmp_path / "model.zarr", tmp_path / "rows.npy", tmp_path / "out.zarr", "-q")
    count = 40 - int(block_arrays.values(str(tmp_path / "out.zarr"), "converged").sum())
    assert count > 0
    assert re.search(rf"^not converged +{count}$", shown.stdout, re.M)
    assert block_arrays.values(str(tmp_path / "out.zarr"), "iterations").max() == 1


def test_rows_whose_kernel_values_overflow_are_refused(X):
    cubic, bad = fitted(X, kernel="poly"), X.copy()
    bad[7] = 1e30
    for work in (
        lambda: reconstruct_rows(ArrayRows(bad), cubic, block_denoised, Engine(threads=1), Silent()),
        lambda: residual_rows(ArrayRows(bad), cubic, Engine(threads=1), Silent()),
    ):
        with pytest.raises(DataError, match="rows 0 to 99: kernel values overflow"):
            work()
