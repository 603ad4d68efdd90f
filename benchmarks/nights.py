"""A night of a scheduled job over images: new rows in bounded memory, and how long a night without any takes."""

import json
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.common import COMMAND, MEDIAN_DISTANCE, arguments, child, repeated_dataset, seconds_of
from benchmarks.results import Results, table
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


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=1_060_000, night=1_000_000)
    folder = given.folder.resolve()
    X = np.load(Path(repeated_dataset(folder, given.rows)).with_suffix(".npy"), mmap_mode="r")
    rows, part, job = folder / "nights-rows.zarr", folder / "nights-part.npy", folder / "nights.toml"
    for path in folder.glob("nights*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    job.write_text(_JOB.format(rows=rows, size=given.size, sigma=MEDIAN_DISTANCE))
    first = given.rows - given.night
    nights = [(f"first, {first} rows and the fit", X[:first]), (f"{given.night} new rows", X[first:])]
    found, command = [], ["run", str(job), "--json", "-q"]
    for name, arrived in nights:
        np.save(part, arrived)
        ingest([part], rows, append=rows.exists())
        printed, peak = child(COMMAND, *command)
        record = json.loads(printed)
        found.append([name, record["seconds"]["total"], peak, record["drift"]["figure"]])
    idle = statistics.median(seconds_of(lambda: child(COMMAND, *command)) for _ in range(given.repeats))
    found.append([f"no new rows, the whole command (median of {given.repeats})", idle, child(COMMAND, *command)[1], ""])
    title = f"Nights of a job over {given.rows} rows, {given.size} landmarks"
    return Results((table(title, ["night", "seconds", "peak MB", "drift"], found),))


if __name__ == "__main__":
    main()
