"""Weights of columns, and columns of categories standardised as one: the same as by hand, wherever a model is used."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.methods import METHODS
from bigkpca.spec import FitSpec
from tests.data.cases import case
from tests.fitting.cases import not_uniform
from tests.helpers.fits import fit, scores

RNG = np.random.default_rng(7)
N = 160
KIND = RNG.choice(["a", "b", "c", "d"], N, p=[0.6, 0.2, 0.15, 0.05])
FRAME = pd.DataFrame({"x": RNG.normal(5, 3, N), "kind": KIND, "y": RNG.exponential(40, N), "same": 1.0})
W = np.array([2.0, 0.5, 1.0, 4.0, 1.0])  # powers of two, which round nothing
X = RNG.normal(size=(N, 5)) + 1
OPTIONS = {"n_components": 3, "size": 20, "random_state": 1}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    FRAME.to_csv(folder / "t.csv", index=False)
    bigkpca.ingest(folder / "t.csv", folder / "t.zarr", categorical="kind")
    return folder / "t.zarr"


def values(path):
    return open_rows(path).block(0, N)


BY_HAND = [
    *({"method": method} for method in METHODS),
    {"kernel": "laplacian"},
    {"kernel": "polynomial"},
    *(
        pytest.param(each, marks=pytest.mark.full)
        for each in (
            *({"kernel": kernel} for kernel in ("matern", "linear", "cosine")),
            {"gamma": "scale"},
            {"tol": 0.3, "size": "auto"},
            {"refine": 3},
            {"noise": 0.1},
        )
    ),
]


@not_uniform
@pytest.mark.parametrize("more", BY_HAND, ids=str)
def test_weights_are_the_columns_multiplied_by_hand(more):
    weighted, plain = (
        fit(rows, **OPTIONS | more, **given) for rows, given in ((X, {"column_weights": W}), (X * W, {}))
    )
    assert_allclose(weighted.solution.eigenvalues, plain.solution.eigenvalues, rtol=1e-12)
    assert_allclose(scores(weighted, X), scores(plain, X * W), atol=1e-10 * np.abs(scores(plain, X * W)).max())


def test_a_column_of_categories_has_the_mean_squared_distance_of_a_number(table):
    model = fit(str(table), **OPTIONS, standardize=True)
    Z = model.features.shifted(values(table)).astype(np.float64)
    pairs = np.array([np.subtract(Z[i], Z[j]) ** 2 for i, j in product(range(N), repeat=2)]).mean(axis=0)
    assert_allclose([pairs[0], pairs[1:5].sum(), pairs[5]], 2, rtol=1e-5)
    assert pairs[6] == 0  # the constant one
    assert len(set(model.features.scale[1:5])) == 1
    assert model.features.scale[6] == 1


@pytest.mark.parametrize("more", [{"standardize": True}, {"kernel": "polynomial"}, {"method": "rff-pca"}], ids=str)
def test_a_column_of_weight_0_has_no_influence_and_its_mean_as_pre_image(more):
    rows = RNG.exponential(size=(3000, 3))  # more than choices are judged on
    weights = [1.0, 0.0, 1.0]
    model, by_hand = fit(rows, **OPTIONS, column_weights=weights, **more), fit(rows * weights, **OPTIONS, **more)
    assert_allclose(model.solution.eigenvalues, by_hand.solution.eigenvalues, rtol=1e-4)
    assert_array_equal(scores(model, rows + np.array([0, 1000, 0])), scores(model, rows))
    restored = model.reconstructing(N)(scores(model, rows[:N]), None).rows
    assert np.isfinite(restored).all()
    assert_allclose(restored[:, 1], rows[:, 1].mean(), rtol=1e-12)


LARGEST = np.finfo(np.float64).max


@pytest.mark.parametrize("more", [{}, {"standardize": True}, {"kernel": "polynomial"}], ids=str)
@pytest.mark.parametrize("values", [LARGEST * np.sign(X[:, 1] - 1), np.where(X[:, 1] > 2, LARGEST, 0)])
def test_a_column_of_weight_0_does_not_matter_however_large_it_is(values, more):
    options = {"size": 20, "random_state": 1, "column_weights": [1.0, 0.0, 1.0, 1.0, 1.0], **more}
    huge = X.copy()
    huge[:, 1] = values
    kpca, plain = (KernelPCA(3, **options).fit(rows) for rows in (huge, X))
    assert_array_equal(kpca.transform(huge), plain.transform(X))
    assert_array_equal(kpca.residual(huge), plain.residual(X))
    assert kpca.score(huge) == plain.score(X)
    assert np.isfinite(kpca.denoise(huge)).all()
    found, expected = (bigkpca.evaluate(one.model_, rows, sample=50) for one, rows in ((kpca, huge), (plain, X)))
    assert found.kernel == expected.kernel


def test_what_overflows_is_named_with_its_weight():
    huge = X.copy()
    huge[3:, 1] = LARGEST * np.sign(X[3:, 1])
    for rows, more, message in (
        (X, {"column_weights": [1, 1e200, 1, 1, 1]}, r"of column 1, times the weight 1e\+200, are too large: distances "
         r"between rows overflow; scale the column, or change the weight with --weight"),
        (X, {"column_weights": [1, 1e308, 1, 1, 1], "sigma": 1.0}, r"column 1, times the weight 1e\+308, are too l"),
        (X, {"column_weights": [1e-200] * 5}, r"times the weight 1e-200, are too small: distances .* underflow"),
        (X * 1e-200, {}, r"the numbers of column \d are too small: distances between rows underflow; scale the column"),
        (huge, {}, "the numbers of column 1 are too large: .* overflow; scale the column, or leave it out"),
        (huge, {"kernel": "laplacian"}, "the numbers of column 1 are too large"),
        (huge, {"standardize": True}, "the variance of column 1 overflows: scale the column, or leave it out"),
        (X * [1, 1e200, 1, 1, 1], {"standardize": True}, "the variance of column 1 overflows"),
        (X, {"column_weights": [1, 1e200, 1, 1, 1], "kernel": "polynomial"}, "far larger .*, or some weight"),
    ):  # fmt: skip
        with case(message), pytest.raises(DataError, match=message):
            fit(rows, **OPTIONS, **more)
    frame = pd.DataFrame(huge, columns=list("vwxyz"))
    with pytest.raises(DataError, match=r"the numbers of column 1 \('w'\) are too large"):
        bigkpca.sigma(frame)
    with pytest.raises(DataError, match="row 3, column 1 is infinity"):  # as in every column
        fit(np.where(np.abs(huge) == LARGEST, np.inf, huge), **OPTIONS, column_weights=[1, 0, 1, 1, 1])


def test_parts_that_are_added_up_must_have_the_same_weights(table, tmp_path):
    options = {"size": 40, "standardize": True, "random_state": 0}
    kpca = KernelPCA(3, column_weights={"kind": 2}, **options).fit(table)
    like = KernelPCA(3).fit(values(table), like=kpca)  # rows without names, under weights by name
    assert_array_equal(like.model_.features.scale, kpca.model_.features.scale)
    assert like.model_.provenance["spec"]["column_weights"] == {"kind": 2.0}
    more = KernelPCA(3, column_weights={"kind": 2}, **options).fit(table).partial_fit(table)
    assert_array_equal(more.model_.features.scale, kpca.model_.features.scale)
    other = KernelPCA(3, column_weights={"kind": 3}, **options).fit(table)
    with pytest.raises(
        SpecError, match=r"column_weights=\{'kind': 3.0\}, but the model was fitted with \{'kind': 2.0\}"
    ):
        more.set_params(column_weights={"kind": 3}).partial_fit(table)
    with pytest.raises(SpecError, match="model 2 has different features from the first one"):
        bigkpca.merge([kpca, other])
    with pytest.raises(SpecError, match=r"column_weights=.*must not change"):
        bigkpca.fit(table, tmp_path / "m.zarr", like=kpca, column_weights={"kind": 3})


def test_weights_of_kernels_that_do_not_take_them_are_refused():
    message = r"--weight \(column_weights= in Python\) does not work with kernel='precomputed'"
    with pytest.raises(SpecError, match=message):
        FitSpec.checked(kernel="precomputed", column_weights=[1, 2])
    with pytest.raises(SpecError, match=r"does not work with .*pectrum.*, whose columns are characters"):
        FitSpec.checked(kernel="spectrum", column_weights=[1, 2])
