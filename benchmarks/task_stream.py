"""The task stream of a fit on two local workers, as the dashboard of Dask shows it: docs/dashboard.png."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dask.utils import key_split
from distributed import get_task_stream

from benchmarks.common import MEDIAN_DISTANCE, fit_pass, repeated_dataset
from bigkpca.execution.clusters import open_engine

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7")


def drawn(events: Sequence[dict[str, Any]], path: Path) -> None:
    """A row for each thread of a worker, and in it a bar for each task."""
    from matplotlib.figure import Figure

    names = sorted({key_split(event["key"]) for event in events})
    threads = sorted({(event["worker"], event["thread"]) for event in events})
    start = min(piece["start"] for event in events for piece in event["startstops"])
    figure = Figure(figsize=(9, 1.2 + 0.5 * len(threads)), layout="constrained")
    axes = figure.add_subplot()
    for name, colour in zip(names, COLOURS, strict=False):
        for event in (each for each in events if key_split(each["key"]) == name):
            at = threads.index((event["worker"], event["thread"]))
            for piece in event["startstops"]:
                shown = colour if piece["action"] == "compute" else "#d62728"
                axes.barh(
                    at, piece["stop"] - piece["start"], left=piece["start"] - start, color=shown, edgecolor="white"
                )
        axes.barh(0, 0, color=colour, label=name)
    axes.barh(0, 0, color="#d62728", label="moved between workers")
    axes.set_yticks(range(len(threads)), [f"worker {i + 1}" for i in range(len(threads))])
    axes.set_xlabel("seconds")
    figure.legend(loc="outside lower center", ncols=len(names) + 1, frameon=False)
    figure.savefig(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build") / "benchmarks")
    parser.add_argument("--rows", type=int, default=240_000)
    parser.add_argument("--out", type=Path, default=Path("docs/dashboard.png"))
    given = parser.parse_args(argv)
    _, one_pass = fit_pass(repeated_dataset(given.folder, given.rows), 1000, MEDIAN_DISTANCE)
    with open_engine(workers=2) as engine:
        one_pass(engine)  # workers import, and compile, on their first tasks
        assert engine.client is not None
        with get_task_stream(client=engine.client) as stream:
            one_pass(engine)
    drawn(stream.data, given.out)


if __name__ == "__main__":
    main()
