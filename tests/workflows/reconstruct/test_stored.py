"""Rows written back to disk: the same bits everywhere, gone on with where they stopped, never in the way of others."""

import json
import shutil

import pytest
import zarr

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.fitting.fit import fit_rows
from bigkpca.spec import FitSpec
from bigkpca.storage import block_arrays
from bigkpca.storage.models import load_model, model_digest, save_model
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Recorder
from tests.helpers.stores import sha256
from tests.workflows.reconstruct.digits import ARRAYS, CHUNK, OPTIONS, WAYS, N


@pytest.mark.bits
@pytest.mark.full
def test_stored_rows_are_the_same_bytes_everywhere(on, model, dataset, scores, back, denoised, tmp_path):
    bigkpca.reconstruct(model, scores, tmp_path / "back.zarr", block_rows=CHUNK)
    bigkpca.denoise(model, dataset, tmp_path / "denoised.zarr", block_rows=CHUNK)
    assert tree_bytes(tmp_path / "back.zarr") == tree_bytes(back)
    assert tree_bytes(tmp_path / "denoised.zarr") == tree_bytes(denoised)


@pytest.mark.full
@pytest.mark.parametrize("way", ["mds", "denoising"])
@pytest.mark.bits
def test_ways_back_are_the_same_bytes_everywhere(way, engine, dataset, tmp_path):
    spec = FitSpec.checked(**OPTIONS | WAYS[way])
    for name, where in (("one.zarr", Engine(threads=1)), ("two.zarr", engine)):
        save_model(fit_rows(open_rows(dataset), spec, where, Silent()), str(tmp_path / name))
    assert tree_bytes(tmp_path / "one.zarr") == tree_bytes(tmp_path / "two.zarr")


def test_the_manifest_names_the_model_the_input_and_every_array(model, scores, back):
    manifest = block_arrays.read_manifest(str(back))
    assert manifest is not None
    assert manifest["model"] == model_digest(load_model(model))
    assert manifest["input"] == open_rows(scores).fingerprint()
    assert manifest["input"]["path"] == scores
    assert (manifest["format"], manifest["given"], manifest["rows"]) == ("reconstruction", "scores", N)
    stored = {name: zarr.open_group(back, mode="r")[name][:] for name in ARRAYS}
    for number, block in enumerate(manifest["blocks"]):
        start, stop = block["start"], block["stop"]
        assert (start, stop) == (number * CHUNK, (number + 1) * CHUNK)
        assert block["sha256"] == sha256(stored["x"][start:stop])
        for name in ARRAYS[1:]:
            assert block[f"{name}_sha256"] == sha256(stored[name][start:stop])
    assert len(manifest["blocks"]) == N // CHUNK


def test_stored_rows_are_a_dataset_like_any(back, tmp_path):
    import xarray

    opened = xarray.open_zarr(back, consolidated=False)
    assert opened["x"].dims == ("row", "column")
    assert [opened[name].dims for name in ARRAYS[1:]] == [("row",)] * 3
    facts = json.loads(run("info", back, "--json").stdout)
    assert (facts["kind"], facts["finished"]) == ("reconstruction", True)
    assert run("fit", back, tmp_path / "again.zarr", "--size", 20, "--components", 3, "-q").exit_code == 0


def test_missing_and_damaged_shards_of_any_array_are_written_again(model, scores, back, tmp_path):
    out, notes = tmp_path / "back.zarr", Recorder()
    shutil.copytree(back, out)
    (out / "x" / "manifest.json").unlink()
    (out / "x" / "c" / "0" / "0").unlink()
    (out / "iterations" / "c" / "1").unlink()
    damaged = out / "far" / "c" / "2"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    untouched = [out / name / "c" / number for name in ARRAYS[1:] for number in ("3", "4")]
    before = [path.stat().st_mtime_ns for path in untouched]
    bigkpca.reconstruct(model, scores, out, block_rows=CHUNK, progress=notes)
    assert notes.notes == ["continuing: 2 of 5 blocks are written already"]
    assert [path.stat().st_mtime_ns for path in untouched] == before
    assert tree_bytes(out) == tree_bytes(back)


def test_what_is_in_the_way_is_named_and_kept(model, other, scores, dataset, X, back, tmp_path):
    out = tmp_path / "back.zarr"
    shutil.copytree(back, out)
    Y = zarr.open_group(scores, mode="r")["scores"][:]
    for work, differs in (
        (lambda: bigkpca.reconstruct(other, Y, out, block_rows=CHUNK), r"model is '\w+' there and '\w+' here"),
        (lambda: bigkpca.reconstruct(model, Y, out, block_rows=CHUNK), r"input\.path is '.*scores.zarr' there"),
        (lambda: bigkpca.reconstruct(model, scores, out, block_rows=200), "block_rows is 100 there and 200 here"),
        (
            lambda: bigkpca.denoise(model, dataset, out, block_rows=CHUNK),
            r"input\.path is '.*scores.zarr' there and '.*d",
        ),
        (
            lambda: bigkpca.transform(model, dataset, out, block_rows=CHUNK),
            "it is a bigkpca store of reconstructed rows",
        ),
    ):
        with pytest.raises(SpecError, match=f"in the way: .*{differs}.*--overwrite"):
            work()
    assert tree_bytes(out) == tree_bytes(back)
    stored = bigkpca.denoise(model, X[:50], out, overwrite=True)
    assert stored.shape == (50, 64)
    assert [path.name for path in tmp_path.iterdir()] == ["back.zarr"]
