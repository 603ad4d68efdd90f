"""Rows restored from their scores alone: the fixed point and ridge beside PCA, on images and tables."""

import warnings
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.decomposition import PCA

import bigkpca
from benchmarks.data import covertype, mnist, some_rows, usps
from benchmarks.results import Found, Table
from bigkpca import KernelPCA
from bigkpca.errors import Array, DominantVariableWarning

COMPONENTS = (2, 5, 10, 50)
TRIED = [*product((1.0, 4.0, 16.0), ("fixed-point", "ridge"))]  # lengths in medians, and pre-images
IMAGES: dict[str, Callable[[], Any]] = {"MNIST": mnist, "USPS": usps, "digits": lambda: datasets.load_digits().data}
TABLES: dict[str, Callable[[], Any]] = {
    "covertype": covertype,
    "breast cancer": lambda: datasets.load_breast_cancer().data,
    "wine": lambda: datasets.load_wine().data,
    "diabetes": lambda: datasets.load_diabetes().data,
    "iris": lambda: datasets.load_iris().data,
}


def parts_of(X: Array, *, standardised: bool) -> tuple[Array, Array]:
    """Three quarters of the rows to fit, and the rest, at most 1000, to restore."""
    shuffled = X[np.random.default_rng(0).permutation(len(X))].astype(np.float64)
    count = len(X) * 3 // 4
    train, test = shuffled[:count], shuffled[count : count + 1000]
    if not standardised:
        return train, test
    mean, scale = train.mean(axis=0), train.std(axis=0)
    scale[scale == 0] = 1
    return (train - mean) / scale, (test - mean) / scale


def error(model: Any, train: Array, test: Array) -> float:
    """Mean squared error of the pre-images of scores, over all entries."""
    model.fit(train)
    return float(np.mean((np.asarray(model.inverse_transform(model.transform(test))) - test) ** 2))


def lines_of(name: str, X: Array, *, standardised: bool) -> Iterator[list[Any]]:
    """For each number of components: the error of PCA, and of both pre-images by sigma as multiples of it."""
    train, test = parts_of(X, standardised=standardised)
    median = bigkpca.sigma(train)["median"].sigma
    for r in COMPONENTS:
        if r >= min(X.shape[1], len(train)):
            return
        pca = error(PCA(r, svd_solver="full"), train, test)
        models = (KernelPCA(r, sigma=by * median, preimage=way, random_state=0) for by, way in TRIED)
        yield [name, len(train), r, pca, *(f"{error(model, train, test) / pca:.3g}" for model in models)]


def main(rows: int = 10_000) -> Found:
    header = ["rows of", "fitted", "components", "PCA's error", *(f"{way}, {by:g} sigma" for by, way in TRIED)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DominantVariableWarning)  # of tables that are not standardised
        for kind, sets, units in (("images", IMAGES, (False,)), ("tables", TABLES, (False, True))):
            for standardised in units:
                lines = [
                    line
                    for name, load in sets.items()
                    for line in lines_of(name, some_rows(load(), rows), standardised=standardised)
                ]
                title = f"Errors as multiples of PCA's, {kind}{', standardised' if standardised else ''}"
                yield Table(f"{title}; at most {rows} rows", header, lines)
