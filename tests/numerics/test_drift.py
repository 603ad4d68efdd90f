"""The drift of new rows from the calibration rows of a model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

from bigkpca.errors import SpecError
from bigkpca.numerics.calibration import Calibration

VALUES = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "few values": lambda rng, shape: rng.choice([-1.5, 0.0, 0.25, 3.0], shape),
    "a constant": lambda rng, shape: np.full(shape, 0.1),
    "integers": lambda rng, shape: rng.poisson(2.0, shape).astype(float),
    "half of them equal": lambda rng, shape: np.where(rng.random(shape) < 0.5, 0.3, rng.normal(size=shape)),
}
kinds, seeds = st.sampled_from(sorted(VALUES)), st.integers(0, 2**32 - 1)


def drawn(kind, seed, q=200):
    """(scores, residuals) of q rows, with three components."""
    rng = np.random.default_rng(seed)
    return VALUES[kind](rng, (q, 3)), np.abs(VALUES[kind](rng, q))


def calibration(Y, e):
    """The calibration of rows with these scores and residuals."""
    return Calibration(Y, np.ones(Y.shape[1]), Y, e)


@given(kind=kinds, seed=seeds, q=st.integers(1, 300))
def test_calibration_rows_have_not_drifted_at_all(kind, seed, q):
    Y, e = drawn(kind, seed, q)
    made = calibration(Y, e)
    rounding = np.random.default_rng(seed).choice([-1e-15, 0.0, 1e-15], (q, 4))  # of other sums of the same products
    for Z, left in ((Y, e), (Y * (1 + rounding[:, :3]), e * (1 + rounding[:, 3]))):
        counts = made.counted(Z, left)
        assert_array_equal(made.distances(counts), 0)
        assert made.drift(counts).figure == 0
        assert made.drift(counts).outside == 0
        assert made.count == counts[0].sum() == len(e)


@given(kind=kinds, other=kinds, seed=seeds)
def test_no_distance_is_above_that_of_all_values(kind, other, seed):
    (Y, e), (new, left) = drawn(kind, seed), drawn(other, seed + 1, q=70)
    made = calibration(Y, e)
    largest = [ks_2samp(old, now).statistic for old, now in zip((*Y.T, e), (*new.T, left), strict=True)]
    assert (made.distances(made.counted(new, left)) <= np.array(largest) + 1e-12).all()


def test_edges_are_close_enough_to_miss_little_of_a_distance():
    Y, e = drawn("normal", 0, q=2000)
    made, ranks = calibration(Y, e), np.argsort(np.argsort(Y, axis=0), axis=0) / 2000
    for share in (0.22, 0.5, 0.78):
        moved = np.where(np.abs(ranks - share + 0.05) <= 0.05, ranks + 0.1, ranks)  # 0.1 apart at that share alone
        new = np.column_stack([np.quantile(y, rank) for y, rank in zip(Y.T, moved.T, strict=True)])
        assert (made.distances(made.counted(new, e))[:-1] > 0.1 - 1 / 60).all()


@given(kind=kinds, other=kinds, seed=seeds, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_bins_of_any_groups_of_rows_in_any_order_are_counted_like_one_row_at_a_time(kind, other, seed, cuts):
    (Y, e), (new, left) = drawn(kind, seed), drawn(other, seed + 1, q=40)
    made, order = calibration(Y, e), np.random.default_rng(seed).permutation(len(left))
    bins = np.zeros((4, made.edges.values.shape[1] + 1), int)
    for row in np.column_stack([new, left]):
        for j, value in enumerate(row):
            bins[j, sum(value > edge for edge in made.edges.values[j])] += 1
    total, *parts = (made.counted(new[some], left[some]) for some in np.split(order, sorted(cuts)))
    for part in parts:
        total = part + total
    assert_array_equal(total, bins)
    assert total.dtype == np.int64


def test_chance_is_the_bound_of_massart_for_both_samples_and_all_quantities():
    made = calibration(*drawn("normal", 0, q=2048))
    logarithm = np.log(2 * 2 * 4 / 0.001)  # two sides, two samples, four quantities
    assert_allclose(made.chance(500), np.sqrt(logarithm / 1000) + np.sqrt(logarithm / 4096))
    assert made.chance(2) > 1
    for rows in (0, 1, 5):  # so that few rows never raise an alarm
        found = made.drift(made.counted(np.full((rows, 3), 100.0), np.full(rows, 100.0)))
        assert (found.figure, found.residual, found.score) == (0, 0, 0)
        assert (found.outside, found.rows, found.calibration_rows) == (rows, rows, 2048)


@pytest.mark.parametrize("share", [0.0, 0.4])  # where it is 0, chance alone makes no drift
def test_the_figure_is_at_most_the_share_of_rows_from_elsewhere(share):
    rng = np.random.default_rng(7)
    figures = []
    for _ in range(10):
        made = calibration(*drawn("normal", rng, q=1000))
        Y, e = drawn("normal", rng, q=2000)
        others = np.arange(2000) < share * 2000
        Y[others, 1] += 10
        found = made.drift(made.counted(Y, e))
        assert found.figure <= share
        assert found.figure == found.score
        figures.append(found.figure)
        if share:
            assert found.component == 2
    assert np.median(figures) > share - 0.12 - 0.01 or not share


def test_the_drift_says_what_has_drifted():
    made = calibration(*drawn("normal", 0))
    Y, e = drawn("normal", 1, q=2000)
    found = made.drift(made.counted(Y, e + 10))
    assert found.figure == found.residual > 0.6
    assert found.score == 0
    assert found.outside == 2000
    assert made.drift(made.counted(Y, e)).outside < 2000 / 201 * 5
    no_numbers = made.counted(np.full((2, 3), np.nan), np.array([np.nan, np.inf]))
    assert made.drift(no_numbers).outside == 2
    with pytest.raises(SpecError, match="2 scores per row, but the calibration has 3"):
        made.counted(np.zeros((5, 2)), np.zeros(5))
