"""Which rows stand for all: what every rule that chooses landmarks from a sample has in common, and k-means.

`test_kinds` has more of each rule.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.data.blocks import sample_rows
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.kernels import Function, Gaussian, Polynomial
from bigkpca.numerics.landmarks import BasicPatterns, KMeans, RPCholesky, Uniform
from tests.helpers import oracles

KERNEL = Gaussian(1.0)
OF_ROWS = pytest.mark.parametrize("rule", [Uniform(), RPCholesky(), BasicPatterns()], ids=lambda rule: rule.name)


def clustered(seed, n=200):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) * 0.3 + rng.normal(size=(6, 3))[rng.integers(0, 6, n)] * 4


def chosen(rule, sample, size, kernel=KERNEL, seed=0):
    return rule.choose(sample, kernel, size, np.random.default_rng(seed))


@OF_ROWS
def test_rules_but_kmeans_give_distinct_rows_of_the_sample_for_any_kernel(rule):
    sample = clustered(0)
    for kernel in (KERNEL, Function(oracles.inverse_quadratic)):
        found = chosen(rule, sample, 17, kernel)
        assert len(np.unique(found, axis=0)) == 17
        assert (found[:, None] == sample[None]).all(axis=2).any(axis=1).all()
    for each in (rule, KMeans()):  # as many landmarks as rows are the rows
        assert_array_equal(np.unique(chosen(each, sample[:30], 30), axis=0), np.unique(sample[:30], axis=0))


@pytest.mark.parametrize(
    "rule", [RPCholesky(), BasicPatterns(), BasicPatterns(centred=False)], ids=lambda rule: rule.name
)
def test_kernel_values_that_overflow_are_named(rule):
    X = clustered(0).astype(np.float32)
    X[7] = 1e20
    with pytest.raises(DataError, match="the sampled rows: kernel values overflow"):
        chosen(rule, X, 20, Polynomial(1.0, 2))


def test_every_row_is_equally_likely_to_be_a_uniform_landmark():
    rng = np.random.default_rng(0)
    drawn = [Uniform().choose(np.arange(10.0)[:, None], KERNEL, 3, rng)[:, 0] for _ in range(2000)]
    assert (np.diff(drawn) > 0).all()  # in their order
    counts = np.bincount(np.concatenate(drawn).astype(int))
    assert_allclose(counts, 600, atol=6 * np.sqrt(2000 * 0.3 * 0.7))


def test_rules_use_so_many_rows_of_the_sample():
    assert KMeans().most_rows(50) == RPCholesky().most_rows(50) == sample_rows(10**6, 5, 50) == 20_000
    assert KMeans().most_rows(30_000) == sample_rows(10**6, 5, 30_000) == 30_000
    assert RPCholesky().most_rows(2000) == 40_000  # twenty for each landmark


# k-means.


def sum_of_squares(rows, centres):
    """Σ_i min_j |x_i - c_j|^2."""
    return ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).min(axis=1).sum()


def test_iterations_of_kmeans_lower_the_sum_of_squares_and_one_centre_is_the_mean(monkeypatch):
    monkeypatch.setattr("bigkpca.numerics.landmarks.kmeans._TILE_ROWS", 7)  # else thousands of rows are one tile
    sample = clustered(0)
    # Without iterations they are the rows that it starts from.
    sums = [sum_of_squares(sample, chosen(KMeans(iterations), sample, 10, seed=7)) for iterations in range(5)]
    assert (np.diff(sums) <= 1e-9 * sums[0]).all()
    assert sums[3] < 0.8 * sums[0]
    assert_allclose(chosen(KMeans(1), sample, 1)[0], sample.mean(axis=0))
    with pytest.raises(SpecError, match="iterations must not be negative"):
        KMeans(iterations=-1)


@pytest.mark.parametrize("d", [65, 200])
def test_principal_axes_stand_for_all_columns(d, monkeypatch):
    """Rows on few axes: the same centres as from all columns, where none loses its rows: such a one stays as it was."""
    rng = np.random.default_rng(0)
    sample = clustered(0) @ rng.normal(size=(3, d)) + rng.normal(size=d)
    found = chosen(KMeans(), sample, 20, seed=5)
    monkeypatch.setattr("bigkpca.numerics.landmarks.kmeans._AXES", d)  # no option asks for all columns
    assert_allclose(found, chosen(KMeans(), sample, 20, seed=5), rtol=1e-9)


@pytest.mark.parametrize(("value", "dtype"), [(1e18, "f4"), (1e25, "f4"), (3e38, "f4"), (1.7e308, "f8")])
def test_far_values_leave_finite_centres(value, dtype):
    sample = np.random.default_rng(0).normal(size=(300, 100)).astype(dtype)
    sample[::50, 3] = value
    assert np.isfinite(chosen(KMeans(), sample, 30)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicate_rows_leave_centres_that_are_such_rows(dtype):
    distinct = np.array([[0.0, 1.0], [2.0, 3.0], [-4.0, 5.0]], dtype)
    centres = chosen(KMeans(), np.repeat(distinct, 20, axis=0), 12)
    assert centres.shape == (12, 2)
    assert_allclose(np.abs(centres[:, None] - distinct).sum(axis=2).min(axis=1), 0, atol=1e-6)


def test_averages_need_a_kernel_that_says_it_is_made_for_them():
    with pytest.raises(SpecError, match="landmarks='kmeans' uses averages of rows, for which a kernel function may"):
        chosen(KMeans(), clustered(0), 5, Function(oracles.inverse_quadratic))
    assert chosen(KMeans(), clustered(0), 5, Function(oracles.inverse_quadratic, vectors=True)).shape == (5, 3)
