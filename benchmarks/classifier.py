"""The accuracy of a linear classifier of test digits, on the scores of kernel PCA with default options and of PCA."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from benchmarks.common import SHARED, arguments, mnist, some_rows, usps, usps_labels
from benchmarks.results import Results, table
from bigkpca import KernelPCA

COMPONENTS = (50, 200)
USPS_TRAINING_ROWS = 7291

Rows = np.ndarray[Any, Any]


def mnist_test() -> Rows:
    """The 10000 test digits, (10000, 784)."""
    with gzip.open(SHARED / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)


def mnist_labels(part: str) -> Rows:
    """The digit of each row of a part, "train" or "t10k"."""
    with gzip.open(SHARED / "mnist" / f"{part}-labels-idx1-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=8)


def accuracy(train: Rows, labels: Rows, test: Rows, test_labels: Rows) -> str:
    """Share of test rows that logistic regression labels correctly, on scores in deviations of the first component."""
    unit = train[:, 0].std()
    classifier = LogisticRegression(max_iter=1000).fit(train / unit, labels)
    return f"{classifier.score(test / unit, test_labels):.3f}"


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=10_000)
    numbers = some_rows(np.arange(60_000), min(given.rows, 60_000))
    few = min(given.rows, USPS_TRAINING_ROWS)
    X, y = usps(), usps_labels()
    sets = {
        "MNIST": (mnist()[numbers], mnist_labels("train")[numbers], mnist_test(), mnist_labels("t10k")),
        "USPS": (X[:few], y[:few], X[USPS_TRAINING_ROWS:], y[USPS_TRAINING_ROWS:]),
    }
    lines = []
    for name, (train, labels, test, test_labels) in sets.items():
        for r in COMPONENTS:
            kernel = KernelPCA(r, random_state=0).fit(train)
            linear = PCA(r, random_state=0).fit(train)
            scores = [(each.transform(train), each.transform(test)) for each in (kernel, linear)]
            lines.append([name, len(train), r, *(accuracy(ours, labels, new, test_labels) for ours, new in scores)])
    header = ["data", "rows", "components", "kernel PCA", "PCA"]
    return Results((table("Accuracy of a linear classifier of test digits", header, lines),))


if __name__ == "__main__":
    main()
