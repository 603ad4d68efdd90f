"""Centres of k-means: they lower the sum of squares, beat uniform rows, and need a kernel for averages."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.data.blocks import sample_rows
from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import Function, Gaussian
from bigkpca.numerics.landmarks import KMeans
from tests.helpers.oracles import inverse_quadratic
from tests.numerics.landmarks.samples import clustered

KERNEL = Gaussian(1.0)


def sum_of_squares(rows, centres):
    """Σ_i min_j |x_i - c_j|^2."""
    return ((rows[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2).min(axis=1).sum()


def test_iterations_of_kmeans_lower_the_sum_of_squares_and_one_centre_is_the_mean(monkeypatch):
    monkeypatch.setattr("bigkpca.numerics.landmarks.kmeans._TILE_ROWS", 7)  # else thousands of rows are one tile
    sample = clustered(0)
    sums = [
        sum_of_squares(sample, KMeans(iterations).choose(sample, KERNEL, 10, np.random.default_rng(7)))
        for iterations in range(5)  # without iterations they are the rows that it starts from
    ]
    assert (np.diff(sums) <= 1e-9 * sums[0]).all()
    assert sums[3] < 0.8 * sums[0]
    assert_allclose(KMeans(1).choose(sample, KERNEL, 1, np.random.default_rng(0))[0], sample.mean(axis=0))


@pytest.mark.parametrize("d", [65, 200])
def test_principal_axes_stand_for_all_columns(d, monkeypatch):
    """Rows on few axes: the same centres as from all columns, where none loses its rows: such a one stays as it was."""
    rng = np.random.default_rng(0)
    sample = clustered(0) @ rng.normal(size=(3, d)) + rng.normal(size=d)
    found = KMeans().choose(sample, KERNEL, 20, np.random.default_rng(5))
    monkeypatch.setattr("bigkpca.numerics.landmarks.kmeans._AXES", d)  # no option asks for all columns
    assert_allclose(found, KMeans().choose(sample, KERNEL, 20, np.random.default_rng(5)), rtol=1e-9)


@pytest.mark.parametrize(("value", "dtype"), [(1e18, "f4"), (1e25, "f4"), (3e38, "f4"), (1.7e308, "f8")])
def test_far_values_leave_finite_centres(value, dtype):
    sample = np.random.default_rng(0).normal(size=(300, 100)).astype(dtype)
    sample[::50, 3] = value
    centres = KMeans().choose(sample, KERNEL, 30, np.random.default_rng(0))
    assert np.isfinite(centres).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicate_rows_leave_centres_that_are_such_rows(dtype):
    distinct = np.array([[0.0, 1.0], [2.0, 3.0], [-4.0, 5.0]], dtype)
    sample = np.repeat(distinct, 20, axis=0)
    centres = KMeans().choose(sample, KERNEL, 12, np.random.default_rng(0))
    assert centres.shape == (12, 2)
    nearest = np.abs(centres[:, None] - distinct).sum(axis=2).min(axis=1)
    assert_allclose(nearest, 0, atol=1e-6)


def test_averages_need_a_kernel_that_says_it_is_made_for_them():
    sample, rng = clustered(0), np.random.default_rng(0)
    with pytest.raises(SpecError, match="landmarks='kmeans' uses averages of rows, for which a kernel function may"):
        KMeans().choose(sample, Function(inverse_quadratic), 5, rng)
    assert KMeans().choose(sample, Function(inverse_quadratic, vectors=True), 5, rng).shape == (5, 3)


def test_kmeans_uses_the_whole_sample_and_refuses_a_negative_number_of_iterations():
    assert KMeans().most_rows(50) == sample_rows(10**6, 5, 50) == 20_000
    assert KMeans().most_rows(30_000) == sample_rows(10**6, 5, 30_000) == 30_000
    with pytest.raises(SpecError, match="iterations must not be negative"):
        KMeans(iterations=-1)
