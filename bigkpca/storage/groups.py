"""The Zarr groups that bigkpca writes, and their arrays.

There are four kinds of Zarr v3 groups. The metadata of a group (`zarr.json`) are its manifest: they are written last,
and their attribute `bigkpca` names the kind, the request that made it, and the number of rows.

    dataset          x (n, d), labels y (n,), ...
    model            eigenvalues, components, ...
    features         scores (n, r), ...
    reconstruction   x (n, d), ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bigkpca.data.stores import absent, parent, parsed, read_json, store_of, write_json
from bigkpca.data.zarr import ATTRIBUTE, MAIN, StoredArray, lacking, member, open_node, stored_array, whole
from bigkpca.data.zarr_stores import zarr_store
from bigkpca.errors import BigKPCAError, CorruptionError, SpecError, unreadable

FORMAT_VERSION = 1
_NAMES = {"features": "feature store", "reconstruction": "store of reconstructed rows"}


class NewArray(NamedTuple):
    """An array of rows to be created: its dtype, the shape of a row and the name of its columns, and attributes."""

    dtype: Any
    row: tuple[int, ...] = ()
    column: str = "column"
    attributes: Mapping[str, Any] | None = None
    compress: bool = False


def create_array(path: str, new: NewArray, rows: int, chunk_rows: int) -> zarr.Array[Any]:
    """An array in checksummed chunks of `chunk_rows` rows, in place of what is at `path`, unless that is an array of
    this form: another run of the same request may have made it, and even published it.

    Without `compress`, chunks have only a checksum: the digits of scores and models look random to a compressor. Every
    chunk is stored even if all its values equal the fill value, so a missing chunk always means loss; floats are filled
    with NaN, which makes a hole visible to other programs, too.
    """
    store, content = store_of(path), metadata_of(new, rows, chunk_rows)
    try:
        found = read_json(f"{path}/zarr.json")
    except (FileNotFoundError, ValueError):  # nothing, or what was cut off
        found = None
    wanted = parsed(content)
    if found is not None and not rows:  # they are added to it
        wanted["shape"][0] = found["shape"][0]
    if found != wanted:
        if found is not None:
            store.remove_folder(path)
        # By one write, which does not remove the chunks that another run has already written.
        store.make_folder(path)
        store.write(f"{path}/zarr.json", content)
    return open_array(path)


def metadata_of(new: NewArray, rows: int, chunk_rows: int) -> bytes:
    """The metadata of an array, as `create_array` writes them."""
    dtype, made = np.dtype(new.dtype), dict[str, Any]()
    zarr.create_array(
        made,
        shape=(rows, *new.row),
        dtype=dtype,
        chunks=(max(1, chunk_rows), *(max(1, length) for length in new.row)),
        compressors=[ZstdCodec(level=1), Crc32cCodec()] if new.compress else Crc32cCodec(),
        fill_value=np.nan if dtype.kind == "f" else 0,
        attributes=None if new.attributes is None else dict(new.attributes),
        dimension_names=("row", new.column)[: 1 + len(new.row)],
    )
    content: bytes = made["zarr.json"].to_bytes()
    return content


def open_array(path: str) -> zarr.Array[Any]:
    """The array at `path`, to read and write; chunks of fill values are written, too. Raises the errors of Zarr."""
    array = zarr.open_array(zarr_store(path), mode="r+", zarr_format=3)
    return array.with_config({"write_empty_chunks": True})


def with_rows(array: zarr.Array[Any], rows: int) -> zarr.Array[Any]:
    """The same array with this number of rows, which readers do not see before it is resized."""
    if array.shape[0] == rows:
        return array
    metadata: Any = array.metadata  # whose types have two versions
    grown = metadata.update_shape((rows, *array.shape[1:]))
    return zarr.Array(zarr.AsyncArray(grown, array.store_path)).with_config({"write_empty_chunks": True})


def write_manifest(path: str, about: Mapping[str, Any]) -> None:
    """Write or replace the metadata of the group at `path`, atomically: from then on readers trust what it names. The
    metadata of its arrays of rows are in it, too, where Zarr and xarray look first."""
    metadata: dict[str, Any] = {"zarr_format": 3, "node_type": "group"}
    # Sorted, so that equal outputs have equal bytes, whatever made them.
    metadata["attributes"] = {ATTRIBUTE: dict(sorted({**about, "format_version": FORMAT_VERSION}.items()))}
    if "rows" in about:
        arrays = {name: read_json(f"{path}/{name}/zarr.json") for name in sorted(about["arrays"])}
        metadata["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": arrays}
    write_json(f"{path}/zarr.json", metadata)


def describe(path: str) -> dict[str, Any] | None:
    """The `bigkpca` attribute of the group at `path`; None if there is no such group. Raises the errors of its
    store."""
    try:
        metadata = read_json(f"{path}/zarr.json")
    except BigKPCAError:  # of which some are ValueErrors
        raise
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return None
    except OSError as error:
        raise unreadable(error, path) from error
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    about = attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
    return about if isinstance(about, dict) and isinstance(about.get("format"), str) else None


def open_group(path: str, kind: str) -> zarr.Group:
    """Open a group of the given kind. Raises SpecError for anything else, IncompleteError for an unfinished one."""
    about = describe(path)
    if about is None:
        there = "exists, but is not a bigkpca" if store_of(path).exists(path) else "does not exist: no"
        reason = ""
        try:
            read_json(f"{path}/zarr.json")
        except OSError:
            pass
        except ValueError as error:
            reason = f": its zarr.json cannot be parsed ({error})"
        raise absent(path, f"{path} {there} {named(kind)}{reason}")
    if about["format"] != kind:
        article = "an" if named(kind)[0] in "aeiou" else "a"
        raise SpecError(f"{path} is a bigkpca {named(about['format'])}, not {article} {named(kind)}")
    if about.get("format_version") != FORMAT_VERSION:
        raise SpecError(
            f"{path} has {named(kind)} format version {about.get('format_version')!r:.80}; this bigkpca reads only "
            f"version {FORMAT_VERSION}: install the bigkpca that wrote it, or make it again"
        )
    try:
        return zarr.open_group(zarr_store(path), mode="r", zarr_format=3, use_consolidated=False)
    except BigKPCAError:
        raise
    except Exception as error:  # zarr raises several types
        raise CorruptionError(f"{path}/zarr.json does not describe a Zarr group ({error})") from error


def open_main(path: str, kind: str) -> zarr.Array[Any]:
    """Open the main array of a group of rows: scores (n, r) or x (n, d). Raises SpecError for another kind."""
    if kind not in MAIN:
        raise SpecError(f"{path} is a bigkpca {kind!r:.80}, a kind that this bigkpca does not have")
    array = member(open_group(path, kind), path, MAIN[kind])
    if not isinstance(array, zarr.Array):
        raise CorruptionError(f"{path}: its array {MAIN[kind]} is missing; make it again with --overwrite")
    return whole(array)


def open_values(path: str, name: str | None = None) -> StoredArray:
    """The array of one value per row at `path`, or with that name in the group there, or beside the array there; values
    are not read. Raises SpecError if there is none."""
    node = open_node(path)
    if name is not None and isinstance(node, zarr.Array):
        path = parent(path)
        node = open_node(path)
    if node is None:
        raise SpecError(f"{path} is not a Zarr array or group")
    if isinstance(node, zarr.Array):
        found = stored_array(node, path)
    else:
        name = name or "y"
        array = member(node, path, name)
        if not isinstance(array, zarr.Array):
            raise lacking(node, path, name)
        found = stored_array(array, f"{path}/{name}", node)
    if found.ndim != 1:
        raise SpecError(f"{found.where} has shape {found.shape}: one value per row is needed")
    return found.first(found.count)


def named(kind: str) -> str:
    """The name of a format in messages."""
    return _NAMES.get(kind, kind)
