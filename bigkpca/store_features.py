"""Features on disk: scores (n, r), one shard for each block, and the manifest that makes them public."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from bigkpca import store
from bigkpca.blocks import Block
from bigkpca.errors import Array, CorruptionError
from bigkpca.sources import little_endian

Scores = zarr.Array[Any]  # (n, r), as stored


def create_features(path: str, record: Mapping[str, Any], shape: tuple[int, int], dtype: Any) -> None:
    """An empty feature store; `record` names the model, the input and the rows of a block."""
    group = store.create_group(path, record)
    store.create_array(group, "scores", shape, dtype, record["block_rows"], ("row", "component"), compress=False)


def open_scores(path: str, mode: Any = "r") -> Scores:
    """The array of scores (n, r)."""
    scores = store.open_group(path, "features", mode)["scores"]
    assert isinstance(scores, zarr.Array)
    return scores


def write_block(path: str, block: Block, scores: Array) -> str:
    """Write the whole shard of a block, alone; may run twice. Returns the SHA-256 of its values."""
    array = open_scores(path, "r+")
    # Zarr reads a shard before it replaces it, even as a whole, and would stop at one that does not decode.
    _shard(path, array, block).unlink(missing_ok=True)
    array[block.start : block.stop] = scores
    return hashlib.sha256(little_endian(scores)).hexdigest()


def stored_blocks(path: str, blocks: Sequence[Block]) -> list[Block]:
    """The blocks whose shards exist; shards appear whole, by a rename."""
    array = open_scores(path)
    return [block for block in blocks if _shard(path, array, block).exists()]


def _shard(path: str, array: Scores, block: Block) -> Path:
    return Path(path) / "scores" / array.metadata.encode_chunk_key((block.number, 0))


def block_digest(path: str, block: Block) -> str | None:
    """SHA-256 of the values of a stored block, None if its shard does not decode."""
    try:
        values = np.asarray(open_scores(path)[block.start : block.stop])
        return hashlib.sha256(little_endian(values)).hexdigest()
    except Exception:  # each codec raises its own kind; a shard that does not decode is simply not done
        return None


def publish(path: str, record: Mapping[str, Any], blocks: Sequence[Block], digests: Sequence[str]) -> None:
    """Force every shard to disk, then publish the manifest: from here on readers trust the rows it names."""
    store.sync_tree(Path(path))
    manifest = {
        "format": "features",
        "format_version": store.FORMAT_VERSION,
        "model": record["model"],
        "input": record["input"],
        "rows": blocks[-1].stop,
        "blocks": [
            {"start": block.start, "stop": block.stop, "sha256": digest}
            for block, digest in zip(blocks, digests, strict=True)
        ],
    }
    store.publish_json(store.manifest_path(path), manifest)


def read_manifest(path: str) -> dict[str, Any] | None:
    """The manifest of a published feature store, None before it is published."""
    name = store.manifest_path(path)
    if not name.exists():
        return None
    try:
        manifest: dict[str, Any] = json.loads(name.read_text())
    except ValueError as error:
        raise CorruptionError(f"{os.fspath(name)} does not parse ({error}); transform again") from error
    return manifest
