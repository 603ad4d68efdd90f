"""What scores of every method add up to, and what they are centred by."""

import numpy as np

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
