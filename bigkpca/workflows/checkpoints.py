"""Sums of the passes of a fit, saved beside its output, so that a killed fit can resume.

A fit saves at most every 10 seconds, as `<output>.partial/sums/<pass>/<level>-<number>.npz`. `pass` is a digest of
everything that the sums of a pass depend on, so other sums are never reused. `Engine.total` asks for what was saved and
computes only what is missing. Files are NumPy arrays and JSON, which are
loaded without executing anything.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.metadata import version
from time import monotonic
from typing import Any

import numpy as np
import scipy

from bigkpca.data.stores import store_of
from bigkpca.errors import Array, BigKPCAError
from bigkpca.execution.engine import content_digest
from bigkpca.execution.graph import Node
from bigkpca.execution.passes import BlockSums
from bigkpca.execution.progress import Progress
from bigkpca.numerics.drawn_rows import DrawnRows
from bigkpca.numerics.moments import ColumnMoments, ShiftedSums
from bigkpca.numerics.solvers import Action

_ARITHMETIC = np.__version__, scipy.__version__  # metadata would take 15 ms for each
_EVERY_SECONDS = 10.0  # between two saves of a pass
_SHORT_SECONDS = 3.0  # a pass that takes less is not saved when it ends
_MOST_SHARE = 30.0  # the next save waits for this many times the duration of a save
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (BlockSums, DrawnRows, ShiftedSums, ColumnMoments, Action)}


def saved_in(folder: str, core_types: Sequence[str], progress: Progress) -> Callable[..., SavedPass]:
    """The `checkpoint` of an engine that saves sums in a folder; those of other package versions or processor types are
    not reused."""
    made_by = version("bigkpca"), *_ARITHMETIC, list(core_types)

    def saved(name: str, *given: Any) -> SavedPass:
        return SavedPass(f"{folder}/{content_digest(made_by, name, *given)[:12]}", progress)

    return saved


@dataclass
class SavedPass:
    """The saved sums of one pass: nodes that outlive the process."""

    folder: str
    progress: Progress
    _saved_at: float = field(default_factory=monotonic)
    _seconds: float = 0.0  # duration of the last save
    _failed: bool = False
    _written: set[Node] = field(default_factory=set)

    def saved(self) -> dict[Node, Any]:
        """The nodes that were saved."""
        store, found = store_of(self.folder), dict[Node, Any]()
        for name in store.names(self.folder) if store.is_folder(self.folder) else ():
            level, _, number = name.removesuffix(".npz").partition("-")
            if not (level.isdecimal() and number.isdecimal()):
                continue
            try:
                with store.open(f"{self.folder}/{name}") as file:
                    content = io.BytesIO(file.read())
                with np.load(content, allow_pickle=False) as held:
                    value = _restored(json.loads(held["about"].tobytes()), held)
            except (MemoryError, BigKPCAError):  # the latter come from a server that does not answer
                raise
            except Exception:  # NumPy, zipfile and JSON raise many kinds for damaged bytes, e.g. of a truncated file
                continue
            if value is not None:
                found[int(level), int(number)] = value
        self._written = set(found)
        return found

    def due(self, *, ended: bool) -> bool:
        """Whether enough time has passed to save again, during the pass or at its end."""
        least = max(_SHORT_SECONDS if ended else _EVERY_SECONDS, _MOST_SHARE * self._seconds)
        return monotonic() - self._saved_at >= least and not self._failed

    def save(self, nodes: Mapping[Node, Any]) -> None:
        """Save these nodes in place of the saved ones."""
        started = monotonic()
        try:
            store = store_of(self.folder)
            if nodes:
                store.make_folder(self.folder)
            for node in nodes.keys() - self._written:
                arrays: list[Array] = []
                about = np.frombuffer(json.dumps(_described(nodes[node], arrays)).encode(), np.uint8)
                named: dict[str, Any] = {f"a{number}": array for number, array in enumerate(arrays)}
                file = io.BytesIO()
                np.savez(file, about=about, **named)
                store.write(self._path(node), file.getvalue())
                self._written.add(node)
            # Only now, when the sums that include them are stored.
            for node in self._written - nodes.keys():
                store.remove_file(self._path(node))
                self._written.remove(node)
        except OSError as error:  # e.g. a full disk: a running fit does not need saved sums
            self._failed = True
            self.progress.note(f"sums of the fit cannot be saved in {self.folder} ({error}): continuing without saving")
        self._saved_at = monotonic()
        self._seconds = self._saved_at - started

    def _path(self, node: Node) -> str:
        return f"{self.folder}/{node[0]}-{node[1]}.npz"


def _described(value: Any, arrays: list[Array]) -> Any:
    """A value as JSON; its arrays are appended to `arrays`."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if is_dataclass(value):
        parts = {part.name: _described(getattr(value, part.name), arrays) for part in fields(value)}
        return {"kind": type(value).__name__, "parts": parts}
    if isinstance(value, tuple):
        return [_described(item, arrays) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _restored(about: Any, held: Mapping[str, Array]) -> Any:
    if isinstance(about, list):
        return tuple(_restored(item, held) for item in about)
    if not isinstance(about, dict):
        return about
    if "array" in about:
        return held[f"a{about['array']}"]
    return _KINDS[about["kind"]](**{name: _restored(part, held) for name, part in about["parts"].items()})
