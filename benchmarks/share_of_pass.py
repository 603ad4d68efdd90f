"""How much of a fit is its pass over the rows, and how much its certificate, from a dataset to a model on disk."""

import shutil
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import bigkpca
from benchmarks.common import MEDIAN_DISTANCE, arguments, repeated_dataset, seconds_of
from benchmarks.results import Results, Target, table
from bigkpca.fitting import certify, fit, solve
from bigkpca.storage import models

COMPONENTS = 50
_MOST = {1: 35, 2: 30, 4: 35}  # times --size: % of a fit that is not the pass
_STAGES = {  # where the function of a stage is called
    "sample": (fit, "draw_sample"),
    "landmarks": (fit, "choose_features"),
    "pass": (solve, "sums_of"),
    "certificate": (certify, "of_sums"),
    "pre-image": (fit, "with_decoder"),
    "saving": (models, "write_arrays"),
}


def stages_of_a_fit(data: str, model: str, size: int) -> dict[str, float]:
    """Seconds of a whole fit, and of each stage in it."""
    shutil.rmtree(model, ignore_errors=True)
    seconds = dict.fromkeys(_STAGES, 0.0)

    def timed(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            found: list[Any] = []
            seconds[stage] += seconds_of(lambda: found.append(function(*given, **options)))
            return found[0]

        return call

    with ExitStack() as patches:
        for stage, (module, name) in _STAGES.items():
            patches.enter_context(mock.patch.object(module, name, timed(stage, getattr(module, name))))
        whole = seconds_of(lambda: bigkpca.fit(data, model, n_components=COMPONENTS, sigma=MEDIAN_DISTANCE, size=size))
    return {**seconds, "fit": whole}


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000)
    data, model = repeated_dataset(given.folder, given.rows), str(given.folder / "share-model.zarr")
    lines, targets, largest = [], [], 0.0
    stages_of_a_fit(data, model, given.size)  # imports and first calls are not timed
    for times, most in _MOST.items():
        size = times * given.size
        runs = [stages_of_a_fit(data, model, size) for _ in range(given.repeats)]
        shares = {stage: 100 * statistics.median(run[stage] / run["fit"] for run in runs) for stage in _STAGES}
        rest = 100 - shares["pass"]
        cells = [f"{share:.1f}" for share in (rest, *shares.values())]
        lines.append([size, statistics.median(run["fit"] for run in runs), *cells])
        where = f"of a fit of {given.rows} rows, l = {size}"
        targets.append(Target(f"all but the pass {where}", rest, "at most", most, "%"))
        largest = max(largest, shares["certificate"])
    targets.append(Target("the certificate, largest share", largest, "at most", 10, "%"))
    shutil.rmtree(model, ignore_errors=True)
    title = f"Shares of the time of a fit in %, MNIST, {given.rows} rows, k-means, {COMPONENTS} components"
    header = ["l", "fit, s", "all but the pass", *_STAGES]
    return Results((table(f"{title}; medians of {given.repeats}", header, lines),), tuple(targets))


if __name__ == "__main__":
    main()
