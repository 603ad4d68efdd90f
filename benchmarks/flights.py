"""What ten scores of a table of flights contain, by the weight of one of its columns: categories and standardised."""

import gzip
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from benchmarks.data import SHARED
from benchmarks.results import Found, Table, Target
from bigkpca import KernelPCA, ingest
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array

COMPONENTS, NEIGHBOURS, HELD_OUT = 10, 5, 0.1
NUMBERS, WORDS = ("delay", "hour", "date", "distance"), ("origin", "destination")
WEIGHTS = (1.0, 4.0, 7.0)  # of origin


def flights(folder: Path, rows: int) -> tuple[str, Array, tuple[str, ...]]:
    """A dataset of the first flights with the hour of the day, airports as columns of 0 and 1; its rows and names."""
    path = folder / f"flights-{rows}.csv"
    with gzip.open(SHARED / "flights" / "flights_200k.csv.gz", "rt") as source, path.open("w") as out:
        out.write(next(source).rstrip() + ",hour\n")
        for line in islice(source, rows):
            hours, minutes = line[11:16].split(":")
            out.write(f"{line.rstrip()},{int(hours) + int(minutes) / 60:.2f}\n")
    data = ingest(path, path.with_suffix(".zarr"), categorical=list(WORDS), overwrite=True).path
    found = open_rows(data)
    return data, np.asarray(found.block(0, found.shape[0])), found.names or ()


def contents(scores: Array, X: Array, names: Sequence[str]) -> dict[str, float]:
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


def main(folder: Path, rows: int = 200_000, size: int = 500) -> Found:
    data, X, names = flights(folder, rows)
    found, lines = {}, []
    for weight in WEIGHTS:
        options: dict[str, Any] = {"standardize": True, "column_weights": {"origin": weight}}
        kpca = KernelPCA(COMPONENTS, size=size, random_state=0, **options)
        found[weight] = contents(np.asarray(kpca.fit_transform(data)), X, names)
        trust = Counter(kpca.certificate_.trust)
        lines.append([weight, *(trust[word] for word in ("solid", "fair", "doubtful")), *found[weight].values()])
    title = f"Ten scores of {len(X)} flights, and what nearest neighbours among them explain of rows held out"
    yield Table(title, ["weight of origin", "solid", "fair", "doubtful", *NUMBERS, *WORDS], lines)
    least, accuracy = min(found[WEIGHTS[0]][name] for name in NUMBERS[:3]), found[WEIGHTS[-1]]["origin"]
    yield Target("least explained of delay, hour and date, origin of weight 1", least, "at least", 0.9)
    yield Target("accuracy for origin of the largest weight", accuracy, "at least", 0.6)
