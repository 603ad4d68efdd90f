"""Scores from path to path: blocks that are there are kept, and what does not fit is refused before the run."""

import shutil

import pytest
import zarr

import bigkpca
from bigkpca.errors import MemoryLimitError, SpecError
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Recorder


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
    assert notes.notes == ["continuing: 7 of 9 blocks are already written"]
    assert tree_bytes(out) == tree_bytes(clean)
    (out / "scores" / "manifest.json").unlink()
    zarr.open_array(dataset, mode="r+")[0] = digits[1]
    with pytest.raises(SpecError, match=r"a feature store of .*digits\.zarr before it changed"):
        bigkpca.transform(model, dataset, out, block_rows=200)


def test_what_does_not_fit_is_refused_before_the_run(dataset, model, tmp_path, monkeypatch):
    monkeypatch.setattr("bigkpca.workflows.block_writer.MOST_JSON_BYTES", 17 * 500)  # of a manifest
    for error, how, message in (
        (MemoryLimitError, {"memory": 10**6}, "1 MB are allowed"),
        (SpecError, {"block_rows": 100}, "18 blocks, more than the limit of 17: use larger blocks with --block-rows"),
    ):
        with pytest.raises(error, match=message):
            bigkpca.transform(model, dataset, tmp_path / "s.zarr", **how)
    assert not list(tmp_path.glob("s.zarr*"))
