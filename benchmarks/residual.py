"""The time of `transform --residual` compared with `transform`, from a dataset to scores on disk."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence

import bigkpca
from benchmarks.common import MEDIAN_DISTANCE, arguments, interleaved, ratios, repeated_dataset, seconds_of, spread
from benchmarks.results import Results, Target, table
from bigkpca import KernelPCA

COMPONENTS = 50


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000)
    data, scores = repeated_dataset(given.folder, given.rows), str(given.folder / "residual-scores.zarr")
    model = KernelPCA(COMPONENTS, sigma=MEDIAN_DISTANCE, size=given.size, random_state=0).fit(data).model_

    def transformed(residual: bool) -> float:
        shutil.rmtree(scores, ignore_errors=True)
        return seconds_of(lambda: bigkpca.transform(model, data, scores, residual=residual))

    transformed(True)  # imports and first calls are not timed
    seconds = interleaved(given.repeats, plain=lambda: transformed(False), residual=lambda: transformed(True))
    shutil.rmtree(scores, ignore_errors=True)
    found = ratios(seconds["residual"], seconds["plain"])
    shown = table(
        f"transform of {given.rows} rows, l = {given.size}, {COMPONENTS} components; medians of {given.repeats}",
        ["what", "seconds", "ratio", "least to most"],
        [
            ["transform", statistics.median(seconds["plain"]), 1.0, ""],
            ["transform --residual", statistics.median(seconds["residual"]), statistics.median(found), spread(found)],
        ],
    )
    target = Target(f"transform --residual / transform, l = {given.size}", "less", 2.5, "times its time")
    return Results((shown,), (target.measured(statistics.median(found)),))


if __name__ == "__main__":
    main()
