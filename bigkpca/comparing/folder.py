"""What lies in the folder of a comparison: what it is of, its trials, its reference."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from zipfile import BadZipFile

import numpy as np

from bigkpca.comparing.reference import Reference
from bigkpca.comparing.trial import Trial
from bigkpca.data.stores import Store, store_of
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.storage import groups
from bigkpca.storage.destination import difference

_RECORD, _TRIALS, _REFERENCE, FIGURE = "compare.json", "compare.csv", "reference.npz", "compare.svg"
_FORMAT = {"format": "comparison", "format_version": 1}
_NUMBERS = [field.name for field in fields(Trial) if field.type in ("float", "float | None")]


@dataclass(frozen=True)
class Folder:
    """The output folder of a comparison; its record says what was compared."""

    path: str

    @property
    def _store(self) -> Store:
        return store_of(self.path)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def claim(self, record: Mapping[str, Any], *, overwrite: bool) -> None:
        """Make the folder, or find the same comparison in it, whose trials are kept.

        Raises SpecError for a folder with anything else in it, naming what differs; a comparison is replaced with
        `overwrite`, other files never.
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
            for name in (_TRIALS, _REFERENCE, FIGURE):  # the record last: without it nobody would know the folder
                self._store.remove(self._at(name))
        self._store.make_folder(self.path)
        groups.write_json(self._at(_RECORD), wanted)

    def _is_empty(self) -> bool:
        """Whether it holds nothing, or only a record that was never finished."""
        if not self._store.is_folder(self.path):
            return False
        return all(name == _RECORD + ".partial" for name in self._store.names(self.path))

    def _record(self) -> dict[str, Any] | None:
        try:
            found = groups.read_json(self._at(_RECORD))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("format") == _FORMAT["format"] else None

    def trials(self) -> list[Trial]:
        """The trials that were written, in order. Raises CorruptionError for a file that was changed by hand."""
        path = self._at(_TRIALS)
        if not self._store.exists(path):
            return []
        try:
            with self._store.open(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
                return [_trial(line) for line in csv.DictReader(text)]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(f"{path} does not hold trials: move it away, and they are run again") from error

    def write_trials(self, trials: Sequence[Trial]) -> None:
        """All trials so far, whole or not at all."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(Trial)])
        writer.writerows(["" if value is None else value for value in asdict(trial).values()] for trial in trials)
        self._store.write(self._at(_TRIALS), text.getvalue().encode())

    def reference(self) -> Reference | None:
        """The reference that was written, if it was."""
        try:
            with self._store.open(self._at(_REFERENCE)) as file, np.load(file, allow_pickle=False) as held:
                numbers = [None if np.isnan(value) else float(value) for value in held["numbers"]]
                return Reference(held["eigenvalues"], held["scores"], held["rows"], str(held["about"]), *numbers)
        except FileNotFoundError:
            return None
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise CorruptionError(f"{self._at(_REFERENCE)} cannot be read: remove it, and it is made again") from error

    def write_reference(self, reference: Reference) -> None:
        """The reference, whole or not at all."""
        numbers = reference.sigma, reference.seconds, reference.peak_mb
        content = io.BytesIO()
        np.savez(
            content,
            eigenvalues=reference.eigenvalues,
            scores=reference.scores,
            rows=reference.rows,
            about=np.array(reference.about),
            numbers=np.array([np.nan if value is None else value for value in numbers]),
        )
        self._store.write(self._at(_REFERENCE), content.getvalue())

    def write_figure(self, svg: str) -> None:
        """compare.svg."""
        self._store.write(self._at(FIGURE), svg.encode())


def _trial(line: Mapping[str, str]) -> Trial:
    values: dict[str, Any] = dict(line)
    for name in _NUMBERS:
        values[name] = float(line[name]) if line[name] else None
    return Trial(**values | {"size": int(line["size"]), "seed": int(line["seed"])})
