"""Folders beside an output in which runs make it: those that make it block by block, named after what they make, and
scratches of what appears whole.

A run writes its blocks nowhere else. So a worker that was cut off, and goes on long after its run ended, cannot touch
what other runs published at the path of the output. Where a lock expires while its holder is suspended, each holder has
a scratch of its own for the same reason.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from bigkpca.data.stores import last_name, parent, store_of

_RUN = ".bigkpca-run-"  # behind the name of an output, before the digest of a record
_DIGITS = 12
_LAYOUT = 2  # of what is in it: blocks that earlier versions made of rows that they did not check are made again
_SCRATCH = ".bigkpca-new"  # behind the name of an output, alone or before the digits of its holder


def run_folder(path: str, record: Mapping[str, Any]) -> str:
    """The folder in which the output with this record is made, before it takes its place at `path`."""
    text = json.dumps({**record, "layout": _LAYOUT}, sort_keys=True, separators=(",", ":"))
    return f"{path}{_RUN}{hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]}"


def run_folders(path: str) -> list[str]:
    """All such folders beside an output, whatever they hold."""
    return _beside(path, re.escape(_RUN) + f"[0-9a-f]{{{_DIGITS}}}")


def scratch_folder(path: str) -> str:
    """The scratch of this process, which is the writer of the output at `path`."""
    holder = store_of(path).holder(path)
    return path + _SCRATCH + (holder and f"-{holder}")


def scratch_folders(path: str) -> list[str]:
    """The scratches of all writers of an output, now and before."""
    return _beside(path, re.escape(_SCRATCH) + "(-[0-9a-f]+)?")


def _beside(path: str, ending: str) -> list[str]:
    """What lies beside an output, with its name and such an ending."""
    path = path.rstrip("/")
    above, ours = parent(path), re.compile(re.escape(last_name(path)) + ending)
    if not store_of(path).is_folder(above):
        return []
    found = sorted(name for name in store_of(path).names(above) if ours.fullmatch(name))
    return [path.removesuffix(last_name(path)) + name for name in found]
