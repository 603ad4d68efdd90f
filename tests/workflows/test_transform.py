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
from bigkpca.errors import IncompleteError, MemoryLimitError, SpecError
from bigkpca.storage import block_arrays
from bigkpca.storage.models import load_model, model_digest
from tests.helpers.dask_processes import wait_until
from tests.helpers.disks import small_disk, tree_bytes
from tests.helpers.progress import Recorder


def test_the_same_transform_again_does_nothing_and_one_of_another_model_is_refused(dataset, model, tmp_path):
    out, other, notes = tmp_path / "scores.zarr", tmp_path / "other.zarr", Recorder()
    bigkpca.transform(model, dataset, out)
    before = tree_bytes(out)
    bigkpca.transform(model, dataset, out, progress=notes)
    assert "nothing to do" in notes.notes[0]
    bigkpca.fit(dataset, other, components=4, size=60)
    with pytest.raises(SpecError, match=r"model is '.*' there and '.*' here"):
        bigkpca.transform(other, dataset, out)
    assert tree_bytes(out) == before
    assert bigkpca.transform(other, dataset, out, overwrite=True).shape == (1797, 4)


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


def test_output_without_a_manifest_resumes_with_missing_and_damaged_blocks_alone(dataset, model, tmp_path):
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


def test_unfinished_blocks_of_another_input_are_refused(dataset, model, tmp_path, digits):
    out = tmp_path / "scores.zarr"
    bigkpca.transform(model, dataset, out)
    (out / "scores" / "manifest.json").unlink()
    zarr.open_array(dataset, mode="r+")[0] = digits[1]
    with pytest.raises(SpecError, match=r"input\.stamp is"):
        bigkpca.transform(model, dataset, out)


def test_input_that_changes_under_a_run_is_not_published(dataset, model, tmp_path, monkeypatch):
    write = block_arrays.write_block

    def meddle(*arguments):
        zarr.open_array(dataset, mode="r+")[0, 0] = 7
        return write(*arguments)

    monkeypatch.setattr("bigkpca.storage.block_arrays.write_block", meddle)
    with pytest.raises(IncompleteError, match="changed while it was read"):
        bigkpca.transform(model, dataset, tmp_path / "scores.zarr")
    assert not (tmp_path / "scores.zarr").exists()


@pytest.mark.full
def test_a_full_disk_leaves_earlier_output_and_can_be_resumed(dataset, tmp_path):
    model = tmp_path / "model.zarr"
    bigkpca.fit(dataset, model, components=80, size=200)
    bigkpca.fit(dataset, tmp_path / "small.zarr", components=2, size=20)
    with small_disk("400k", tmp_path / "disk") as disk:
        out = disk / "scores.zarr"
        bigkpca.transform(tmp_path / "small.zarr", dataset, out)
        before = tree_bytes(out)
        with pytest.raises(IncompleteError, match=r"the disk is full .* make room and run the same command again"):
            bigkpca.transform(model, dataset, out, overwrite=True, block_rows=100)
        assert tree_bytes(out) == before
        with pytest.raises(IncompleteError, match="the disk is full"):
            bigkpca.fit(dataset, disk / "model.zarr", components=80, size=200)
        assert not (disk / "model.zarr").exists()
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        assert bigkpca.transform(model, dataset, out, overwrite=True, block_rows=100).shape == (1797, 80)


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


def test_what_does_not_fit_is_refused(dataset, model, tmp_path):
    with pytest.raises(SpecError, match="has 5 columns, the model was fitted on 64"):
        bigkpca.transform(model, np.ones((10, 5)), tmp_path / "scores.zarr")
    with pytest.raises(MemoryLimitError, match="1 MB are allowed"):
        bigkpca.transform(model, dataset, tmp_path / "scores.zarr", memory=10**6)
    assert not (tmp_path / "scores.zarr").exists()


def test_more_blocks_than_a_manifest_can_list_are_refused_before_the_run(dataset, model, tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.workflows.block_writer._MOST_BLOCKS", 17)
    with pytest.raises(SpecError, match="18 blocks are more than 17: take larger ones with --block-rows"):
        bigkpca.transform(model, dataset, tmp_path / "s.zarr", block_rows=100)
    assert not list(tmp_path.glob("s.zarr*"))
