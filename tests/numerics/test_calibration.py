"""Statistics of unusual rows, and limits that rows of the same distribution rarely exceed."""

from fractions import Fraction
from itertools import combinations_with_replacement
from math import comb

import numpy as np
import pytest

from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.numerics.calibration import COMBINED, Calibration, precisions_of, statistics
from bigkpca.numerics.eigenpairs import Solution


def calibration(values):
    """Rows whose statistics all have these values."""
    own = np.asarray(values, np.float64)
    return Calibration(np.zeros((len(own), 2)), np.array([1.0, 0.0]), np.sqrt(own)[:, None], own)


def solution(eigenvalues, total):
    components = np.zeros((4, len(eigenvalues)))
    return Solution(np.zeros(4), components, np.array(eigenvalues), total)


def test_statistics_are_those_of_loops():
    rng = np.random.default_rng(0)
    scores, left, precisions = (
        rng.normal(size=(7, 3)).astype("f4"),
        rng.random(7).astype("f4"),
        np.array([2.0, 3, 5, 7]),
    )
    found = statistics(precisions, scores, left)
    assert found.dtype == np.float64
    for i in range(7):
        distance = sum(precisions[j] * float(scores[i, j]) ** 2 for j in range(3))
        np.testing.assert_allclose(found[:, i], [left[i], distance, 7 * float(left[i]) + distance / 3], rtol=1e-12)


def test_precisions_are_inverse_mean_squares_and_leave_out_rounding():
    np.testing.assert_allclose(precisions_of(solution([6.0, 2.0], 9.0), 12.0), [2, 6, 12])
    assert precisions_of(solution([6.0, 3.0 - 1e-9], 9.0), 12.0)[-1] == 0


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
    ((scores, left),) = model.scores_and_residuals([X], 60, model.expansion())
    found = statistics(precisions_of(model.solution, 60), scores, left)
    np.testing.assert_allclose(found, [Q, T2, Q / Q.mean() + T2 / 3], rtol=1e-5)
    np.testing.assert_allclose(found[COMBINED].mean(), 2, rtol=1e-6)


def shares_of_orders(alpha, values):
    """Of all orders of these values, the shares in which the last one, as a new row, is above the limit that the others
    set, and in which its p-value is at most alpha. Each value is the last one in equally many orders."""
    above = rare = 0
    for i, new in enumerate(values):
        known = calibration(np.delete(values, i))
        above += int(new > known.limits(alpha)[COMBINED])
        rare += int(known.p_values(np.full((3, 1), float(new)))[COMBINED, 0] <= alpha)
    return Fraction(above, len(values)), Fraction(rare, len(values))


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_the_promise_holds_exactly_for_each_number_of_rows(count):
    for number in range(1, count + 1):
        alpha = number / (count + 1)
        # Without ties, the share of flagged rows is exactly this alpha; it does not change up to the next one.
        for each in (alpha, alpha + 0.9 / (count + 1)):
            assert shares_of_orders(each, np.arange(count + 1)) == (Fraction(number, count + 1),) * 2


def test_the_promise_holds_with_ties():
    for values in combinations_with_replacement(range(4), 4):
        for alpha in (1 / 4, 0.3, 1 / 2, 3 / 4, 0.99, np.nextafter(1, 0)):
            above, rare = shares_of_orders(alpha, np.array(values))
            assert above <= rare <= alpha


def test_a_p_value_of_at_most_alpha_is_a_statistic_above_the_limit():
    rng = np.random.default_rng(2)
    for count in (1, 4, 19, 57, 99):
        known = calibration(rng.integers(0, 40, count))
        new = np.tile(np.arange(-1.0, 42), (3, 1))
        naive = [(1 + sum(v >= x for v in known.values[0])) / (count + 1) for x in new[0]]
        np.testing.assert_array_equal(known.p_values(new), [naive] * 3)
        for alpha in (1 / (count + 1), 0.05, 0.1, 0.5, 0.99):
            if alpha * (count + 1) >= 1:
                np.testing.assert_array_equal(known.p_values(new) <= alpha, new > known.limits(alpha)[:, None])


def test_a_new_row_that_equals_a_calibration_row_does_not_exceed_its_value():
    for dtype in (np.float32, np.float64):
        values = np.array([3, 1, 2], dtype)
        known = Calibration(np.zeros((3, 1)), np.array([1.0, 0.0]), np.sqrt(values)[:, None], values)
        rounded = np.full((3, 1), 3 * (1 + 20 * np.finfo(dtype).eps))
        assert (rounded <= known.limits(0.3)[:, None]).all()
        assert (known.p_values(rounded) == 0.5).all()
        np.testing.assert_allclose(known.values, [[1, 2, 3]] * 3, rtol=1e-3)


def test_parts_add_up_to_the_combined_statistic():
    rng = np.random.default_rng(3)
    known = Calibration(np.zeros((2, 1)), np.array([2.0, 0.5, 3.0]), rng.normal(size=(2, 2)), rng.random(2))
    scores, left = rng.normal(size=(5, 2)), rng.random(5)
    found = known.statistics(scores, left)
    parts = known.parts(found)
    np.testing.assert_allclose(parts.sum(axis=0), found[COMBINED])
    np.testing.assert_allclose(parts, [3 * left, (2 * scores[:, 0] ** 2 + 0.5 * scores[:, 1] ** 2) / 2])


def shares_above(count, m, rows):
    """P(k of `rows` new values are above the (m + 1)-th largest of `count` values), for all k: by counting, in how many
    orders of all values, new and old, this many new ones are above it."""
    total = comb(count + rows, rows)
    # k new values above: any order of them with the m old ones above, then the old one, then any order of the rest.
    return [Fraction(comb(m + k, k) * comb(count - m - 1 + rows - k, rows - k), total) for k in range(rows + 1)]


@pytest.mark.parametrize(("count", "alpha", "rows"), [(1, 0.5, 3), (9, 0.1, 7), (19, 0.2, 30), (40, 0.5, 100)])
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
    for alpha in (0.0066, 0.0, -1.0, 1.0, np.nan):
        with pytest.raises(SpecError, match=r"with 150 calibration rows, it must be at least 0.0067 and below 1; for"):
            known.limits(alpha)
    assert known.exceeding(0.0067) == 0  # as typed from the message
    assert known.limits(1 / 151)[COMBINED] == pytest.approx(149)
    assert known.limits(np.nextafter(1, 0))[COMBINED] == 0


def test_inconsistent_calibrations_are_refused():
    with pytest.raises(SpecError, match=r"a calibration of 2 rows with scores \(3, 1\)"):
        Calibration(np.zeros((2, 1)), np.ones(2), np.zeros((3, 1)), np.zeros(2))
    with pytest.raises(SpecError, match=r"a calibration of 2 rows with scores \(2, 2\)"):
        Calibration(np.zeros((2, 1)), np.ones(2), np.zeros((2, 2)), np.zeros(2))
    with pytest.raises(SpecError, match=r"a calibration of 0 rows"):
        Calibration(np.zeros((0, 1)), np.ones(2), np.zeros((0, 1)), np.zeros(0))
