"""The reference of a model, and the drift of new rows from it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ks_2samp

from bigkpca.errors import SpecError
from bigkpca.numerics.drift import Reference, reference_of
from tests.numerics.fits import seeds

VALUES = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "cauchy": lambda rng, shape: rng.standard_cauchy(shape),
    "few values": lambda rng, shape: rng.choice([-1.5, 0.0, 0.25, 3.0], shape),
    "a constant": lambda rng, shape: np.full(shape, 0.1),
    "integers": lambda rng, shape: rng.poisson(2.0, shape).astype(float),
    "half of them equal": lambda rng, shape: np.where(rng.random(shape) < 0.5, 0.3, rng.normal(size=shape)),
}
kinds = st.sampled_from(sorted(VALUES))


def drawn(kind, seed, q=200):
    """(scores, residuals) of q rows, with three components."""
    rng = np.random.default_rng(seed)
    return VALUES[kind](rng, (q, 3)), np.abs(VALUES[kind](rng, q))


def reference(Y, e, count=10**6):
    """The reference of rows of a fit of `count` rows, with the eigenvalues that these scores would have."""
    return reference_of(Y, e, count * np.maximum(np.mean(Y**2, axis=0), 1e-3), count, 0.0)


@given(kind=kinds, seed=seeds, q=st.integers(1, 300), count=st.sampled_from([300, 1000, 10**6]))
def test_rows_of_the_reference_have_not_drifted_at_all(kind, seed, q, count):
    Y, e = drawn(kind, seed, q)
    made = reference(Y, e, count)
    counts = made.count(Y, e)
    assert_array_equal(made.distances(counts), 0)
    assert made.drift(counts).figure == 0
    assert made.drift(counts).outside == 0
    assert made.rows == counts.rows == len(e)


@given(kind=kinds, other=kinds, seed=seeds)
def test_no_distance_is_above_that_of_all_values(kind, other, seed):
    (Y, e), (new, left) = drawn(kind, seed), drawn(other, seed + 1, q=70)
    made = reference(Y, e, count=1000)
    largest = [ks_2samp(old, now).statistic for old, now in zip((*Y.T, e), (*new.T, left), strict=True)]
    assert (made.distances(made.count(new, left)) <= np.array(largest) + 1e-12).all()


def test_edges_are_close_enough_to_miss_little_of_a_distance():
    Y, e = drawn("normal", 0, q=2000)
    made, ranks = reference(Y, e), np.argsort(np.argsort(Y, axis=0), axis=0) / 2000
    for share in (0.22, 0.5, 0.78):
        moved = np.where(np.abs(ranks - share + 0.05) <= 0.05, ranks + 0.1, ranks)  # 0.1 apart at that share alone
        new = np.column_stack([np.quantile(y, rank) for y, rank in zip(Y.T, moved.T, strict=True)])
        assert (made.distances(made.count(new, e))[:-1] > 0.1 - 1 / 60).all()


@given(kind=kinds, other=kinds, seed=seeds, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_bins_of_any_groups_of_rows_in_any_order_are_counted_like_one_row_at_a_time(kind, other, seed, cuts):
    (Y, e), (new, left) = drawn(kind, seed), drawn(other, seed + 1, q=40)
    made, order = reference(Y, e), np.random.default_rng(seed).permutation(len(left))
    bins = np.zeros((4, made.edges.shape[1] + 1), int)
    for row in np.column_stack([new, left]):
        for j, value in enumerate(row):
            bins[j, sum(value > edge for edge in made.edges[j])] += 1
    total, *parts = (made.count(new[some], left[some]) for some in np.split(order, sorted(cuts)))
    for part in parts:
        total = part + total
    assert_array_equal(total.bins, bins)
    assert total.bins.dtype == np.int64
    assert total.rows == len(left)


def test_shares_are_those_of_the_intervals_of_rows():
    rng, n = np.random.default_rng(3), 50
    Y, e = rng.normal(size=(n, 2)), rng.uniform(0.5, 1, n)
    eigenvalues, errors = np.array([60.0, 30.0]), np.full((n, 3), 1e-3)
    made = reference_of(Y, e, eigenvalues, n, errors)
    intervals = [[], [], []]
    for y, left in zip(Y, e, strict=True):
        h = 1 / n + sum(y**2 / eigenvalues)
        without = min(left / (1 - h) ** 2, (left + sum(y**2)) * (n / (n - 1)) ** 2)
        others = [*(y * np.maximum(1 - without / eigenvalues, 0)), without]
        for interval, value, other in zip(intervals, (*y, left), others, strict=True):
            interval.append((min(value, other) - 1e-3, max(value, other) + 1e-3))
    for j, own in enumerate(intervals):
        lower = [np.mean([end <= edge for _, end in own]) for edge in made.edges[j]]
        upper = [np.mean([begin <= edge for begin, _ in own]) for edge in made.edges[j]]
        assert_allclose(made.lower[j], lower)
        assert_allclose(made.upper[j], upper)
        assert_allclose(made.edges[j, [0, -1]], [min(own)[0], max(end for _, end in own)])


def test_a_row_with_a_component_of_its_own_says_nothing_of_rows_like_it():
    Y = np.zeros((20, 1))
    Y[0] = 3.0
    made = reference_of(Y, np.zeros(20), np.array([9 / 0.7]), 20)
    assert_allclose(made.edges[:, -1], [3, 9 * (20 / 19) ** 2])  # up to what no component explains
    assert_allclose(made.edges[0, 0], 0)


def test_chance_is_the_bound_of_massart_for_both_samples_and_all_quantities():
    made = replace(reference(*drawn("normal", 0)), rows=2048)
    logarithm = np.log(2 * 2 * 4 / 0.001)  # two sides, two samples, four quantities
    assert_allclose(made.chance(500), np.sqrt(logarithm / 1000) + np.sqrt(logarithm / 4096))
    assert made.chance(2) > 1
    for rows in (0, 1, 5):  # so that few rows never raise an alarm
        found = made.drift(made.count(np.full((rows, 3), 100.0), np.full(rows, 100.0)))
        assert (found.figure, found.residual, found.score) == (0, 0, 0)
        assert (found.outside, found.rows, found.reference_rows) == (rows, rows, 2048)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])  # where it is 0, chance alone makes no drift
def test_the_figure_is_at_most_the_share_of_rows_from_elsewhere(share):
    rng = np.random.default_rng(7)
    figures = []
    for _ in range(10):
        made = reference(*drawn("normal", rng, q=1000))
        Y, e = drawn("normal", rng, q=2000)
        others = np.arange(2000) < share * 2000
        Y[others, 1] += 10
        found = made.drift(made.count(Y, e))
        assert found.figure <= share
        assert found.figure == found.score
        figures.append(found.figure)
        if share:
            assert found.component == 2
    assert np.median(figures) > share - 0.12 - 0.01 or not share


def test_the_drift_says_what_has_drifted():
    made = reference(*drawn("normal", 0))
    Y, e = drawn("normal", 1, q=2000)
    found = made.drift(made.count(Y, e + 10))
    assert found.figure == found.residual > 0.6
    assert found.score == 0
    assert found.outside == 2000
    assert made.drift(made.count(Y, e)).outside < 2000 / 201 * 5
    no_numbers = made.count(np.full((2, 3), np.nan), np.array([np.nan, np.inf]))
    assert made.drift(no_numbers).outside == 2
    with pytest.raises(SpecError, match="2 scores per row, but the reference has 3"):
        made.count(np.zeros((5, 2)), np.zeros(5))


def test_values_that_overflow_make_no_reference():
    assert reference_of(np.full((3, 1), 1e200), np.ones(3), np.array([1e-300]), 3) is None
    assert reference_of(np.full((3, 1), np.inf), np.ones(3), np.array([1.0]), 3) is None
    assert reference_of(np.zeros((3, 1)), np.array([1.0, np.nan, 1.0]), np.array([1.0]), 3) is None


def test_what_is_no_distribution_is_refused():
    plain = {"rows": 5, "edges": [[0.0, 1.0]] * 2, "lower": [[0.2, 0.8]] * 2, "upper": [[0.4, 1.0]] * 2}
    for changed, message in (
        ({"edges": [[0.0, 1.0], [1.0, 0.0]]}, "do not ascend"),
        ({"lower": [[0.5, 0.2], [0.0, 1.0]]}, "do not ascend"),
        ({"upper": [[0.5, 1.5], [0.2, 1.0]]}, "not within 0 and 1"),
        ({"lower": [[0.5, 0.9], [0.2, 1.0]]}, "not within 0 and 1"),
        ({"lower": [[np.nan, 0.5], [0.2, 1.0]]}, "do not ascend"),
        ({"upper": [[0.5, 1.0]]}, r"edges \(2, 2\)"),
        ({"rows": 0}, "of 0 rows"),
    ):
        given = {name: np.array(value) if name != "rows" else value for name, value in (plain | changed).items()}
        with pytest.raises(SpecError, match=message):
            Reference(**given)
