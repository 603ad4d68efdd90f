"""Standardised columns: as a scaler would give them, whatever their units."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from tests.fitting.cases import fitted
from tests.helpers import oracles
from tests.helpers.fits import scores

STANDARDIZED = {"nystroem": {"landmarks": "uniform"}, "columns": {}, "rff": {}, "rff-pca": {}, "exact": {}}


@pytest.mark.parametrize("method", STANDARDIZED)
def test_standardize_is_fitting_what_a_scaler_gives(method, few):
    options = {"method": method, **STANDARDIZED[method]}
    Y = StandardScaler().fit_transform(few)
    ours, theirs = fitted(few, standardize=True, **options), fitted(Y, **options)
    np.testing.assert_allclose(ours.solution.eigenvalues, theirs.solution.eigenvalues, rtol=1e-9)
    assert ours.features.kernel == pytest.approx(theirs.features.kernel) or np.isclose(
        ours.features.kernel.sigma,  # type: ignore[attr-defined]
        theirs.features.kernel.sigma,  # type: ignore[attr-defined]
        rtol=1e-12,
    )
    expected = scores(theirs, Y)
    np.testing.assert_allclose(oracles.with_signs_of(scores(ours, few), expected), expected, atol=1e-7)


@pytest.mark.parametrize("method", ["nystroem", "rff", "rff-pca"])
@pytest.mark.parametrize(
    ("unit", "shift", "dtype"), [(1e6, 0.0, np.float64), (1e-6, 0.0, np.float64), (1.0, 2.0**20, np.float32)]
)
def test_units_and_origins_do_not_matter_to_standardised_columns(method, unit, shift, dtype, few):
    options = {"method": method, "standardize": True, "landmarks": "uniform" if method == "nystroem" else "auto"}
    moved = (few * unit + shift).astype(dtype)
    ours, plain = fitted(moved, **options), fitted(few, **options)
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(ours.solution.eigenvalues, plain.solution.eigenvalues, rtol=tolerance)
    expected = scores(plain, few)
    ours_scores = oracles.with_signs_of(scores(ours, moved), expected)
    np.testing.assert_allclose(ours_scores, expected, atol=10 * tolerance)


@pytest.mark.parametrize("block_rows", [None, 7])
def test_constant_columns_keep_scale_one(block_rows):
    X = np.random.default_rng(0).normal(size=(100, 5))
    X[:, 1], X[:, 3], X[:, 4] = 1 / 3, 1e9 + 1 / 3, 0.0
    model = fitted(X, standardize=True, size=30, components=3, block_rows=block_rows)
    scale = model.features.scale
    assert scale is not None
    np.testing.assert_array_equal(scale[[1, 3, 4]], 1)
    np.testing.assert_allclose(scale[[0, 2]], X[:, [0, 2]].std(axis=0), rtol=1e-12)
    assert np.isfinite(scores(model, X)).all()
