"""From scores back to rows, what scores leave of rows, and scores of the leading components."""

import json
import re
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
from bigkpca import KernelPCA, arrays, kernels, methods, preimages
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError, MemoryLimitError, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit, plan_transform
from bigkpca.execution.projection import block_denoised, block_preimages, reconstruct_rows, residual_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.merge import extend
from bigkpca.fitting.preimage import of_leading
from bigkpca.spec import FitSpec
from bigkpca.storage import groups
from bigkpca.storage.models import load_model, model_digest
from bigkpca.workflows.fit import save
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import fit
from tests.helpers.progress import Recorder
from tests.helpers.stores import as_zarr, counted_reads

N, CHUNK = 500, 100
OPTIONS = {"n_components": 8, "size": 60, "random_state": 3, "block_rows": CHUNK}
ARRAYS = ("x", "converged", "iterations", "far")
RIDGE, DENOISING = preimages.Ridge(size=50), preimages.Denoising(noise=2.0, size=50)
K = 3  # leading components
FULL = pytest.mark.full


def fitted(X, **options):
    return fit(X, **OPTIONS | options)


def rows_of(model, X):
    """Pre-images of the scores of X, in one tile."""
    (Y,) = model.project([X], len(X))
    return model.reconstructing(len(X))(Y, None).rows


def error_of(model, X):
    """Of pre-images, as a share of the variance of X."""
    return float(((rows_of(model, X) - X) ** 2).sum() / ((X - X.mean(axis=0)) ** 2).sum())


def stored(path, name="scores"):
    return np.asarray(zarr.open_array(f"{path}/{name}", mode="r")[:])


@pytest.fixture(autouse=True)
def _quiet(quiet_signals):
    """Commands run in this process."""


@pytest.fixture(scope="module")
def X(digits):
    return digits[:N].astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def dataset(folder, X):
    """500 digits in five chunks."""
    return as_zarr(folder, X, (CHUNK, 64), "digits.zarr")


@pytest.fixture(scope="module")
def model(folder, dataset):
    bigkpca.fit(dataset, folder / "model.zarr", **OPTIONS)
    return str(folder / "model.zarr")


@pytest.fixture(scope="module")
def scores(folder, dataset, model):
    bigkpca.transform(model, dataset, folder / "scores.zarr", block_rows=CHUNK)
    return str(folder / "scores.zarr")


@pytest.fixture(scope="module")
def leading(folder, model, dataset):
    bigkpca.transform(model, dataset, folder / "leading.zarr", n_components=K, residual=True)
    return str(folder / "leading.zarr")


@pytest.fixture(scope="module")
def back(folder, model, scores):
    """What the scores stand for, written in five shards by threads."""
    bigkpca.reconstruct(model, scores, folder / "back.zarr", block_rows=CHUNK)
    return folder / "back.zarr"


@pytest.fixture(scope="module")
def kpca(model):
    return KernelPCA.load(model)


@pytest.fixture
def reads(monkeypatch):
    """How often each of the five chunks was read."""
    return counted_reads(monkeypatch, N // CHUNK, CHUNK)


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
def test_denoise_is_one_call_for_every_kind_of_rows(kpca, dataset, X, tmp_path):
    expected = bigkpca.denoise(kpca, dataset, tmp_path / "denoised.zarr", block_rows=CHUNK)[:]
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


@pytest.mark.parametrize("options", [*MAKES, *(pytest.param(make, marks=FULL) for make in FURTHER_MAKES)], ids=str)
def test_models_of_every_make_lead_back(options, X):
    few = X[:300]
    pca = PCA(8).fit(few)
    best = ((few - pca.inverse_transform(pca.transform(few))) ** 2).sum() / ((few - few.mean(axis=0)) ** 2).sum()
    assert 0.25 < best < 0.27
    assert error_of(fitted(few, **options), few) < 2 * best


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
    assert error_of(grown, rows) < (0.4 if method == "columns" else 1.2 * error_of(whole, rows))
    if len(kept := first.decoder.kept_rows(first.features)):  # the decoder of the larger model is made from the same
        np.testing.assert_allclose(grown.decoder.kept_rows(grown.features), kept)


def test_a_model_without_a_way_back_takes_more_rows(X):
    laplacian = KernelPCA(4, size=30, kernel="laplacian", random_state=0)
    assert laplacian.partial_fit(X[:300]).partial_fit(X[300:]).model_.decoder is None


# What lies on the disk, and what commands print


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


def test_the_commands_print_where_rows_are(model, scores, dataset, back, tmp_path):
    for command, given in (("reconstruct", scores), ("denoise", dataset)):
        shown, again = (run(command, model, given, tmp_path / command, "--block-rows", CHUNK) for _ in range(2))
        assert re.search(r"^shape +500 × 64$", shown.stdout, re.M)
        assert re.search(r"^far +0$", shown.stdout, re.M)
        assert "500 rows in" in shown.stderr
        assert again.stdout == shown.stdout
        assert "nothing to do" in again.stderr
    assert tree_bytes(tmp_path / "reconstruct") == tree_bytes(back)


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
    ):
        with mock.patch.object(module, "basis_of", side_effect=module.basis_of) as decomposed:
            work()
        assert [call.args[0].shape for call in decomposed.call_args_list].count((60, 60)) == 1


# Scores of the leading components alone, and of another dtype


def test_leading_scores_are_the_first_columns_of_all(leading, scores, model, X):
    np.testing.assert_allclose(stored(leading), stored(scores)[:, :K], rtol=1e-4, atol=1e-5)
    manifest = groups.describe(leading)
    assert (manifest["n_components"], manifest["dtype"]) == (K, "float32")
    assert manifest["model"] == model_digest(load_model(model))
    of_few = fitted(X, n_components=K)
    (expected,) = of_few.residuals([X], len(X), of_few.expansion())
    np.testing.assert_allclose(stored(leading, "residual"), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "option", [{"n_components": K}, pytest.param({"dtype": "float64"}, marks=FULL)], ids=["number", "dtype"]
)
def test_options_of_stored_scores_are_part_of_what_they_are(option, model, dataset, tmp_path):
    out, shown = tmp_path / "s.zarr", Recorder()
    ((name, value),) = option.items()
    bigkpca.transform(model, dataset, out, **{name: {"n_components": 8, "dtype": np.float32}[name]})
    bigkpca.transform(model, dataset, out, progress=shown)  # which has the default
    bigkpca.transform(model, dataset, out, **option, overwrite=True)
    bigkpca.transform(model, dataset, out, **option, progress=shown)
    assert ["nothing to do" in note for note in shown.notes] == [True, True]
    assert run("transform", model, dataset, out, f"--{name.replace('_', '-')}", value, "-q").exit_code == 0
    with pytest.raises(SpecError, match=rf"already holds .*{name} is .* there and .* here"):
        bigkpca.transform(model, dataset, out)


def test_float64_scores_are_features_times_components_in_float64(model, dataset, X, tmp_path):
    found = bigkpca.transform(model, dataset, tmp_path / "wide.zarr", dtype="float64", residual=True)
    assert found.dtype == stored(tmp_path / "wide.zarr", "residual").dtype == np.float64
    read = load_model(model)
    with single_threaded_blas:  # as in a task: on some processors the last bits depend on it
        (V,) = (V.astype(np.float64) for V, _ in read.features.tiles([X], len(X)))
    expected = (V - read.solution.mean) @ read.solution.components
    np.testing.assert_allclose(found[:], expected, rtol=1e-9, atol=1e-12)
    of_float64 = fitted(X, dtype="float64")  # whose float32 scores are rounded at the end
    wide, narrow = (
        np.asarray(bigkpca.transform(of_float64, X, tmp_path / f"{dtype}.zarr", dtype=dtype)[:])
        for dtype in ("float64", "float32")
    )
    np.testing.assert_array_equal(wide.astype(np.float32), narrow)


def test_scores_beyond_the_range_of_their_dtype_are_refused(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2)) * 1e10
    model = KernelPCA(1, kernel=kernels.Polynomial(degree=9, gamma=1.0), method="exact", dtype="float64").fit(X).model_
    with pytest.raises(DataError, match=r"rows 0 to 59: scores exceed the range of float32: store them as float64"):
        bigkpca.transform(model, X, tmp_path / "s.zarr", dtype="float32")


def test_components_and_types_that_cannot_be_stored_are_refused(model, dataset, tmp_path):
    for wrong in (0, -1, 9, 2.0, True, "2"):
        with pytest.raises(SpecError, match=rf"n_components={wrong!r}: the model has 8 components; .* from 1 to 8"):
            bigkpca.transform(model, dataset, tmp_path / "s.zarr", n_components=wrong)
    for wrong in ("int32", "float16", "nonsense", bool, object()):
        with pytest.raises(SpecError, match=r"dtype=.*: scores are stored as float32 or float64"):
            bigkpca.transform(model, dataset, tmp_path / "s.zarr", dtype=wrong)


@pytest.mark.parametrize(
    ("options", "atol"),
    [
        ({}, 0.05),
        ({"preimage": RIDGE}, 0.3),
        pytest.param({"preimage": "mds"}, 0.05, marks=FULL),
        *(pytest.param({"method": each}, 0.2, marks=FULL) for each in ("rff", "columns")),
    ],
    ids=str,
)
def test_leading_scores_lead_to_the_rows_of_a_model_of_these_components(options, atol, X):
    few = X[:300]
    whole, alone = fitted(few, **options), fitted(few, n_components=K, **options)
    (Y,) = alone.project([X[:40]], 40)
    found, expected = (each.reconstructing(40)(Y, None).rows for each in (of_leading(whole, K), alone))
    np.testing.assert_allclose(found, expected, atol=atol)


@pytest.mark.full
def test_leading_scores_from_a_path_are_read_by_all_that_read_scores(leading, model, kpca, tmp_path):
    expected = of_leading(load_model(model), K).reconstructing(500)(stored(leading), None).rows
    written = bigkpca.reconstruct(model, leading, tmp_path / "rows.zarr")
    np.testing.assert_allclose(written[:], expected, atol=1e-3)
    assert groups.describe(str(tmp_path / "rows.zarr"))["model"] == model_digest(load_model(model))
    for lazy in (kpca.inverse_transform(leading), arrays.preimages(model, zarr.open_array(f"{leading}/scores"))):
        np.testing.assert_allclose(lazy.compute(), expected, atol=1e-3)
    assert bigkpca.export(leading, tmp_path / "s.csv").columns == K
    assert bigkpca.verify(leading).shape == (500, K)
    assert bigkpca.info(leading)["shape"] == [500, K]


def test_the_estimator_takes_both_options_for_what_it_stores(kpca, X, tmp_path):
    found = kpca.transform(X, tmp_path / "s.zarr", n_components=2, dtype="float64")
    assert (found.shape, found.dtype) == ((500, 2), np.float64)
    for options in ({"dtype": "float64"}, {"n_components": 2}):
        with pytest.raises(SpecError, match=r"dtype and n_components work only with out: pass out, or use"):
            kpca.transform(X, **options)


# Passes and plans


@pytest.mark.parametrize(
    ("way", "method", "passes"),
    [
        ("fixed-point", "nystroem", 1),
        (DENOISING, "rff", 1),
        pytest.param("mds", "rff-pca", 2, marks=FULL),
        pytest.param("ridge", "exact", 0, marks=FULL),
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


def test_what_does_not_fit_in_memory_is_refused_before_the_run(model, scores, dataset, tmp_path):
    refused = r"needs \d+ MB in a process, but 20 MB are allowed: ask for smaller"
    for write, given in ((bigkpca.reconstruct, scores), (bigkpca.denoise, dataset), (bigkpca.transform, dataset)):
        with pytest.raises(MemoryLimitError, match=refused):
            write(model, given, tmp_path / "out.zarr", memory="20 MB")
    assert not list(tmp_path.glob("out.zarr*"))


def test_plans_count_the_scores_and_flags_that_are_stored(model, dataset):
    found, rows = load_model(model), open_rows(dataset)
    of_all, few = (plan_transform(rows, each, 100, 2) for each in (found, found.leading(3)))
    wide, judged = (plan_transform(rows, found, 100, 2, **how) for how in ({"dtype": "float64"}, {"judged": True}))
    assert (of_all.result_bytes, few.result_bytes, wide.result_bytes) == (500 * 8 * 4, 500 * 3 * 4, 500 * 8 * 8)
    assert few.array_bytes < of_all.array_bytes < wide.array_bytes
    assert judged.result_bytes - of_all.result_bytes == 500 * (4 + 9)  # residuals and flags
    assert judged.array_bytes > of_all.array_bytes


# What leads to no rows


def test_scores_of_another_model_are_refused_however_their_path_is_spelled(dataset, model, scores, tmp_path):
    bigkpca.fit(dataset, other := str(tmp_path / "other.zarr"), **OPTIONS | {"random_state": 4})
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


def test_scores_and_rows_of_another_width_or_that_are_not_finite_are_refused(model, kpca, tmp_path):
    few, lazy, out, Y = np.ones((10, 5)), da.ones((10, 5)), tmp_path / "out.zarr", np.zeros((N, 8))
    Y[234, 5] = np.inf
    np.save(tmp_path / "scores.npy", Y)
    of_scores = r"scores of shape \(10, 5\), but the model has 8 components"
    of_rows = "has 5 columns, but the model was fitted on 64"
    infinite = "row 234, column 5 is infinity"
    for work, error, message in (
        (lambda: bigkpca.reconstruct(model, few, out), SpecError, of_scores),
        (lambda: kpca.inverse_transform(few), SpecError, of_scores),
        (lambda: kpca.inverse_transform(lazy), SpecError, of_scores),
        (lambda: arrays.preimages(kpca.model_, lazy), SpecError, of_scores),
        (lambda: bigkpca.denoise(model, few, out), SpecError, of_rows),
        (lambda: arrays.denoised(kpca.model_, lazy), SpecError, of_rows),
        (lambda: arrays.residuals(kpca.model_, lazy), SpecError, of_rows),
        (lambda: bigkpca.reconstruct(model, Y, out), DataError, infinite),
        (lambda: kpca.inverse_transform(Y), DataError, infinite),
        (lambda: kpca.inverse_transform(tmp_path / "scores.npy").compute(), DataError, infinite),
    ):
        with pytest.raises(error, match=message):
            work()
    assert not out.exists()


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


def test_rows_whose_kernel_values_overflow_are_refused(X):
    cubic, bad = fitted(X, kernel="poly"), X.copy()
    bad[7] = 1e30
    for work in (
        lambda: reconstruct_rows(ArrayRows(bad), cubic, block_denoised, Engine(threads=1)),
        lambda: residual_rows(ArrayRows(bad), cubic, Engine(threads=1)),
    ):
        with pytest.raises(DataError, match="rows 0 to 99: kernel values overflow"):
            work()
