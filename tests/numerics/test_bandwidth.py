"""The length sigma from distances of sampled pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist

from bigkpca.errors import DataError
from bigkpca.numerics.bandwidth import PAIRS, candidate_lengths, median_sigma, pair_distances
from tests.numerics.fits import seeds

both_distances = pytest.mark.parametrize("distance", ["sqeuclidean", "cityblock"])


def distances_of(sample, distance, seed=0):
    return pair_distances(sample, distance, np.random.default_rng(seed))[0]


def length_of(value, distance):
    return np.sqrt(value / 2) if distance == "sqeuclidean" else value


@both_distances
@given(seed=seeds, m=st.integers(2, 60), d=st.integers(1, 5), piece_rows=st.sampled_from([7, 10**6]))
def test_few_rows_give_all_pairs(distance, seed, m, d, piece_rows):
    sample = np.random.default_rng(seed).normal(size=(m, d))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bigkpca.numerics.bandwidth._PIECE_BYTES", piece_rows * sample[0].nbytes)
        distances = distances_of(sample, distance)
    expected = np.sort(pdist(sample, distance))
    assert_allclose(distances, expected, rtol=1e-12)
    lengths = candidate_lengths(distances, distance)
    assert lengths["median"] == lengths["sigest_middle"]
    assert lengths["median"].sigma == median_sigma(distances, distance)
    for name, value in (("median", np.median(expected)), ("mean", expected.mean())):
        assert_allclose(lengths[name].sigma, length_of(value, distance), rtol=1e-12)
    for name, q in {"sigest_low": 0.1, "sigest_high": 0.9}.items():
        assert_allclose(lengths[name].sigma, length_of(np.quantile(expected, q), distance), rtol=1e-12)


@both_distances
def test_lengths_of_many_rows_are_right_within_their_stated_error_which_is_the_spread_over_seeds(distance):
    sample = np.random.default_rng(0).normal(size=(700, 2))
    assert PAIRS < 700 * 699 // 2
    runs = [candidate_lengths(distances_of(sample, distance, seed), distance) for seed in range(30)]
    everything = pdist(sample, distance)
    low, middle, high = np.quantile(everything, [0.1, 0.5, 0.9])
    exact = {"median": middle, "sigest_low": low, "sigest_middle": middle, "sigest_high": high}
    exact["mean"] = everything.mean()
    assert set(runs[0]) == set(exact)
    for name in exact:
        sigmas, stated = np.array([[run[name].sigma, run[name].standard_error] for run in runs]).T
        assert (np.abs(sigmas - length_of(exact[name], distance)) < 5 * stated).all(), name
        assert (stated < 0.01 * sigmas).all(), name
        assert 0.5 < stated.mean() / np.std(sigmas) < 2, name  # 30 runs know a spread to 13 %


@both_distances
def test_pairs_of_equal_rows_do_not_count(distance):
    for copies in (20, 400):
        sample = np.repeat([[0.0, 0.0], [3.0, 4.0]], copies, axis=0)
        assert_array_equal(np.unique(distances_of(sample, distance)), [25.0 if distance == "sqeuclidean" else 7.0])
    for m in (1, 5, 500):
        with pytest.raises(DataError, match=f"all {m} sampled rows are equal, so the median distance is zero"):
            distances_of(np.ones((m, 3)), distance)


def test_single_precision_distances_stand_any_unit():
    X = np.random.default_rng(0).normal(size=(20, 3))
    for unit in (1e-25, 1e25):
        found = distances_of((X * unit).astype(np.float32), "sqeuclidean")
        assert_allclose(found, distances_of(X, "sqeuclidean") * unit**2, rtol=1e-5)
