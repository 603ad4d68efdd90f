"""Files of a comparison's output folder: the record of what is compared, trials, reference, figure."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from bigkpca.comparing.reference import Reference
from bigkpca.comparing.trial import TrialResult
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.storage import durable
from bigkpca.storage.destination import difference

_RECORD, _TRIALS, _REFERENCE, FIGURE = "compare.json", "compare.csv", "reference.npz", "compare.svg"
_FORMAT = {"format": "comparison", "format_version": 1}
_NUMBERS = [field.name for field in fields(TrialResult) if field.type in ("float", "float | None")]


@dataclass(frozen=True)
class Folder:
    """The output folder of a comparison."""

    path: Path

    def claim(self, record: Mapping[str, Any], *, overwrite: bool) -> None:
        """Create the folder, or reopen it if it holds the same comparison, whose trials are kept.

        Raises SpecError, naming what differs, if the folder holds anything else. With `overwrite`, another comparison
        is replaced; other files never are.
        """
        wanted = {**_FORMAT, **record}
        there = self._record()
        if there is None and self.path.exists() and not self._is_empty():
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
                (self.path / name).unlink(missing_ok=True)
        self.path.mkdir(parents=True, exist_ok=True)
        durable.publish_json(self.path / _RECORD, wanted)

    def _is_empty(self) -> bool:
        """Whether the folder is empty, or holds only an unfinished record."""
        return self.path.is_dir() and all(entry.name == _RECORD + ".partial" for entry in self.path.iterdir())

    def _record(self) -> dict[str, Any] | None:
        """The record of the comparison in the folder, if there is one."""
        try:
            found = json.loads((self.path / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("format") == _FORMAT["format"] else None

    def trials(self) -> list[TrialResult]:
        """The trials stored in the folder, in order. Raises CorruptionError for a file that was changed by hand."""
        path = self.path / _TRIALS
        if not path.exists():
            return []
        try:
            with path.open(newline="", encoding="utf-8") as file:
                return [_trial(line) for line in csv.DictReader(file)]
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(f"{path} does not hold trials: move it away, and they are run again") from error

    def write_trials(self, trials: Sequence[TrialResult]) -> None:
        """Store all trials so far, atomically."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(TrialResult)])
        writer.writerows(["" if value is None else value for value in asdict(trial).values()] for trial in trials)
        durable.publish_text(self.path / _TRIALS, text.getvalue())

    def reference(self) -> Reference | None:
        """The reference stored in the folder, if there is one. Raises CorruptionError if it cannot be read."""
        try:
            with (self.path / _REFERENCE).open("rb") as file, np.load(file, allow_pickle=False) as held:
                numbers = [None if np.isnan(value) else float(value) for value in held["numbers"]]
                return Reference(held["eigenvalues"], held["scores"], held["rows"], str(held["about"]), *numbers)
        except FileNotFoundError:
            return None
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise CorruptionError(
                f"{self.path / _REFERENCE} cannot be read: remove it, and it is made again"
            ) from error

    def write_reference(self, reference: Reference) -> None:
        """Store the reference, atomically."""
        numbers = reference.sigma, reference.seconds, reference.peak_mb
        partial = self.path / (_REFERENCE + ".partial")
        with partial.open("wb") as file:
            np.savez(
                file,
                eigenvalues=reference.eigenvalues,
                scores=reference.scores,
                rows=reference.rows,
                about=np.array(reference.description),
                numbers=np.array([np.nan if value is None else value for value in numbers]),
            )
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path / _REFERENCE)

    def write_figure(self, svg: str) -> None:
        """Store compare.svg, atomically."""
        durable.publish_text(self.path / FIGURE, svg)


def _trial(line: Mapping[str, str]) -> TrialResult:
    """A trial from a row of compare.csv."""
    values: dict[str, Any] = dict(line)
    for name in _NUMBERS:
        values[name] = float(line[name]) if line[name] else None
    return TrialResult(**values | {"size": int(line["size"]), "seed": int(line["seed"])})
