"""How large a model must be: errors foretold from sampled rows, and the search for a size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from bigkpca import KernelPCA, kernels
from bigkpca.numerics import growth
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.growth import SampleStratum, SizeTrial, kernel_error, next_size, trace_error
from tests.helpers import oracles


def searched(error, tol, *, start=100, most=8192, step=1):
    """All trials of a search."""
    tried = []
    while (size := next_size(tried, tol, start=start, most=most, step=step)) is not None:
        assert size not in [trial.size for trial in tried]
        assert len(tried) < 60
        tried.append(SizeTrial(size, error(size)))
    return tried


@given(
    power=st.floats(0.2, 3),
    scale=st.floats(0.5, 50),
    tol=st.floats(0.01, 0.9),
    start=st.integers(1, 300),
    step=st.sampled_from([1, 2]),
)
def test_the_search_finds_the_smallest_size_to_a_tenth(power, scale, tol, start, step):
    def error(size):
        return scale * size**-power

    tried = searched(error, tol, start=start * step, step=step)
    enough = [size for size in range(step, 8193, step) if error(size) <= tol]
    met = [trial.size for trial in tried if trial.error <= tol]
    if not enough:
        assert not met
        assert tried[-1].size == 8192
    else:
        assert enough[0] <= min(met) <= max(1.1 * enough[0], enough[0] + step) + 1
        assert all(trial.size % step == 0 for trial in tried)


def test_the_search_takes_few_trials_and_ends_with_errors_that_are_noisy_or_do_not_fall():
    assert len(searched(lambda size: 3 / np.sqrt(size), 0.1)) <= 5
    rng = np.random.default_rng(0)
    for _ in range(50):
        tried = searched(lambda size: 3 * size**-0.5 * (1 + 0.1 * rng.standard_normal()), 0.1)
        assert 500 < min(trial.size for trial in tried if trial.error <= 0.1) < 1500
    tried = searched(lambda size: 0.5, 0.1, most=3000)
    assert tried[-1] == SizeTrial(3000, 0.5)
    assert growth.extrapolated(tried, 0.1) > 3000
    # What a tolerance would take is told to two digits.
    assert growth.extrapolated([SizeTrial(100, 0.4), SizeTrial(400, 0.2)], 0.1) == 1600
    assert growth.extrapolated([SizeTrial(400, 0.2)], 0.1) == 1600


@pytest.mark.parametrize(
    ("kernel", "center"),
    [(kernels.Gaussian(25.0), True), (kernels.Polynomial(1 / 64), False), (kernels.Laplacian(200.0), True)],
)
def test_all_rows_give_the_certified_error(kernel, center, digits):
    X = digits[:300].astype(np.float64)
    model = KernelPCA(5, kernel=kernel, size=60, center=center, random_state=0).fit(X)
    features = model.model_.features
    shifted = features.shifted(X)
    for strata in (
        [SampleStratum(shifted, 300, np.ones(300))],
        [SampleStratum(shifted[:100], 100, np.ones(100)), SampleStratum(shifted[100:], 200, np.ones(200))],
    ):
        found = trace_error(features, strata, center)
        assert_allclose(found.value, model.certificate_.relative_trace_error, rtol=1e-7)
        assert found.standard_error == 0
    parts = [
        SampleStratum(shifted[:100], 100, np.full(100, 2.0)),
        SampleStratum(shifted[100:], 200, np.ones(200)),
    ]  # the first ones twice
    repeated = np.concatenate([shifted, shifted[:100]])
    expected = trace_error(features, [SampleStratum(repeated, 400, np.ones(400))], center)
    assert_allclose(trace_error(features, parts, center).value, expected.value, rtol=1e-12)
    indefinite = KernelRows(kernels.Sigmoid(0.1, -3.0), np.zeros(64), X[:40] / 16)
    assert np.isfinite(trace_error(indefinite, [SampleStratum(X / 16, 300, np.ones(300))], center=center).value)


@pytest.mark.full
def test_errors_from_sampled_rows_lie_within_their_standard_errors(digits):
    X, rng = digits.astype(np.float64), np.random.default_rng(0)
    model = KernelPCA(5, sigma=25.0, size=60, random_state=0).fit(X)
    features, certified = model.model_.features, model.certificate_.relative_trace_error
    shifted, off = features.shifted(X), []
    for _ in range(100):
        few, more = (part[rng.choice(len(part), 60, replace=False)] for part in (shifted[:600], shifted[600:]))
        found = trace_error(
            features,
            [
                SampleStratum(few, 600, np.full(60, 10.0)),
                SampleStratum(more, len(X) - 600, np.full(60, (len(X) - 600) / 60)),
            ],
            True,
        )
        off.append((found.value - certified) / found.standard_error)
    assert abs(np.mean(off)) < 0.35  # the mean z of 120 rows, not of all, makes the error a little larger
    assert 0.8 < np.std(off) < 1.25
    features = KernelPCA(5, sigma=25.0, method="rff", size=400, random_state=0).fit(X).model_.features
    whole = kernel_error(features, X, True).value
    found = [kernel_error(features, X[rng.choice(len(X), 150, replace=False)], True) for _ in range(100)]
    off = [(each.value - whole) / each.standard_error for each in found]
    assert abs(np.mean(off)) < 0.5
    assert 0.6 < np.std(off) < 1.2


@pytest.mark.parametrize("center", [True, False])
def test_the_kernel_error_is_that_of_the_matrix_without_its_diagonal(center, digits):
    X = digits[:200].astype(np.float64)
    model = KernelPCA(5, sigma=25.0, method="rff", size=400, center=center, random_state=0).fit(X)
    features = model.model_.features
    K = model.kernel_.gram(X)
    (Z, _) = next(features.tiles([X], len(X)))
    E = K - Z @ Z.T
    if center:
        K, E = oracles.centred(K), oracles.centred(E)
    apart = ~np.eye(len(X), dtype=bool)
    expected = np.linalg.norm(E[apart]) / np.linalg.norm(K[apart])
    assert_allclose(kernel_error(features, X, center).value, expected, rtol=1e-10)
    features = KernelRows(kernels.Linear(), np.zeros(64), np.eye(64))  # x itself, whose products are the kernel
    assert kernel_error(features, X, center).value < 1e-12
