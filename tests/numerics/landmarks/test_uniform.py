"""Uniform landmarks: distinct rows in their order, every row as likely as any."""

import numpy as np
from numpy.testing import assert_allclose

from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.landmarks import Uniform

KERNEL = Gaussian(1.0)


def test_uniform_landmarks_are_different_rows_in_their_order():
    sample = np.arange(50.0)[:, None]
    chosen = Uniform().choose(sample, KERNEL, 20, np.random.default_rng(0))[:, 0]
    assert (np.diff(chosen) > 0).all()
    assert set(chosen) <= set(range(50))


def test_every_row_is_equally_likely_to_be_a_uniform_landmark():
    sample = np.arange(10.0)[:, None]
    rng = np.random.default_rng(0)
    counts = sum(np.isin(np.arange(10), Uniform().choose(sample, KERNEL, 3, rng)) for _ in range(2000))
    assert_allclose(counts, 600, atol=6 * np.sqrt(2000 * 0.3 * 0.7))
