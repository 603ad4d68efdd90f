"""What ten scores of a table of flights contain, by the weight of one of its columns: categories and standardised."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from benchmarks.common import SHARED, arguments
from benchmarks.results import Results, Target, table
from bigkpca import KernelPCA, ingest
from bigkpca.data.opening import open_rows

COMPONENTS, NEIGHBOURS, HELD_OUT = 10, 5, 0.1
NUMBERS, WORDS = ("delay", "hour", "date", "distance"), ("origin", "destination")
WEIGHTS = (1.0, 4.0, 7.0)  # of origin

Rows = np.ndarray[Any, Any]


def with_hour(path: Path, rows: int) -> Path:
    """A CSV file of the first flights, with the hour of the day as a further column."""
    with gzip.open(SHARED / "flights" / "flights_200k.csv.gz", "rt") as source, path.open("w") as out:
        out.write(next(source).rstrip() + ",hour\n")
        for line in islice(source, rows):
            hours, minutes = line[11:16].split(":")
            out.write(f"{line.rstrip()},{int(hours) + int(minutes) / 60:.2f}\n")
    return path


def contents(scores: Rows, X: Rows, names: Sequence[str]) -> dict[str, float]:
    """What nearest neighbours among whitened scores explain of each number (R²), and their accuracy for each word, of
    rows held out."""
    test = np.random.default_rng(0).random(len(X)) < HELD_OUT
    white = (scores - scores[~test].mean(axis=0)) / scores[~test].std(axis=0)
    numbers = X[:, [names.index(name) for name in NUMBERS]]
    expected = KNeighborsRegressor(NEIGHBOURS).fit(white[~test], numbers[~test]).predict(white[test])
    errors = ((expected - numbers[test]) ** 2).mean(axis=0) / numbers[test].var(axis=0)
    found = dict(zip(NUMBERS, (1 - errors).tolist(), strict=True))
    for word in WORDS:
        labels = X[:, [name.startswith(f"{word}=") for name in names]].argmax(axis=1)
        nearest = KNeighborsClassifier(NEIGHBOURS).fit(white[~test], labels[~test])
        found[word] = float(nearest.score(white[test], labels[test]))
    return found


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=200_000, size=500)
    given.folder.mkdir(parents=True, exist_ok=True)
    source = with_hour(given.folder / f"flights-{given.rows}.csv", given.rows)
    data = ingest(source, source.with_suffix(".zarr"), categorical=["origin", "destination"], overwrite=True).path
    rows = open_rows(data)
    X, names = rows.block(0, rows.shape[0]), rows.names or ()
    found, lines = {}, []
    for weight in WEIGHTS:
        kpca = KernelPCA(
            COMPONENTS, size=given.size, standardize=True, column_weights={"origin": weight}, random_state=0
        )
        found[weight] = contents(np.asarray(kpca.fit_transform(data)), X, names)
        trust = Counter(kpca.certificate_.trust)
        lines.append([weight, *(trust[word] for word in ("solid", "fair", "doubtful")), *found[weight].values()])
    title = f"Ten scores of {len(X)} flights, and what nearest neighbours among them explain of rows held out"
    explained = Target("least explained of delay, hour and date, origin of weight 1", "more", 0.9, "")
    accuracy = Target("accuracy for origin of the largest weight", "more", 0.6, "")
    return Results(
        (table(title, ["weight of origin", "solid", "fair", "doubtful", *NUMBERS, *WORDS], lines),),
        (
            explained.measured(min(found[WEIGHTS[0]][name] for name in ("delay", "hour", "date"))),
            accuracy.measured(found[WEIGHTS[-1]]["origin"]),
        ),
    )


if __name__ == "__main__":
    main()
