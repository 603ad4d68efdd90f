"""Scores of the leading components alone, and of another dtype: what is stored, and what reads it."""

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, arrays, kernels
from bigkpca.errors import DataError, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.fitting.preimage import of_leading
from bigkpca.storage import groups
from bigkpca.storage.models import load_model, model_digest
from tests.helpers.commands import run
from tests.helpers.progress import Recorder
from tests.workflows.reconstruct.digits import RIDGE, fitted

K = 3


@pytest.fixture(scope="session")
def leading(folder, model, dataset):
    bigkpca.transform(model, dataset, folder / "leading.zarr", n_components=K, residual=True)
    return str(folder / "leading.zarr")


def stored(path, name="scores"):
    return np.asarray(zarr.open_array(f"{path}/{name}", mode="r")[:])


def test_leading_scores_are_the_first_columns_of_all(leading, scores, model, X):
    np.testing.assert_allclose(stored(leading), stored(scores)[:, :K], rtol=1e-4, atol=1e-5)
    manifest = groups.describe(leading)
    assert (manifest["n_components"], manifest["dtype"]) == (K, "float32")
    assert manifest["model"] == model_digest(load_model(model))
    expected = fitted(X, n_components=K).residual(X)
    np.testing.assert_allclose(stored(leading, "residual"), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "option", [{"n_components": K}, pytest.param({"dtype": "float64"}, marks=pytest.mark.full)], ids=["number", "dtype"]
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
    for option, message in (
        (("--components", 0), "0 is not in the range x>=1"),
        (("--dtype", "int8"), "'int8' is not one of 'float32', 'float64'"),
    ):
        assert message in run("transform", model, dataset, tmp_path / "s.zarr", *option).stderr


@pytest.mark.parametrize(
    ("options", "atol"),
    [
        ({}, 0.05),
        ({"preimage": RIDGE}, 0.3),
        pytest.param({"preimage": "mds"}, 0.05, marks=pytest.mark.full),
        *(pytest.param({"method": each}, 0.2, marks=pytest.mark.full) for each in ("rff", "columns")),
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
