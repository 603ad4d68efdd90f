"""A folder with a job file, and rows that are appended to its input."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import bigkpca
from bigkpca.ingesting.streaming import ingest
from tests.helpers.progress import Recorder

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

    def scores(self) -> Array:
        """The features that a reader of the output sees."""
        from bigkpca.data.opening import open_rows

        rows = open_rows(self.out)
        return rows.block(0, rows.shape[0])

    def wanted(self, out: str | None = None) -> Array:
        """The scores of one transform of all rows with the model of the job."""
        path = out or f"{self.root}/wanted.zarr"
        return np.asarray(bigkpca.transform(self.model, self.rows, path, block_rows=32, overwrite=True)[...])


def some_rows(count: int, seed: int = 0, columns: int = 4) -> Array:
    """Rows of one distribution."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, columns)) * np.arange(1, columns + 1)).astype("f4")
