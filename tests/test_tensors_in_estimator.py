"""Tensors in every method: the numbers of the same array of NumPy, as a tensor on the same device."""

from importlib.util import find_spec

import array_api_strict
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.testing import assert_array_equal
from sklearn.base import clone

import bigkpca
from bigkpca import KernelPCA, KernelPCADetector
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.array_api import on_host
from tests.data.cases import case

X = np.random.default_rng(0).normal(size=(1100, 5)) @ np.diag([3.0, 2.0, 1.0, 1.0, 1.0])
FEW = 40  # rows that are scored without a pass


def of_torch(values):
    import torch

    return torch.from_numpy(values.copy())


needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
every_kind = pytest.mark.parametrize(
    "make", [array_api_strict.asarray, pytest.param(of_torch, marks=needs_torch)], ids=["array_api_strict", "torch"]
)


def estimator(**parameters):
    """Which computes on the processor, so that bits can be compared."""
    return KernelPCA(3, **{"size": 20, "random_state": 0, "device": "cpu"} | parameters)


def assert_same(found, expected, make):
    """The same bits, as a tensor."""
    assert type(found) is type(make(X))
    assert on_host(found).dtype == expected.dtype
    assert_array_equal(on_host(found), expected)


@every_kind
@pytest.mark.parametrize("dtype", ["f4", pytest.param("i8", marks=pytest.mark.full)])
def test_every_method_gives_what_it_gives_for_numpy(make, dtype):
    rows = (10 * X).astype(dtype)
    plain, kpca = estimator().fit(rows), estimator().set_output(transform="pandas").fit(make(rows))  # without effect
    assert_array_equal(kpca.eigenvalues_, plain.eigenvalues_)
    assert kpca.n_features_in_ == 5
    assert kpca.model_.provenance["identity"] == plain.model_.provenance["identity"]
    assert_same(clone(kpca).fit_transform(make(rows)), plain.transform(rows), make)
    for some in (rows, rows[:FEW]):
        scores = plain.transform(some)
        assert_same(kpca.transform(make(some)), scores, make)
        assert_same(kpca.residual(make(some)), plain.residual(some), make)
    assert_same(kpca.inverse_transform(make(scores)), plain.inverse_transform(scores), make)
    assert_same(kpca.denoise(make(some)), plain.denoise(some), make)
    assert kpca.score(make(some)) == plain.score(some)


@every_kind
@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"standardize": True}, np.arange(300) % 3.0),
        ({"preimage": "ridge"}, None),
        ({"method": "rff"}, None),
        ({"kernel": "precomputed", "size": "auto"}, None),
    ],
    ids=str,
)
def test_weights_learned_preimages_matrices_and_added_rows_can_be_tensors(make, options, weights):
    rows = X[:300] @ X[:300].T if "kernel" in options else X[:300]
    plain = estimator(**options).fit(rows, sample_weight=weights)
    kpca = estimator(**options).fit(make(rows), sample_weight=None if weights is None else make(weights))
    assert_same(kpca.transform(make(rows[:7])), plain.transform(rows[:7]), make)
    if "preimage" in options:
        assert_same(kpca.inverse_transform(make(X[:2, :3])), plain.inverse_transform(X[:2, :3]), make)
    if weights is None and "kernel" not in options:
        added = kpca.partial_fit(make(X[300:400])).eigenvalues_
        assert_array_equal(added, plain.partial_fit(X[300:400]).eigenvalues_)


@every_kind
@pytest.mark.full
def test_a_detector_takes_tensors(make):
    plain, detector = (KernelPCADetector(estimator(), alpha=0.05).fit(each) for each in (X, make(X)))
    for some in (X, 9 * X[:FEW]):
        for name in ("statistics", "score_samples", "decision_function", "predict"):
            with case(name):
                assert_same(getattr(detector, name)(make(some)), getattr(plain, name)(some), make)
        for name in ("p_values", "reasons", "contributions"):  # arrays of NumPy for every kind of rows
            assert_array_equal(getattr(detector, name)(make(some)), getattr(plain, name)(some))
    assert_array_equal(*(KernelPCADetector(estimator(), contamination=0.05).fit(each).offset_ for each in (X, make(X))))


@pytest.mark.parametrize("stacked", [False, True])
def test_a_data_array_of_tensors_gives_one_of_the_same_kind(stacked):
    labels = {"time": np.arange(1100)} if not stacked else {"y": np.arange(50), "x": np.arange(22)}
    given = xr.DataArray(X.reshape(*map(len, labels.values()), 5), dims=(*labels, "band"), coords=labels)
    tensors = given.copy(data=array_api_strict.asarray(given.values))
    if stacked:
        given, tensors = (each.stack(row=("y", "x")).transpose("row", "band") for each in (given, tensors))
    plain, kpca = estimator().fit(given), estimator().fit(tensors)
    for name in ("transform", "residual"):
        expected, found = getattr(plain, name)(given), getattr(kpca, name)(tensors)
        assert_same(found.data, expected.values, array_api_strict.asarray)
        xr.testing.assert_equal(found.copy(data=on_host(found.data)), expected)


@every_kind
def test_tensors_are_checked_as_arrays_are(make):
    kpca = estimator().fit(make(X))
    for wrong, message in (
        (X[:, :4], "X has 4 features, but KernelPCA is expecting 5 features as input"),
        (X[0], r"shape \(5,\): rows must be two-dimensional"),
        (np.where(X > 8, np.nan, X), r"row \d+, column 0 is NaN"),
    ):
        with case(message), pytest.raises(ValueError, match=message):
            kpca.transform(make(wrong))
    with pytest.raises(ValueError, match=r"1 sample.* while a minimum of 2 is required"):
        kpca.fit(make(X[:1]))
    with pytest.raises(DataError, match="complex128 values"):
        kpca.fit(make(X + 1j))
    with pytest.raises(SpecError, match="has 4 columns"):
        bigkpca.evaluate(kpca, make(X[:, :4]))
    framed = estimator().fit(pd.DataFrame(X, columns=list("abcde")))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        framed.transform(make(X))


@needs_torch
def test_a_tensor_that_requires_a_gradient_is_refused_everywhere():
    kpca, tensor = estimator().fit(X), of_torch(X).requires_grad_()
    for name in ("fit", "fit_transform", "partial_fit", "transform", "denoise", "residual", "score"):
        with case(name), pytest.raises(SpecError, match=r"requires grad\. Use tensor\.detach\(\)"):
            getattr(kpca, name)(tensor)
