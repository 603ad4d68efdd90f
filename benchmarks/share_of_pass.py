"""The parts of a fit other than its pass over the rows, as shares of its time, from a dataset to a model on disk."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import bigkpca
from benchmarks.common import MEDIAN_DISTANCE, arguments, repeated_dataset
from benchmarks.results import Results, Target, table
from bigkpca.fitting import features, fit, solve
from bigkpca.storage import models

COMPONENTS = 50
_MOST = {1: 0.35, 2: 0.3, 4: 0.35}  # times --size: share of a fit that is not the pass
_MOST_CERTIFICATE = 0.1
_STAGES: dict[str, tuple[tuple[Any, str], ...]] = {  # the functions that make them up, where they are called
    "sample": ((fit, "draw_sample"), (fit, "scaled_columns")),
    "landmarks": ((features, "choose_landmarks"),),
    "pass": ((solve, "sums_of"),),
    "rounding": ((solve, "rounding_of"),),
    "solution": ((solve, "span_basis"), (solve, "_solutions")),
    "certificate": ((solve, "of_landmarks"),),
    "pre-image": ((fit, "with_decoder"),),
    "saving": ((models, "write_arrays"),),
}


@contextmanager
def timed_stages() -> Iterator[dict[str, float]]:
    """Seconds of each stage of the fits that run within, added up."""
    seconds = dict.fromkeys(_STAGES, 0.0)

    def timed(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*given: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*given, **options)
            finally:
                seconds[stage] += time.perf_counter() - started

        return call

    with ExitStack() as patches:
        for stage, places in _STAGES.items():
            for module, name in places:
                patches.enter_context(mock.patch.object(module, name, timed(stage, getattr(module, name))))
        yield seconds


def stages_of_a_fit(data: str, model: str, size: int) -> dict[str, float]:
    """Seconds of each stage of one fit, of the rest, and of the whole."""
    shutil.rmtree(model, ignore_errors=True)
    with timed_stages() as seconds:
        started = time.perf_counter()
        bigkpca.fit(data, model, n_components=COMPONENTS, sigma=MEDIAN_DISTANCE, size=size)
        whole = time.perf_counter() - started
    return {**seconds, "the rest": whole - sum(seconds.values()), "fit": whole}


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000)
    data, model = repeated_dataset(given.folder, given.rows), str(given.folder / "share-model.zarr")
    lines, measured = [], []
    stages_of_a_fit(data, model, given.size)  # imports and first calls are not timed
    for times, most in _MOST.items():
        size = times * given.size
        runs = [stages_of_a_fit(data, model, size) for _ in range(given.repeats)]
        share = statistics.median(1 - run["pass"] / run["fit"] for run in runs)
        parts = {stage: statistics.median(run[stage] / run["fit"] for run in runs) for stage in runs[0]}
        shares = [f"{part:.1%}" for stage, part in parts.items() if stage != "fit"]
        lines.append([size, statistics.median(run["fit"] for run in runs), f"{share:.1%}", *shares])
        for what, found, bound in (
            ("all but the pass", share, most),
            ("the certificate", parts["certificate"], _MOST_CERTIFICATE),
        ):
            target = Target(f"{what} of a fit of {given.rows} rows, l = {size}", "less", 100 * bound, "% of its time")
            measured.append(target.measured(100 * found))
    shutil.rmtree(model, ignore_errors=True)
    shown = table(
        f"Shares of the time of a fit, MNIST, {given.rows} rows, k-means, {COMPONENTS} components; medians of "
        f"{given.repeats}",
        ["l", "fit, s", "all but the pass", *_STAGES, "the rest"],
        lines,
    )
    return Results((shown,), tuple(measured))


if __name__ == "__main__":
    main()
