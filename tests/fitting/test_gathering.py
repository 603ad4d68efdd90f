"""The first rows of a stream, which are kept and fitted again until there are enough, and later rows far from them."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.sparse import csr_array
from sklearn.base import clone

from bigkpca import KernelPCA
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError, FarRowsWarning, MemoryLimitError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.fitting import gathering
from bigkpca.fitting.merge import fit_like, spec_like
from bigkpca.spec import FitSpec
from bigkpca.storage.models import model_digest
from tests.helpers.files import shared_file

SMALL = {"n_components": 4, "size": 40, "random_state": 0}


@pytest.fixture
def enough(monkeypatch):
    """Sets the number of rows that are enough, without wide or many rows."""
    return lambda number: monkeypatch.setattr(gathering, "_enough", lambda rows, spec: number)


def added(batches, weights=None, **options):
    """An estimator to which batches were added, one call each."""
    kpca = KernelPCA(**SMALL | options)
    for number, batch in enumerate(batches):
        kpca.partial_fit(batch, sample_weight=None if weights is None else weights[number])
    return kpca


def cut(X, *stops):
    return [X[start:stop] for start, stop in zip((0, *stops), (*stops, len(X)), strict=True)]


def same(kpca, other):
    """Both have the same model to the bit, with its provenance."""
    return model_digest(kpca.model_) == model_digest(other.model_)


OPTIONS = {
    "columns": {"method": "columns"},
    "random features": {"method": "rff"},
    "standardize": {"standardize": True},
    "tolerance": {"size": "auto", "tol": 0.3},
}


@pytest.mark.parametrize("name", ["columns", *(pytest.param(each, marks=pytest.mark.full) for each in [*OPTIONS][1:])])
def test_while_rows_are_few_the_model_is_that_of_a_fit_to_all(X, name):
    options = OPTIONS[name]
    assert same(added(cut(X, 100, 200, 240), **options), KernelPCA(**SMALL | options).fit(X))


KINDS = {
    "xarray": lambda X: xr.DataArray(X, dims=("time", "cell"), coords={"cell": np.arange(64) * 2}),
    "uint8": lambda X: X.astype("u1"),
    "sparse": csr_array,
    "frame": lambda X: pd.DataFrame(X, columns=[f"c{j}" for j in range(64)]),
}


@pytest.mark.parametrize("name", ["xarray", *(pytest.param(each, marks=pytest.mark.full) for each in [*KINDS][1:])])
def test_rows_of_every_kind_are_kept(X, name):
    rows = KINDS[name](X)
    assert same(added([rows[:100], rows[100:]]), KernelPCA(**SMALL).fit(rows))


def test_names_of_columns_mean_the_same_in_later_batches_without_names(X):
    frame, options = pd.DataFrame(X, columns=[f"c{j}" for j in range(64)]), {"column_weights": {"c20": 5.0}}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        assert same(added([frame[:100], X[100:]], **options), KernelPCA(**SMALL | options).fit(frame))


def test_rows_of_several_types_are_those_of_the_widest(X):
    narrow = X.astype("u1")
    assert same(added([narrow[:100], X[100:]]), KernelPCA(**SMALL).fit(X))


def test_weights_are_kept_with_the_rows(X):
    weights = np.arange(300) % 5 + 1.0
    whole = KernelPCA(**SMALL).fit(X, sample_weight=weights)
    assert same(added(cut(X, 100), cut(weights, 100)), whole)
    half = np.r_[np.ones(100), weights[100:]]
    assert same(added(cut(X, 100), [None, weights[100:]]), KernelPCA(**SMALL).fit(X, sample_weight=half))


def test_rows_that_are_kept_age(X):
    kpca = KernelPCA(**SMALL)
    for batch in cut(X, 100, 120, 200):
        kpca.partial_fit(batch, half_life=80)
    whole = KernelPCA(**SMALL).partial_fit(X, half_life=80)
    np.testing.assert_allclose(kpca.landmarks_, whole.landmarks_, rtol=1e-6)
    np.testing.assert_allclose(kpca.transform(X), whole.transform(X), atol=1e-6)


def test_between_two_fits_landmarks_stay(X):
    kpca = added(cut(X, 150)[:1])
    before, spec = kpca.model_, FitSpec.of(kpca.model_)
    kpca.partial_fit(X[150:210])
    np.testing.assert_array_equal(kpca.landmarks_, before.features.landmarks_in_user_units())
    whole = fit_like(ArrayRows(X[:210]), before, spec_like(before, dict(spec)), Engine(threads=1), None)
    np.testing.assert_allclose(kpca.eigenvalues_, whole.solution.eigenvalues, rtol=1e-9)
    assert same(kpca.partial_fit(X[210:225]), KernelPCA(**SMALL).fit(X[:225]))  # half as many more


def test_the_number_of_components_may_change_while_rows_are_kept(X):
    kpca = added(cut(X, 150)[:1])
    kpca.set_params(n_components=6).partial_fit(X[150:])
    assert same(kpca, KernelPCA(**SMALL | {"n_components": 6}).fit(X))
    with pytest.raises(SpecError, match=r"sigma=3\.0, but the model was fitted with 'median'"):
        kpca.set_params(sigma=3.0).partial_fit(X)


def test_a_seed_that_was_drawn_stays(X):
    kpca = added(cut(X, 100), random_state=None)
    seed = FitSpec.of(kpca.model_).random_state
    assert same(kpca, KernelPCA(**SMALL | {"random_state": seed}).fit(X))


def test_rows_far_from_all_landmarks_are_fitted_at_once(digits):
    rows = digits.astype("f4")
    far = rows[:100] * 0.2 + 100
    kpca = added([rows[:300], far])
    assert same(kpca, KernelPCA(**SMALL).fit(np.concatenate([rows[:300], far])))


def test_enough_rows_are_released_and_later_ones_added(X, enough):
    enough(250)
    kpca = added(cut(X[:280], 100, 170, 240))
    assert kpca._gathered is None
    assert same(kpca, KernelPCA(**SMALL).fit(X[:280]))
    before = kpca.landmarks_
    kpca.partial_fit(X[280:])
    np.testing.assert_array_equal(kpca.landmarks_, before)
    assert kpca.model_.sums.count == 300
    assert added([X])._gathered is None


@pytest.mark.parametrize("half_life", [None, 60, 0.15])
def test_landmarks_of_a_batch_that_is_enough_by_itself_are_from_it(X, enough, half_life):
    enough(150)
    kpca = KernelPCA(**SMALL).partial_fit(X[:100], half_life=half_life).partial_fit(X[100:], half_life=half_life)
    assert kpca._gathered is None
    alone = KernelPCA(**SMALL).partial_fit(X[100:], half_life=half_life)
    np.testing.assert_array_equal(kpca.landmarks_, alone.landmarks_)
    weights = np.ones(300) if half_life is None else 2.0 ** ((np.arange(300) - 299) / half_life)
    assert kpca.model_.sums.weight == pytest.approx(weights.sum())


def test_enough_rows_are_as_many_as_a_fit_samples():
    for columns, options, expected in (
        (10, {}, 20_000),
        (16_000, {}, 1000),
        (160_000, {"n_components": 10, "size": 300}, 300),
        (160_000, {"n_components": 10, "method": "rff"}, 100),
    ):
        rows = ArrayRows(np.broadcast_to(np.float32(0), (5, columns)))
        assert gathering._enough(rows, FitSpec.checked(**options)) == expected


def test_a_batch_that_is_refused_leaves_everything_as_it_was(X):
    kpca = added(cut(X, 100)[:1])
    before, held = kpca.model_, kpca._gathered
    bad = X[100:].copy()
    bad[7, 3] = np.nan
    weights = np.ones(200)
    weights[5] = -1
    for batch, given, error, message in (
        (bad, None, DataError, r"row 7, column 3 is NaN"),
        (X[100:], weights, DataError, "the sample weight of row 5 is -1"),
        (pd.DataFrame(X[100:, :9]), None, ValueError, "9 features"),
    ):
        with pytest.raises(error, match=message):
            kpca.partial_fit(batch, sample_weight=given)
    with pytest.raises(MemoryLimitError, match="1 MB are allowed"):
        kpca.set_params(memory_limit="1 MB").partial_fit(X[100:])
    assert kpca.model_ is before
    assert kpca._gathered is held
    assert same(kpca.set_params(memory_limit=None).partial_fit(X[100:]), KernelPCA(**SMALL).fit(X))
    refused = KernelPCA(**SMALL)
    with pytest.raises(DataError, match="row 7, column 3 is NaN"):
        refused.partial_fit(bad)
    assert not hasattr(refused, "model_")


@pytest.mark.full
def test_rows_are_copies_and_go_with_a_pickle_but_not_with_a_saved_model(X, tmp_path):
    buffer = X[:100].copy()
    kpca = KernelPCA(**SMALL).partial_fit(buffer)
    buffer[:] = 0
    whole = KernelPCA(**SMALL).fit(X)
    assert same(pickle.loads(pickle.dumps(kpca)).partial_fit(X[100:]), whole)
    kpca.save(tmp_path / "model.zarr")
    loaded = KernelPCA.load(tmp_path / "model.zarr")
    for other in (loaded, KernelPCA(**SMALL).fit(X[:100])):
        np.testing.assert_array_equal(other.partial_fit(X[100:]).landmarks_, kpca.landmarks_)
    assert clone(kpca)._gathered is None
    assert kpca.partial_fit(X[100:])._gathered is not None
    assert kpca.fit(X)._gathered is None


def test_features_of_another_model_stay(X):
    first = KernelPCA(**SMALL).fit(X[:100])
    other = KernelPCA(4).fit(X[100:120], like=first).partial_fit(X[120:])
    np.testing.assert_array_equal(other.landmarks_, first.landmarks_)


def explained(batches, **options):
    return float(added(batches, **options).explained_variance_ratio_.sum())


@pytest.mark.parametrize(
    "components", [pytest.param(10, marks=pytest.mark.full), pytest.param(50, marks=pytest.mark.long)]
)
def test_digits_sorted_by_class_are_explained_as_by_a_fit(digits, components):
    from sklearn.datasets import load_digits

    rows = digits[np.argsort(load_digits().target, kind="stable")].astype("f4")
    options = {"n_components": components, "size": "auto"}
    whole = KernelPCA(**SMALL | options).fit(rows).explained_variance_ratio_.sum()
    assert explained(cut(rows, *range(150, len(rows), 150)), **options) > 0.99 * whole


def usps():
    stored = np.load(shared_file("usps", "usps_int16.npz"))
    return stored["X_milli"].astype("f4"), stored["y"]


def digits_by_class():
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def blobs():
    rng = np.random.default_rng(0)
    labels = np.arange(4000) % 8
    return rng.normal(size=(8, 6))[labels] * 3 + rng.normal(size=(4000, 6)), labels


def heavy_tails():
    return np.random.default_rng(0).standard_t(2, size=(4000, 5)), np.zeros(4000)


@pytest.mark.parametrize(
    ("source", "seeds"),
    [
        (heavy_tails, 1),
        *(pytest.param(each, 4, marks=pytest.mark.full) for each in (digits_by_class, blobs, usps)),
        *(pytest.param(each, 20, marks=pytest.mark.long) for each in (digits_by_class, blobs, usps)),
    ],
)
def test_rows_like_the_others_are_not_called_far(source, seeds, enough):
    enough(600)
    X, _ = source()
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(X))[:1300]
        added(cut(X[order], 600, 630, 780), n_components=8, size=60, random_state=seed)


@pytest.mark.parametrize(
    ("source", "rows"),
    [(digits_by_class, 500), *(pytest.param(*each, marks=pytest.mark.full) for each in ((blobs, 1500), (usps, 3000)))],
)
def test_rows_of_another_class_are_called_far(source, rows, enough):
    enough(rows)
    X, labels = source()
    order = np.argsort(labels, kind="stable")
    kpca = added([X[order[:rows]]], n_components=8, size=100)
    with pytest.warns(FarRowsWarning, match=r"the array: these rows are far from .*%.*: fit again on a"):
        kpca.partial_fit(X[order[-150:]])
    assert kpca.model_.sums.count == rows + 150  # which is only said: the rows were added


def test_rows_whose_distance_is_not_known_are_not_called_far(X, enough):
    enough(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({"method": "rff"}, {"kernel": lambda A, B: (A @ B.T / 500 + 1) ** 2}):
            added([X[:150], X[150:] + 40], **options)
