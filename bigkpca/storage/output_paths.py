"""Check the paths of outputs."""

from __future__ import annotations

import os
from collections.abc import Callable

from bigkpca.data.stores import AnyPath, expanded, is_url, last_name, parent, store_of
from bigkpca.errors import SpecError

_OTHER_FORMATS = (".npy", ".npz", ".csv.gz", ".csv", ".tsv", ".txt", ".parquet", ".h5", ".hdf5", ".html", ".json")
_ZARR_METADATA = ("zarr.json", ".zgroup", ".zarray")


def output_path(path: AnyPath, *inputs: str | None) -> str:
    """The path of an output, normalised: without a trailing slash, `~` expanded, a link followed.

    Raises SpecError for URLs of no object store, a bucket, the current folder, a mount point, a path below a file, and
    what is, holds or lies in one of the `inputs` (None: not a path).
    """
    return store_of(expanded(path)).output_path(os.fspath(path), tuple(filter(None, inputs)))


def group_path(path: AnyPath, *inputs: str | None) -> str:
    """`output_path` of a folder of arrays. Raises SpecError also for names that promise another format."""
    out = output_path(path, *inputs)
    if suffix := next((end for end in _OTHER_FORMATS if out.lower().endswith(end)), None):
        name = last_name(out)[: -len(suffix)] or "out"
        raise SpecError(
            f"{os.fspath(path)}: what is written is a folder of Zarr arrays, not a {suffix} file: take another name, "
            f"e.g. {name}.zarr"
        )
    return out


def check_file(out: str, ours: Callable[[bytes], bool], example: str) -> bool:
    """Whether a file may be written at `out`: nothing is there, or a file whose first 2000 bytes are `ours`.

    Raises SpecError where its folder does not exist or holds arrays, and where `out` is a folder.
    """
    store = store_of(out)
    if not is_url(out) and not store.is_folder(parent(store.absolute(out))):
        raise SpecError(f"{out} cannot be written: its folder does not exist")
    if store.is_folder(out):
        raise SpecError(f"{out} is a folder: give the name of a file, e.g. {example}")
    if (arrays := _arrays_around(store.absolute(out))) is not None:
        raise SpecError(f"{out} cannot be written: it would lie in {arrays}, a folder of Zarr arrays")
    return not store.exists(out) or ours(head(out))


def _arrays_around(path: str) -> str | None:
    """The nearest folder around a path that is a group or an array of Zarr, such as a model or a dataset."""
    store, folder = store_of(path), parent(path)
    while folder != path:
        if any(store.exists(f"{folder}/{name}") for name in _ZARR_METADATA):
            return folder
        path, folder = folder, parent(folder)
    return None


def check_local(out: str) -> None:
    """Raise SpecError for the URL of an output that is written to local disks only."""
    if is_url(out):
        raise SpecError(f"{out}: reports and comparisons are written to local disks only: give a local path")


def head(path: str) -> bytes:
    """The first 2000 bytes of a file."""
    with store_of(path).open(path) as file:
        return file.read(2000)
