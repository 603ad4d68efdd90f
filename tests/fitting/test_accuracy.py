"""How near each method is to exact kernel PCA: equal where theory says, within a margin elsewhere."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from bigkpca import KernelPCA, arrays, landmarks, methods
from tests.fitting.cases import errors, every_method, fitted
from tests.helpers import oracles
from tests.helpers.fits import scores


@pytest.mark.parametrize(
    ("method", "kernel", "center"),
    [
        ("nystroem", "gaussian", True),
        ("nystroem", "polynomial", False),
        ("columns", "polynomial", True),
        (methods.Nystroem("thesis"), "gaussian", False),
    ],
    ids=str,
)
def test_with_every_row_a_landmark_methods_are_exact(method, kernel, center, X):
    X = X[:120]
    full = fitted(X, method=method, kernel=kernel, center=center, size=120, landmarks="uniform", components=10)
    exact = fitted(X, method="exact", kernel=kernel, center=center, components=10)
    np.testing.assert_allclose(full.solution.eigenvalues, exact.solution.eigenvalues, rtol=1e-6)
    theirs = scores(exact, X)
    ours = oracles.with_signs_of(scores(full, X), theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


def test_the_nystroem_of_the_thesis_extends_eigenvectors_of_the_landmarks(X):
    for center in (True, False):
        model = fitted(X, method=methods.Nystroem("thesis", rank=4), center=center)
        expected, _ = oracles.gram_kpca(model.features.gram(), 4, center)
        np.testing.assert_allclose(model.solution.eigenvalues, len(X) / 60 * expected, rtol=1e-9)


def test_the_linear_kernel_is_pca_whatever_the_landmarks():
    X = 3 + np.random.default_rng(0).normal(size=(300, 8)) * np.arange(1, 9)
    theirs = PCA(5).fit(X)
    expected = theirs.transform(X)
    for rule in landmarks.RULES:
        ours = KernelPCA(5, kernel="linear", landmarks=rule, size=20, random_state=1).fit(X)
        found = oracles.with_signs_of(ours.transform(X), expected)
        np.testing.assert_allclose(found, expected, atol=1e-8, err_msg=rule)
        np.testing.assert_allclose(ours.eigenvalues_, theirs.explained_variance_ * (len(X) - 1), rtol=1e-9)


@pytest.mark.parametrize(
    "method",
    [
        methods.RandomFeatures("orthogonal"),
        *(
            pytest.param(method, marks=pytest.mark.full)
            for method in (
                methods.RandomFeatures("phase"),
                *(methods.PrincipalFeatures(form=form) for form in ("orthogonal", "iid", "qmc", "phase")),
                "tensor sketch",
            )
        ),
    ],
    ids=str,
)
def test_gram_matrices_of_random_features_have_the_kernel_as_their_mean(method):
    X = np.random.default_rng(0).normal(size=(20, 4)) * [3, 2, 1, 0.5]
    options = {"method": method, "sigma": 2.5, "size": 64}
    kernel = lambda x, y: oracles.gaussian(x, y, 2.5)  # noqa: E731
    if method == "tensor sketch":
        options = {"method": "rff", "kernel": "polynomial", "gamma": 0.3, "degree": 2, "coef0": 0.5, "size": 128}
        kernel, X = lambda x, y: oracles.polynomial(x, y, 0.3, 2, 0.5), X[:12] / [3, 2, 1, 0.5]
    elif isinstance(method, methods.PrincipalFeatures):
        options["n_directions"] = 4  # on all axes there is nothing to correct for
    grams = []
    for seed in range(25):
        Z = arrays.feature_map(fitted(X, seed=seed, components=2, **options), X).compute(scheduler="synchronous")
        grams.append(Z @ Z.T)
    K, error = oracles.matrix(kernel, X, X), np.std(grams, axis=0) / np.sqrt(25)
    assert (np.abs(np.mean(grams, axis=0) - K) < 5 * error + 1e-9).all()
    assert error.max() < (0.1 * K.max() if method == "tensor sketch" else 0.04)


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


# Statistics over seeds


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
        ({"size": 100, "landmarks": "uniform"}, 0.09),
        ({"size": 100, "landmarks": "rpcholesky"}, 0.09),
        ({"size": 100, "landmarks": "leverage"}, 0.09),
        ({"size": 100, "landmarks": "basic-patterns"}, 0.14),
        ({"size": 100, "landmarks": landmarks.RPCholesky(over="all")}, 0.09),
    ],
    ids=str,
)
def test_leading_eigenvalues_stay_within_a_margin_over_ten_seeds(options, margin, digits):
    X = digits[:600].astype(np.float64)
    exact = fitted(X, method="exact", sigma=25.0, components=5).solution.eigenvalues
    found = [fitted(X, sigma=25.0, components=5, seed=s, **options).solution.eigenvalues for s in range(10)]
    assert np.mean(errors(found, exact)) < margin
    if "method" not in options:
        assert (1 - found / exact).min() > -1e-9  # Nyström's are lower bounds
