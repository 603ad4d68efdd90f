"""A folder with a job file, and rows that are appended to its input."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import zarr
from prometheus_client.parser import text_string_to_metric_families

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.ingesting.streaming import ingest
from tests.helpers.progress import Once, Recorder, stop

Array = np.ndarray[Any, Any]
JOB = """
seed = 3
[input]
path = "rows.zarr"
[model]
path = "model.zarr"
components = 3
size = 20
[output]
path = "features.zarr"
block_rows = 32
[run]
"""


@dataclass(frozen=True)
class Night:
    """A job in a folder, or bucket, and its input."""

    folder: str  # of the job file
    root: str  # of input, model and output

    @classmethod
    def made(cls, folder: Path, root: str | None = None, **options: Any) -> Night:
        """With these options of [run]."""
        folder.mkdir(exist_ok=True)
        night = cls(str(folder), root or str(folder))
        night.set(**options)
        return night

    @property
    def job(self) -> str:
        return f"{self.folder}/nightly.toml"

    @property
    def rows(self) -> str:
        return f"{self.root}/rows.zarr"

    @property
    def model(self) -> str:
        return f"{self.root}/model.zarr"

    @property
    def out(self) -> str:
        return f"{self.root}/features.zarr"

    def set(self, text: str = JOB, **options: Any) -> None:
        """Write the job file, with these options of [run]."""
        lines = [f"{key} = {value!r}".replace("True", "true") for key, value in options.items()]
        text = text.replace('path = "', f'path = "{self.root}/') if self.root != self.folder else text
        Path(self.job).write_text(text + "\n".join(lines) + "\n")
        tomllib.loads(Path(self.job).read_text())

    def forget_digests(self) -> None:
        """Make the input a dataset of an earlier version, whose rows have no digests."""
        group = zarr.open_group(self.rows)
        group.attrs["bigkpca"] = {**group.attrs["bigkpca"], "manifest": None}

    def append(self, X: Array, chunk: int = 16) -> None:
        """Add rows to the input, or make it, as `bigkpca ingest` does."""
        source = Path(self.folder) / "source.npy"
        np.save(source, X)
        try:
            zarr.open_group(self.rows, mode="r") if "://" not in self.rows else bigkpca.verify(self.rows)
        except (FileNotFoundError, bigkpca.errors.SpecError):
            ingest([source], self.rows, block_rows=chunk)
            return
        ingest([source], self.rows, append=True)

    def run(self, progress: Recorder | None = None, **asked: Any) -> list[dict[str, Any]]:
        """Run the job in this process."""
        return bigkpca.run(self.job, progress=progress or Recorder(), **asked)

    def age(self, *ages: timedelta) -> None:
        """Make the records of runs older, each by its age, the later ones as they are."""
        file = Path(self.out, "runs.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
        for record, age in zip(records, ages, strict=False):
            for key in ("started", "finished"):
                record[key] = (datetime.fromisoformat(record[key]) - age).isoformat(timespec="seconds")
        file.write_text("".join(json.dumps(record) + "\n" for record in records))

    def metrics(self) -> dict[str, float]:
        """What the last run wrote into bigkpca.prom, beside the job file, without the prefix of the names."""
        text = Path(self.folder, "bigkpca.prom").read_text()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        assert len({sample.labels["output"] for sample in samples}) == 1
        return {sample.name.removeprefix("bigkpca_"): sample.value for sample in samples}

    def scores(self) -> Array:
        """The features that a reader of the output sees."""
        rows = open_rows(self.out)
        return rows.block(0, rows.shape[0])

    def wanted(self, model: str | None = None, block_rows: int = 32) -> Array:
        """The scores of one transform of all rows with a model, which is that of the job unless it is given."""
        how: dict[str, Any] = {"block_rows": block_rows, "overwrite": True}
        return np.asarray(bigkpca.transform(model or self.model, self.rows, f"{self.root}/wanted.zarr", **how)[...])


def some_rows(count: int, seed: int = 0, columns: int = 4) -> Array:
    """Rows of one distribution."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, columns)) * np.arange(1, columns + 1)).astype("f4")


def stops_after(rows: int = 60) -> Once:
    """Stops a run while it extracts features, when more than so many rows of all its passes are done."""
    return Once(after=rows, title="extracting features")


@contextmanager
def cut_off_at(place: Any, name: str, call: int = 1) -> Iterator[None]:
    """Stop what is within, as Ctrl-C does, at this call of a function: between two writes, where only a patch can."""
    real, patched = getattr(place, name), mock.patch.object(place, name, autospec=True)
    with pytest.raises(KeyboardInterrupt), patched as function:  # noqa: PT012
        function.side_effect = lambda *given, **named: (stop if function.call_count == call else real)(*given, **named)
        yield
