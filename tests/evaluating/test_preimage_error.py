"""The score of a model by its pre-images."""

import numpy as np
import pytest

from bigkpca import KernelPCA, preimages
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import DataError
from bigkpca.evaluating.preimage_error import preimage_error
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.numerics.preimages import Noise
from bigkpca.numerics.random_streams import SCORING
from tests.fitting.cases import other_engines
from tests.helpers import oracles

ONE = Engine(threads=1)
pytestmark = pytest.mark.usefixtures("quiet_signals")


@pytest.mark.parametrize("way", ["fixed-point", "mds", preimages.Denoising(noise=2.0)], ids=str)
def test_the_score_is_minus_the_mean_squared_error(way, X):
    kpca = KernelPCA(6, size=50, preimage=way, random_state=0, block_rows=70).fit(X)
    assert kpca.score(X[:100]) == pytest.approx(-oracles.preimage_error(kpca, X[:100]), rel=1e-6)
    assert KernelPCA(30, size=50, preimage=way, random_state=0).fit(X).score(X) > kpca.score(X)


def test_with_noise_the_score_is_that_of_denoising(X, monkeypatch):
    # Noise is that of a row, whatever its tile.
    monkeypatch.setattr("bigkpca.evaluating.preimage_error.tile_rows", lambda *_: 32)
    clean, noisy, loud = (
        KernelPCA(6, size=50, random_state=0, block_rows=70, noise=noise).fit(X) for noise in (None, 3.0, 9.0)
    )
    key = np.random.SeedSequence(0, spawn_key=(SCORING,)).generate_state(2, np.uint64)
    given = Noise(3.0, key, 1).added(X, 0, 0)
    assert 2.9 < (given - X).std() < 3.1
    expected = float(np.mean((X - noisy.denoise(given)) ** 2))
    assert noisy.score(X) == pytest.approx(-expected, rel=1e-6)
    assert loud.score(X) < noisy.score(X) < clean.score(X)
    assert noisy.score(X) == noisy.score(X)


@pytest.mark.bits
@other_engines
def test_scores_are_the_same_everywhere(engine, X):
    model = KernelPCA(6, size=50, random_state=0, block_rows=50).fit(X).model_
    for noise in (None, 2.0):
        found = preimage_error(model, ArrayRows(X), noise, engine, Silent())
        assert found == preimage_error(model, ArrayRows(X), noise, ONE, Silent())


def test_rows_that_cannot_be_scored(X):
    kpca = KernelPCA(6, size=50, random_state=0).fit(X)
    bad = X.copy()
    bad[17, 3] = np.nan
    with pytest.raises(DataError, match="row 17, column 3 is NaN"):
        kpca.score(bad)
    with pytest.raises(ValueError, match="64 features"):
        kpca.score(X[:, :5])
