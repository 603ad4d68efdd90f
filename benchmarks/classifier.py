"""The accuracy of a linear classifier of test digits, on the scores of kernel PCA with default options and of PCA."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from benchmarks.data import labels, mnist, some_rows, usps
from benchmarks.results import Found, Table
from bigkpca import KernelPCA
from bigkpca.errors import Array

COMPONENTS = (50, 200)
USPS_TRAINING_ROWS = 7291


def accuracy(train: Array, known: Array, test: Array, expected: Array) -> str:
    """Share of test rows that logistic regression labels correctly, on scores in deviations of the first component."""
    unit = train[:, 0].std()
    classifier = LogisticRegression(max_iter=1000).fit(train / unit, known)
    return f"{classifier.score(test / unit, expected):.3f}"


def main(rows: int = 10_000) -> Found:
    numbers, few = some_rows(np.arange(60_000), rows), min(rows, USPS_TRAINING_ROWS)
    X, y = usps(), labels("USPS")
    sets = {
        "MNIST": (mnist()[numbers], labels("MNIST")[numbers], mnist("t10k"), labels("MNIST", "t10k")),
        "USPS": (X[:few], y[:few], X[USPS_TRAINING_ROWS:], y[USPS_TRAINING_ROWS:]),
    }
    lines = []
    for name, (train, known, test, expected) in sets.items():
        for r in COMPONENTS:
            kernel, linear = KernelPCA(r, random_state=0).fit(train), PCA(r, random_state=0).fit(train)
            scores = [(each.transform(train), each.transform(test)) for each in (kernel, linear)]
            lines.append([name, len(train), r, *(accuracy(own, known, new, expected) for own, new in scores)])
    header = ["data", "rows", "components", "kernel PCA", "PCA"]
    yield Table("Accuracy of a linear classifier of test digits", header, lines)
