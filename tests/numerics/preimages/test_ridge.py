"""Kernel ridge regression from scores to rows, clean and noisy, and the least squares that it rests on."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.errors import DataError
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.preimages import Denoising, Distances, FixedPoint, Ridge
from bigkpca.numerics.preimages.base import least_squares, spread
from bigkpca.numerics.random_streams import NOISE, random_stream
from tests.helpers import oracles
from tests.helpers.memory import traced_peak
from tests.numerics.preimages.models import back, decoder, fitted, random_fitted, rows


def gaussian(Y, made):
    """Kernels of scores with the landmarks of a decoder."""
    return oracles.matrix(lambda a, b: oracles.gaussian(a, b, made.sigma), Y, made.landmarks)


def naive_map(made, Y, X, ridge, Q):
    """Rows of scores Q by kernel ridge regression of rows X on scores Y: least squares, the penalty as more rows."""
    F, root = gaussian(Y, made), np.linalg.cholesky(ridge * gaussian(made.landmarks, made)).T
    f, x = F - F.mean(axis=0), X - X.mean(axis=0)
    w = np.linalg.lstsq(np.vstack([f, root]), np.vstack([x, np.zeros((len(root), X.shape[1]))]), rcond=None)[0]
    return X.mean(axis=0) + (gaussian(Q, made) - F.mean(axis=0)) @ w


def test_ridge_is_kernel_ridge_regression_with_an_intercept():
    X = rows(1500)  # more than one tile
    model = fitted(X=X)
    made, Q = decoder(Ridge(ridge=0.3, size=15), model, X), model.scores(rows(6, seed=4))
    assert_allclose(made.landmarks, model.scores(spread(X, 15)))
    expected = naive_map(made, model.scores(X), X, 0.3, Q)
    assert_allclose(back(Ridge(ridge=0.3, size=15), model, Q, None, X).rows, expected, atol=1e-6)
    # The length makes the kernel of the median pair of landmarks 1 / e.
    pairs = [np.sum((a - b) ** 2) for i, a in enumerate(made.landmarks) for b in made.landmarks[:i]]
    assert_allclose(np.exp(-np.median(pairs) / (2 * made.sigma**2)), np.exp(-1), rtol=1e-12)


def test_denoising_is_kernel_ridge_regression_from_noisy_rows_to_clean_ones():
    scale = np.array([10.0, 1.0, 0.5])  # the noise is in the units of the data, the map in those of the kernel
    X = rows() * scale
    model, way = fitted(X=X, scale=scale), Denoising(noise=0.3, ridge=0.2, size=15)
    rng, made, Q = random_stream(0, NOISE), decoder(way, model, X), model.scores(rows(6, seed=4) * scale)
    assert_allclose(made.landmarks, model.scores(way.seen(spread(X, 15), rng)))  # of noise of their own
    Y = np.concatenate([model.scores(way.seen(X, rng)) for _ in range(3)])
    expected = naive_map(made, Y, np.tile(X / scale, (3, 1)), 0.2, Q)
    assert_allclose(back(way, model, Q, None, X).rows / scale, expected, atol=1e-6)


def test_few_rows_are_made_noisy_several_times():
    """10 noisy rows to a kernel, of which there are no more than rows; at most 8 times."""
    for n, size, copies in ((60, 5, 1), (60, 12, 2), (60, 40, 7), (20, 40, 8), (12, 40, 8)):
        assert Denoising(noise=0.3, size=size).copies(n) == copies
    X, rng = rows(4000), random_stream(0, NOISE)
    first, second = (Denoising(noise=0.3).seen(X, rng) - X for _ in range(2))
    assert (first.std(), second.std()) == pytest.approx((0.3, 0.3), rel=0.02)
    assert abs(np.mean(first * second)) < 0.01
    assert Ridge().seen(X, rng) is X


def test_sampled_rows_are_kept_up_to_a_limit():
    model, X = fitted(), rows()
    few = Ridge(rows=20), Denoising(noise=0.1, rows=20), Distances(neighbours=5, rows=20)
    for way, kept in (*((way, 20) for way in few), (Ridge(rows=90), 60), (Distances(rows=90), 60)):
        assert_allclose(decoder(way, model).kept_rows(model.features), spread(X, kept))
    assert len(decoder(FixedPoint(), model).kept_rows(model.features)) == 0
    waves = random_fitted("pairs", X=rows(2100))
    assert len(decoder(FixedPoint(), waves, rows(2100)).kept_rows(waves.features)) == 2000


@pytest.mark.parametrize(("m", "d", "size"), [(4000, 20, 100), (2000, 300, 50), (1500, 8, 1000)])
def test_a_decoder_is_made_in_the_memory_that_is_planned(m, d, size):
    X = rows(m, d)
    model = fitted(Gaussian(10.0), X=X[:20])
    for way in (Ridge(size=size), Denoising(noise=0.1, size=size)):
        planned, tile = way.making_bytes(m, d, 5), 8 * 2048 * 2 * (d + 20)  # of features, which a plan counts apart
        assert planned / 4 < traced_peak(lambda way=way: way.decoder(model, X), 1) < planned + tile + 10**6


def test_scores_that_do_not_tell_rows_apart_are_refused():
    X = np.random.default_rng(0).normal(size=(300, 20))
    with pytest.raises(
        DataError, match=r"scores of the rows that Denoising.*noise=2.* too similar .* larger sigma, or"
    ):
        decoder(Denoising(noise=2.0), fitted(Gaussian(0.3), X=X, size=60), X)


def test_a_column_that_never_varies_has_no_weight_and_equal_columns_share_theirs():
    F, X = rows(60, 4), rows(60, seed=1)
    F[:, 2] = 0
    weights = least_squares(F.T @ F, F.T @ X, 1e-12)
    expected = np.linalg.lstsq(np.delete(F, 2, axis=1), X)[0]
    assert_allclose(weights[2], 0, atol=1e-12)
    assert_allclose(np.delete(weights, 2, axis=0), expected, rtol=1e-6)
    F[:, 1] = F[:, 0]
    weights = least_squares(F.T @ F, F.T @ X, 1e-12)
    assert_allclose(weights[0], weights[1], atol=1e-4)


def test_sums_that_rounding_made_indefinite_fit_as_well_as_those_without_rounding():
    F, X = rows(60, 4), rows(60, seed=1)
    F[:, 1] = F[:, 0]
    S, direction = F.T @ F, np.array([1.0, -1, 0, 0]) / np.sqrt(2)
    lengths = np.sqrt(np.diag(S))
    S = S - 1e-9 * np.outer(lengths * direction, lengths * direction)
    assert_allclose(np.linalg.eigvalsh(S / np.outer(lengths, lengths))[0], -1e-9, rtol=1e-4)
    weights = least_squares(S, F.T @ X + 1e-9 * rows(4, seed=2), 1e-12)
    assert np.abs(weights).max() < 1e3
    best = np.linalg.lstsq(F[:, 1:], X)[0]
    assert_allclose(np.sum((X - F @ weights) ** 2), np.sum((X - F[:, 1:] @ best) ** 2), rtol=1e-9)
