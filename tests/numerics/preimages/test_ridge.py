"""Maps learned by ridge regression, from rows as they are and from noised ones, and the sums they are learned from."""

from dataclasses import replace
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca import KernelPCA
from bigkpca.errors import DataError, NarrowKernelWarning, SpecError
from bigkpca.numerics.methods import Nystroem
from bigkpca.numerics.preimages import Denoising, Ridge, row_noise
from bigkpca.numerics.preimages.base import block_regression
from tests.helpers import oracles
from tests.numerics.preimages.models import GAUSSIAN, SEED, back, fitted, naive_regression, rows, trained


@pytest.mark.parametrize("way", [Ridge(size=12), Denoising(noise=0.1, size=12)], ids=str)
def test_training_does_not_depend_on_how_rows_are_split(way):
    model, X = fitted(), rows()
    whole = trained(way, model, X, tile=60, block=60)
    for tile, block in ((16, 32), (5, 60), (60, 20)):
        other = trained(way, model, X, tile, block)
        assert_allclose(other.weights, whole.weights, rtol=1e-6, atol=1e-9)
        assert_allclose(other.mean_row, whole.mean_row, rtol=1e-12)
    training = way.training(model, X, len(X), SEED)
    block = training.block([X[20:30], X[30:36]], 20, 16)
    again = training.block(iter([X[20:30].copy(), X[30:36].copy()]), 20, 16)
    for name in ("count", "mean", "mean_rows", "scatter", "cross"):
        assert_array_equal(getattr(block, name), getattr(again, name))


def gaussian(Y, decoder):
    """Kernels of scores with the landmarks of a decoder."""
    return oracles.matrix(lambda a, b: oracles.gaussian(a, b, decoder.sigma), Y, decoder.landmarks)


def test_ridge_is_kernel_ridge_regression_with_an_intercept():
    model, X = fitted(), rows()
    way = Ridge(ridge=0.3, size=15)
    got = trained(way, model, X)
    assert got.landmarks.shape == (15, 5)
    Y, Q = model.scores(X), model.scores(rows(6, seed=4))
    F = gaussian(Y, got)
    w = naive_regression(F, X, 0.3 * gaussian(got.landmarks, got))
    expected = X.mean(axis=0) + (gaussian(Q, got) - F.mean(axis=0)) @ w
    assert_allclose(back(way, model, Q).rows, expected, atol=1e-6)
    # The length makes the kernel of the median pair of landmarks 1 / e.
    pairs = [np.sum((a - b) ** 2) for i, a in enumerate(got.landmarks) for b in got.landmarks[:i]]
    assert_allclose(np.exp(-np.median(pairs) / (2 * got.sigma**2)), np.exp(-1), rtol=1e-12)


def test_few_rows_are_noised_several_times():
    """10 noised rows to a kernel, of which there are no more than rows; at most 8 times."""
    for n, size, copies in ((60, 5, 1), (60, 12, 2), (60, 40, 7), (20, 40, 8), (12, 40, 8)):
        training = Denoising(noise=0.3, size=size).training(fitted(), rows(), n, SEED)
        assert training.noise.copies == copies


def test_denoising_is_kernel_ridge_regression_from_noised_rows_to_clean_ones():
    scale = np.array([10.0, 1.0, 0.5])  # the noise is in the units of the data, the map in those of the kernel
    X = rows() * scale
    model, way = fitted(X=X, scale=scale), Denoising(noise=0.3, ridge=0.2, size=15)
    key = SEED.generate_state(2, np.uint64)
    noised = [X + np.float32(0.3) * row_noise(key, 0, 60, 3, copy) for copy in range(3)]
    Y, clean = model.scores(np.concatenate(noised)), np.tile(X / scale, (3, 1))
    got = trained(way, model, X)
    F = gaussian(Y, got)
    w = naive_regression(F, clean, 0.2 * gaussian(got.landmarks, got))
    assert_allclose(got.weights, w, atol=1e-6 * np.abs(w).max())
    assert_allclose(got.mean_feature, F.mean(axis=0), atol=1e-12)
    assert_allclose(got.mean_row, X.mean(axis=0) / scale, atol=1e-12)


def test_the_landmarks_of_denoising_are_noised_too():
    X = rows(400)
    model, quiet = fitted(X=X), Denoising(noise=1e-6, size=400).training(fitted(X=X), X, 400, SEED).landmarks
    noised = Denoising(noise=0.5, size=400).training(model, X, 400, SEED).landmarks
    assert_allclose(quiet, model.scores(X), atol=1e-5)
    key = SEED.generate_state(2, np.uint64)
    assert_allclose(noised, model.scores(X + np.float32(0.5) * row_noise(key, 0, 400, 3, copy=8)), atol=1e-6)


@pytest.mark.parametrize("d", [1, 8, 19])
def test_noise_belongs_to_the_row_and_its_copy_alone(d):
    key = SEED.generate_state(2, np.uint64)
    whole = row_noise(key, 0, 40, d)
    assert whole.dtype == np.float32
    for first, count in ((0, 1), (5, 20), (39, 1)):
        assert_array_equal(row_noise(key, first, count, d), whole[first : first + count])
    others = [row_noise(key, 0, 40, d, copy=1), row_noise(key + np.uint64(1), 0, 40, d), row_noise(key, 40, 40, d)]
    assert not any((other == whole).any() for other in others)
    last = 2**50
    assert_array_equal(row_noise(key, last, 3, d)[1:], row_noise(key, last + 1, 2, d))


def test_noise_is_standard_normal_and_independent():
    noise = row_noise(SEED.generate_state(2, np.uint64), 0, 4000, 9).astype(float)
    n = noise.size
    assert abs(noise.mean()) < 5 / np.sqrt(n)
    assert abs((noise**2).mean() - 1) < 5 * np.sqrt(2 / n)
    assert abs((noise**4).mean() - 3) < 5 * np.sqrt(96 / n)
    assert abs((np.abs(noise) < 0.6744897501960817).mean() - 0.5) < 5 * 0.5 / np.sqrt(n)
    correlation = noise.T @ noise / 4000 - np.eye(9)
    assert np.abs(correlation).max() < 6 / np.sqrt(4000)
    assert abs((noise[1:] * noise[:-1]).mean()) < 5 / np.sqrt(n)


def test_noise_that_is_not_given_or_drowns_the_kernel_is_named():
    X, message = np.random.default_rng(0).normal(size=(300, 20)), "with noise of 2 are too similar .* larger sigma"
    kpca = KernelPCA(5, sigma=0.7, size=60, preimage="denoising", noise=2.0, random_state=0)
    with pytest.warns(NarrowKernelWarning), pytest.raises(DataError, match=message):
        kpca.fit(X)
    missing = Denoising()
    for unknown in (lambda: missing.check(GAUSSIAN, Nystroem()), lambda: missing.training(fitted(), rows(), 60, SEED)):
        with pytest.raises(SpecError, match="need the standard deviation of the noise: specify noise="):
            unknown()


def block_sums(F, X, splits, shift=0.5):
    """Sums over blocks that begin at the given rows, in tiles of 7."""
    starts = [[(i, min(i + 7, b)) for i in range(a, b, 7)] for a, b in pairwise([*splits, len(F)])]
    tiles = (((F[i:j].copy(), X[i:j].copy()) for i, j in block) for block in starts)
    return reduce(add, (block_regression(block, np.full(4, shift), np.full(3, shift)) for block in tiles))


def test_sums_of_any_split_are_those_of_the_whole_and_weights_are_least_squares():
    F, X, penalty = rows(60, 4) + 3, rows(60, seed=1), np.diag([1.0, 2.0, 0.5, 3.0]) + 0.1
    f, x = F - F.mean(axis=0), X - X.mean(axis=0)
    for splits, shift in (([0], 0.0), ([0], 0.5), ([0, 20, 20, 41], 0.5), ([0, 0, 59], -2.0)):  # some parts are empty
        got = block_sums(F, X, splits, shift)
        assert got.count == 60
        assert_allclose(got.mean, F.mean(axis=0), rtol=1e-12)
        assert_allclose(got.mean_rows, X.mean(axis=0), rtol=1e-12)
        assert_allclose(got.scatter, f.T @ f, atol=1e-10)
        assert_allclose(got.cross, f.T @ x, atol=1e-10)
        assert_allclose(got.weights(penalty, 0.0), naive_regression(F, X, penalty), rtol=1e-9)


def test_single_precision_tiles_keep_what_a_shift_saves():
    F, X = (rows(5000, 4) * 1e-3 + 100).astype(np.float32), rows(5000, seed=1)
    exact = F.astype(float)
    got = block_regression([(F.copy(), X.copy())], np.full(4, 100.0), np.zeros(3))
    f = exact - exact.mean(axis=0)
    assert_allclose(got.scatter, f.T @ f, rtol=1e-4, atol=1e-7)
    assert_allclose(got.mean, exact.mean(axis=0), rtol=1e-8)


def test_a_column_that_never_varies_has_no_weight_and_equal_columns_share_theirs():
    F, X = rows(60, 4), rows(60, seed=1)
    F[:, 2] = 7.0
    weights = block_sums(F, X, [0], shift=7.0).weights(np.zeros((4, 4)), 1e-12)
    expected = naive_regression(np.delete(F, 2, axis=1), X, 1e-20 * np.eye(3))
    assert_allclose(weights[2], 0, atol=1e-12)
    assert_allclose(np.delete(weights, 2, axis=0), expected, rtol=1e-6)
    F[:, 1] = F[:, 0]
    weights = block_sums(F, X, [0]).weights(np.zeros((4, 4)), 1e-12)
    assert_allclose(weights[0], weights[1], atol=1e-4)


def test_sums_that_rounding_made_indefinite_fit_as_well_as_those_without_rounding():
    F, X = rows(60, 4), rows(60, seed=1)
    F[:, 1] = F[:, 0]
    sums, direction = block_sums(F, X, [0]), np.array([1.0, -1, 0, 0]) / np.sqrt(2)
    lengths = np.sqrt(np.diag(sums.scatter))
    noise = np.outer(lengths * direction, lengths * direction)
    given = replace(sums, scatter=sums.scatter - 1e-9 * noise, cross=sums.cross + 1e-9 * rows(4, seed=2))
    assert_allclose(np.linalg.eigvalsh(given.scatter / np.outer(lengths, lengths))[0], -1e-9, rtol=1e-4)

    def error(F, w):
        return np.sum((X - X.mean(axis=0) - (F - F.mean(axis=0)) @ w) ** 2)

    weights = given.weights(np.zeros((4, 4)), 1e-12)
    assert np.abs(weights).max() < 1e3
    best = error(F[:, 1:], naive_regression(F[:, 1:], X, 1e-20 * np.eye(3)))
    assert_allclose(error(F, weights), best, rtol=1e-9)
