"""The default pre-image beside PCA with as many components, on rows that were not fitted."""

import gzip

import numpy as np
import pytest
import zarr
from sklearn import datasets
from sklearn.decomposition import PCA

import bigkpca
from bigkpca import KernelPCA
from tests.helpers.files import shared_file

BOTH = pytest.mark.parametrize("standardised", [False, True])


def numbers_of_components(*others):
    """Ten components in the full tests, and others in the long ones."""
    each = [pytest.param((10,), marks=pytest.mark.full), pytest.param(others, marks=pytest.mark.long)]
    return pytest.mark.parametrize("numbers", each)


def parts_of(X, train, test, *, standardised):
    """Rows to fit and rows to test, drawn at random, and standardised by the former."""
    order = np.random.default_rng(0).permutation(len(X))
    fitted, tested = X[order[:train]].astype(float), X[order[train : train + test]].astype(float)
    if not standardised:
        return fitted, tested
    mean, scale = fitted.mean(axis=0), fitted.std(axis=0)
    scale[scale == 0] = 1
    return (fitted - mean) / scale, (tested - mean) / scale


def squared_error(model, fitted, tested):
    model.fit(fitted)
    return float(((np.asarray(model.inverse_transform(model.transform(tested))) - tested) ** 2).mean())


def of_pca(fitted, tested, r):
    return squared_error(PCA(r, svd_solver="full"), fitted, tested)


def errors_relative_to_pca(X, train, test, components, *, standardised):
    fitted, tested = parts_of(X, train, test, standardised=standardised)
    return {
        r: squared_error(KernelPCA(r, random_state=0), fitted, tested) / of_pca(fitted, tested, r) for r in components
    }


@pytest.mark.full
@BOTH
def test_digits_come_back_better_than_from_pca(digits, standardised):
    found = errors_relative_to_pca(digits, 1300, 400, (2, 10, 20), standardised=standardised)
    assert max(found.values()) < 0.9, found


@numbers_of_components(2, 5, 50)
@BOTH
def test_handwritten_digits_of_the_post_come_back_better_than_from_pca(standardised, numbers):
    X = np.load(shared_file("usps", "usps_int16.npz"))["X_milli"].astype(np.float32) / 1000
    found = errors_relative_to_pca(X, 6000, 2000, numbers, standardised=standardised)
    assert max(found.values()) < 1, found


@numbers_of_components(2, 5, 50)
def test_mnist_comes_back_better_than_from_pca(numbers):
    with gzip.open(shared_file("mnist", "train-images-idx3-ubyte.gz")) as file:
        X = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    found = errors_relative_to_pca(X, 10_000, 2000, numbers, standardised=False)
    assert max(found.values()) < 1, found


@numbers_of_components(2, 5, 30)
def test_forest_plots_in_standard_deviations_come_back_better_than_from_pca(numbers):
    X = np.load(shared_file("covertype", "covtype_93k.npz"))["X_raw"]
    found = errors_relative_to_pca(X, 20_000, 5000, numbers, standardised=True)
    assert max(found.values()) < 1, found


@numbers_of_components(2, 5, 50)
def test_flights_in_standard_deviations_come_back_better_than_from_pca(tmp_path, numbers):
    with gzip.open(shared_file("flights", "flights_200k.csv.gz"), "rt") as whole:
        (tmp_path / "few.csv").write_text("".join(line for line, _ in zip(whole, range(15_001), strict=False)))
    bigkpca.ingest(tmp_path / "few.csv", tmp_path / "few.zarr", categories="one-hot")
    X = zarr.open_group(str(tmp_path / "few.zarr"), mode="r")["x"][:]
    found = errors_relative_to_pca(X, 12_000, 3000, numbers, standardised=True)
    assert max(found.values()) < 1, found


TABLES = [
    *[("iris", 2), ("wine", 5)],
    *[pytest.param(*each, marks=pytest.mark.full) for each in (("iris", 3), ("wine", 2), ("diabetes", 2))],
    *[pytest.param(*each, marks=pytest.mark.full) for each in (("diabetes", 5), ("breast_cancer", 5))],
    *[pytest.param("breast_cancer", r, marks=pytest.mark.full) for r in (2, 10)],
]


@pytest.mark.parametrize(("name", "r"), TABLES)
def test_small_tables_come_back_as_from_pca_with_a_wide_kernel_and_better_than_from_the_fixed_point(name, r):
    """With σ from the median distance, few scores of a small table contain less of its columns than those of PCA."""
    X = getattr(datasets, f"load_{name}")().data
    fitted, tested = parts_of(X, len(X) * 2 // 3, len(X), standardised=True)
    median = KernelPCA(r, random_state=0).fit(fitted)
    assert squared_error(median, fitted, tested) < 1.02 * squared_error(
        KernelPCA(r, preimage="fixed-point", random_state=0), fitted, tested
    )
    sigma = 16 * median.model_.features.kernel.sigma
    wide = squared_error(KernelPCA(r, sigma=sigma, random_state=0), fitted, tested)
    assert wide < 1.02 * of_pca(fitted, tested, r)
