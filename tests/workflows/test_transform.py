"""Scores from path to path: blocks that are there are kept."""

import pytest
import zarr

import bigkpca
from bigkpca.errors import SpecError
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Once, Recorder


def test_a_stopped_run_goes_on_with_missing_and_damaged_blocks_alone(dataset, model, tmp_path):
    clean, out, notes = tmp_path / "clean.zarr", tmp_path / "scores.zarr", Recorder()
    bigkpca.transform(model, dataset, clean, block_rows=200)
    with pytest.raises(KeyboardInterrupt):
        bigkpca.transform(model, dataset, out, block_rows=200, progress=Once(after=1700))
    chunks = tmp_path / "scores.zarr.partial" / "group" / "scores" / "c"
    (chunks / "2" / "0").unlink()
    damaged = chunks / "4" / "0"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    bigkpca.transform(model, dataset, out, block_rows=200, progress=notes)
    assert notes.notes == ["continuing: 8 of 9 blocks are already written"]  # one does not decode
    assert tree_bytes(out) == tree_bytes(clean)


def test_blocks_of_another_input_are_not_taken_up(dataset, model, tmp_path, digits):
    out, notes = tmp_path / "scores.zarr", Recorder()
    with pytest.raises(KeyboardInterrupt):
        bigkpca.transform(model, dataset, out, block_rows=200, progress=Once(after=1000))
    zarr.open_array(dataset, mode="r+")[0] = digits[1]
    bigkpca.transform(model, dataset, out, block_rows=200, progress=notes)
    (told,) = notes.notes
    assert told.startswith("removed what an interrupted run left of a feature store of ")
    bigkpca.transform(model, dataset, tmp_path / "clean.zarr", block_rows=200)
    assert tree_bytes(out) == tree_bytes(tmp_path / "clean.zarr")
    zarr.open_array(dataset, mode="r+")[0] = digits[2]
    with pytest.raises(SpecError, match=r"a feature store of .*digits\.zarr before it changed"):
        bigkpca.transform(model, dataset, out, block_rows=200)
