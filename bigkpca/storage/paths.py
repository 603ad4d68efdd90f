"""Paths of outputs as they are meant, and those that no output may have."""

from __future__ import annotations

import os
from pathlib import Path

from bigkpca.errors import SpecError

_OTHER_FORMATS = (".npy", ".npz", ".csv.gz", ".csv", ".tsv", ".txt", ".parquet", ".h5", ".hdf5", ".html", ".json")


def output_path(path: str | os.PathLike[str], *inputs: str | None) -> str:
    """The path of an output as it is meant: without a trailing slash, `~` written out, a link followed.

    Raises SpecError for URLs, the current folder, a mount point, and what is, holds or lies in one of the `inputs`
    (None: not a path).
    """
    given = os.fspath(path)
    if "://" in given:
        raise SpecError(f"{given}: only local paths can be written so far")
    out = os.path.expanduser(given)
    # What ".." stands behind may be a link, so that only the file system knows what it means.
    linked = os.path.islink(out.rstrip(os.sep)) or os.pardir in Path(out).parts
    out = os.path.realpath(out) if linked else os.path.normpath(out)
    real, here = os.path.realpath(out), os.path.realpath(os.curdir)
    if _within(here, real):
        raise SpecError(f"{given} is the current folder, or holds it: name a new folder for the output")
    if os.path.ismount(real):
        raise SpecError(f"{given} is where a file system is mounted, which no rename can replace: name a folder in it")
    for other in filter(None, inputs):
        taken = os.path.realpath(os.path.expanduser(other))
        if real == taken or (os.path.exists(real) and os.path.exists(taken) and os.path.samefile(real, taken)):
            raise SpecError(f"{given} is what is read, and would be replaced: choose another output path")
        if _within(real, taken) or _within(taken, real):
            raise SpecError(f"{given} and what is read, {other}, lie inside each other: choose another output path")
    if file := next((str(above) for above in Path(real).parents if above.is_file()), None):
        raise SpecError(f"{given} cannot be written: {file} is a file, not a folder")
    return out


def group_path(path: str | os.PathLike[str], *inputs: str | None) -> str:
    """`output_path` of a folder of arrays. Raises SpecError also for names that promise another format."""
    out = output_path(path, *inputs)
    if suffix := next((end for end in _OTHER_FORMATS if out.lower().endswith(end)), None):
        name = os.path.basename(out)[: -len(suffix)] or "out"
        raise SpecError(
            f"{os.fspath(path)}: what is written is a folder of Zarr arrays, not a {suffix} file: take another name, "
            f"e.g. {name}.zarr"
        )
    return out


def _within(inner: str, outer: str) -> bool:
    return os.path.commonpath([inner, outer]) == outer
