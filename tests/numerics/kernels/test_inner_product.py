"""Kernels of inner products: the cosine."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics.kernels import Cosine


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_the_cosine_forgets_the_length_of_rows(size):
    X = np.array([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0]])
    assert_allclose(Cosine()(X * size, X), [[1, 0.96, -1], [0.96, 1, -0.96], [-1, -0.96, 1]], rtol=1e-14)


def test_the_cosine_of_a_zero_row_is_zero_with_everything():
    X = np.array([[0.0, 0.0], [1.0, 2.0]])
    assert_allclose(Cosine()(X, X), [[0, 0], [0, 1]], atol=1e-15)
    assert_array_equal(Cosine().diagonal(X), [0, 1])
