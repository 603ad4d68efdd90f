"""How near each method is to exact kernel PCA: equal where theory says, within a margin elsewhere."""

import numpy as np
import pytest

from bigkpca import landmarks, methods
from tests.fitting.cases import every_method, fitted
from tests.helpers.fits import scores


@every_method
def test_training_scores_are_centred_and_new_rows_by_the_training_mean(method, X):
    model = fitted(X[:150], method=method)
    training = scores(model, X[:150])
    np.testing.assert_allclose(training.mean(axis=0), 0, atol=1e-10 * np.abs(training).max())
    squares = (training**2).sum(axis=0)
    if method == "rff-pca":  # its eigenvalues have mean(1 - a²) besides
        added = model.solution.eigenvalues - squares
        np.testing.assert_allclose(added, added[0], rtol=1e-6)
        assert 0 < added[0] < 1
    else:
        np.testing.assert_allclose(squares, model.solution.eigenvalues, rtol=1e-6)
    # A row scores as it would among the training rows, and not about the mean of the rows beside it.
    np.testing.assert_allclose(scores(model, X[:5]), training[:5], rtol=1e-9, atol=1e-9)
    assert np.abs(scores(model, X[150:]).mean(axis=0)).max() > 1e-3


OVER_ALL = landmarks.RPCholesky(over="all")


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "margin"),
    [
        ({"size": 200}, 0.01),
        ({"size": 200, "method": "columns"}, 0.05),
        ({"size": 200, "method": "rff"}, 0.1),
        ({"size": 200, "method": "rff-pca"}, 0.09),
        ({"size": 200, "method": methods.RandomFeatures("iid")}, 0.12),
        ({"size": 200, "method": methods.RandomFeatures("qmc")}, 0.11),
        ({"size": 200, "method": methods.RandomFeatures("phase")}, 0.13),
        ({"size": 512, "method": "rff-pca", "n_directions": 64}, 0.09),  # all axes
        ({"size": 100, "landmarks": "kmeans"}, 0.02),
        *(({"size": 100, "landmarks": rule}, 0.09) for rule in ("uniform", "rpcholesky", "leverage", OVER_ALL)),
        ({"size": 100, "landmarks": "basic-patterns"}, 0.14),
    ],
    ids=str,
)
def test_leading_eigenvalues_stay_within_a_margin_over_ten_seeds(options, margin, digits):
    X = digits[:600].astype(np.float64)
    exact = fitted(X, method="exact", sigma=25.0, components=5).solution.eigenvalues
    found = [fitted(X, sigma=25.0, components=5, seed=s, **options).solution.eigenvalues for s in range(10)]
    assert np.mean(np.abs(found / exact - 1)) < margin
    if "method" not in options:
        assert (1 - found / exact).min() > -1e-9  # Nyström's are lower bounds
