"""From scores back to rows, and what scores leave of rows."""

import re
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from sklearn.decomposition import PCA

import bigkpca
from bigkpca import KernelPCA, arrays, kernels, methods, preimages
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError, MemoryLimitError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_transform
from bigkpca.execution.projection import block_denoised, block_preimages, reconstruct_rows, residual_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.merge import extend
from bigkpca.spec import FitSpec
from bigkpca.storage import groups
from bigkpca.storage.models import load_model, model_digest
from bigkpca.workflows.fit import save
from tests.data.cases import refused
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import fit
from tests.helpers.stores import as_zarr

N, CHUNK = 500, 100
OPTIONS = {"n_components": 8, "size": 60, "random_state": 3, "block_rows": CHUNK}
ARRAYS = ("x", "converged", "iterations", "far")
RIDGE = preimages.Ridge(size=50)
FULL = pytest.mark.full


def fitted(X, **options):
    return fit(X, **OPTIONS | options)


def rows_of(model, X):
    """Pre-images of the scores of X, in one tile."""
    (Y,) = model.project([X], len(X))
    return model.reconstructing(len(X))(Y, None).rows


def lost_by(rows, X):
    """Of rows that should be X, as a share of the variance of X."""
    return float(((rows - X) ** 2).sum() / ((X - X.mean(axis=0)) ** 2).sum())


def stored(path, name="scores"):
    return np.asarray(zarr.open_array(f"{path}/{name}", mode="r")[:])


@pytest.fixture(autouse=True)
def _quiet(quiet_signals):
    """Commands run in this process."""


@pytest.fixture(scope="module")
def X(digits):
    return digits[:N].astype(np.float32)


@pytest.fixture(scope="module")
def made(tmp_path_factory, X):
    """The paths of 500 digits in five chunks, of a model, of its scores, and of the rows for which these stand."""
    at = tmp_path_factory.mktemp("made")
    dataset = as_zarr(at, X, (CHUNK, 64), "digits.zarr")
    model, scores, back = (str(at / f"{name}.zarr") for name in ("model", "scores", "back"))
    bigkpca.fit(dataset, model, **OPTIONS)
    bigkpca.transform(model, dataset, scores, block_rows=CHUNK)
    bigkpca.reconstruct(model, scores, back, block_rows=CHUNK)
    return SimpleNamespace(dataset=dataset, model=model, scores=scores, back=back)


@pytest.fixture(scope="module")
def kpca(made):
    return KernelPCA.load(made.model)


def compare(lazy, expected, **tolerance):
    """Whether a lazy result is what was expected, with the same bits unless a tolerance is given."""
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(scheduler="threads"), expected, **(tolerance or {"rtol": 0}))


def test_reconstruct_is_inverse_transform_of_every_kind_of_scores(made, kpca, tmp_path):
    array = zarr.open_group(made.scores, mode="r")["scores"]
    Y, expected = array[:], stored(made.back, "x")
    for held in (Y, pd.DataFrame(Y), Y.tolist()):
        np.testing.assert_array_equal(kpca.inverse_transform(held), expected)
    np.save(tmp_path / "scores.npy", Y)
    for lazy in (da.from_array(Y, chunks=(77, 3)), array, made.scores, Path(made.scores), tmp_path / "scores.npy"):
        compare(kpca.inverse_transform(lazy), expected)
    written = kpca.inverse_transform(Y, out=tmp_path / "rows.zarr")
    assert isinstance(written, zarr.Array)
    assert (written.shape, written.dtype) == ((N, 64), expected.dtype) == ((N, 64), np.float32)
    found = reconstruct_rows(ArrayRows(Y), kpca.model_, block_preimages, Engine(threads=1))
    for name, own in zip(ARRAYS, (found.rows, found.converged, found.iterations, found.far), strict=True):
        np.testing.assert_array_equal(stored(made.back, name), own)
    assert (found.rows.std(axis=0) > 0).any()
    assert found.iterations.any()


def test_residuals_of_every_kind_of_rows_are_those_that_transform_writes(made, kpca, X, tmp_path):
    out = tmp_path / "scores.zarr"
    written = bigkpca.transform(made.model, made.dataset, out, residual=True, block_rows=CHUNK)
    np.testing.assert_array_equal(written[:], stored(made.scores))
    expected = stored(out, "residual")
    assert (expected.shape, expected.dtype) == ((N,), np.float32)
    np.testing.assert_array_equal(kpca.residual(X), expected)
    for lazy in (made.dataset, zarr.open_array(made.dataset)):
        compare(kpca.residual(lazy), expected)
    compare(kpca.residual(da.from_array(X, chunks=(77, 30))), expected, rtol=1e-4, atol=1e-5)  # other blocks
    with pytest.raises(SpecError, match="residual is True there and False here"):
        bigkpca.transform(made.model, made.dataset, out, block_rows=CHUNK)
    assert bigkpca.reconstruct(made.model, out, tmp_path / "back.zarr", block_rows=CHUNK).shape == (N, 64)
    noise = np.random.default_rng(0).uniform(0, 16, X.shape).astype(np.float32)
    assert np.median(kpca.residual(noise)) > 1.5 * np.median(expected)


def test_iterations_start_where_they_are_told(made, kpca, X, tmp_path):
    Y, few, clean = kpca.transform(X), slice(0, 150), kpca.denoise(X)
    np.testing.assert_array_equal(kpca.inverse_transform(Y, start=X), clean)
    np.testing.assert_allclose(kpca.inverse_transform(Y), clean, atol=0.1)  # they end near
    compare(kpca.denoise(made.dataset), clean, atol=1e-5)  # products of few rows round differently on some processors
    written = kpca.denoise(made.dataset, out=tmp_path / "rows.zarr")
    assert isinstance(written, zarr.Array)
    np.testing.assert_allclose(written[:], clean, atol=1e-3)  # other blocks
    start = X[few][::-1]
    found = kpca.inverse_transform(Y[few], start=pd.DataFrame(start))
    np.testing.assert_allclose(found, kpca.model_.reconstructing(150)(Y[few], start).rows, atol=1e-4)
    assert not np.array_equal(found, kpca.inverse_transform(Y[few]))
    for work, message in (
        (lambda: kpca.inverse_transform(Y, start=start), "start has 150 rows for the scores of 500: pass one row"),
        (lambda: kpca.inverse_transform(Y, start=made.dataset), "start works only with scores and rows in memory"),
        (lambda: kpca.inverse_transform(Y, "out.zarr", start=X), "start works only with scores and rows in memory"),
        (lambda: kpca.inverse_transform(Y[few], start=np.where(start > 15, np.nan, start)), "row .* is NaN"),
        (lambda: kpca.inverse_transform(Y[few], start=start[:, :9]), "9 features"),
    ):
        refused(work, (ValueError, message))


MAKES = [
    {"method": "columns", "kernel": "matern"},
    {"method": "exact", "preimage": "mds"},
    {"standardize": True, "preimage": RIDGE},
    {"kernel": "laplacian", "preimage": RIDGE},
    pytest.param({"method": "rff-pca", "size": 400, "dtype": "float64"}, marks=FULL),
    pytest.param({"method": "rff", "refine": 2}, marks=FULL),
    pytest.param({"method": methods.Nystroem("thesis", rank=30)}, marks=FULL),
    pytest.param({"method": "rff", "kernel": "polynomial", "size": 400, "preimage": RIDGE}, marks=FULL),
    pytest.param({"center": False}, marks=FULL),
    pytest.param({"kernel": "polynomial", "degree": 2}, marks=FULL),
]


@pytest.mark.parametrize("options", MAKES, ids=str)
def test_models_of_every_make_lead_back(options, X):
    few, pca = X[:300], PCA(8).fit(X[:300])
    best = lost_by(pca.inverse_transform(pca.transform(few)), few)
    assert 0.25 < best < 0.27
    assert lost_by(rows_of(fitted(few, **options), few), few) < 2 * best


@pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")
@pytest.mark.parametrize(
    ("way", "method"),
    [("fixed-point", "columns"), (RIDGE, "nystroem"), ("fixed-point", "rff"), pytest.param("mds", "rff", marks=FULL)],
)
def test_a_model_that_grew_leads_back_as_one_fitted_on_all(way, method, X):
    rows, given = X.astype(np.float64), {"method": method, "preimage": way}
    given |= {
        "columns": {"sigma": 30.0},
        "nystroem": {"sigma": 30.0, "landmarks": rows[:300:5], "size": "auto"},
        "rff": {"size": 400},
    }[method]
    spec = FitSpec.checked(**OPTIONS | given)
    grown = first = fit_rows(ArrayRows(rows[:300]), spec, Engine(threads=1))
    for piece in (rows[300:493], rows[493:]):  # however few are added
        grown = extend(grown, ArrayRows(piece), spec, Engine(threads=1))
    assert not np.allclose(rows_of(grown, rows[:50]), rows_of(first, rows[:50]), atol=1e-3)
    whole = fit_rows(ArrayRows(rows), spec, Engine(threads=1))
    lost, least = (lost_by(rows_of(each, rows), rows) for each in (grown, whole))
    assert lost < (0.4 if method == "columns" else 1.2 * least)
    if len(kept := first.decoder.kept_rows(first.features)):  # the decoder of the larger model is made from the same
        np.testing.assert_allclose(grown.decoder.kept_rows(grown.features), kept)


# What lies on the disk, and what commands print


def test_the_manifest_names_the_model_the_input_and_every_array(made, tmp_path):
    manifest = groups.describe(made.back)
    assert manifest["model"] == model_digest(load_model(made.model))
    assert manifest["input"] == open_rows(made.scores).fingerprint()
    assert (manifest["format"], manifest["given"], manifest["rows"]) == ("reconstruction", "scores", N)
    assert manifest["arrays"] == sorted(ARRAYS)
    opened = xr.open_zarr(made.back)
    assert [opened[name].dims for name in ARRAYS] == [("row", "column"), *[("row",)] * 3]
    assert {opened[name].encoding["chunks"][0] for name in ARRAYS} == {CHUNK}
    bigkpca.fit(made.back, tmp_path / "again.zarr", size=20, n_components=3)


def test_the_commands_print_where_rows_are(made, tmp_path):
    for command, given in (("reconstruct", made.scores), ("denoise", made.dataset)):
        shown, again = (run(command, made.model, given, tmp_path / command, "--block-rows", CHUNK) for _ in range(2))
        assert re.search(r"^shape +500 × 64$", shown.stdout, re.M)
        assert "500 rows in" in shown.stderr
        assert again.stdout == shown.stdout
        assert "nothing to do" in again.stderr
    assert tree_bytes(tmp_path / "reconstruct") == tree_bytes(made.back)


def test_far_rows_become_the_mean_and_are_counted_as_those_that_did_not_converge(X, tmp_path):
    given, out, loaded = X.copy(), tmp_path / "rows.zarr", fitted(X, preimage=preimages.FixedPoint(iterations=1))
    save(loaded, tmp_path / "model.zarr")
    given[[3, 250]] += 1e4
    np.save(tmp_path / "rows.npy", given)
    shown = run("denoise", tmp_path / "model.zarr", tmp_path / "rows.npy", out)
    assert "2 of 500 rows are far from all data and were set to the mean: see the array far" in shown.stderr
    np.testing.assert_array_equal(np.flatnonzero(stored(out, "far")), [3, 250])
    count = N - int(stored(out, "converged").sum()) - 2
    assert count > 0
    for told, number in (("not converged", count), ("far", 2)):
        assert re.search(rf"^{told} +{number}$", shown.stdout, re.M)
    assert stored(out, "iterations").max() == 1
    mean = loaded.decoder.mean_row + loaded.features.offset
    np.testing.assert_allclose(stored(out, "x")[[3, 250]], np.tile(mean, (2, 1)), rtol=1e-6)
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1.5)


# Memory


def test_what_does_not_fit_in_memory_is_refused_before_the_run(made, tmp_path):
    message = r"needs \d+ MB in a process, but 20 MB are allowed: ask for smaller"
    for write in (bigkpca.reconstruct, bigkpca.denoise, bigkpca.transform):
        given = made.scores if write is bigkpca.reconstruct else made.dataset
        with pytest.raises(MemoryLimitError, match=message):
            write(made.model, given, tmp_path / "out.zarr", memory="20 MB")
    assert not list(tmp_path.glob("out.zarr*"))


def test_plans_count_the_scores_and_flags_that_are_stored(made):
    found, rows = load_model(made.model), open_rows(made.dataset)
    plain, judged = (plan_transform(rows, found, 100, 2, judged=each) for each in (False, True))
    assert plain.result_bytes == 500 * 8 * 4
    assert judged.result_bytes - plain.result_bytes == 500 * (4 + 9)  # residuals and flags
    assert judged.array_bytes > plain.array_bytes


@pytest.mark.full
def test_residuals_of_all_blocks_take_one_decomposition(X, made, tmp_path):
    kpca = KernelPCA(4, size=60, method="columns", preimage="ridge", block_rows=CHUNK, random_state=0).fit(X)
    module = import_module("bigkpca.numerics.expansion")  # a function has the same name
    for work in (
        lambda: bigkpca.transform(kpca.model_, made.dataset, tmp_path / "s.zarr", residual=True, block_rows=CHUNK),
        lambda: kpca.residual(X),
        lambda: kpca.residual(da.from_array(X, chunks=(CHUNK, -1))).compute(scheduler="synchronous"),
    ):
        with mock.patch.object(module, "basis_of", side_effect=module.basis_of) as decomposed:
            work()
        assert [call.args[0].shape for call in decomposed.call_args_list].count((60, 60)) == 1


# What leads to no rows


def test_scores_of_another_model_are_refused_however_their_path_is_spelled(made, tmp_path):
    bigkpca.fit(made.dataset, other := str(tmp_path / "other.zarr"), **OPTIONS | {"random_state": 4})
    theirs, own = (model_digest(load_model(path))[:12] for path in (made.model, other))
    (tmp_path / "link").symlink_to(f"{made.scores}/scores")
    kpca, opened = KernelPCA.load(other), zarr.open_group(made.scores, mode="r")["scores"]
    message = rf"scores\.zarr.* holds scores of the model {theirs}, but this is the model {own}"
    for each in (made.scores, opened):
        refused(bigkpca.reconstruct, (other, each, tmp_path / "out.zarr", SpecError, message))
    for each in (Path(made.scores), tmp_path / "link"):
        refused(kpca.inverse_transform, (each, SpecError, message))
    refused(arrays.preimages, (load_model(other), f"{made.scores}/scores/", SpecError, message))
    assert not (tmp_path / "out.zarr").exists()


def test_scores_and_rows_of_another_width_or_that_are_not_finite_are_refused(kpca, X, tmp_path):
    few, lazy, out, Y = np.ones((10, 5)), da.ones((10, 5)), tmp_path / "out.zarr", np.zeros((N, 8))
    cubic, bad = fitted(X, kernel="poly"), X.copy()
    Y[234, 5], bad[7] = np.inf, 1e30
    np.save(tmp_path / "scores.npy", Y)
    of_scores = r"scores of shape \(10, 5\), but the model has 8 components"
    of_rows = "has 5 columns, but the model was fitted on 64"
    infinite, overflow = "row 234, column 5 is infinity", "rows 0 to 99: kernel values overflow"
    far, model, one = ArrayRows(bad), kpca.model_, Engine(threads=1)
    refused(bigkpca.reconstruct, (model, few, out, SpecError, of_scores), (model, Y, out, DataError, infinite))
    refused(kpca.inverse_transform, *((each, SpecError, of_scores) for each in (few, lazy)), (Y, DataError, infinite))
    refused(kpca.inverse_transform(tmp_path / "scores.npy").compute, (DataError, infinite))
    refused(arrays.preimages, (model, lazy, SpecError, of_scores))
    refused(bigkpca.denoise, (model, few, out, SpecError, of_rows))
    refused(arrays.denoised, (model, lazy, SpecError, of_rows))
    refused(arrays.residuals, (model, lazy, SpecError, of_rows))
    refused(reconstruct_rows, (far, cubic, block_denoised, one, DataError, overflow))
    refused(residual_rows, (far, cubic, one, DataError, overflow))
    assert not out.exists()


def test_kernels_that_lead_to_no_rows_say_what_works(X, tmp_path):
    out, K = tmp_path / "out.zarr", kernels.Gaussian(25.0).gram(X[:80])
    laplacian = KernelPCA(3, kernel="laplacian", size=40, random_state=0).partial_fit(X[:300]).partial_fit(X[300:])
    of_kernels = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    model, Y = laplacian.model_, laplacian.transform(X)
    assert model.decoder is None
    no_fixed_point = "pre-images of the laplacian kernel have no fixed point: use 'ridge' or 'denoising'"
    no_rows = "pre-images of the precomputed kernel have no fixed point"
    no_residuals = r"residuals need k\(x, x\), which rows of a precomputed matrix do not contain"
    refused(bigkpca.reconstruct, (model, Y, out, SpecError, no_fixed_point))
    refused(bigkpca.denoise, (model, X, out, SpecError, no_fixed_point))
    for make in (np.asarray, da.from_array):
        refused(laplacian.inverse_transform, (make(Y), SpecError, no_fixed_point))
        refused(laplacian.denoise, (make(X), SpecError, no_fixed_point))
    refused(of_kernels.inverse_transform, (of_kernels.transform(K), SpecError, no_rows))
    refused(bigkpca.reconstruct, (of_kernels.model_, np.ones((4, 3)), out, SpecError, no_rows))
    refused(partial(bigkpca.transform, residual=True), (of_kernels.model_, K, out, SpecError, no_residuals))
    refused(of_kernels.residual, (K, SpecError, no_residuals))
    refused(arrays.residuals, (of_kernels.model_, K, SpecError, no_residuals))
    with pytest.raises(AttributeError) as caught:
        laplacian.score(X)
    assert no_fixed_point in str(caught.value.__cause__)
    assert not hasattr(of_kernels, "score")
    assert not out.exists()


def test_ways_back_that_cannot_be_are_refused_before_anything_is_read():
    of_matrix = {"preimage": "ridge", "kernel": "precomputed", "method": "exact"}
    refused(
        lambda options: FitSpec.checked(**options),
        (of_matrix, SpecError, "computes rows, but kernel='precomputed' has"),
        ({"preimage": 3}, SpecError, "preimage"),
        ({"preimage": preimages.Denoising(noise=1.0), "noise": 2.0}, SpecError, "both set the noise"),
        ({"noise": -1.0}, SpecError, "noise=-1.0"),
        ({"preimage": "mds", "kernel": "linear"}, SpecError, "need a kernel that is a decreasing function"),
    )
