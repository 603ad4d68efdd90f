"""The gradient that the fixed point follows, and the kernels that have one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.errors import SpecError
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import (
    Laplacian,
    Matern,
)
from bigkpca.numerics.methods import Nystroem
from bigkpca.numerics.preimages import (
    FixedPoint,
)
from bigkpca.numerics.preimages.objective import objective
from tests.numerics.preimages.models import WITH_PULL, WITHOUT_PULL, naive_objective, random_fitted, rows, slope


@pytest.mark.parametrize("kernel", WITH_PULL, ids=str)
def test_the_gradient_over_landmarks_is_that_of_a_naive_objective(kernel):
    S, Z, gamma = rows(7), rows(4, seed=1), np.random.default_rng(2).normal(size=(4, 7))
    at = objective(KernelRows(kernel, np.zeros(3), S), 4).at(Z, gamma)
    constant = 0 if kernel.towards == "product" else kernel.diagonal(Z) / 2
    naive = [naive_objective(kernel, S, g, z) for g, z in zip(gamma, Z, strict=True)]
    assert_allclose(at.value - constant, naive, atol=1e-12)
    assert_allclose(at.inner, [naive_objective(kernel, S, g, z) + kernel.diagonal(z[None]).item() / 2
                               for g, z in zip(gamma, Z, strict=True)], atol=1e-12)  # fmt: skip
    expected = [slope(lambda z, g=g: naive_objective(kernel, S, g, z), z) for g, z in zip(gamma, Z, strict=True)]
    assert_allclose(at.image - at.weight[:, None] * Z, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["pairs", "principal", "principal-alpha"])
def test_the_gradient_over_waves_is_that_of_the_features(kind):
    features = random_fitted(kind).features
    Z, gamma = rows(4, seed=1), np.random.default_rng(2).normal(size=(4, features.size))

    def naive(z, g):
        ((V, _),) = features.tiles([z[None]], 1)
        return float(V[0] @ g)

    at = objective(features, 4).at(Z, gamma)
    assert_allclose(at.value, [naive(z, g) for z, g in zip(Z, gamma, strict=True)], rtol=1e-10)
    expected = [slope(lambda z, g=g: naive(z, g), z) for z, g in zip(Z, gamma, strict=True)]
    assert_allclose(at.image - at.weight[:, None] * Z, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", WITH_PULL, ids=str)
def test_the_pull_of_a_row_at_itself_is_the_limit_of_pulls_near_it(kernel):
    x = rows(1, seed=1) + 1
    K, weights = np.empty((2, 1, 1))
    kernel.gradient_weights(x + 1e-6, 1)(x, K, weights)
    assert_allclose(weights[0], kernel.own_gradient_weight(x), rtol=1e-4)


@pytest.mark.parametrize("kernel", WITHOUT_PULL, ids=lambda k: k.name)
def test_kernels_without_a_pull_say_what_works(kernel):
    assert kernel.towards is None
    ways = "have no fixed point: use .*'ridge', 'denoising' or 'linear'"
    with pytest.raises(SpecError, match=f"pre-images of the {kernel.name} kernel {ways}"):
        FixedPoint().check(kernel, Nystroem())
    with pytest.raises(SpecError, match=ways):
        kernel.gradient_weights(rows(2), 1)


def test_kernels_that_tell_distances_are_sent_to_mds():
    with pytest.raises(SpecError, match="use 'mds', 'ridge'"):
        FixedPoint().check(Matern(1.0, nu=0.5), Nystroem())


@pytest.mark.parametrize("kernel", [Laplacian(2.0), Matern(2.0, nu=1.0)], ids=str)
def test_kernels_without_a_pull_have_none_at_a_row_itself(kernel):
    with pytest.raises(SpecError, match="have no fixed point"):
        kernel.own_gradient_weight(rows(2))
