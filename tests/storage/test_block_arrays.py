"""Shards that are encoded in memory: the bytes that Zarr writes, whole, whoever writes at the same time."""

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigkpca.data.blocks import Block, split
from bigkpca.data.json_files import replace_json
from bigkpca.data.stored import writing_empty_chunks
from bigkpca.errors import CorruptionError
from bigkpca.storage import block_arrays
from tests.helpers.disks import tree_bytes

N, ROWS = 100, 32
INPUT = {"path": None, "shape": [96, 3], "dtype": "<f4", "stamp": "x"}
RECORD = {"format": "reconstruction", "model": "m", "input": INPUT, "block_rows": ROWS}
ARRAYS = {"x": ((5,), np.float32), "far": ((), bool), "iterations": ((), np.uint32), "z": ((3,), "f8")}


def values(block):
    """Some of them nothing but fill values."""
    rng = np.random.default_rng(block.number)
    return {
        "x": rng.normal(size=(len(block), 5)).astype("f4"),
        "far": np.zeros(len(block), bool),
        "iterations": rng.integers(0, 9, len(block), dtype=np.uint32),
        "z": np.full((len(block), 3), np.nan),
    }


@pytest.fixture
def path(tmp_path):
    """Arrays without a block, in a folder."""
    path = str(tmp_path / "ours")
    block_arrays.create(path, RECORD, N, ARRAYS)
    return path


def test_shards_are_the_bytes_that_zarr_writes(path, tmp_path):
    """Of full blocks and of the last one, which is shorter, in memory order or not."""
    zarrs = shutil.copytree(path, tmp_path / "zarrs")
    group = zarr.open_group(zarrs, mode="r+")
    for block in split(N, ROWS):
        given = values(block)
        digests = block_arrays.write_block(path, block, given | {"x": np.asfortranarray(given["x"])})
        assert digests == block_arrays.block_digests(path, block)
        for name, held in given.items():
            writing_empty_chunks(group[name])[block.start : block.stop] = held
    written = tree_bytes(path)
    assert written == tree_bytes(zarrs)
    assert len(written) == 1 + 4 + 4 * 4
    assert block_arrays.stored_blocks(path, split(N, ROWS)) == list(split(N, ROWS))


def test_a_shard_is_whole_after_two_attempts_at_once_and_replaced_where_it_does_not_decode(path, monkeypatch):
    block = Block(1, 32, 64)
    block_arrays.write_block(path, block, values(block))
    wanted, torn = tree_bytes(path), Path(path, "x", "c", "1", "0")
    meeting, replace, sizes = threading.Barrier(2), os.replace, []

    def halting(source, target):
        """Wait until the other attempt has written its own file, too."""
        meeting.wait(200)
        sizes.append(os.path.getsize(source))
        replace(source, target)

    torn.write_bytes(b"torn")
    assert block_arrays.block_digests(path, block) is None
    monkeypatch.setattr(os, "replace", halting)
    with ThreadPoolExecutor(2) as pool:
        for run in [pool.submit(block_arrays.write_block, path, block, values(block)) for _ in range(2)]:
            run.result()
    assert len(sizes) == 2 * len(ARRAYS)
    assert tree_bytes(path) == wanted


def test_a_manifest_that_is_not_about_the_arrays_is_refused(path):
    blocks = split(N, ROWS)
    digests = [block_arrays.write_block(path, block, values(block)) for block in blocks]
    block_arrays.publish(path, RECORD, blocks, digests)
    manifest = block_arrays.read_manifest(path)
    assert block_arrays.promised(path, manifest) == list(zip(blocks, digests, strict=True))
    for changed, match in (
        ([], r"is not a valid record: it is \[\]"),
        ({key: manifest[key] for key in manifest if key != "blocks"}, "blocks is missing"),
        (manifest | {"model": "another"}, "its manifest does not match its arrays"),
        (manifest | {"rows": 99}, "its manifest does not match its arrays"),
        (manifest | {"blocks": manifest["blocks"][:-1]}, "its manifest does not match its arrays"),
        (manifest | {"blocks": [{}]}, r"blocks is \[\{\}\]"),
        (manifest | {"rows": "many"}, "rows is 'many'"),
    ):
        replace_json(f"{path}/x/manifest.json", changed)
        with pytest.raises(CorruptionError, match=f"{match}.*run the command that made .* again, with --overwrite"):
            block_arrays.promised(path, block_arrays.read_manifest(path))
    Path(f"{path}/x/manifest.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"manifest\.json does not parse .*; run the command that made .* again"):
        block_arrays.read_manifest(path)
