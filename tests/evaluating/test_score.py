"""Errors of pre-images: scores of models, against a naive loop."""

import numpy as np
import pytest

from bigkpca import KernelPCA, preimages
from bigkpca.data.rows import ArrayRows
from bigkpca.evaluating import noise_of_rows, preimage_error
from bigkpca.execution.engine import Engine
from tests.fitting.cases import other_engines
from tests.helpers import oracles

ONE = Engine(threads=1)


@pytest.fixture(scope="module")
def X(digits):
    return digits[:240].astype(np.float64)


def noised(X, noise):
    """Rows with the noise that belongs to them in a score."""
    return X + np.float32(noise) * noise_of_rows(0, X.shape)


@pytest.mark.parametrize("way", ["fixed-point", "mds", preimages.Denoising(noise=2.0)], ids=str)
def test_the_score_is_minus_the_mean_squared_error(way, X):
    kpca = KernelPCA(6, size=50, preimage=way, random_state=0, block_rows=70).fit(X)
    assert kpca.score(X[:100]) == pytest.approx(-oracles.preimage_error(kpca, X[:100]), rel=1e-6)
    assert KernelPCA(30, size=50, preimage=way, random_state=0).fit(X).score(X) > kpca.score(X)


@pytest.mark.parametrize("weights", [None, [2.0, 0.0, 1.0, 0.5]])
@pytest.mark.parametrize("standardize", [False, True])
def test_the_score_is_in_standard_deviations_times_weights(standardize, weights):
    rows = np.random.default_rng(3).normal(size=(90, 4)) * [1, 2, 3, 4]
    options = {"standardize": standardize, "column_weights": weights, "preimage": "ridge", "size": 40}
    kpca = KernelPCA(3, random_state=0, **options).fit(rows)
    errors = rows - kpca.inverse_transform(kpca.transform(rows))
    errors = errors / (rows.std(axis=0) if standardize else 1) * (1 if weights is None else weights)
    assert kpca.score(rows) == pytest.approx(-np.mean(errors**2), rel=1e-6)


def test_with_noise_the_score_is_that_of_denoising(X, monkeypatch):
    # Noise is that of a row, whatever its tile.
    monkeypatch.setattr("bigkpca.evaluating.tile_rows", lambda *_: 32)
    clean, noisy, loud = (
        KernelPCA(6, size=50, random_state=0, block_rows=70, noise=noise).fit(X) for noise in (None, 3.0, 9.0)
    )
    given = noised(X, 3.0)
    assert 2.9 < (given - X).std() < 3.1
    expected = float(np.mean((X - noisy.denoise(given)) ** 2))
    assert noisy.score(X) == pytest.approx(-expected, rel=1e-6)
    assert loud.score(X) < noisy.score(X) < clean.score(X)


def test_noise_belongs_to_the_row_alone():
    whole = noise_of_rows(0, (40, 9))
    for first, count in ((0, 1), (5, 20), (39, 1)):
        np.testing.assert_array_equal(noise_of_rows(first, (count, 9)), whole[first : first + count])
    many = noise_of_rows(2**40, (4000, 9)).astype(float)
    assert abs(many.mean()) < 5 / np.sqrt(many.size)
    assert np.abs(many.T @ many / 4000 - np.eye(9)).max() < 6 / np.sqrt(4000)
    assert abs((many[1:] * many[:-1]).mean()) < 5 / np.sqrt(many.size)


@pytest.mark.bits
@other_engines
def test_scores_are_the_same_everywhere(engine, X):
    model = KernelPCA(6, size=50, random_state=0, block_rows=50).fit(X).model_
    for noise in (None, 2.0):
        here, there = (preimage_error(model, ArrayRows(X), noise, runs) for runs in (ONE, engine))
        assert here == there
