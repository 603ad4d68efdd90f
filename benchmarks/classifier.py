"""The accuracy of a linear classifier of test digits, on the scores of kernel PCA with default options and of PCA."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from benchmarks.data import mnist, mnist_labels, some_rows, usps, usps_labels
from benchmarks.results import Results, table
from bigkpca import KernelPCA
from bigkpca.errors import Array

COMPONENTS = (50, 200)
USPS_TRAINING_ROWS = 7291


def accuracy(train: Array, labels: Array, test: Array, test_labels: Array) -> str:
    """Share of test rows that logistic regression labels correctly, on scores in deviations of the first component."""
    unit = train[:, 0].std()
    classifier = LogisticRegression(max_iter=1000).fit(train / unit, labels)
    return f"{classifier.score(test / unit, test_labels):.3f}"


def main(rows: int = 10_000) -> Results:
    numbers, few = some_rows(np.arange(60_000), rows), min(rows, USPS_TRAINING_ROWS)
    X, y = usps(), usps_labels()
    sets = {
        "MNIST": (mnist()[numbers], mnist_labels()[numbers], mnist("t10k"), mnist_labels("t10k")),
        "USPS": (X[:few], y[:few], X[USPS_TRAINING_ROWS:], y[USPS_TRAINING_ROWS:]),
    }
    lines = []
    for name, (train, labels, test, test_labels) in sets.items():
        for r in COMPONENTS:
            kernel, linear = KernelPCA(r, random_state=0).fit(train), PCA(r, random_state=0).fit(train)
            scores = [(each.transform(train), each.transform(test)) for each in (kernel, linear)]
            lines.append([name, len(train), r, *(accuracy(own, labels, new, test_labels) for own, new in scores)])
    header = ["data", "rows", "components", "kernel PCA", "PCA"]
    return Results((table("Accuracy of a linear classifier of test digits", header, lines),))
