"""Shards that are encoded in memory: the bytes that Zarr writes, whole, whoever writes at the same time."""

import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

from bigkpca.data.blocks import Block, split
from bigkpca.data.json_files import write_json
from bigkpca.data.stores import LocalDisk
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


def test_shards_are_the_bytes_that_zarr_writes(tmp_path):
    """Of full blocks and of the last one, which is shorter, in memory order or not."""
    ours, zarrs = str(tmp_path / "ours"), str(tmp_path / "zarrs")
    for path in (ours, zarrs):
        block_arrays.create(path, RECORD, N, ARRAYS)
    group = zarr.open_group(zarrs, mode="r+")
    for block in split(N, ROWS):
        given = values(block)
        digests = block_arrays.write_block(ours, block, given | {"x": np.asfortranarray(given["x"])})
        assert digests == block_arrays.block_digests(ours, block)
        for name, held in given.items():
            array = group[name]
            array.with_config({"write_empty_chunks": True})[block.start : block.stop] = held
    written = tree_bytes(ours)
    assert written == tree_bytes(zarrs)
    assert len(written) == 1 + 4 + 4 * 4
    assert block_arrays.stored_blocks(ours, split(N, ROWS)) == list(split(N, ROWS))


def test_two_attempts_of_a_block_at_once_leave_one_whole_shard(tmp_path, monkeypatch):
    path, block, meeting, put = str(tmp_path / "s"), Block(1, 32, 64), threading.Barrier(2), LocalDisk.put
    block_arrays.create(path, RECORD, N, ARRAYS)
    real = Path.write_bytes

    def halting(self, content):
        """Half of it, then wait until the other attempt has written half of its own, too."""
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            meeting.wait(20)
            return file.write(content[len(content) // 2 :])

    monkeypatch.setattr(Path, "write_bytes", halting)
    runs = [threading.Thread(target=block_arrays.write_block, args=(path, block, values(block))) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    monkeypatch.setattr(Path, "write_bytes", real)
    assert LocalDisk.put is put
    clean = str(tmp_path / "clean")
    block_arrays.create(clean, RECORD, N, ARRAYS)
    block_arrays.write_block(clean, block, values(block))
    assert tree_bytes(path) == tree_bytes(clean)


def test_a_shard_is_replaced_even_where_it_does_not_decode(tmp_path):
    path, block = str(tmp_path / "s"), Block(0, 0, 32)
    block_arrays.create(path, RECORD, N, ARRAYS)
    block_arrays.write_block(path, block, values(block))
    wanted = tree_bytes(path)
    (tmp_path / "s" / "x" / "c" / "0" / "0").write_bytes(b"torn")
    assert block_arrays.block_digests(path, block) is None
    block_arrays.write_block(path, block, values(block))
    assert tree_bytes(path) == wanted


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda manifest: [], r"does not say what it must: it is \[\]"),
        (lambda manifest: {key: manifest[key] for key in manifest if key != "blocks"}, "blocks is missing"),
        (lambda manifest: manifest | {"model": "another"}, "its manifest does not fit its arrays"),
        (lambda manifest: manifest | {"rows": 99}, "its manifest does not fit its arrays"),
        (lambda manifest: manifest | {"blocks": manifest["blocks"][:-1]}, "its manifest does not fit its arrays"),
        (lambda manifest: manifest | {"blocks": [{}]}, r"blocks is \[\{\}\]"),
        (lambda manifest: manifest | {"rows": "many"}, "rows is 'many'"),
    ],
)
def test_a_manifest_that_is_not_about_the_arrays_is_refused(change, match, tmp_path):
    path, blocks = str(tmp_path / "s"), split(N, ROWS)
    block_arrays.create(path, RECORD, N, ARRAYS)
    digests = [block_arrays.write_block(path, block, values(block)) for block in blocks]
    block_arrays.publish(path, RECORD, blocks, digests)
    manifest = block_arrays.read_manifest(path)
    assert manifest is not None
    assert block_arrays.promised(path, manifest) == list(zip(blocks, digests, strict=True))
    write_json(f"{path}/x/manifest.json", change(manifest))
    with pytest.raises(CorruptionError, match=f"{match}.*run the command that made .* again, with --overwrite"):
        block_arrays.promised(path, block_arrays.read_manifest(path) or {})
