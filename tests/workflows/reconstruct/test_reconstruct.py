"""From scores back to rows, and what scores leave of rows, for every kind of rows and from the commands."""

import re
import shutil
from importlib import import_module
from pathlib import Path
from unittest import mock

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from sklearn.decomposition import PCA

import bigkpca
from bigkpca import KernelPCA, methods
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import block_preimages, reconstruct_rows
from bigkpca.storage import groups
from bigkpca.storage.models import load_model, model_digest
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.workflows.reconstruct.digits import ARRAYS, CHUNK, RIDGE, N, error_of, fitted


@pytest.mark.parametrize("way", ["fixed-point", RIDGE], ids=str)
def test_reconstruct_is_inverse_transform_of_every_kind_of_scores(way, kpca, scores, back, X, tmp_path):
    if way == RIDGE:
        kpca = KernelPCA(**kpca.get_params() | {"preimage": way}).fit(X)
        scores, back = tmp_path / "scores.zarr", tmp_path / "back.zarr"
        bigkpca.reconstruct(kpca, kpca.transform(X, out=scores), back, block_rows=CHUNK)
    array = zarr.open_group(scores, mode="r")["scores"]
    Y = array[:]
    expected = zarr.open_group(back, mode="r")["x"][:]
    assert expected.dtype == np.float32
    for held in (Y, pd.DataFrame(Y), Y.tolist()):
        np.testing.assert_array_equal(kpca.inverse_transform(held), expected)
    np.save(tmp_path / "scores.npy", Y)
    for lazy in (da.from_array(Y, chunks=(77, 3)), array, scores, Path(scores), tmp_path / "scores.npy"):
        found = kpca.inverse_transform(lazy)
        assert isinstance(found, da.Array)
        np.testing.assert_array_equal(found.compute(scheduler="threads"), expected)
    stored = kpca.inverse_transform(Y, out=tmp_path / "rows.zarr")
    assert isinstance(stored, zarr.Array)
    assert (stored.shape, stored.dtype) == ((N, 64), np.float32)
    found = reconstruct_rows(ArrayRows(Y), kpca.model_, block_preimages, Engine(threads=1))
    np.testing.assert_array_equal(found.rows, expected)
    for name in ARRAYS[1:]:
        np.testing.assert_array_equal(groups.open_values(str(back), name)[:], getattr(found, name))
    assert (found.rows.std(axis=0) > 0).any()
    assert found.iterations.any() == (way == "fixed-point")


def test_iterations_start_where_they_are_told(kpca, dataset, X):
    Y, few = kpca.transform(X), slice(0, 150)
    np.testing.assert_array_equal(kpca.inverse_transform(Y, start=X), kpca.denoise(X))
    start = X[few][::-1]
    found = kpca.inverse_transform(Y[few], start=pd.DataFrame(start))
    decode = kpca.model_.reconstructing(150)
    np.testing.assert_allclose(found, decode(Y[few], start).rows, atol=1e-4)
    assert not np.array_equal(found, kpca.inverse_transform(Y[few]))
    assert kpca.inverse_transform(Y[few, :8], start=start).shape == (150, 64)
    for work, message in (
        (lambda: kpca.inverse_transform(Y, start=start), "start has 150 rows for the scores of 500: pass one row"),
        (lambda: kpca.inverse_transform(Y, start=dataset), "start works only with scores and rows in memory"),
        (lambda: kpca.inverse_transform(Y, "out.zarr", start=X), "start works only with scores and rows in memory"),
        (lambda: kpca.inverse_transform(Y[few], start=np.where(start > 15, np.nan, start)), "row .* is NaN"),
        (lambda: kpca.inverse_transform(Y[few], start=start[:, :9]), "9 features"),
    ):
        with pytest.raises(ValueError, match=message):
            work()


@pytest.mark.full
def test_denoise_is_one_call_for_every_kind_of_rows(kpca, dataset, X, denoised, back, tmp_path):
    expected = zarr.open_group(denoised, mode="r")["x"][:]
    for held in (X, pd.DataFrame(X)):
        np.testing.assert_array_equal(kpca.denoise(held), expected)
    for lazy in (da.from_array(X, chunks=(77, 30)), zarr.open_array(dataset), dataset):
        found = kpca.denoise(lazy)
        assert isinstance(found, da.Array)
        # Products of few rows round differently on some processors.
        np.testing.assert_allclose(found.compute(scheduler="threads"), expected, atol=1e-5)
    stored = kpca.denoise(dataset, out=tmp_path / "rows.zarr")
    np.testing.assert_allclose(stored[:], expected, atol=1e-3)  # other blocks
    # Iterations start at the rows, and end near where those of the scores alone do.
    from_scores = kpca.inverse_transform(kpca.transform(X))
    assert not np.array_equal(from_scores, expected)
    np.testing.assert_allclose(expected, from_scores, atol=0.1)


MAKES = [
    {"method": "columns", "kernel": "matern"},
    {"method": "exact", "preimage": "mds"},
    {"standardize": True, "preimage": RIDGE},
    {"kernel": "laplacian", "preimage": RIDGE},
]
FURTHER_MAKES = [
    {"method": "rff-pca", "size": 400, "dtype": "float64"},
    {"method": "rff", "refine": 2},
    {"method": methods.Nystroem("thesis", rank=30)},
    {"method": "rff", "kernel": "polynomial", "size": 400, "preimage": RIDGE},
    {"center": False},
    {"kernel": "polynomial", "degree": 2},
]


@pytest.mark.parametrize(
    "options", [*MAKES, *(pytest.param(make, marks=pytest.mark.full) for make in FURTHER_MAKES)], ids=str
)
def test_models_of_every_make_lead_back(options, X):
    few = X[:300]
    pca = PCA(8).fit(few)
    best = ((few - pca.inverse_transform(pca.transform(few))) ** 2).sum() / ((few - few.mean(axis=0)) ** 2).sum()
    assert 0.25 < best < 0.27
    assert error_of(fitted(few, **options), few) < 2 * best


# What lies on the disk


def test_the_manifest_names_the_model_the_input_and_every_array(model, scores, back, tmp_path):
    manifest = groups.describe(back)
    assert manifest["model"] == model_digest(load_model(model))
    assert manifest["input"] == open_rows(scores).fingerprint()
    assert manifest["input"]["path"] == scores
    assert (manifest["format"], manifest["given"], manifest["rows"]) == ("reconstruction", "scores", N)
    assert manifest["arrays"] == sorted(ARRAYS)
    assert {name: array.chunks[0] for name, array in zarr.open_group(back).arrays()} == dict.fromkeys(ARRAYS, CHUNK)
    opened = xr.open_zarr(back)
    assert opened["x"].dims == ("row", "column")
    assert [opened[name].dims for name in ARRAYS[1:]] == [("row",)] * 3
    assert bigkpca.info(back)["kind"] == "reconstruction"
    bigkpca.fit(back, tmp_path / "again.zarr", size=20, n_components=3)


def test_what_is_in_the_way_is_named_and_kept(model, other, scores, dataset, X, back, tmp_path):
    out, Y = tmp_path / "back.zarr", zarr.open_group(scores, mode="r")["scores"][:]
    shutil.copytree(back, out)
    other_rows, how = r"rows of other rows \(.*scores.zarr, \d+ rows", {"block_rows": CHUNK}
    for work, differs in (
        (lambda: bigkpca.reconstruct(other, Y, out, **how), other_rows),
        (lambda: bigkpca.denoise(model, dataset, out, **how), other_rows),
        (lambda: bigkpca.reconstruct(model, scores, out, block_rows=200), "block_rows is 100 there and 200 here"),
        (lambda: bigkpca.transform(model, dataset, out, **how), "a bigkpca store of reconstructed"),
    ):
        with pytest.raises(SpecError, match=f"already holds .*{differs}.*--overwrite"):
            work()
    assert tree_bytes(out) == tree_bytes(back)
    assert bigkpca.denoise(model, X[:50], out, overwrite=True).shape == (50, 64)
    assert [path.name for path in tmp_path.iterdir()] == ["back.zarr"]


# What scores leave of rows


def test_residuals_of_every_kind_of_rows_are_those_that_transform_writes(model, dataset, scores, kpca, X, tmp_path):
    out = tmp_path / "scores.zarr"
    stored = bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK)
    np.testing.assert_array_equal(stored[:], zarr.open_group(scores, mode="r")["scores"][:])
    found = zarr.open_group(out, mode="r")["residual"]
    assert (found.shape, found.dtype) == ((N,), np.float32)
    expected = found[:]
    np.testing.assert_array_equal(kpca.residual(X), expected)
    for lazy in (da.from_array(X, chunks=(77, 30)), dataset, zarr.open_array(dataset)):
        view = kpca.residual(lazy)
        assert isinstance(view, da.Array)
        # Chunks of Dask arrays are other blocks, which round in their own way.
        rounding = {"rtol": 1e-4, "atol": 1e-5} if isinstance(lazy, da.Array) else {"rtol": 0}
        np.testing.assert_allclose(view.compute(scheduler="threads"), expected, **rounding)
    np.testing.assert_allclose(load_model(model).residual(X), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(SpecError, match="residual is True there and False here"):
        bigkpca.transform(model, dataset, out, block_rows=CHUNK)
    assert bigkpca.reconstruct(model, out, tmp_path / "back.zarr", block_rows=CHUNK).shape == (N, 64)
    noise = np.random.default_rng(0).uniform(0, 16, X.shape).astype(np.float32)
    assert np.median(kpca.residual(noise)) > 1.5 * np.median(expected)


@pytest.mark.full
def test_residuals_of_all_blocks_take_one_decomposition(X, dataset, tmp_path):
    kpca = KernelPCA(4, size=60, method="columns", preimage="ridge", block_rows=CHUNK, random_state=0).fit(X)
    module = import_module("bigkpca.numerics.expansion")  # a function has the same name
    for work in (
        lambda: bigkpca.transform(kpca.model_, dataset, tmp_path / "s.zarr", residual=True, block_rows=CHUNK),
        lambda: kpca.residual(X),
        lambda: kpca.residual(da.from_array(X, chunks=(CHUNK, -1))).compute(scheduler="synchronous"),
        lambda: kpca.model_.residual(np.tile(X, (5, 1)).astype(np.float32)),
    ):
        with mock.patch.object(module, "basis_of", side_effect=module.basis_of) as decomposed:
            work()
        assert [call.args[0].shape for call in decomposed.call_args_list].count((60, 60)) == 1


def test_the_commands_print_where_rows_are(model, scores, dataset, back, tmp_path):
    for command, given in (("reconstruct", scores), ("denoise", dataset)):
        shown, again = (run(command, model, given, tmp_path / command, "--block-rows", CHUNK) for _ in range(2))
        assert re.search(r"^shape +500 × 64$", shown.stdout, re.M)
        assert re.search(r"^far +0$", shown.stdout, re.M)
        assert "500 rows in" in shown.stderr
        assert again.stdout == shown.stdout
        assert "nothing to do" in again.stderr
    assert tree_bytes(tmp_path / "reconstruct") == tree_bytes(back)
