"""The Zarr groups that bigkpca writes, and their arrays.

There are five kinds of Zarr v3 groups. The attribute `bigkpca` of a group names its kind:

    dataset    x (n, d), labels y (n,), ...     finished when the attribute holds `rows`
    model      eigenvalues, components, ...     appears whole, by one rename
    features   scores (n, r), ...               finished when scores/manifest.json exists
    reconstruction   x (n, d), ...              finished when x/manifest.json exists
    job        versions of features             finished when manifest.json exists
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bigkpca.data.blocks import power_of_two
from bigkpca.data.json_files import parsed, read_if_there, read_json
from bigkpca.data.retrying import retried
from bigkpca.data.stored import StoredArray, versions_of
from bigkpca.data.stores import store_of
from bigkpca.data.versions import JOB, VERSIONS
from bigkpca.data.zarr import ATTRIBUTE, MAIN, MANIFEST, stored_array
from bigkpca.errors import BigKPCAError, CorruptionError, IncompleteError, SpecError

FORMAT_VERSION = 1
_NAMES = {"features": "feature store", "reconstruction": "store of reconstructed rows", JOB: "output of scheduled runs"}
CHUNK_BYTES = 2**20  # one read


def create_array(
    group: zarr.Group,
    name: str,
    shape: Sequence[int],
    dtype: Any,
    shard_rows: int,
    names: Sequence[str],
    *,
    compress: bool = True,
    attributes: Mapping[str, Any] | None = None,
) -> zarr.Array[Any]:
    """An array of rows whose shards contain `shard_rows` rows in checksummed chunks of about 1 MB.

    Without `compress`, chunks have only a checksum: the digits of scores and models look random to a compressor. Every
    chunk is stored even if all its values equal the fill value, so a missing chunk always means loss; floats are filled
    with NaN, which makes a hole visible.
    """
    dtype = np.dtype(dtype)
    row_bytes = dtype.itemsize * int(np.prod(shape[1:], initial=1))
    chunk_rows = min(shard_rows, power_of_two(CHUNK_BYTES // max(1, row_bytes)))
    while shard_rows % chunk_rows:
        chunk_rows //= 2
    return group.create_array(
        name,
        shape=tuple(shape),
        dtype=dtype,
        chunks=(chunk_rows, *shape[1:]),
        shards=(shard_rows, *shape[1:]),
        compressors=ZstdCodec(level=1, checksum=True) if compress else Crc32cCodec(),
        fill_value={"f": np.nan, "U": ""}.get(dtype.kind, 0),
        attributes=None if attributes is None else dict(attributes),
        dimension_names=tuple(names),
        config={"write_empty_chunks": True},
    )


def create_group(path: str, about: Mapping[str, Any]) -> zarr.Group:
    """Create a group with the attribute `bigkpca` at a path where nothing exists."""
    stamped = {**about, "format_version": FORMAT_VERSION}
    return zarr.create_group(store_of(path).zarr(path), zarr_format=3, attributes={ATTRIBUTE: stamped})


def finished_dataset(path: str, mode: Literal["r", "r+"] = "r") -> tuple[zarr.Group, Any]:
    """A dataset and its description. Raises SpecError for anything else, IncompleteError if it is not finished."""
    group = open_group(path, "dataset", mode)
    about: Any = group.attrs[ATTRIBUTE]
    if "rows" not in about:
        raise IncompleteError(f"{path}: its ingest did not finish; run the same bigkpca ingest command again")
    return group, about


def open_group(path: str, kind: str, mode: Literal["r", "r+"] = "r") -> zarr.Group:
    """Open a group of the given kind. Raises SpecError for anything else, IncompleteError for an unfinished one."""
    about = describe(path)
    if about is None:
        if store_of(path).is_moving(path):
            raise IncompleteError(f"{path} is not finished: run the command that makes it again")
        there = "exists, but is not a bigkpca" if store_of(path).exists(path) else "does not exist: no"
        reason = ""
        try:
            read_json(f"{path}/zarr.json")
        except OSError:
            pass
        except ValueError as error:
            reason = f": its zarr.json cannot be parsed ({error})"
        raise SpecError(f"{path} {there} {named(kind)}{reason}")
    if about["format"] != kind:
        article = "an" if named(kind)[0] in "aeiou" else "a"
        raise SpecError(f"{path} is a bigkpca {named(about['format'])}, not {article} {named(kind)}")
    if about.get("format_version") != FORMAT_VERSION:
        raise SpecError(
            f"{path} has {named(kind)} format version {about.get('format_version')!r:.80}; this bigkpca reads only "
            f"version {FORMAT_VERSION}: install the bigkpca that wrote it, or make it again"
        )
    try:
        return retried(lambda: zarr.open_group(store_of(path).zarr(path), mode=mode, zarr_format=3), path)
    except BigKPCAError:
        raise
    except Exception as error:  # zarr raises several types
        raise CorruptionError(f"{path}/zarr.json does not describe a Zarr group ({error})") from error


def open_values(path: str, name: str | None = None) -> StoredArray:
    """The array of one value per row at `path`, or with that name in the group there; values are not read.

    Raises SpecError if there is none.
    """
    try:
        node = zarr.open(store_of(path).zarr(path), mode="r")
    except BigKPCAError:
        raise
    except Exception as error:  # zarr raises several types for folders that hold no node
        raise SpecError(f"{path} is not a Zarr array or group") from error
    if isinstance(node, zarr.Group):
        held = sorted(key for key, _ in node.arrays())
        if name not in held:
            raise SpecError(f"{path} does not contain an array {name!r}, but {held}")
        found = stored_array(path, node, name)
    else:
        found = StoredArray(node, path, node.shape[0], versions_of(node))
    if found.ndim != 1:
        raise SpecError(f"{found.array.path or path} has shape {found.shape}: one value per row is needed")
    return found


def named(kind: str) -> str:
    """The name of a format in messages."""
    return _NAMES.get(kind, kind)


def describe(path: str) -> dict[str, Any] | None:
    """The `bigkpca` attribute of the group at `path`; None if there is no such group. Raises the errors of its
    store."""
    try:
        content = read_if_there(f"{path}/zarr.json")
        metadata = None if content is None else parsed(content)
    except BigKPCAError:  # of which some are ValueErrors
        raise
    except (OSError, ValueError):
        return None
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    about = attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
    return about if isinstance(about, dict) and isinstance(about.get("format"), str) else None


def is_finished(path: str) -> bool:
    """Whether the group at `path` is finished; readers trust only finished groups."""
    about = describe(path)
    if about is None:
        return False
    if about["format"] == "dataset":
        return "rows" in about
    if about["format"] == JOB:
        return store_of(path).exists(f"{path}/{VERSIONS}")
    return about["format"] == "model" or store_of(path).exists(manifest_path(path))


def manifest_path(path: str) -> str:
    """The path of a manifest: inside the folder of the main array, where Zarr ignores it."""
    about = describe(path)
    assert about is not None  # callers know that bigkpca wrote it
    return f"{path}/{MAIN[about['format']]}/{MANIFEST}"
