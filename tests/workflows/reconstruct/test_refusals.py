"""Scores and models that lead to no rows, and rows that are far or did not converge."""

import json
import re
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, preimages
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import block_denoised, reconstruct_rows, residual_rows
from bigkpca.spec import FitSpec
from bigkpca.storage import groups
from bigkpca.storage.models import load_model, model_digest
from bigkpca.workflows.fit import save
from tests.helpers.commands import run
from tests.workflows.reconstruct.digits import N, fitted


def test_scores_of_another_model_are_refused_however_their_path_is_spelled(other, model, scores, tmp_path):
    theirs, own = (model_digest(load_model(path))[:12] for path in (model, other))
    stored = zarr.open_group(scores, mode="r")["scores"]
    (tmp_path / "link").symlink_to(f"{scores}/scores")
    for work in (
        *(lambda path=path: bigkpca.reconstruct(other, path, tmp_path / "out.zarr") for path in (scores, stored)),
        *(
            lambda path=path: KernelPCA.load(other).inverse_transform(path)
            for path in (Path(scores), tmp_path / "link")
        ),
        lambda: arrays.preimages(load_model(other), f"{scores}/scores/"),
    ):
        message = rf"scores\.zarr.* holds scores of the model {theirs}, but this is the model {own}"
        with pytest.raises(SpecError, match=message):
            work()
    assert not (tmp_path / "out.zarr").exists()


def test_scores_and_rows_of_another_width_are_refused(model, kpca, tmp_path):
    few, lazy, out = np.ones((10, 5)), da.ones((10, 5)), tmp_path / "out.zarr"
    of_scores = r"scores of shape \(10, 5\), but the model has 8 components"
    of_rows = "has 5 columns, but the model was fitted on 64"
    for work, message in (
        (lambda: bigkpca.reconstruct(model, few, out), of_scores),
        (lambda: kpca.inverse_transform(few), of_scores),
        (lambda: kpca.inverse_transform(lazy), of_scores),
        (lambda: arrays.preimages(kpca.model_, lazy), of_scores),
        (lambda: bigkpca.denoise(model, few, out), of_rows),
        (lambda: arrays.denoised(kpca.model_, lazy), of_rows),
        (lambda: arrays.residuals(kpca.model_, lazy), of_rows),
    ):
        with pytest.raises(SpecError, match=message):
            work()
    assert not out.exists()


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
    assert (result.exit_code, "row 234, column 5 is infinity" in result.stderr) == (3, True)
    assert not (tmp_path / "out.zarr").exists()


def test_a_kernel_without_a_way_back_says_what_works(X, tmp_path):
    out = tmp_path / "out.zarr"
    model = bigkpca.fit(X, tmp_path / "model.zarr", kernel="laplacian", n_components=3, size=40)
    assert model.decoder is None
    assert json.loads(run("info", tmp_path / "model.zarr", "--json").stdout)["preimage"] is None
    message = "pre-images of the laplacian kernel have no fixed point: use 'ridge' or 'denoising'"
    kpca = KernelPCA.load(tmp_path / "model.zarr")
    Y = kpca.transform(X)
    for work in (
        lambda: bigkpca.reconstruct(model, Y, out),
        lambda: bigkpca.reconstruct(model, bigkpca.transform(model, X, tmp_path / "s.zarr", n_components=2), out),
        lambda: bigkpca.denoise(model, X, out),
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
    assert not out.exists()


def test_a_matrix_of_kernels_leads_to_no_rows_and_has_no_residuals(X, tmp_path):
    K, out = kernels.Gaussian(25.0).gram(X[:80]), tmp_path / "out.zarr"
    kpca = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    assert not hasattr(kpca, "score")
    no_rows = "pre-images of the precomputed kernel have no fixed point"
    no_residuals = r"residuals need k\(x, x\), which rows of a precomputed matrix do not contain"
    for work, message in (
        (lambda: kpca.inverse_transform(kpca.transform(K)), no_rows),
        (lambda: bigkpca.reconstruct(kpca.model_, np.ones((4, 3)), out), no_rows),
        (lambda: bigkpca.transform(kpca.model_, K, out, residual=True), no_residuals),
        (lambda: kpca.residual(K), no_residuals),
        (lambda: arrays.residuals(kpca.model_, K), no_residuals),
    ):
        with pytest.raises(SpecError, match=message):
            work()
    assert not out.exists()


def test_ways_back_that_cannot_be_are_refused_before_anything_is_read():
    for options, message in (
        (
            {"preimage": "ridge", "kernel": "precomputed", "method": "exact"},
            "computes rows, but kernel='precomputed' has",
        ),
        ({"preimage": 3}, "preimage"),
        ({"preimage": preimages.Denoising(noise=1.0), "noise": 2.0}, "both set the noise"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"preimage": "mds", "kernel": "linear"}, "need a kernel that is a decreasing function"),
    ):
        with pytest.raises(SpecError, match=message):
            FitSpec.checked(**options)


@pytest.mark.full
def test_far_rows_become_the_mean_are_flagged_and_counted(model, X, tmp_path):
    given, loaded, out = X.copy(), load_model(model), tmp_path / "rows.zarr"
    given[[3, 250]] += 1e4
    np.save(tmp_path / "rows.npy", given)
    shown = run("denoise", model, tmp_path / "rows.npy", out)
    assert "2 of 500 rows are far from all data and were set to the mean: see the array far" in shown.stderr
    assert re.search(r"^far +2\nnot converged +0$|^not converged +0\nfar +2$", shown.stdout, re.M)
    np.testing.assert_array_equal(np.flatnonzero(groups.open_values(str(out), "far")[:]), [3, 250])
    mean = loaded.decoder.mean_row + loaded.features.offset
    found = zarr.open_group(out, mode="r")["x"][:]
    np.testing.assert_allclose(found[[3, 250]], np.tile(mean, (2, 1)), rtol=1e-6)
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1.5)


def test_rows_that_did_not_converge_are_counted(X, tmp_path):
    save(fitted(X, preimage=preimages.FixedPoint(iterations=1)), tmp_path / "model.zarr")
    np.save(tmp_path / "rows.npy", X[:40])
    shown = run("denoise", tmp_path / "model.zarr", tmp_path / "rows.npy", tmp_path / "out.zarr", "-q")
    assert shown.stderr == ""
    count = 40 - int(groups.open_values(str(tmp_path / "out.zarr"), "converged")[:].sum())
    assert count > 0
    assert re.search(rf"^not converged +{count}$", shown.stdout, re.M)
    assert groups.open_values(str(tmp_path / "out.zarr"), "iterations")[:].max() == 1


def test_rows_whose_kernel_values_overflow_are_refused(X):
    cubic, bad = fitted(X, kernel="poly"), X.copy()
    bad[7] = 1e30
    for work in (
        lambda: reconstruct_rows(ArrayRows(bad), cubic, block_denoised, Engine(threads=1)),
        lambda: residual_rows(ArrayRows(bad), cubic, Engine(threads=1)),
    ):
        with pytest.raises(DataError, match="rows 0 to 99: kernel values overflow"):
            work()
