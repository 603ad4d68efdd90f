"""Models on disk: they come back as they were, and what is damaged or unknown is refused."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import kernels
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec
from bigkpca.storage.describe import info
from bigkpca.storage.models import load_model, model_digest, save_model
from tests.helpers.fits import OPTIONS
from tests.storage import hostile


def test_a_saved_model_is_the_model(dataset, model):
    rows = open_rows(dataset)
    fitted = fit_rows(rows, FitSpec.checked(**OPTIONS), Engine(), Silent(), rows.fingerprint())
    assert model_digest(load_model(model)) == model_digest(fitted)


def test_the_reference_is_stored_with_its_model(model):
    loaded = load_model(model)
    assert loaded.reference is not None
    for name in loaded.reference.shapes:
        stored = zarr.open_array(f"{model}/reference_{name}", mode="r")
        assert stored.dtype == np.float64
        np.testing.assert_array_equal(stored[...], getattr(loaded.reference, name))
    without = replace(loaded, reference=None)
    assert model_digest(without) != model_digest(loaded)
    assert info(model)["reference_rows"] == loaded.reference.rows
    stored = zarr.open_array(f"{model}/reference_lower", mode="r+")
    stored[0, 0] = 0.5
    with pytest.raises(CorruptionError, match="does not match its digest"):
        load_model(model)


def test_a_model_without_a_reference_loads_and_keeps_its_digest(model, tmp_path):
    older = replace(load_model(model), reference=None)
    digest = save_model(older, str(tmp_path / "older.zarr"))
    assert "reference" not in hostile.attribute(tmp_path / "older.zarr")
    loaded = load_model(tmp_path / "older.zarr")
    assert loaded.reference is None
    assert model_digest(loaded) == digest
    assert info(str(tmp_path / "older.zarr"))["reference_rows"] is None


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("edges", lambda values: values[:, ::-1], "do not ascend"),
        ("edges", lambda values: values * np.nan, "is empty, or holds NaN"),
        ("edges", lambda values: values[:-1], r"reference_edges has the shape \(10, 64\), and not \(r\+1, m\)"),
        ("lower", lambda values: values[:, ::-1], "do not ascend"),
        ("upper", lambda values: values + 1, "not within 0 and 1"),
        ("lower", lambda values: values - 1, "not within 0 and 1"),
        ("upper", lambda values: values[:, 1:], r"reference_upper has the shape \(11, 63\)"),
        ("edges", lambda values: (values[::-1, ::-1] > 0).astype(np.uint8), "do not ascend"),
    ],
)
def test_a_reference_that_is_none_is_refused(model, name, change, message):
    values = zarr.open_array(f"{model}/reference_{name}", mode="r")[...]
    hostile.set_array(model, f"reference_{name}", np.ascontiguousarray(change(values)))
    with pytest.raises(CorruptionError, match=message):
        load_model(model)


@pytest.mark.parametrize("rows", [0, -1, 2.5, 5.0, True, "many", None, 10**30])
def test_a_reference_of_no_number_of_rows_is_refused(model, rows):
    hostile.forge(model, hostile.attribute(model) | {"reference": {"rows": rows}})
    with pytest.raises(CorruptionError, match="reference"):
        load_model(model)


@pytest.mark.parametrize("about", [[], "x", {}, {"rows": 5, "name": "x"}])
def test_a_reference_that_is_described_otherwise_is_refused(model, about):
    hostile.forge(model, hostile.attribute(model) | {"reference": about})
    with pytest.raises(CorruptionError, match="reference"):
        load_model(model)


def test_a_function_as_kernel_fits_but_cannot_be_saved(digits, tmp_path):
    def kernel(A, B):
        return kernels.Gaussian(20.0)(A, B)

    spec = {"components": 3, "size": 40, "landmarks": "uniform"}
    own, ours = (
        fit_rows(ArrayRows(digits.astype(float)), FitSpec.checked(kernel=k, **spec), Engine(), Silent())
        for k in (kernel, kernels.Gaussian(20.0))
    )
    np.testing.assert_allclose(own.solution.eigenvalues, ours.solution.eigenvalues, rtol=1e-9)
    with pytest.raises(SpecError, match="whose kernel is a function cannot be saved"):
        bigkpca.fit(digits, tmp_path / "model.zarr", kernel=kernel)
    with pytest.raises(SpecError, match="cannot be saved"):
        save_model(own, str(tmp_path / "model.zarr"))


def test_a_damaged_model_is_refused(dataset, model):
    stored = zarr.open_array(f"{model}/eigenvalues", mode="r+")
    stored[0] = 1.0
    with pytest.raises(CorruptionError, match="does not match its digest"):
        bigkpca.load(model)
    shard = Path(model, "components", "c", "0", "0")
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(CorruptionError, match="an array does not decode"):
        bigkpca.load(model)


def test_an_exact_model_whose_rows_are_gone_says_so(digits, tmp_path):
    path = tmp_path / "model.zarr"
    bigkpca.fit(digits[:50], path, method="exact", components=3)
    shutil.rmtree(path / "landmarks")
    with pytest.raises(CorruptionError, match=r"landmarks \(the rows that it compares others with\) are missing"):
        bigkpca.transform(path, digits[:50], tmp_path / "scores.zarr")


def test_large_arrays_of_a_model_are_stored_in_pieces(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.storage.models._SHARD_BYTES", 4096)
    fitted = bigkpca.fit(digits[:50], tmp_path / "model.zarr", method="exact", components=3)
    assert len(list((tmp_path / "model.zarr" / "landmarks" / "c").iterdir())) == 4
    np.testing.assert_array_equal(bigkpca.load(tmp_path / "model.zarr").features.landmarks, fitted.features.landmarks)


def test_a_model_of_an_unknown_version_is_refused(model):
    metadata = Path(model) / "zarr.json"
    metadata.write_text(metadata.read_text().replace('"format_version": 1', '"format_version": 99'))
    with pytest.raises(SpecError, match="model format version 99; this bigkpca reads version 1"):
        bigkpca.load(model)


def test_paths_that_hold_something_else(dataset, model, tmp_path):
    with pytest.raises(SpecError, match="does not exist: no model"):
        bigkpca.load(tmp_path / "nothing.zarr")
    with pytest.raises(SpecError, match="exists, but is not a bigkpca model"):
        bigkpca.load(dataset)
    bigkpca.transform(model, dataset, tmp_path / "scores.zarr")
    with pytest.raises(SpecError, match="is a bigkpca feature store, not a model"):
        bigkpca.load(tmp_path / "scores.zarr")


@pytest.mark.parametrize("size", [510, 523])  # of packed sums 260,100 and 273,529: few divisors are near a megabyte
def test_arrays_of_a_model_have_no_more_chunks_than_megabytes(size, tmp_path):
    X = np.random.default_rng(0).normal(size=(1200, 300))
    bigkpca.fit(X, tmp_path / "model.zarr", components=5, size=size, kernel="linear", landmarks="uniform")
    for name, array in zarr.open_group(tmp_path / "model.zarr", mode="r").arrays():
        assert isinstance(array, zarr.Array)
        chunks = -(-array.shape[0] // array.chunks[0])
        assert chunks <= 1 + array.nbytes / 2**19, name
