"""Statistics of unusual rows, limits that rows of the same distribution rarely exceed, and the drift of new rows."""

from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.numerics.calibration import COMBINED, Calibration
from bigkpca.numerics.expansion import residuals
from tests.numerics.fits import seeds


def with_scores(Y, e):
    """The calibration of rows with these scores and residuals."""
    return Calibration(Y, np.ones(Y.shape[1]), Y, e)


def scores_of(values, residuals):
    """Scores and residuals of rows with these distances and residuals, which are all equal by default."""
    left = np.ones(len(values)) if residuals is None else np.asarray(residuals, np.float64)
    return np.sqrt(np.asarray(values, np.float64))[:, None], left


def calibration(values, residuals=None):
    return with_scores(*scores_of(values, residuals))


def of_new(known, values, residuals=None):
    """The statistics of new rows."""
    return known.statistics(*scores_of(values, residuals))


def naive_p(residuals, squares, residual, distance):
    """Of the rarer one of two ranks among all rows, the new one included, by definition."""
    Q, T = np.append(residuals, residual), np.append(squares, distance)
    ranks = [min(sum(q <= Q), sum(t <= T)) for q, t in zip(Q, T, strict=True)]
    return sum(rank <= ranks[-1] for rank in ranks) / len(Q)


def test_statistics_are_those_of_loops():
    rng = np.random.default_rng(0)
    scores, left, precisions = rng.normal(size=(9, 3)).astype("f4"), rng.random(9).astype("f4"), np.array([2.0, 3, 5])
    known = Calibration(scores, precisions, scores, left)
    new, more = rng.normal(size=(40, 3)).astype("f4"), rng.random(40).astype("f4")
    found, squares = known.statistics(new, more), (scores.astype(float) ** 2 * precisions).sum(axis=1)
    assert found.dtype == np.float64
    for i in range(40):
        distance = sum(precisions[j] * float(new[i, j]) ** 2 for j in range(3))
        np.testing.assert_allclose(found[:2, i], [more[i], distance], rtol=1e-12)
        p = known.p_values(found[:2, i : i + 1])[:, 0]
        naive = [(1 + sum(left >= more[i])) / 10, (1 + sum(squares >= distance)) / 10]
        np.testing.assert_allclose(p, [*naive, naive_p(left, squares, more[i], distance)])
        rarities = known.rarities(found[:2, i : i + 1])[:, 0]
        assert found[2, i] == rarities[2]
        for rarity, own in zip(rarities, p, strict=True):
            assert -np.log(own) <= rarity + 1e-12
            assert rarity < -np.log(own - 0.05) or min(p[:2]) == 0.1  # beyond all calibration rows
    np.testing.assert_array_equal(known.flags(found, -1.0), 1 + known.rarities(found[:2])[:2].argmax(axis=0))


def test_rarity_goes_on_beyond_all_rows_as_exponential_tails_do():
    values = np.random.default_rng(0).exponential(size=4000)
    known = calibration(values)
    found = of_new(known, values.max() + np.array([1e-6, 1.0, 10.0]))[COMBINED]
    np.testing.assert_allclose(np.diff(found), [1, 9], rtol=0.3)
    assert found[0] == pytest.approx(np.log(4001), rel=1e-3)


@pytest.mark.parametrize("values", [np.zeros(9), np.full(9, 3.0), np.arange(2.0), np.array([5.0]), np.full(9, 1e300)])
def test_rarity_of_few_or_equal_values_is_a_number(values):
    found = of_new(calibration(values, values), [0.0, values.max(), 2 * values.max() + 1])[COMBINED]
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()


def test_residuals_that_are_only_rounding_are_never_rare():
    rng = np.random.default_rng(0)
    scores, noise = rng.normal(size=(200, 3)).astype("f4"), 1e-7 * rng.random(200).astype("f4")
    known = with_scores(scores, noise)
    assert (known.rarities(known.statistics(scores, 5 * noise)[:2])[0] < 0.003).all()  # p = 1, interpolated


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
def test_statistics_of_fitted_rows_follow_from_the_exact_gram_matrix(kernel):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    model = KernelPCA(3, kernel=kernel, landmarks=np.arange(60)).fit(X).model_
    K = model.features.kernel.gram(X if kernel == "polynomial" else X - model.features.offset)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    values, vectors = np.linalg.eigh(K)
    values, vectors = values[:-4:-1], vectors[:, :-4:-1]
    Q = np.diag(K) - (vectors**2) @ values
    T2 = 60 * (vectors**2).sum(axis=1)
    scores, left = model.scoring(60, model.expansion())(X)
    found = Calibration(X, 60 / model.solution.eigenvalues, scores, left).statistics(scores, left)
    np.testing.assert_allclose(found[:2], [Q, T2], rtol=1e-5)
    np.testing.assert_array_equal(next(model.project([X], 60)), scores)
    ((V, diagonal),) = model.features.tiles([X], 60)
    np.testing.assert_array_equal(residuals(model.expansion(), model.solution, V, diagonal), left)


def shares_of_orders(alpha, values, residuals):
    """Of all orders of these rows, the shares in which the last one, as a new row, is above the limit that the others
    set, and in which its p-value is at most alpha. Each row is the last one in equally many orders."""
    above = rare = 0
    for i in range(len(values)):
        known = calibration(np.delete(values, i), np.delete(residuals, i))
        new = of_new(known, values[i : i + 1], residuals[i : i + 1])
        above += int(new[COMBINED, 0] > known.limits(alpha)[COMBINED])
        rare += int(known.p_values(new[:2])[COMBINED, 0] <= alpha)
    return Fraction(above, len(values)), Fraction(rare, len(values))


def test_the_promise_holds_exactly_without_ties_and_also_with_ties():
    for count in (3, 9):
        for number in range(2, count + 1):
            alpha = number / (count + 1)
            # The share of flagged rows is exactly this alpha; it does not change up to the next one.
            for each in (alpha, alpha + 0.9 / (count + 1)):
                shares = shares_of_orders(each, np.arange(count + 1.0), np.arange(count + 1.0))
                assert shares == (Fraction(number, count + 1),) * 2
    for values in combinations_with_replacement(range(4), 5):
        for alpha in (0.41, 0.61, 0.75, 0.99, np.nextafter(1, 0)):
            above, rare = shares_of_orders(alpha, np.array(values), np.array(values))
            assert above <= rare <= alpha


def test_the_promise_holds_for_the_rarer_of_residual_and_distance():
    rng = np.random.default_rng(0)
    shares = []
    for count in (5, 12, 40):
        for _ in range(30):
            values, residuals = rng.normal(size=(2, count)) ** 2
            residuals = rng.choice([residuals, values, values.max() - values, np.round(residuals)])
            for alpha in (2.5 / count, 3.5 / count, 0.8):
                above, rare = shares_of_orders(alpha, values, residuals)
                assert above <= rare <= alpha
                shares.append(float(above) / alpha)
    assert np.mean(shares) > 0.6  # hardly fewer than the promise allows


def test_a_p_value_of_at_most_alpha_is_a_statistic_above_the_limit():
    rng = np.random.default_rng(2)
    for count in (4, 19, 57, 99):
        known = calibration(rng.integers(0, 40, count), rng.integers(0, 40, count))
        new = of_new(known, rng.integers(0, 42, 200), rng.integers(0, 42, 200))
        p = known.p_values(new[:2])
        pairs = zip(known.values, new[:2], strict=True)
        np.testing.assert_array_equal(p[:2], [[(1 + sum(own >= x)) / (count + 1) for x in each] for own, each in pairs])
        for alpha in (2 / (count + 1), 0.05, 0.1, 0.5, 0.99):
            if alpha * (count + 1) >= 2:
                np.testing.assert_array_equal(p <= alpha, new > known.limits(alpha)[:, None])


def test_a_new_row_that_equals_a_calibration_row_does_not_exceed_its_value():
    for dtype in (np.float32, np.float64):
        values = np.array([3, 1, 2, 5], dtype)
        known = Calibration(np.zeros((4, 1)), np.ones(1, dtype), np.sqrt(values)[:, None], values)
        rounded = values[:1] * (1 + 20 * np.finfo(dtype).eps)
        found = known.statistics(np.sqrt(rounded)[:, None], rounded)
        assert (found <= known.limits(0.59)[:, None]).all()
        assert (known.p_values(found[:2]) == 0.6).all()
        np.testing.assert_allclose(known.values[:2], [[1, 2, 3, 5]] * 2, rtol=3e-3)


def shares_above(count, m, rows):
    """P(k of `rows` new values are above the (m + 1)-th largest of `count` values), for all k: by counting, in how many
    orders of all values, new and old, this many new ones are above it."""
    total = comb(count + rows, rows)
    # k new values above: any order of them with the m old ones above, then the old one, then any order of the rest.
    return [Fraction(comb(m + k, k) * comb(count - m - 1 + rows - k, rows - k), total) for k in range(rows + 1)]


@pytest.mark.parametrize(("count", "alpha", "rows"), [(5, 0.5, 3), (29, 0.1, 7), (19, 0.2, 30), (40, 0.5, 100)])
def test_the_range_is_that_of_the_beta_binomial_distribution(count, alpha, rows):
    known = calibration(np.arange(count))
    chances = shares_above(count, known.exceeding(alpha), rows)
    assert sum(chances) == 1
    assert sum(k * chance for k, chance in enumerate(chances)) / rows == Fraction(known.exceeding(alpha) + 1, count + 1)
    below = np.cumsum([float(chance) for chance in chances])
    expected = np.searchsorted(below, [0.025, 0.975])
    assert known.range(alpha, rows) == tuple(expected / rows)
    assert below[expected[1]] - (below[expected[0] - 1] if expected[0] else 0) >= 0.95


def test_the_range_of_many_rows_is_that_of_the_probability():
    rng = np.random.default_rng(4)
    known = calibration(np.arange(200))
    drawn = np.sort(rng.random((20_000, 200)), axis=1)[:, 199 - known.exceeding(0.05)]
    np.testing.assert_allclose(known.range(0.05), np.quantile(1 - drawn, [0.025, 0.975]), rtol=0.03)
    for rows in (99_999, 100_001, 10**12):
        np.testing.assert_allclose(known.range(0.05, rows), known.range(0.05), rtol=2e-3)
    assert known.range(np.nextafter(1, 0))[1] <= 1


def test_an_alpha_that_the_rows_cannot_show_is_refused_with_the_smallest_one_that_they_can():
    known = calibration(np.arange(150))
    for alpha in (0.0132, 0.0, -1.0, 1.0, np.nan):
        with pytest.raises(SpecError, match=r"with 150 calibration rows, it must be at least 0.014 and below 1; for a"):
            known.limits(alpha)
    assert known.exceeding(0.014) == 1  # as typed from the message
    assert known.limits(2 / 151)[1] == pytest.approx(148)
    assert known.limits(np.nextafter(1, 0))[1] == 0


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


@given(kind=kinds, seed=seeds, q=st.integers(1, 300))
def test_calibration_rows_have_not_drifted_at_all(kind, seed, q):
    Y, e = drawn(kind, seed, q)
    made = with_scores(Y, e)
    rounding = np.random.default_rng(seed).choice([-1e-15, 0.0, 1e-15], (q, 4))  # of other sums of the same products
    for Z, left in ((Y, e), (Y * (1 + rounding[:, :3]), e * (1 + rounding[:, 3]))):
        counts = made.counted(Z, left)
        np.testing.assert_array_equal(made.distances(counts), 0)
        assert made.drift(counts).figure == 0
        assert made.drift(counts).outside == 0
        assert made.count == counts[0].sum() == len(e)


@given(kind=kinds, other=kinds, seed=seeds)
def test_no_distance_is_above_that_of_all_values(kind, other, seed):
    (Y, e), (new, left) = drawn(kind, seed), drawn(other, seed + 1, q=70)
    made = with_scores(Y, e)
    largest = [ks_2samp(old, now).statistic for old, now in zip((*Y.T, e), (*new.T, left), strict=True)]
    assert (made.distances(made.counted(new, left)) <= np.array(largest) + 1e-12).all()


def test_edges_are_close_enough_to_miss_little_of_a_distance():
    Y, e = drawn("normal", 0, q=2000)
    made, ranks = with_scores(Y, e), np.argsort(np.argsort(Y, axis=0), axis=0) / 2000
    for share in (0.22, 0.5, 0.78):
        moved = np.where(np.abs(ranks - share + 0.05) <= 0.05, ranks + 0.1, ranks)  # 0.1 apart at that share alone
        new = np.column_stack([np.quantile(y, rank) for y, rank in zip(Y.T, moved.T, strict=True)])
        assert (made.distances(made.counted(new, e))[:-1] > 0.1 - 1 / 60).all()


@given(kind=kinds, other=kinds, seed=seeds, cuts=st.lists(st.integers(0, 40), max_size=6))
def test_bins_of_any_groups_of_rows_in_any_order_are_counted_like_one_row_at_a_time(kind, other, seed, cuts):
    (Y, e), (new, left) = drawn(kind, seed), drawn(other, seed + 1, q=40)
    made, order = with_scores(Y, e), np.random.default_rng(seed).permutation(len(left))
    bins = np.zeros((4, made.edges.values.shape[1] + 1), int)
    for row in np.column_stack([new, left]):
        for j, value in enumerate(row):
            bins[j, sum(value > edge for edge in made.edges.values[j])] += 1
    total, *parts = (made.counted(new[some], left[some]) for some in np.split(order, sorted(cuts)))
    for part in parts:
        total = part + total
    np.testing.assert_array_equal(total, bins)
    assert total.dtype == np.int64


def test_chance_is_the_bound_of_massart_for_both_samples_and_all_quantities():
    made = with_scores(*drawn("normal", 0, q=2048))
    logarithm = np.log(2 * 2 * 4 / 0.001)  # two sides, two samples, four quantities
    np.testing.assert_allclose(made.chance(500), np.sqrt(logarithm / 1000) + np.sqrt(logarithm / 4096))
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
        made = with_scores(*drawn("normal", rng, q=1000))
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
    made = with_scores(*drawn("normal", 0))
    Y, e = drawn("normal", 1, q=2000)
    found = made.drift(made.counted(Y, e + 10))
    assert found.figure == found.residual > 0.6
    assert found.score == 0
    assert found.outside == 2000
    assert made.drift(made.counted(Y, e)).outside < 2000 / 201 * 5
    no_numbers = made.counted(np.full((2, 3), np.nan), np.array([np.nan, np.inf]))
    assert made.drift(no_numbers).outside == 2
