"""What every kernel, landmark rule, pre-image and format of the lists keeps to: a new kind is tested once listed."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca import KernelPCA
from bigkpca.numerics import landmarks, preimages
from bigkpca.numerics.kernels import KERNELS, Distance, Gaussian, Precomputed, from_dict
from bigkpca.spec import FitSpec
from tests.helpers.memory import traced_peak

NAMES = [name for name in KERNELS if name != Precomputed.name]
every_kernel = pytest.mark.parametrize("name", NAMES)
every_rule = pytest.mark.parametrize("name", landmarks.RULES)
every_preimage = pytest.mark.parametrize("name", preimages.PREIMAGES)

X = np.random.default_rng(0).normal(size=(40, 5))
STRINGS = np.abs(np.round(2 * X))  # numbers of characters


def rows_of(name):
    """Rows that a kernel takes."""
    return STRINGS if name == "spectrum" else np.abs(X) if name == "chi-squared" else X


def kernel_of(name):
    """As a fit of rows with five columns makes it."""
    return FitSpec.checked(kernel=name).kernel_value(X.shape[1], 2.0)


@every_kernel
def test_a_kernel_gives_finite_symmetric_matrices_also_by_tiles_and_goes_through_json(name):
    kernel = kernel_of(name)
    for dtype, rtol in ((np.float64, 1e-11), (np.float32, 1e-4)):
        rows = rows_of(name).astype(dtype)
        K = kernel(rows, rows)
        assert K.dtype == dtype
        assert_allclose(K, K.T, rtol=rtol, atol=rtol)
        assert_allclose(np.diag(K), kernel.diagonal(rows), rtol=rtol, atol=rtol)
        assert kernel.diagonal(rows).dtype == np.float64
    with_zeros = np.vstack([np.zeros((2, 5)), rows_of(name)[:3]])
    assert np.isfinite(kernel(with_zeros, with_zeros)).all()
    rows, out = rows_of(name).copy(), np.empty((40, 7))
    evaluate = kernel.against(rows[:7], 16)
    for start, stop in ((0, 16), (16, 17), (17, 33), (33, 40)):
        evaluate(rows[start:stop], out[start:stop])
    assert_allclose(out, kernel(rows_of(name), rows_of(name)[:7]), rtol=1e-12, atol=1e-12)
    assert_array_equal(rows, rows_of(name))
    assert from_dict(kernel.to_dict()) == kernel
    assert kernel.distance in (None, *Distance.__args__)


@every_kernel
def test_a_kernel_has_the_properties_that_it_names(name):
    kernel = kernel_of(name)
    if kernel.positive:
        own = rows_of(name)
        for rows in (own, 10 * np.abs(own), own // 2 if name == "spectrum" else np.round(own)):
            values = np.linalg.eigvalsh(kernel.gram(rows))
            assert values[0] > -1e-10 * values[-1]
    if kernel.stationary:
        assert_allclose(kernel(X + 3, X + 3), kernel(X, X), rtol=1e-8, atol=1e-8)
    if kernel.radial:
        line = np.linspace(0, 6, 30)[:, None] * np.eye(1, 5)
        assert (np.diff(kernel(line[:1], line)[0]) <= 0).all()
    if kernel.spectral:  # frequencies are from its spectral density
        rng = np.random.default_rng(0)
        draws = SimpleNamespace(normals=lambda: rng.normal(size=(40_000, 5)), uniforms=lambda: rng.random(40_000))
        phases = (X[:10] - X[10:20]) @ kernel.frequencies(draws).T
        assert_allclose(np.cos(phases).mean(axis=1), np.diag(kernel(X[:10], X[10:20])), atol=0.02)


@pytest.mark.parametrize("name", [name for name in NAMES if kernel_of(name).towards is not None])
def test_the_gradient_of_a_kernel_is_that_of_finite_differences(name):
    kernel, step = kernel_of(name), 1e-5
    Z, Y = X[:4], X[4:10]
    K, weights = np.empty((2, 4, 6))
    kernel.gradient_weights(Y, 4)(Z, K, weights)
    assert_allclose(K, kernel(Z, Y), rtol=1e-12, atol=1e-12)
    for column in range(5):
        moved = step * np.eye(5)[column]
        slope = (kernel(Z + moved, Y) - kernel(Z - moved, Y)) / (2 * step)
        towards = Y[None, :, column] - (Z[:, None, column] if kernel.towards == "difference" else 0)
        assert_allclose(weights * towards, slope, rtol=1e-5, atol=1e-7)
    kernel.gradient_weights(Z, 4)(Z, np.empty((4, 4)), own := np.empty((4, 4)))
    assert_allclose(kernel.own_gradient_weight(Z), np.diag(own), rtol=1e-5)


@every_rule
def test_a_rule_gives_as_many_landmarks_as_asked_for_by_its_seed_in_the_memory_that_it_tells(name):
    rule, kernel, sample = landmarks.named(name), Gaussian(2.0), X.astype(np.float32)
    before = sample.copy()
    for size in (1, 7, 40):
        first, again = (rule.choose(sample, kernel, size, np.random.default_rng(3)) for _ in range(2))
        assert first.shape == (size, 5)
        assert first.dtype == np.float32
        assert len(landmarks.distinct(first)) == size
        assert_array_equal(first, again)
    assert_array_equal(sample, before)
    assert landmarks.from_dict(landmarks.to_dict(rule), np.empty((0, 0))) == rule
    size = 100
    sample = np.random.default_rng(0).normal(size=(min(rule.most_rows(size), 2000), 80)).astype(np.float32)
    peak = traced_peak(lambda: rule.choose(sample, Gaussian(9.0), size, np.random.default_rng(0)))
    assert peak <= rule.working_bytes(len(sample), 80, size, 4) + 2**20


@every_preimage
def test_a_preimage_is_nearer_than_the_mean_and_the_same_from_disk(name, tmp_path):
    rows = np.random.default_rng(1).normal(size=(150, 2)) @ np.random.default_rng(2).normal(size=(2, 5))
    kpca = KernelPCA(8, size=60, preimage=name, noise=0.05, random_state=0).fit(rows)
    scores = kpca.transform(rows)
    found = kpca.inverse_transform(scores)
    assert found.shape == rows.shape
    assert np.mean((found - rows) ** 2) < 0.3 * rows.var(axis=0).mean()
    kpca.save(tmp_path / "model.zarr")
    assert_array_equal(KernelPCA.load(tmp_path / "model.zarr").inverse_transform(scores), found)
    way = preimages.named(name)
    assert preimages.from_dict(preimages.to_dict(way)) == way
