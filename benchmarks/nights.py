"""A night of a scheduled job over images: new rows in bounded memory, and how long a night without any takes."""

import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import MEDIAN_DISTANCE, repeated_dataset
from benchmarks.results import Found, Table
from benchmarks.timing import COMMAND, child, seconds_of
from bigkpca.ingesting import ingest

_JOB = """
[input]
path = "{rows}"
[model]
path = "nights-model.zarr"
size = {size}
sigma = {sigma}
[output]
path = "nights-features.zarr"
"""


def main(folder: Path, rows: int = 1_060_000, size: int = 1000, repeats: int = 5) -> Found:
    folder = folder.resolve()
    X = np.load(Path(repeated_dataset(folder, rows)).with_suffix(".npy"), mmap_mode="r")
    data, part, job = folder / "nights-rows.zarr", folder / "nights-part.npy", folder / "nights.toml"
    for path in folder.glob("nights*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    job.write_text(_JOB.format(rows=data, size=size, sigma=MEDIAN_DISTANCE))
    first, command = min(60_000, rows // 3), ["run", str(job), "--json", "-q"]
    found: list[list[Any]] = []
    for name, arrived in ((f"first, {first} rows and the fit", X[:first]), (f"{rows - first} new rows", X[first:])):
        np.save(part, arrived)
        ingest([part], data, append=data.exists())
        printed, peak = child(COMMAND, *command)
        record = json.loads(printed)
        found.append([name, record["seconds"]["total"], peak, record["drift"]["figure"]])
    idle = statistics.median(seconds_of(lambda: child(COMMAND, *command)) for _ in range(repeats))
    found.append([f"no new rows, the whole command (median of {repeats})", idle, child(COMMAND, *command)[1], ""])
    title = f"Nights of a job over {rows} rows, {size} landmarks"
    yield Table(title, ["night", "seconds", "peak MB", "drift"], found)
