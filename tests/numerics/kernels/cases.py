"""Every kernel with its formula, for tests that go through all of them."""

from functools import partial

import numpy as np
import pytest

from bigkpca.numerics.kernels import (
    Cosine,
    Function,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
    Tanimoto,
)
from tests.helpers import oracles


def tanimoto(x, y):
    common = oracles.linear(x, y)
    union = oracles.linear(x, x) + oracles.linear(y, y) - common
    return common / union if union else 0


SIMPLE = {
    "gaussian": (Gaussian(1.3), partial(oracles.gaussian, sigma=1.3)),
    "laplacian": (Laplacian(2.0), partial(oracles.laplacian, sigma=2.0)),
    "matern of nu 1.5": (Matern(1.3), partial(oracles.matern, sigma=1.3, nu=1.5)),
    "matern of nu 2.5": (Matern(1.3, 2.5), partial(oracles.matern, sigma=1.3, nu=2.5)),
    "matern of nu 2.2": (Matern(1.3, 2.2), partial(oracles.matern, sigma=1.3, nu=2.2)),
    "rational-quadratic": (RationalQuadratic(1.3, 0.7), partial(oracles.rational_quadratic, sigma=1.3, alpha=0.7)),
    "linear": (Linear(), oracles.linear),
    "polynomial": (Polynomial(0.4, 3, 0.7), partial(oracles.polynomial, gamma=0.4, degree=3, coef0=0.7)),
    "polynomial of degree 1": (Polynomial(0.4, 1, 0.0), partial(oracles.polynomial, gamma=0.4, degree=1, coef0=0.0)),
    "sigmoid": (Sigmoid(0.3, -0.2), partial(oracles.sigmoid, gamma=0.3, coef0=-0.2)),
    "cosine": (Cosine(), oracles.cosine),
    "tanimoto": (Tanimoto(), tanimoto),
}
COMBINED = {
    "sum": (Gaussian(1.3) + Linear(), lambda x, y: oracles.gaussian(x, y, 1.3) + oracles.linear(x, y)),
    "product": (Laplacian(2) * Cosine(), lambda x, y: oracles.laplacian(x, y, 2) * oracles.cosine(x, y)),
    "scaled": (2.5 * Gaussian(1.3), lambda x, y: 2.5 * oracles.gaussian(x, y, 1.3)),
    "nested": (
        (Linear() * 0.5 + Sigmoid(0.3)) * (3 * Gaussian(2.0)),
        lambda x, y: (0.5 * oracles.linear(x, y) + oracles.sigmoid(x, y, 0.3, 1)) * 3 * oracles.gaussian(x, y, 2),
    ),
}
OWN = {"function": (Function(oracles.inverse_quadratic), lambda x, y: 1 / (1 + np.sum(np.subtract(x, y) ** 2)))}
ALL = SIMPLE | COMBINED | OWN
every_kernel = pytest.mark.parametrize(("kernel", "formula"), ALL.values(), ids=ALL.keys())


def rows(seed, n, d, dtype=np.float64):
    X = np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)
    X.flags.writeable = False  # no kernel may write into its arguments
    return X
