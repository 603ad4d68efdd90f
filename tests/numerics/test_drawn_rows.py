"""Rows drawn in a pass: each on its own with the stated probability, whatever the blocks; and what is refused."""

from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics.drawn_rows import Draw, Measure, Sampler, least_threshold, quarter, threshold_of
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Cosine, Gaussian, Laplacian, Linear, Polynomial
from bigkpca.numerics.span import basis_of
from tests.helpers import oracles
from tests.numerics.fits import clustered_rows

KERNELS = [Gaussian(1.5), Laplacian(2.0), Linear(), Polynomial(0.3), Cosine()]


def remainder(kernel, X, S):
    """E = K - C W⁺ C', by definition."""
    return kernel.gram(X) - oracles.nystroem_gram(kernel(X, S), kernel.gram(S), 1e-12)


def drawn(draw, features, X, start=0, tile=64):
    """The rows that a block X draws, which begins with row `start`."""
    sampler = Sampler(draw, start)
    tiles = [X[at : at + tile] for at in range(0, len(X), tile)]

    def evaluated():
        for each in tiles:
            sampler.see(each)
            yield features.kernel(each, features.landmarks), features.kernel.diagonal(each)

    for _ in sampler.drawing(evaluated()):
        pass
    return sampler.found


@pytest.fixture(scope="module")
def X():
    return clustered_rows(0, 600)


@pytest.fixture(scope="module")
def features(X):
    return KernelRows(Gaussian(1.5), np.zeros(3), X[:40])


def measure_of(kernel, S, dtype=np.float64):
    """How much rows count in a draw with landmarks S."""
    W = kernel.gram(S)
    order = basis_of(W, 1e-12, positive=True).order
    return Measure.of_landmarks(W, order[: quarter(len(order))], np.dtype(dtype))


@pytest.fixture(scope="module")
def measure(features):
    return measure_of(features.kernel, features.landmarks)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_measures_are_at_least_what_all_landmarks_leave(kernel, dtype):
    X = clustered_rows(1, 300).astype(dtype)
    S = X[:48]
    found = measure_of(kernel, S, dtype)
    r = found(kernel(X, S), kernel.diagonal(X))
    exact = np.diag(remainder(kernel, X.astype(float), S.astype(float)))
    assert (r >= exact).all()
    assert (r <= kernel.diagonal(X) * (1 + 2**-7)).all()
    if kernel == Gaussian(1.5):  # as documented: of a quarter of the landmarks, and a 256th of k(x, x)
        quarter = np.diag(remainder(kernel, X.astype(float), S[found.numbers].astype(float)))
        assert len(found.numbers) == 12
        assert_allclose(r, quarter + 2**-8, atol=1e-5)
    assert_array_equal(Measure.of_rows()(kernel(X, S), -kernel.diagonal(X)), kernel.diagonal(X))


def test_rows_are_drawn_as_often_as_stated(X, features, measure):
    r = measure(features.kernel(X, features.landmarks), features.kernel.diagonal(X))
    most, count = 50, 400
    times, sizes = np.zeros(len(X)), []
    for seed in range(count):
        found = drawn(Draw(measure, most, 0.0, seed), features, X)
        numbers = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in found.X]
        assert_allclose(found.measures, r[numbers])
        assert_allclose(found.probabilities, np.minimum(1, r[numbers] * most / r.sum()))
        times[numbers] += 1
        sizes.append(len(numbers))
    p = np.minimum(1, r * most / r.sum())
    deviation = (times - count * p) / np.sqrt(count * p * (1 - p) + 1e-9)
    assert abs(deviation).max() < 5
    assert abs(np.mean(deviation**2) - 1) < 0.2
    assert abs(np.mean(sizes) - p.sum()) < 5 * np.sqrt(p.sum() / count)


def test_samples_of_parts_are_the_sample_of_the_whole(X, features, measure):
    draw = Draw(measure, 50, 0.0, seed=3)
    parts = [drawn(draw, features, X[start : start + 128], start) for start in range(0, len(X), 128)]
    whole = drawn(draw, features, X)
    for joined in (reduce(add, parts), parts[0] + (parts[1] + (parts[2] + (parts[3] + parts[4])))):
        assert_array_equal(joined.X, whole.X)
        assert_array_equal(joined.uniform, whole.uniform)
        assert_allclose(joined.threshold, whole.threshold)
        assert joined.count == len(X)
    least = whole.threshold / 2  # a block keeps fewer rows then, and none of the final ones is lost
    fewer = [drawn(replace(draw, least=least), features, X[start : start + 128], start) for start in range(0, 600, 128)]
    assert sum(len(each.X) for each in fewer) < sum(len(each.X) for each in parts)
    assert_array_equal(reduce(add, fewer).X, whole.X)


@pytest.mark.parametrize("tail", [0.5, 1.5, 50.0])
def test_the_threshold_makes_the_wanted_number_of_rows_and_a_few_say_what_it_is_at_least(tail):
    rng = np.random.default_rng(0)
    r = rng.pareto(tail, 20_000)
    exact = threshold_of(r, r.sum(), 300)
    assert_allclose(np.minimum(1, r / exact).sum(), 300)
    assert_allclose(threshold_of(np.append(r[r >= exact], 0.9 * exact), r.sum(), 300), exact)  # which are enough
    found = np.array([least_threshold(rng.choice(r, 512), np.full(512, len(r) / 512), 300) for _ in range(200)])
    assert (found > exact).mean() < 0.02
    assert np.median(found) > (0.05 if tail < 1 else 0.5) * exact
    assert least_threshold(np.full(10, np.nan), np.full(10, 10), 5) == 0
    assert threshold_of(np.r_[5.0, 5.0, np.zeros(9)], 10.0, 4) < 5.0  # fewer rows have residuals


def test_all_rows_are_drawn_if_they_are_few_and_numbers_that_no_fit_makes_are_refused(X, features, measure):
    found = drawn(Draw(measure, 600, 0.0, 0), features, X)
    assert_array_equal(found.X, X)
    assert_array_equal(found.probabilities, np.ones(600))
    more = drawn(Draw(measure, 600, 0.0, 0), features, X + 0.1, start=600)
    assert len((found + more).X) < 700
    zeros = np.zeros(600)
    wrong = {"most": 0, "threshold": -1.0, "total": np.nan, "count": 3, "weights": zeros, "uniform": zeros + 1}
    for name, value in wrong.items():
        with pytest.raises(SpecError, match="numbers that no fit makes"):
            replace(found, **{name: value})


def test_other_rows_have_other_random_numbers_and_equal_values_have_equal_ones(X, features, measure):
    draw = Draw(measure, 600, 0.0, 0)
    X = np.where(X > 0, X, 0.0)
    one, other = drawn(draw, features, X), drawn(draw, features, X + 0.1)
    for same in (X.astype(">f8"), np.asfortranarray(X), np.where(X == 0, -0.0, X)):
        assert_array_equal(drawn(draw, features, same).uniform, one.uniform)
    assert not np.isin(one.uniform, other.uniform).any()
    assert not np.isin(one.uniform, drawn(replace(draw, seed=1), features, X).uniform).any()
    assert not np.isin(one.uniform, drawn(replace(draw, before=1), features, X).uniform).any()
