"""The first rows of a stream, and later rows far from them."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bigkpca import KernelPCA
from bigkpca.errors import FarRowsWarning, SpecError
from bigkpca.storage.models import model_digest

SMALL = {"n_components": 4, "size": 40, "random_state": 0}


def added(batches, **options):
    """An estimator of the first batch, to which the others were added."""
    kpca = KernelPCA(**SMALL | options).fit(batches[0])
    for batch in batches[1:]:
        kpca.partial_fit(batch)
    return kpca


def cut(X, *stops):
    return [X[start:stop] for start, stop in zip((0, *stops), (*stops, len(X)), strict=True)]


def test_a_first_batch_has_five_rows_for_each_landmark_or_component_or_is_refused(X):
    assert model_digest(KernelPCA(**SMALL).partial_fit(X[:200]).model_) == model_digest(
        KernelPCA(**SMALL).fit(X[:200]).model_
    )
    for options, rows, asked in ((SMALL, 199, 40), (SMALL | {"size": "auto", "n_components": 20}, 99, 20)):
        kpca = KernelPCA(**options)
        with pytest.raises(
            SpecError, match=f"the first batch has {rows} rows, too few to choose {asked} landmarks .* at least"
        ):
            kpca.partial_fit(X[:rows])
        assert not hasattr(kpca, "model_")


def test_landmarks_whose_number_is_open_are_at_most_a_fifth_of_the_first_batch(X):
    kpca = KernelPCA(4, random_state=0).partial_fit(X[:200])
    landmarks = kpca.landmarks_
    assert len(landmarks) == 40
    np.testing.assert_array_equal(kpca.partial_fit(X[200:]).landmarks_, landmarks)
    assert kpca.model_.sums.count == len(X)
    with pytest.raises(SpecError, match="but the model was fitted with 40"):
        kpca.set_params(size=41).partial_fit(X)
    for options in ({"method": "rff", "size": 100}, {"landmarks": X[:50]}, {"tol": 0.5}):
        assert KernelPCA(4, random_state=0, **options).partial_fit(X[:60]).model_.sums.count == 60


def digits_by_class():
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
        *(pytest.param(each, 4, marks=pytest.mark.full) for each in (digits_by_class, blobs)),
    ],
)
def test_rows_like_the_others_are_not_called_far(source, seeds):
    X, _ = source()
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(X))[:1300]
        added(cut(X[order], 600, 630, 780), n_components=8, size=60, random_state=seed)


@pytest.mark.parametrize(
    ("source", "rows"),
    [(digits_by_class, 500), pytest.param(blobs, 1500, marks=pytest.mark.full)],
)
def test_rows_of_another_class_are_called_far(source, rows):
    X, labels = source()
    order = np.argsort(labels, kind="stable")
    kpca = added([X[order[:rows]]], n_components=8, size=100)
    with pytest.warns(FarRowsWarning, match=r"the array: these rows are far from .*%.*: fit again on a"):
        kpca.partial_fit(X[order[-150:]])
    assert kpca.model_.sums.count == rows + 150  # which is only said: the rows were added


def test_rows_whose_distance_is_not_known_are_not_called_far(X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({"method": "rff"}, {"kernel": lambda A, B: (A @ B.T / 500 + 1) ** 2}):
            added([X[:150], X[150:] + 40], **options)
