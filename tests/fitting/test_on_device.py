"""Fits, scores, plans and jobs whose passes compute on a device, here one of array_api_strict."""

import json

import numpy as np
import pytest
from dask.callbacks import Callback
from dask.utils import key_split

import bigkpca
from bigkpca import KernelPCA, KernelPCADetector
from bigkpca.data.devices import Device
from bigkpca.storage import groups
from bigkpca.storage.models import load_model, model_digest
from bigkpca.workflows import checkpoints
from tests.helpers.commands import run
from tests.helpers.nights import Night, some_rows
from tests.helpers.progress import Once, Recorder
from tests.helpers.stores import as_zarr

DEVICE = "array_api_strict"
RECORDED = [f"{DEVICE}:cpu"]
OPTIONS = {"n_components": 3, "size": 20, "block_rows": 64, "random_state": 0}
MANY = some_rows(1100)  # whose scores take a pass


@pytest.fixture(scope="module")
def X():
    return some_rows(300)


@pytest.fixture(scope="module")
def folder(X, tmp_path_factory):
    """Rows in five chunks, and models of them by the processor and by the device."""
    folder = tmp_path_factory.mktemp("on_device")
    as_zarr(folder, X, (64, 4), "rows.zarr")
    for name, device in ("here", None), ("there", DEVICE):
        bigkpca.fit(folder / "rows.zarr", folder / f"{name}.zarr", device=device, **OPTIONS)
    return folder


@pytest.fixture
def placed(monkeypatch):
    """The shapes of the arrays that this process moves to a device: weights of components only for scores."""
    shapes, place = [], Device.place
    monkeypatch.setattr(Device, "place", lambda device, X: shapes.append(X.shape) or place(device, X))
    return shapes


def agree(found, expected, rtol=1e-3):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def devices_of(model):
    return model.provenance.get("devices")


def test_a_model_fitted_on_a_device_records_it_and_is_that_of_the_processor_but_for_rounding(folder, tmp_path):
    here, there = (load_model(folder / f"{name}.zarr") for name in ("here", "there"))
    assert (devices_of(here), devices_of(there)) == (None, RECORDED)
    agree(there.solution.eigenvalues, here.solution.eigenvalues)
    same = bigkpca.fit(folder / "rows.zarr", tmp_path / "same.zarr", device="cpu", **OPTIONS)
    assert model_digest(same) == model_digest(here)
    found = bigkpca.fit(folder / "rows.zarr", folder / "here.zarr", device=DEVICE, **OPTIONS)
    assert devices_of(found) is None  # which existed already


@pytest.mark.parametrize(("device", "recorded"), [(None, RECORDED), ("cpu", None)])
def test_rows_on_a_device_are_computed_there_unless_another_is_named(device, recorded, X, tmp_path):
    rows = pytest.importorskip("array_api_strict").asarray(X)
    assert devices_of(bigkpca.fit(rows, tmp_path / "model.zarr", device=device, **OPTIONS)) == recorded
    assert devices_of(KernelPCA(**OPTIONS, device=device).fit(rows).model_) == recorded


@pytest.mark.parametrize("options", [{"method": "exact"}, {"kernel": "precomputed"}])
def test_a_gram_matrix_is_solved_on_the_processor(options, X, tmp_path):
    rows, shown = X[:60] @ X[:60].T, Recorder()
    model = bigkpca.fit(rows, tmp_path / "m.zarr", n_components=3, device=DEVICE, progress=shown, **options)
    assert devices_of(model) is None
    assert f"{RECORDED[0]} is not used: Gram matrices in memory are solved on the processor" in shown.notes


@pytest.mark.parametrize("name", ["here", "there"])
def test_scores_and_residuals_of_each_model_are_computed_on_each_device(name, folder, tmp_path, placed):
    stored = []
    for device in (None, DEVICE):
        out = tmp_path / f"{device}.zarr"
        options = {"block_rows": 64, "residual": True, "device": device}
        scores = bigkpca.transform(folder / f"{name}.zarr", folder / "rows.zarr", out, **options)
        assert (placed.count((20, 3)) >= 2) == (device is not None)  # of the model, and of its expansion
        stored.append((scores[:], groups.open_values(str(out), "residual")[:]))
    for expected, ours in zip(*stored, strict=True):
        agree(ours, expected)


def test_rows_that_are_added_and_models_that_are_merged_record_all_devices(X, tmp_path):
    like = KernelPCA(3, size=20, random_state=0).fit(X[:150])
    other = bigkpca.fit(X[150:], tmp_path / "other.zarr", like=like, device=DEVICE)
    grown = like.set_params(device=DEVICE).partial_fit(X[150:]).model_
    there = KernelPCA(**OPTIONS, device=DEVICE).fit(X[:150]).partial_fit(X[150:]).model_
    assert [devices_of(model) for model in (other, grown, there)] == [RECORDED, [*RECORDED, "cpu"], RECORDED]


def test_an_estimator_computes_on_its_device(placed, tmp_path):
    here, there = (KernelPCA(3, size=20, random_state=0, device=device).fit(MANY) for device in (None, DEVICE))
    assert devices_of(there.model_) == RECORDED
    for use in (
        lambda kpca: kpca.transform(MANY),
        lambda kpca: kpca.residual(MANY),
        lambda kpca: kpca.fit_transform(MANY),
        lambda kpca: kpca.transform(MANY, tmp_path / f"{kpca.device}.zarr")[:],
    ):
        placed.clear()
        expected = use(here)
        assert not placed
        found = use(there)
        assert (20, 3) in placed
        assert isinstance(found, np.ndarray)
        agree(found, expected)


def test_a_detector_computes_on_the_device_of_its_estimator(X, placed):
    here, there = (
        KernelPCADetector(KernelPCA(0.9, size=20, random_state=0, device=device), alpha=0.05).fit(X)
        for device in (None, DEVICE)
    )
    assert (devices_of(here.model_), devices_of(there.model_)) == (None, RECORDED)
    agree(there.score_samples(X), here.score_samples(X))
    placed.clear()
    there.score_samples(MANY)
    assert placed


def test_commands_take_a_device_and_name_it_as_it_was_typed(folder, tmp_path, quiet_signals):
    rows, model = folder / "rows.zarr", tmp_path / "m.zarr"
    sizes = ("--components", 3, "--size", 20)
    plan, fit, scores = ("plan", rows, *sizes), ("fit", rows, model, *sizes), ("transform", model, rows)
    for command in (plan, fit, (*scores, tmp_path / "s.zarr")):
        done = run(*command, "--device", DEVICE)
        assert done.exit_code == 0, done.output
    assert json.loads(run("info", model, "--json").stdout)["devices"] == RECORDED
    for command in (plan, ("info", folder / "here.zarr")):
        assert not any(line.startswith("device") for line in run(*command).stdout.splitlines())
    for device, command, message in (
        ("gpu 1", fit, "bigkpca: device='gpu 1' is not the name of a device"),
        ("cupy:cuda:1", (*scores, tmp_path / "t.zarr"), "needs cupy, which is not installed: pip install"),
    ):
        assert message in run(*command, "--device", device).stderr


def test_a_job_computes_on_its_device_and_warns_about_features_of_another(tmp_path, placed):
    night = Night.made(tmp_path / "job", device=DEVICE)
    night.append(some_rows(70))
    (record,) = night.run()
    assert placed.count((20, 3)) >= 2  # of the model, and of its expansion
    assert record["processors"][-1:] == RECORDED
    assert devices_of(load_model(night.model)) == RECORDED
    agree(night.scores(), night.wanted())
    night.set()
    night.append(some_rows(30, seed=1))
    (record,) = night.run()
    assert "last digits can differ" in record["message"]
    agree(night.scores(), night.wanted())


def test_sums_of_a_fit_are_continued_on_the_same_device_only(folder, tmp_path, monkeypatch):
    for name in ("_EVERY_SECONDS", "_SHORT_SECONDS", "_MOST_SHARE"):
        monkeypatch.setattr(checkpoints, name, 0.0)
    expected, computed = model_digest(load_model(folder / "there.zarr")), []
    for first in (DEVICE, None):
        out, done = tmp_path / f"{first}.zarr", []
        with pytest.raises(KeyboardInterrupt):
            bigkpca.fit(folder / "rows.zarr", out, device=first, progress=Once(after=450, title="fitting"), **OPTIONS)
        with Callback(posttask=lambda key, *_, done=done: done.append(key_split(key))):
            found = bigkpca.fit(folder / "rows.zarr", out, device=DEVICE, **OPTIONS)
        assert model_digest(found) == expected
        computed.append(done.count("bigkpca-fitting"))
    assert computed[0] < computed[1] == 5
