"""How near each method is to exact kernel PCA: equal where theory says, within a margin elsewhere."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from bigkpca import KernelPCA, arrays, landmarks, methods
from tests.fitting.cases import errors, every_method, fitted
from tests.helpers import oracles
from tests.helpers.fits import scores


@pytest.mark.parametrize("method", ["nystroem", "columns", methods.Nystroem("thesis")], ids=str)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
def test_with_every_row_a_landmark_methods_are_exact(method, center, kernel, X):
    X = X[:200]
    full = fitted(X, method=method, kernel=kernel, center=center, size=200, landmarks="uniform", components=10)
    exact = fitted(X, method="exact", kernel=kernel, center=center, components=10)
    np.testing.assert_allclose(full.solution.eigenvalues, exact.solution.eigenvalues, rtol=1e-6)
    theirs = scores(exact, X)
    ours = oracles.with_signs_of(scores(full, X), theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("center", [True, False])
def test_the_nystroem_of_the_thesis_extends_eigenvectors_of_the_landmarks(center, X):
    model = fitted(X, method=methods.Nystroem("thesis", rank=4), center=center)
    expected, _ = oracles.gram_kpca(model.features.gram(), 4, center)  # type: ignore[attr-defined]
    np.testing.assert_allclose(model.solution.eigenvalues, len(X) / 60 * expected, rtol=1e-9)


@pytest.mark.parametrize("landmarks", ["rpcholesky", "uniform", "leverage", "basic-patterns", "kmeans"])
def test_the_linear_kernel_is_pca_whatever_the_landmarks(landmarks):
    X = 3 + np.random.default_rng(0).normal(size=(300, 8)) * np.arange(1, 9)
    ours = KernelPCA(5, kernel="linear", landmarks=landmarks, size=20, random_state=1).fit(X)
    theirs = PCA(5).fit(X)
    expected = theirs.transform(X)
    np.testing.assert_allclose(oracles.with_signs_of(ours.transform(X), expected), expected, atol=1e-8)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.explained_variance_ * (len(X) - 1), rtol=1e-9)


def mean_gram(X, seeds, **options):
    """(mean, standard error of the mean) of ZZ' over seeds, entry by entry."""
    grams = []
    for seed in range(seeds):
        Z = np.asarray(arrays.feature_map(fitted(X, seed=seed, **options), X).compute(scheduler="synchronous"))
        grams.append(Z @ Z.T)
    return np.mean(grams, axis=0), np.std(grams, axis=0) / np.sqrt(seeds)


@pytest.mark.parametrize(
    ("method", "form"), [("rff", "orthogonal"), *(("rff-pca", form) for form in ("orthogonal", "iid", "qmc", "phase"))]
)
def test_gram_matrices_of_random_features_have_the_kernel_as_their_mean(method, form):
    X = np.random.default_rng(0).normal(size=(20, 4)) * [3, 2, 1, 0.5]
    options = {"sigma": 2.5, "size": 64, "components": 2}
    if method == "rff-pca":  # on all axes there is nothing to correct for
        options |= {"method": methods.PrincipalFeatures(form=form), "n_directions": 4}
    else:
        options |= {"method": methods.RandomFeatures(form)}
    mean, error = mean_gram(X, 25, **options)
    K = oracles.matrix(lambda x, y: oracles.gaussian(x, y, 2.5), X, X)
    assert (np.abs(mean - K) < 5 * error + 1e-9).all()
    assert error.max() < 0.04


def test_tensor_sketches_have_the_polynomial_kernel_as_their_mean():
    X = np.random.default_rng(0).normal(size=(12, 4))
    options = {"method": "rff", "kernel": "polynomial", "gamma": 0.3, "degree": 2, "coef0": 0.5}
    mean, error = mean_gram(X, 25, **options, size=128, components=2)
    K = oracles.matrix(lambda x, y: oracles.polynomial(x, y, 0.3, 2, 0.5), X, X)
    assert (np.abs(mean - K) < 5 * error + 1e-9).all()
    assert error.max() < 0.1 * K.max()


def test_rff_pca_on_all_axes_is_as_good_as_rff(X):
    exact = fitted(X, method="exact", sigma=25.0).solution.eigenvalues
    rff, principal = (
        np.mean([errors(fitted(X, sigma=25.0, size=512, seed=s, **more).solution.eigenvalues, exact) for s in range(5)])
        for more in ({"method": "rff"}, {"method": "rff-pca", "n_directions": 64})
    )
    assert principal < 1.5 * rff
    assert rff < 0.1


@every_method
def test_training_scores_are_centred_and_have_the_eigenvalues_as_squares(method, few):
    model = fitted(few, method=method)
    training = scores(model, few)
    np.testing.assert_allclose(training.mean(axis=0), 0, atol=1e-10 * np.abs(training).max())
    squares = (training**2).sum(axis=0)
    if method == "rff-pca":  # its eigenvalues have mean(1 - a²) besides
        added = model.solution.eigenvalues - squares
        np.testing.assert_allclose(added, added[0], rtol=1e-6)
        assert 0 < added[0] < 1
    else:
        np.testing.assert_allclose(squares, model.solution.eigenvalues, rtol=1e-6)


@every_method
def test_new_rows_are_centred_by_the_training_mean(method, X):
    # A new row scores as it would among the training rows, and not about the mean of the new rows.
    model = fitted(X[:300], method=method)
    np.testing.assert_allclose(scores(model, X[:5]), scores(model, X[:300])[:5], rtol=1e-9, atol=1e-9)
    assert np.abs(scores(model, X[300:]).mean(axis=0)).max() > 1e-3


@pytest.mark.parametrize(
    ("method", "margin"),
    [
        ("nystroem", 0.01),
        ("columns", 0.05),
        ("rff", 0.1),
        ("rff-pca", 0.09),
        (methods.RandomFeatures("iid"), 0.12),
        (methods.RandomFeatures("qmc"), 0.11),
        (methods.RandomFeatures("phase"), 0.13),
    ],
    ids=str,
)
def test_leading_eigenvalues_stay_within_a_margin_over_ten_seeds(method, margin, X, exact):
    found = [fitted(X, method=method, sigma=25.0, components=5, size=200, seed=s) for s in range(10)]
    mean = np.mean([errors(model.solution.eigenvalues, exact) for model in found])
    assert mean < margin


@pytest.mark.parametrize(
    ("rule", "margin"),
    [
        ("kmeans", 0.02),
        ("uniform", 0.09),
        ("rpcholesky", 0.09),
        ("leverage", 0.09),
        ("basic-patterns", 0.14),
        (landmarks.RPCholesky(over="all"), 0.09),
    ],
    ids=str,
)
def test_leading_eigenvalues_of_every_rule_stay_within_a_margin_over_ten_seeds(rule, margin, X, exact):
    found = [fitted(X, landmarks=rule, sigma=25.0, components=5, size=100, seed=s) for s in range(10)]
    below = np.array([1 - model.solution.eigenvalues / exact for model in found])
    assert below.min() > -1e-9  # Nyström's are lower bounds
    assert below.mean() < margin
