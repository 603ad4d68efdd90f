"""Files of a comparison's output folder: the record of what is compared, trials, reference, figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from zipfile import BadZipFile

import numpy as np

from bigkpca.comparing.reference import Reference
from bigkpca.comparing.trial import TrialResult
from bigkpca.data.json_files import read_json, write_json
from bigkpca.data.stores import Store, store_of
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.storage.destination import difference

_RECORD, _TRIALS, _REFERENCE, FIGURE = "compare.json", "compare.csv", "reference.npz", "compare.svg"
_FORMAT = {"format": "comparison", "format_version": 1}
_NUMBERS = [field.name for field in fields(TrialResult) if field.type in ("float", "float | None")]


@dataclass(frozen=True)
class Folder:
    """The output folder of a comparison."""

    path: str

    @property
    def _store(self) -> Store:
        return store_of(self.path)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def claim(self, record: Mapping[str, Any], *, overwrite: bool) -> None:
        """Create the folder, or reopen it if it holds the same comparison, whose trials are kept.

        Raises SpecError, naming what differs, if the folder holds anything else. With `overwrite`, another comparison
        is replaced; other files never are.
        """
        wanted = {**_FORMAT, **record}
        there = self._record()
        if there is None and self._store.exists(self.path) and not self._is_empty():
            raise SpecError(
                f"{self.path} is not an empty folder and was not made by bigkpca compare: choose another one, or move "
                "it away yourself"
            )
        if there is not None and there != wanted:
            if not overwrite:
                raise SpecError(
                    f"{self.path} is in the way: {difference(there, wanted)}; choose another folder, or replace it "
                    "with --overwrite (overwrite=True in Python)"
                )
            for name in (_TRIALS, _REFERENCE, FIGURE):  # the record is replaced last, since it identifies the folder
                self._store.remove_file(self._at(name))
        self._store.make_folder(self.path)
        write_json(self._at(_RECORD), wanted)

    def _is_empty(self) -> bool:
        """Whether the folder is empty, or holds only an unfinished record."""
        if not self._store.is_folder(self.path):
            return False
        return all(name == _RECORD + ".partial" for name in self._store.names(self.path))

    def _record(self) -> dict[str, Any] | None:
        """The record of the comparison in the folder, if there is one."""
        try:
            found = read_json(self._at(_RECORD))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("format") == _FORMAT["format"] else None

    def trials(self) -> list[TrialResult]:
        """The trials stored in the folder, in order. Raises CorruptionError for a file that was changed by hand."""
        path = self._at(_TRIALS)
        if not self._store.exists(path):
            return []
        try:
            with self._store.open(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
                return [_trial(line) for line in csv.DictReader(text)]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(
                f"{path} is not a list of trials: move it away, and run the same command again"
            ) from error

    def write_trials(self, trials: Sequence[TrialResult]) -> None:
        """Store all trials so far, atomically."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(TrialResult)])
        writer.writerows(["" if value is None else value for value in asdict(trial).values()] for trial in trials)
        self._store.write(self._at(_TRIALS), text.getvalue().encode())

    def reference(self) -> Reference | None:
        """The reference stored in the folder, if there is one. Raises CorruptionError if it cannot be read."""
        try:
            with self._store.open(self._at(_REFERENCE)) as file, np.load(file, allow_pickle=False) as held:
                numbers = [None if np.isnan(value) else float(value) for value in held["numbers"]]
                return Reference(held["eigenvalues"], held["scores"], held["rows"], str(held["about"]), *numbers)
        except FileNotFoundError:
            return None
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise CorruptionError(
                f"{self._at(_REFERENCE)} cannot be read: remove it, and run the same command again"
            ) from error

    def write_reference(self, reference: Reference) -> None:
        """Store the reference, atomically."""
        numbers = reference.sigma, reference.seconds, reference.peak_mb
        content = io.BytesIO()
        np.savez(
            content,
            eigenvalues=reference.eigenvalues,
            scores=reference.scores,
            rows=reference.rows,
            about=np.array(reference.description),
            numbers=np.array([np.nan if value is None else value for value in numbers]),
        )
        self._store.write(self._at(_REFERENCE), content.getvalue())

    def write_figure(self, svg: str) -> None:
        """Store compare.svg, atomically."""
        self._store.write(self._at(FIGURE), svg.encode())


def _trial(line: Mapping[str, str]) -> TrialResult:
    """A trial from a row of compare.csv."""
    values: dict[str, Any] = dict(line)
    for name in _NUMBERS:
        values[name] = float(line[name]) if line[name] else None
    return TrialResult(**values | {"size": int(line["size"]), "seed": int(line["seed"])})
