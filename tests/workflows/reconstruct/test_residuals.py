"""What scores leave of rows, for every kind of rows and from the commands."""

import re
from importlib import import_module
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, arrays, kernels
from bigkpca.errors import SpecError
from bigkpca.storage import block_arrays
from bigkpca.storage.models import load_model
from tests.helpers.commands import peak_bytes, planned_bytes, run
from tests.helpers.disks import tree_bytes
from tests.helpers.stores import sha256
from tests.workflows.reconstruct.digits import CHUNK, N, wide_rows


@pytest.mark.parametrize("center", [True, False])
def test_residuals_are_what_scores_leave_of_the_diagonal(center, X):
    rows = X[:120].astype(np.float64)
    kernel = kernels.Gaussian(30.0)
    kpca = KernelPCA(6, kernel=kernel, method="exact", center=center).fit(rows)
    K = kernel(rows, rows)
    if center:  # |H φ(x)|² - |z|² with both about the mean
        H = np.eye(len(K)) - 1 / len(K)
        K = H @ K @ H
    expected = np.diag(K) - (kpca.transform(rows) ** 2).sum(axis=1)
    np.testing.assert_allclose(kpca.residual(rows), expected, atol=1e-10)
    np.testing.assert_allclose(kpca.model_.residual(rows), expected, atol=1e-10)
    assert (expected > 0.01).any()
    far = kernel.diagonal(rows[:1]) + (kernel(rows, rows).mean() if center else 0)
    np.testing.assert_allclose(kpca.residual(rows[:1] + 1e4), far, rtol=0.1)


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
        np.testing.assert_array_equal(view.compute(scheduler="threads"), expected)
    np.testing.assert_allclose(load_model(model).residual(X), expected, rtol=1e-4, atol=1e-5)
    manifest = block_arrays.read_manifest(str(out))
    assert manifest is not None
    assert manifest["blocks"][2]["residual_sha256"] == sha256(expected[200:300])
    with pytest.raises(SpecError, match="residual is True there and False here"):
        bigkpca.transform(model, dataset, out, block_rows=CHUNK)
    assert bigkpca.reconstruct(model, out, tmp_path / "back.zarr", block_rows=CHUNK).shape == (N, 64)
    noise = np.random.default_rng(0).uniform(0, 16, X.shape).astype(np.float32)
    assert np.median(kpca.residual(noise)) > 1.5 * np.median(expected)


@pytest.mark.parametrize(
    ("method", "preimage", "most"),
    [("nystroem", "fixed-point", 0), ("columns", "ridge", 1)],  # the former keeps what is needed
)
@pytest.mark.full
def test_residuals_of_all_blocks_take_one_decomposition(method, preimage, most, X, dataset, tmp_path, monkeypatch):
    kpca = KernelPCA(4, size=60, method=method, preimage=preimage, block_rows=CHUNK, random_state=0).fit(X)
    module = import_module("bigkpca.numerics.preimages.expansion")  # a function has the same name
    decomposed, real = [], module.basis_of

    def counting(W, *options):
        decomposed.append(W.shape)
        return real(W, *options)

    monkeypatch.setattr(module, "basis_of", counting)
    out, model = tmp_path / "scores.zarr", kpca.model_
    for work in (
        lambda: bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK)[:],
        lambda: kpca.residual(X),
        lambda: kpca.residual(da.from_array(X, chunks=(CHUNK, -1))).compute(scheduler="synchronous"),
        lambda: model.residual(np.tile(X, (5, 1)).astype(np.float32)),
    ):
        decomposed.clear()
        assert len(work()) >= 3 * CHUNK
        assert decomposed.count((60, 60)) == most
    decomposed.clear()
    bigkpca.transform(model, dataset, out, residual=True, block_rows=CHUNK)  # which exists already
    assert not decomposed


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
@pytest.mark.parametrize("method", ["nystroem", "columns"])
def test_the_peak_of_residuals_of_many_landmarks_stays_below_the_plan(method, tmp_path):
    rows, model = wide_rows(tmp_path / "rows.npy", 20_000, 20), tmp_path / "model.zarr"
    bigkpca.fit(rows, model, method=method, size=2000, components=50, landmarks="uniform")
    found = peak_bytes("transform", "-q", "--residual", "--block-rows", 2048, model, rows, tmp_path / "scores.zarr")
    plan = planned_bytes("transform", "--residual", "--block-rows", 2048, model, rows, tmp_path / "other.zarr")
    assert 0.6 * plan < found <= plan, (found, plan)


def test_rows_of_a_matrix_have_no_residual(X, tmp_path):
    K = kernels.Gaussian(25.0)(X[:60].astype(float), X[:60].astype(float))
    kpca = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    message = r"residuals need k\(x, x\), which rows of a precomputed matrix do not contain"
    with pytest.raises(SpecError, match=message):
        bigkpca.transform(kpca.model_, K, tmp_path / "out.zarr", residual=True)
    for work in (
        lambda: kpca.residual(K),
        lambda: kpca.model_.residual(K),
        lambda: kpca.residual(da.from_array(K)),
        lambda: arrays.residuals(kpca.model_, K),
    ):
        with pytest.raises(SpecError, match=message):
            work()


def test_the_commands_print_where_rows_are(model, scores, dataset, back, tmp_path):
    for command, given in (("reconstruct", scores), ("denoise", dataset)):
        shown = run(command, model, given, tmp_path / command, "--block-rows", CHUNK)
        assert shown.exit_code == 0
        assert re.search(r"^shape +500 × 64$", shown.stdout, re.M)
        assert re.search(r"^far +0$", shown.stdout, re.M)
        assert "500 rows in" in shown.stderr
        again = run(command, model, given, tmp_path / command, "--block-rows", CHUNK)
        assert again.exit_code == 0
        assert again.stdout == shown.stdout
        assert "nothing to do" in again.stderr
    assert tree_bytes(tmp_path / "reconstruct") == tree_bytes(back)
