"""Scores from path to path: stopped anywhere, the same command finishes them and the bytes are the same."""

import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.blocks import split
from bigkpca.errors import MemoryLimitError, SpecError
from bigkpca.storage import block_arrays
from bigkpca.storage.models import load_model, model_digest
from tests.helpers.dask_processes import wait_until
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Recorder


def made_in(out):
    """The folder beside an output in which its blocks are written; the path itself once there is none."""
    return next(out.parent.glob(out.name + ".bigkpca-run-*"), out)


_HALTED = """
import itertools, sys, time
from bigkpca.cli import main
from bigkpca.storage import block_arrays
write, calls = block_arrays.write_block, itertools.count()
def halting(*block):
    while next(calls) >= 2:
        time.sleep(0.05)
    return write(*block)
block_arrays.write_block = halting
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, *(pytest.param(how, marks=pytest.mark.full) for how in (signal.SIGTERM, signal.SIGINT))]
)
def test_a_stopped_transform_goes_on_and_gives_the_same_bytes(how, dataset, model, tmp_path):
    clean, out = tmp_path / "clean.zarr", tmp_path / "scores.zarr"
    bigkpca.transform(model, dataset, clean, block_rows=100)
    command = [sys.executable, "-c", _HALTED, "transform", model, dataset, str(out), "--block-rows", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: len(list(made_in(out).glob("scores/c/*/0"))) == 2)
            process.send_signal(how)
            _, errors = process.communicate(timeout=200)
        finally:
            process.kill()
    assert not out.exists()
    if how != signal.SIGKILL:
        assert process.returncode == 6
        assert b"run the same command again" in errors
    here = made_in(out)
    written = {path.relative_to(here): path.stat().st_mtime_ns for path in here.glob("scores/c/*/0")}
    bigkpca.transform(model, dataset, out, block_rows=100)
    assert {path: (out / path).stat().st_mtime_ns for path in written} == written  # not computed again
    assert tree_bytes(out) == tree_bytes(clean)


def test_output_without_a_manifest_resumes_with_missing_and_damaged_blocks_of_its_input_alone(
    dataset, model, tmp_path, digits
):
    clean, out = tmp_path / "clean.zarr", tmp_path / "scores.zarr"
    bigkpca.transform(model, dataset, clean, block_rows=200)
    shutil.copytree(clean, out)
    (out / "scores" / "manifest.json").unlink()
    (out / "scores" / "c" / "2" / "0").unlink()
    damaged = out / "scores" / "c" / "4" / "0"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    notes = Recorder()
    bigkpca.transform(model, dataset, out, block_rows=200, progress=notes)
    assert notes.notes == ["continuing: 7 of 9 blocks are written already"]
    assert tree_bytes(out) == tree_bytes(clean)
    (out / "scores" / "manifest.json").unlink()
    zarr.open_array(dataset, mode="r+")[0] = digits[1]
    with pytest.raises(SpecError, match=r"input\.stamp is"):
        bigkpca.transform(model, dataset, out, block_rows=200)


def test_features_open_in_xarray_and_the_manifest_names_them(dataset, model, tmp_path):
    import xarray

    out = tmp_path / "scores.zarr"
    scores = bigkpca.transform(model, dataset, out, block_rows=200)
    opened = xarray.open_zarr(out, consolidated=False)["scores"]
    assert opened.dims == ("row", "component")
    np.testing.assert_array_equal(opened.values, scores[:])
    manifest = block_arrays.read_manifest(str(out))
    assert manifest["model"] == model_digest(load_model(model))
    assert manifest["rows"] == 1797
    digests = [(block_arrays.block_digests(str(out), block) or {})["scores"] for block in split(1797, 200)]
    assert [block["sha256"] for block in manifest["blocks"]] == digests


def test_what_does_not_fit_is_refused_before_the_run(dataset, model, tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.workflows.block_writer._MOST_BLOCKS", 17)  # of millions, which a manifest can list
    for error, data, how, message in (
        (SpecError, np.ones((10, 5)), {}, "has 5 columns, the model was fitted on 64"),
        (MemoryLimitError, dataset, {"memory": 10**6}, "1 MB are allowed"),
        (SpecError, dataset, {"block_rows": 100}, "18 blocks are more than 17: take larger ones with --block-rows"),
    ):
        with pytest.raises(error, match=message):
            bigkpca.transform(model, data, tmp_path / "s.zarr", **how)
    assert not list(tmp_path.glob("s.zarr*"))
