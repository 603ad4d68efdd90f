"""A folder with a job file, and rows that are appended to its input."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import store_of
from bigkpca.ingesting import ingest
from tests.helpers.progress import Once, Recorder

JOB = """
[input]
path = "rows.zarr"
[model]
path = "model.zarr"
n_components = 3
size = 20
random_state = 3
[output]
path = "features.zarr"
block_rows = 32
[run]
"""


class Night:
    """A job in a folder, and its input, model and output, there or in a bucket."""

    def __init__(self, folder, root=None):
        self.folder, self.root = str(folder), str(root or folder)
        self.job = f"{self.folder}/nightly.toml"
        self.rows, self.model, self.out = (f"{self.root}/{name}.zarr" for name in ("rows", "model", "features"))

    @classmethod
    def made(cls, folder, root=None, **options):
        """With these options of [run]."""
        folder.mkdir(exist_ok=True)
        night = cls(folder, root)
        night.set(**options)
        return night

    def set(self, text=JOB, **options):
        """Write the job file, with these options of [run]."""
        lines = [f"{key} = {value!r}".replace("True", "true") for key, value in options.items()]
        text = text.replace('path = "', f'path = "{self.root}/') if self.root != self.folder else text
        Path(self.job).write_text(text + "\n".join(lines) + "\n")
        tomllib.loads(Path(self.job).read_text())

    def append(self, X, chunk=16):
        """Add rows to the input, or make it, as `bigkpca ingest` does."""
        source = Path(self.folder, "source.npy")
        np.save(source, X)
        if store_of(self.rows).exists(self.rows):
            ingest([source], self.rows, append=True)
        else:
            ingest([source], self.rows, block_rows=chunk)

    def run(self, progress=None):
        """Run the job in this process."""
        return bigkpca.run(self.job, progress=progress or Recorder())

    def refused(self, error, message, progress=None):
        """Run the job, which ends with this error."""
        with pytest.raises(error, match=message):
            self.run(progress)

    def stopped(self, rows=60, title="extracting features"):
        """Run the job, which is stopped in this pass, when more than so many rows of all its passes are done."""
        with pytest.raises(KeyboardInterrupt):
            self.run(Once(after=rows, title=title))

    def metrics(self):
        """What the last run wrote into bigkpca.prom, beside the job file, without the prefix of the names."""
        text = Path(self.folder, "bigkpca.prom").read_text()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        assert len({sample.labels["output"] for sample in samples}) == 1
        return {sample.name.removeprefix("bigkpca_"): sample.value for sample in samples}

    def scores(self):
        """The features that a reader of the output sees."""
        rows = open_rows(self.out)
        return rows.block(0, rows.shape[0])

    def wanted(self, block_rows=32):
        """The scores of one transform of all rows."""
        out, how = f"{self.root}/wanted.zarr", {"block_rows": block_rows, "overwrite": True}
        return np.asarray(bigkpca.transform(self.model, self.rows, out, **how)[...])


def some_rows(count, seed=0, columns=4):
    """Rows of one distribution."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(count, columns)) * np.arange(1, columns + 1)).astype("f4")
