"""Signs of components follow those of an earlier solution."""

import numpy as np
from numpy.testing import assert_array_equal

from bigkpca.numerics import eigenpairs
from bigkpca.numerics.eigenpairs import Solution


def test_without_landmarks_signs_follow_the_components_themselves():
    components = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 4)))[0]
    before = Solution(np.full(9, 100.0), components, np.ones(4), 4.0)
    # Near the previous ones, and about another mean, which must not matter.
    near = np.linalg.qr(components + 0.1 * np.random.default_rng(1).normal(size=(9, 4)))[0]
    near *= np.where(np.einsum("ij,ij->j", near, components) < 0, -1.0, 1.0)
    flips = np.array([1.0, -1.0, -1.0, 1.0])
    after = Solution(np.full(9, -7.0), near * flips, np.ones(4), 4.0)
    assert_array_equal(eigenpairs.aligned(after, before, None).components, near)
    shorter = Solution(before.mean, components[:, :2], np.ones(2), 4.0)
    assert_array_equal(eigenpairs.aligned(after, shorter, None).components, near * [1, 1, -1, 1])
