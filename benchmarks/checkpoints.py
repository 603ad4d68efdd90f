"""The cost of saving the sums of a fit: the pass of a fit with and without saving, over compressed Zarr."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import MEDIAN_DISTANCE, arguments, fit_pass, interleaved, median_ratio, repeated_dataset
from benchmarks.results import Results, table
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.workflows.checkpoints import saved_in


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=600_000)
    rows, one_pass = fit_pass(repeated_dataset(given.folder, given.rows), given.size, MEDIAN_DISTANCE)
    engine = Engine(threads=2)
    sizes: list[int] = []

    with TemporaryDirectory(dir=given.folder) as folder:

        def saving() -> float:
            shutil.rmtree(f"{folder}/sums", ignore_errors=True)
            seconds = one_pass(replace(engine, checkpoint=saved_in(f"{folder}/sums", [], Progress())))
            sizes.append(sum(file.stat().st_size for file in Path(folder).rglob("*.npz")))
            return seconds

        seconds = interleaved(given.repeats, plain=lambda: one_pass(engine), saving=saving)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    shown = table(
        f"Sums saved in a fit pass over {rows.shape[0]} rows, {given.size} landmarks; median of {given.repeats}",
        ["what", "seconds", "ratio", "MB on disk"],
        [
            ["the pass", medians["plain"], 1.0, 0.0],
            [
                "the same, sums saved",
                medians["saving"],
                median_ratio(seconds["saving"], seconds["plain"]),
                max(sizes) / 1e6,
            ],
        ],
    )
    return Results((shown,))


if __name__ == "__main__":
    main()
