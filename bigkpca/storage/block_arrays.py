"""Arrays of rows that tasks write block by block, one shard per block, and the manifest that publishes them.

features         scores (n, r), optionally residual (n,); statistic and flagged (n,)
reconstruction   x (n, d), with converged, far (n,) and iterations (n,)

A run writes the last block, if that was not full, and all blocks after it to its run folder, with a manifest of all
blocks. Then it takes three steps; if it is interrupted, the next run continues with them:

    1. the manifest of the store names the run folder as `publishing`
    2. the shards are copied, and the metadata of the arrays, which contain their number of rows
    3. the manifest is replaced with that of the run folder

Readers trust the rows of the manifest, so until step 3 they see the rows from before the run, and then all rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias
from warnings import catch_warnings, simplefilter

import zarr
from zarr.abc.buffer import Buffer as AnyBuffer
from zarr.buffer.cpu import Buffer
from zarr.errors import UnstableSpecificationWarning
from zarr.storage import MemoryStore

from bigkpca.data.blocks import Block, split
from bigkpca.data.json_files import read_if_there, read_record, replace_json, write_json
from bigkpca.data.labels import Labels, as_array
from bigkpca.data.retrying import retried
from bigkpca.data.stored import ALL_THERE, StoredArray, files_below, sha256, writing_empty_chunks
from bigkpca.data.stores import StoredFile, last_name, parent, store_of
from bigkpca.data.zarr import MAIN, PUBLISHING
from bigkpca.errors import Array, CorruptionError, IncompleteError
from bigkpca.storage import groups, records

Stored: TypeAlias = "zarr.Array[Any]"  # (n, r) or (n, d), as stored
Kind = Literal["features", "reconstruction"]
_METADATA = "zarr.json"  # in the folder of each array
TYPES: dict[str, dict[str, str]] = {  # kinds of dtypes of the arrays that each output can have, besides coordinates
    "features": {"scores": "f", "residual": "f", "statistic": "f", "flagged": "u"},
    "reconstruction": {"x": "f", "converged": "b", "iterations": "u", "far": "b"},
}
_ATTRIBUTES: dict[str, dict[str, Any]] = {  # flags as in the CF conventions, which xarray users know
    "flagged": {
        "long_name": "why the row is unusual",
        "flag_values": [0, 1, 2],
        "flag_meanings": "not_flagged residual distance",
    },
    "statistic": {"long_name": "how unusual the row is: residual and distance combined"},
}
_NAMES = {"features": ("row", "component"), "reconstruction": ("row", "column")}


def create(
    path: str,
    record: Mapping[str, Any],
    n: int,
    arrays: Mapping[str, tuple[tuple[int, ...], Any]],
    labels: Labels | None = None,
) -> None:
    """Create empty arrays for n rows: name -> (shape of a row, dtype), and those of the coordinates of the rows.

    `record` contains format, model, input and the number of rows of a block.
    """
    group, block_rows = groups.create_group(path, record), record["block_rows"]
    along, across = _NAMES[record["format"]]
    attributes = {}
    if labels is not None:
        along, across = labels.dim, across + "_" * (across == labels.dim)
        attributes = {"coordinates": " ".join(name for name in labels.coords if name != along)}  # as xarray reads them
    for name, (row, dtype) in arrays.items():
        shape, own = (n, *row), attributes if name == MAIN[record["format"]] else _ATTRIBUTES.get(name)
        names = (along, across)[: len(shape)]
        groups.create_array(group, name, shape, dtype, block_rows, names, compress=False, attributes=own)
    if labels is None:
        return
    with _texts():
        for name, values in labels.coords.items():
            dtype, own = as_array(values).dtype, labels.attributes(name)
            groups.create_array(group, name, (n,), dtype, block_rows, (along,), attributes=own)


def write_coordinates(path: str, block: Block, labels: Labels) -> dict[str, str]:
    """Write the coordinates of a block of rows. Returns the SHA-256 of each."""
    own = {name: as_array(values[block.start : block.stop]) for name, values in labels.coords.items()}
    with _texts():
        return write_block(path, block, own)


@contextmanager
def _texts() -> Iterator[None]:
    """Without the warning of Zarr that its type of text, which xarray reads, may change."""
    with catch_warnings():
        simplefilter("ignore", UnstableSpecificationWarning)
        yield


def can_be_named(name: str, kind: Kind) -> bool:
    """Whether an array of coordinates in an output of this kind can have this name: that of a folder beside the other
    arrays and the metadata of the group, and one of a list that is separated by blanks."""
    return re.fullmatch(r"[^/\s\0.][^/\s\0]*", name) is not None and name not in {*TYPES[kind], _METADATA}


def open_main(path: str, kind: Kind) -> Stored:
    """Open the main array: scores (n, r) or x (n, d)."""
    array = groups.open_group(path, kind).get(MAIN[kind])
    if not isinstance(array, zarr.Array):
        raise CorruptionError(f"{path}: its array {MAIN[kind]} is missing; {again(path)}")
    return array


def values(path: str, name: str) -> Array:
    """A whole array of one value per row, in memory, as its manifest describes it."""
    return groups.open_values(path, name)[:]


def stored_values(path: str, array: Stored, block: Block) -> Array:
    """The values of a block of an array in the folder `path`. Raises CorruptionError if its shard is missing or does
    not decode."""
    return StoredArray(array, path, array.shape[0], ALL_THERE).read(block.start, block.stop)


def open_arrays(path: str, names: Collection[str] | None = None) -> dict[str, Stored]:
    """The arrays with these names, or all, by name. Raises FileNotFoundError for one that does not exist."""
    store = store_of(path)
    if names is None:  # one by one: Zarr would warn of foreign files between them
        names = [name for name in sorted(store.names(path)) if read_if_there(f"{path}/{name}/{_METADATA}") is not None]
    return {name: zarr.open_array(store.zarr(f"{path}/{name}"), mode="r") for name in names}


def holds(path: str, names: Collection[str]) -> bool:
    """Whether `path` contains arrays with exactly these names."""
    if not store_of(path).is_folder(path):
        return False
    try:
        return retried(lambda: open_arrays(path), path, None).keys() == set(names)
    except IncompleteError:  # a disk or server that cannot be reached
        raise
    except Exception:  # damaged metadata, for which each reader raises its own type
        return False


def write_block(path: str, block: Block, values: Mapping[str, Array]) -> dict[str, str]:
    """Write the shard of one block in each array. Returns the SHA-256 of each.

    May run more than once, even concurrently: each shard appears whole, by a rename.
    """

    def write() -> None:
        arrays = open_arrays(path, values)
        for name in values:
            store_of(path).put(f"{path}/{name}/{shard(arrays[name], block)}", encoded(arrays[name], values[name]))

    retried(write, path)
    return {name: sha256(found) for name, found in values.items()}


def encoded(array: Stored, values: Array) -> bytes:
    """The shard that holds these values, as Zarr would write it.

    Zarr itself reads a shard before replacing it, even as a whole, and fails if it does not decode. So here it writes
    an array of this one shard to memory.
    """
    described = {**array.metadata.to_dict(), "shape": values.shape}
    held: dict[str, AnyBuffer] = {_METADATA: Buffer.from_bytes(json.dumps(described).encode())}
    one = zarr.open_array(MemoryStore(held), mode="r+")
    writing_empty_chunks(one)[...] = values
    return held[one.metadata.encode_chunk_key((0,) * one.ndim)].to_bytes()


def stored_blocks(path: str, blocks: Sequence[Block], names: Collection[str] | None = None) -> list[Block]:
    """The blocks whose shards exist in the arrays with these names, or in all; shards appear whole, by a rename."""
    arrays = retried(lambda: open_arrays(path, names), path)
    stored = [(array, files_below(f"{path}/{name}")) for name, array in arrays.items()]
    return [block for block in blocks if all(holds_file(files, shard(array, block)) for array, files in stored)]


def check_stored(path: str, blocks: Sequence[Block], names: Collection[str]) -> None:
    """Raise IncompleteError if a shard that was written is missing: a worker may have written it to another disk that
    is mounted at the same place."""
    there = {block.number for block in stored_blocks(path, blocks, names)}
    if lost := [block for block in blocks if block.number not in there]:
        raise IncompleteError(
            f"{path}: {len(lost)} of {len(blocks)} blocks were written but are missing, the first with rows "
            f"{lost[0].start} to {lost[0].stop - 1}: make sure that all workers see the same disk, and run the same "
            "command again"
        )


def holds_file(files: Mapping[str, StoredFile], name: str) -> bool:
    """Whether a file is among these and is not empty."""
    return name in files and files[name].bytes > 0


def shard(array: Stored, block: Block) -> str:
    """The name of the file that holds a block, in the folder of the array."""
    return array.metadata.encode_chunk_key((block.number, *[0] * (array.ndim - 1)))


def block_digests(path: str, block: Block, names: Sequence[str] | None = None) -> dict[str, str] | None:
    """SHA-256 of the values of a stored block, for each of these arrays or all; None if a shard does not decode."""
    try:
        arrays = retried(lambda: open_arrays(path, names), path)
        return {name: sha256(stored_values(path, array, block)) for name, array in arrays.items()}
    except CorruptionError:  # a shard that does not decode counts as not done
        return None


def publish(
    path: str, record: Mapping[str, Any], blocks: Sequence[Block], digests: Sequence[Mapping[str, str]]
) -> None:
    """Force every shard to disk, then publish the manifest: from then on readers trust its rows."""
    store_of(path).sync(path)
    write_manifest(path, record, blocks, digests)


def write_manifest(
    path: str, record: Mapping[str, Any], blocks: Sequence[Block], digests: Sequence[Mapping[str, str]]
) -> None:
    """Write the manifest, or replace it, atomically."""
    store_of(path).check_writer(path)
    main = MAIN[record["format"]]
    manifest = {
        **record,
        "format_version": groups.FORMAT_VERSION,
        "rows": blocks[-1].stop,
        "blocks": [
            {"start": block.start, "stop": block.stop}
            | {digest_key(name, main): digest[name] for name in sorted(digest)}
            for block, digest in zip(blocks, digests, strict=True)
        ],
    }
    write_json(groups.manifest_path(path), manifest)


def read_manifest(path: str) -> dict[str, Any] | None:
    """The manifest of a published store; None before it is published. Raises CorruptionError if it is damaged."""
    name, advice = groups.manifest_path(path), again(path)
    manifest: dict[str, Any] | None = read_record(name, advice)
    if manifest is not None:
        records.check(manifest, records.MANIFEST, name, advice)
    return manifest


def again(path: str) -> str:
    """Advice for when individual blocks cannot be written again."""
    about = groups.describe(path)
    if about is None or about.get("grows"):
        return "restore it, or name another output.path in the job, where all rows are extracted"
    return f"run the command that made {path} again, with --overwrite (overwrite=True in Python)"


def promised(path: str, manifest: Mapping[str, Any]) -> list[tuple[Block, dict[str, str]]]:
    """The blocks in a manifest, with their SHA-256 for each array.

    Raises CorruptionError if the manifest does not describe the arrays at `path`.
    """
    main, about = MAIN[manifest["format"]], groups.describe(path) or {}
    try:
        arrays, blocks = open_arrays(path), split(manifest["rows"], manifest["block_rows"])
        digests = [{name: str(each[digest_key(name, main)]) for name in arrays} for each in manifest["blocks"]]
        ranges = [(each["start"], each["stop"]) for each in manifest["blocks"]]
        fits = main in arrays and all(len(each) == 2 + len(arrays) for each in manifest["blocks"])
        shapes = {(array.shape[0], (array.shards or (0,))[0]) for array in arrays.values()}
    except Exception as error:  # errors of JSON, and those of each kind of damaged metadata
        raise CorruptionError(f"{path}: its manifest or metadata is unreadable ({error!r}); {again(path)}") from error
    types = TYPES.get(manifest["format"], {})
    fits &= all(array.dtype.kind == types[name] for name, array in arrays.items() if name in types)
    fits &= all(manifest.get(key) == value for key, value in about.items())
    grown = about.get("grows") and len(shapes) == 1 and min(shapes)[0] > manifest["rows"]  # by a run in progress
    fits &= shapes == {(min(shapes)[0] if grown else manifest["rows"], manifest["block_rows"])}
    if not fits or ranges != [(block.start, block.stop) for block in blocks]:
        raise CorruptionError(f"{path}: its manifest does not match its arrays; {again(path)}")
    return list(zip(blocks, digests, strict=True))


def replace_block(path: str, source: str, block: Block, names: Collection[str]) -> None:
    """Replace the shard of one block in each of these arrays with that at `source`, each atomically."""
    store, arrays = store_of(path), open_arrays(path)
    for name in sorted(names):
        file = f"{name}/{shard(arrays[name], block)}"
        with store_of(source).open(f"{source}/{file}") as stored:  # which reads large objects in parts
            content = stored.read()
        store.make_folder(parent(f"{path}/{file}"))
        store.replace(f"{path}/{file}", content)


def digest_key(name: str, main: str) -> str:
    """The key of the SHA-256 of an array in the entry of a block, in a manifest of an output with this main array."""
    return "sha256" if name == main else f"{name}_sha256"


_are_texts = records.listed(records.is_str)
GROWING: dict[str, records.Check] = {
    "input_blocks": records.listed(lambda value: _are_texts(value) and len(value) == 2),
    "run": lambda value: (
        isinstance(value, dict) and isinstance(source := value.get("input"), dict) and _are_texts(source.get("tail"))
    ),
}
"""What the manifest of a growing feature store contains in addition."""


def read_grown(path: str) -> dict[str, Any]:
    """The manifest of a published store that grows. Raises CorruptionError if it is missing or damaged."""
    about = groups.describe(path)
    if about is None or about["format"] not in MAIN:
        raise CorruptionError(f"{path} is missing, or its zarr.json is damaged; {again(path)}")
    manifest = read_manifest(path)
    if manifest is None:
        raise CorruptionError(f"{path}: its manifest is missing; {again(path)}")
    name = groups.manifest_path(path)
    records.check(manifest, GROWING, name, again(path))
    if len(manifest["input_blocks"]) != len(manifest["blocks"]):
        raise CorruptionError(f"{name} does not have a digest of the input for each block; {again(path)}")
    return manifest


def is_publishing(manifest: Mapping[str, Any]) -> bool:
    """Whether a run was publishing when this manifest was read, or was interrupted while publishing."""
    return PUBLISHING in manifest


def changed_blocks(rows: int, count: int, block_rows: int) -> list[Block]:
    """The blocks of `count` rows that are not entirely among the first `rows` rows."""
    return [block for block in split(count, block_rows) if block.stop > rows]


def publish_grown(path: str, folder: str, manifest: Mapping[str, Any]) -> None:
    """Publish what was made in a run folder, which has its own manifest; `manifest` is that of the store so far."""
    replace_json(groups.manifest_path(path), {**manifest, PUBLISHING: last_name(folder)})
    _take_over(path, folder, manifest["rows"])


def go_on(path: str) -> bool:
    """Finish what `publish` began at `path`, if it was interrupted. Returns whether it was."""
    manifest = read_grown(path)
    if not is_publishing(manifest):
        return False
    _take_over(path, _published_from(path, manifest), manifest["rows"])
    return True


def read_finished(path: str) -> dict[str, Any]:
    """The manifest as `go_on` will leave it. Writes nothing."""
    manifest = read_grown(path)
    return read_grown(_published_from(path, manifest)) if is_publishing(manifest) else manifest


def _published_from(path: str, manifest: Mapping[str, Any]) -> str:
    """The run folder being published. Raises CorruptionError if it is missing."""
    folder = f"{parent(path)}/{last_name(str(manifest[PUBLISHING]))}"
    if holds(folder, open_arrays(path)) and read_manifest(folder) is not None:
        return folder
    raise CorruptionError(
        f"{path}: a run was interrupted while publishing, and its folder {folder} is missing: restore it, or "
        "name another output.path in the job, where all rows are extracted"
    )


def _take_over(path: str, folder: str, before: int) -> None:
    manifest, store = read_grown(folder), store_of(path)
    names = sorted(open_arrays(path))
    for block in changed_blocks(before, manifest["rows"], manifest["block_rows"]):
        replace_block(path, folder, block, names)
    for name in names:
        content, _ = store.read(f"{folder}/{name}/zarr.json")
        store.replace(f"{path}/{name}/zarr.json", content)
    replace_json(groups.manifest_path(path), manifest)


def refresh_stamps(path: str, manifest: Mapping[str, Any], stamps: Sequence[str]) -> None:
    """Record that the input of each block was found unchanged, now that its files have these stamps."""
    fresh = [[sha256, stamp] for (sha256, _), stamp in zip(input_digests(manifest), stamps, strict=True)]
    replace_json(groups.manifest_path(path), {**manifest, "input_blocks": fresh})


def input_digests(manifest: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """For each block: SHA-256 of the rows from which it was computed, and the stamp of the files that store them."""
    return [(sha256, stamp) for sha256, stamp in manifest["input_blocks"]]
