"""Feature stores that grow: blocks are made beside the store, and then taken over, shard by shard.

A run makes the last block, where that was not full, and all that follow it, with a manifest of all blocks, in its run
folder. Then it takes three steps, which the next run goes on with where one was cut off:

    1. the manifest of the store names the run folder as `publishing`
    2. the shards are copied, and the metadata of the arrays, which say how many rows they have
    3. the manifest is replaced by that of the run folder

Readers trust the rows of the manifest, so they see those before the run until step 3, and then all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bigkpca.data.blocks import Block, split
from bigkpca.data.json_files import replace_json
from bigkpca.data.stores import last_name, parent, store_of
from bigkpca.data.zarr import MAIN, PUBLISHING
from bigkpca.errors import CorruptionError
from bigkpca.storage import block_arrays, groups, records

GROWING: dict[str, records.Check] = {
    "input_blocks": lambda value: isinstance(value, list) and all(map(_is_input_block, value)),
    "run": lambda value: isinstance(value, dict) and _is_tail((value.get("input") or {}).get("tail")),
}
"""What the manifest of a feature store that grows holds besides that of others."""


def _is_input_block(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)


def _is_tail(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def read(path: str) -> dict[str, Any]:
    """The manifest of a published store that grows. Raises CorruptionError where it is gone, or damaged."""
    about = groups.describe(path)
    if about is None or about["format"] not in MAIN:
        raise CorruptionError(f"{path} is gone, or its zarr.json is damaged; {block_arrays.again(path)}")
    manifest = block_arrays.read_manifest(path)
    if manifest is None:
        raise CorruptionError(f"{path}: its manifest is gone; {block_arrays.again(path)}")
    name = groups.manifest_path(path)
    records.check(manifest, GROWING, name, block_arrays.again(path))
    if len(manifest["input_blocks"]) != len(manifest["blocks"]):
        raise CorruptionError(f"{name} does not have a digest of the input for each block; {block_arrays.again(path)}")
    return manifest


def is_publishing(manifest: Mapping[str, Any]) -> bool:
    """Whether a run was publishing when this manifest was read, or was cut off while it did."""
    return PUBLISHING in manifest


def changed_blocks(rows: int, count: int, block_rows: int) -> list[Block]:
    """The blocks of `count` rows that are not whole among the first `rows` rows."""
    return [block for block in split(count, block_rows) if block.stop > rows]


def publish(path: str, folder: str, manifest: Mapping[str, Any]) -> None:
    """Take over what was made in a run folder, which has its own manifest; `manifest` is that of the store so far."""
    replace_json(groups.manifest_path(path), {**manifest, PUBLISHING: last_name(folder)})
    _take_over(path, folder, manifest["rows"])


def go_on(path: str) -> bool:
    """Finish what `publish` began at `path`, where it was cut off; whether it was."""
    manifest = read(path)
    if not is_publishing(manifest):
        return False
    _take_over(path, _published_from(path, manifest), manifest["rows"])
    return True


def read_finished(path: str) -> dict[str, Any]:
    """The manifest as `go_on` leaves it. Writes nothing."""
    manifest = read(path)
    return read(_published_from(path, manifest)) if is_publishing(manifest) else manifest


def _published_from(path: str, manifest: Mapping[str, Any]) -> str:
    """The run folder that is taken over. Raises CorruptionError where it is gone."""
    folder = f"{parent(path)}/{last_name(str(manifest[PUBLISHING]))}"
    if block_arrays.holds(folder, block_arrays.open_arrays(path)) and block_arrays.read_manifest(folder) is not None:
        return folder
    raise CorruptionError(
        f"{path}: a run was cut off while it published, and its folder {folder} is gone: restore it, or make a new "
        "version of all features with bigkpca run JOB.toml --full"
    )


def _take_over(path: str, folder: str, before: int) -> None:
    manifest, store = read(folder), store_of(path)
    names = sorted(block_arrays.open_arrays(path))
    for block in changed_blocks(before, manifest["rows"], manifest["block_rows"]):
        block_arrays.replace_block(path, folder, block, names)
    for name in names:
        with store.open(f"{folder}/{name}/zarr.json") as metadata:
            content = metadata.read()
        store.replace(f"{path}/{name}/zarr.json", content)
    replace_json(groups.manifest_path(path), manifest)


def refresh_stamps(path: str, manifest: Mapping[str, Any], stamps: Sequence[str]) -> None:
    """Take note that the input of each block was found unchanged, where its files now have these stamps."""
    fresh = [[sha256, stamp] for (sha256, _), stamp in zip(input_digests(manifest), stamps, strict=True)]
    replace_json(groups.manifest_path(path), {**manifest, "input_blocks": fresh})


def input_digests(manifest: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """For each block: SHA-256 of the rows that it was computed from, and the stamp of where these are stored."""
    return [(sha256, stamp) for sha256, stamp in manifest["input_blocks"]]
