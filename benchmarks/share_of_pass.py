"""How much of a fit is its pass over the rows, and how much its certificate, from a dataset to a model on disk."""

import shutil
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import bigkpca
from benchmarks.data import MEDIAN_DISTANCE, repeated_dataset
from benchmarks.results import Found, Table, Target
from benchmarks.timing import seconds_of
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


def main(folder: Path, rows: int = 60_000, size: int = 1000, repeats: int = 5) -> Found:
    data, model = repeated_dataset(folder, rows), str(folder / "share-model.zarr")
    lines, largest = [], 0.0
    stages_of_a_fit(data, model, size)  # imports and first calls are not timed
    for times, most in _MOST.items():
        count = times * size
        runs = [stages_of_a_fit(data, model, count) for _ in range(repeats)]
        shares = {stage: 100 * statistics.median(run[stage] / run["fit"] for run in runs) for stage in _STAGES}
        rest = 100 - shares["pass"]
        cells = [f"{share:.1f}" for share in shares.values()]
        lines.append([count, statistics.median(run["fit"] for run in runs), *cells])
        what = f"all but the pass of a fit of {rows} rows, l = {count}"
        yield Target(what, rest, "at most", most, "%")
        largest = max(largest, shares["certificate"])
    yield Target("the certificate, largest share", largest, "at most", 10, "%")
    shutil.rmtree(model, ignore_errors=True)
    title = f"Shares of the time of a fit in %, MNIST, {rows} rows, k-means, {COMPONENTS} components"
    yield Table(f"{title}; medians of {repeats}", ["l", "fit, s", *_STAGES], lines)
