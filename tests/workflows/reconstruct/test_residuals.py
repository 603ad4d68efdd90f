"""What scores leave of rows, for every kind of rows and from the commands."""

import re
from functools import partial
from importlib import import_module
from unittest import mock

import dask.array as da
import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.storage import block_arrays
from bigkpca.storage.models import load_model
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.helpers.stores import sha256
from tests.workflows.reconstruct.digits import CHUNK, N


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
def test_residuals_of_all_blocks_take_one_decomposition(method, preimage, most, X, dataset, tmp_path):
    kpca = KernelPCA(4, size=60, method=method, preimage=preimage, block_rows=CHUNK, random_state=0).fit(X)
    module = import_module("bigkpca.numerics.preimages.expansion")  # a function has the same name
    transform = partial(bigkpca.transform, kpca.model_, dataset, tmp_path / "s.zarr", residual=True, block_rows=CHUNK)
    for work, count in (
        (lambda: transform()[:], most),
        (lambda: kpca.residual(X), most),
        (lambda: kpca.residual(da.from_array(X, chunks=(CHUNK, -1))).compute(scheduler="synchronous"), most),
        (lambda: kpca.model_.residual(np.tile(X, (5, 1)).astype(np.float32)), most),
        (lambda: transform()[:], 0),  # which exists already
    ):
        with mock.patch.object(module, "basis_of", side_effect=module.basis_of) as decomposed:
            assert len(work()) >= 3 * CHUNK
        assert [call.args[0].shape for call in decomposed.call_args_list].count((60, 60)) == count


def test_the_commands_print_where_rows_are(model, scores, dataset, back, tmp_path):
    for command, given in (("reconstruct", scores), ("denoise", dataset)):
        shown, again = (run(command, model, given, tmp_path / command, "--block-rows", CHUNK) for _ in range(2))
        assert re.search(r"^shape +500 × 64$", shown.stdout, re.M)
        assert re.search(r"^far +0$", shown.stdout, re.M)
        assert "500 rows in" in shown.stderr
        assert again.stdout == shown.stdout
        assert "nothing to do" in again.stderr
    assert tree_bytes(tmp_path / "reconstruct") == tree_bytes(back)
