"""Paths on a local disk at which an output may be."""

from __future__ import annotations

import os
from pathlib import Path

from bigkpca.data.stores.base import check_name
from bigkpca.errors import SpecError


def check_output(given: str, inputs: tuple[str, ...]) -> str:
    """The path of an output, normalised: without a trailing slash, `~` expanded, a link followed.

    Raises SpecError for the current folder, a mount point, a path below a file, a name as of things of ours, and what
    is, holds or lies in one of the `inputs`.
    """
    out = os.path.expanduser(given)
    # What ".." stands behind may be a link, so that only the file system knows what it means.
    linked = os.path.islink(out.rstrip(os.sep)) or os.pardir in Path(out).parts
    out = os.path.realpath(out) if linked else os.path.normpath(out)
    check_name(out, given)
    real, here = os.path.realpath(out), os.path.realpath(os.curdir)
    if _within(here, real):
        raise SpecError(f"{given} is the current folder, or holds it: name a new folder for the output")
    if os.path.ismount(real):
        raise SpecError(f"{given} is a mount point, which cannot be replaced: name a folder in it")
    for other in inputs:
        _check_apart(given, real, other)
    if file := next((str(above) for above in Path(real).parents if above.is_file()), None):
        raise SpecError(f"{given} cannot be written: {file} is a file, not a folder")
    return out


def _check_apart(given: str, real: str, other: str) -> None:
    """Raise SpecError where an output would lie at an input, in it or around it."""
    taken = os.path.realpath(os.path.expanduser(other))
    if real == taken or (os.path.exists(real) and os.path.exists(taken) and os.path.samefile(real, taken)):
        raise SpecError(f"{given} is an input, and would be replaced: choose another output path")
    if _within(real, taken) or _within(taken, real):
        raise SpecError(f"{given} and the input {other} lie inside each other: choose another output path")


def _within(inner: str, outer: str) -> bool:
    return os.path.commonpath([inner, outer]) == outer
