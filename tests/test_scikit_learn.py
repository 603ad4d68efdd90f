"""What scikit-learn's users know: parameters and attributes of the same meaning, or an error that says what to do.

Tests that have names of scikit-learn's own tests of KernelPCA and Nystroem are their counterparts.
"""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as Peer
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import laplacian_kernel

import bigkpca
from bigkpca import KernelPCA, kernels
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.bandwidth import scale_gamma


@pytest.fixture
def X(digits):
    return digits[:150].astype(np.float64)


def test_functions_take_the_names_of_the_estimator_and_errors_name_them(X, tmp_path):
    model = bigkpca.fit(X, tmp_path / "0.zarr", size=20, n_components=2, random_state=3)
    assert (model.components, model.provenance["spec"]["random_state"]) == (2, 3)
    for call in (
        lambda **names: bigkpca.plan(X, **names),
        lambda **names: bigkpca.fit(X, tmp_path / "m.zarr", **names),
        lambda **names: bigkpca.compare(X, tmp_path / "c", **names),
    ):
        with pytest.raises(SpecError, match=r"^n_components=0: "):
            call(n_components=0)
    with pytest.raises(SpecError, match=r"components.*did you mean 'n_components'"):
        bigkpca.plan(X, components=2)
    for parameters, message in (
        ({"n_components": -1}, r"^n_components=-1: Input should be greater than"),
        ({"random_state": -1}, r"^random_state=-1: Input should be greater than or equal to 0"),
    ):
        with pytest.raises(SpecError, match=message):
            KernelPCA(**parameters).fit(X)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
def test_gamma_means_what_it_means_there(X):
    for ours, theirs, gamma in (("gaussian", "rbf", 6e-4), ("polynomial", "poly", 5e-4), ("sigmoid", "sigmoid", 1e-5)):
        found = KernelPCA(3, kernel=ours, gamma=gamma, method="exact", coef0=1).fit(X)
        expected = Peer(3, kernel=theirs, gamma=gamma, coef0=1).fit(X)
        assert found.gamma_ == expected.gamma_ == gamma
        np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
    laplacian = KernelPCA(3, kernel="laplacian", gamma=5e-3, size=50, random_state=0).fit(X)
    np.testing.assert_allclose(laplacian.kernel_(X, X), laplacian_kernel(X, gamma=5e-3), rtol=1e-9)
    assert KernelPCA(2, kernel="cosine", size=20, random_state=0).fit(X).gamma_ is None


def test_gamma_by_scale_is_that_of_scikit_learn(X, tmp_path):
    varying = X[:, X.std(axis=0) > 0].shape[1]
    for options, expected in (
        ({"method": "rff"}, 1 / (64 * X.var())),
        ({"kernel": "polynomial"}, 1 / (64 * X.var())),
        ({"standardize": True}, 1 / varying),  # d var = number of columns that vary
    ):
        found = KernelPCA(3, gamma="scale", size=20, random_state=0, **options).fit(X)
        assert found.gamma_ == pytest.approx(expected, rel=1e-3)
        assert "variance of the sampled rows" in found.model_.provenance["choices"][0]["reason"]
    for unit in (1e-120, 1.0, 1e120):
        np.testing.assert_allclose(scale_gamma(X * unit), 1 / (64 * X.var()) / unit / unit, rtol=1e-9)
    with pytest.raises(DataError, match="gamma='scale' needs rows that vary"):
        scale_gamma(np.ones((5, 2)))
    model = bigkpca.fit(X, tmp_path / "model.zarr", n_components=2, size=20, gamma="scale")
    again = KernelPCA.load(tmp_path / "model.zarr")
    assert (again.gamma, again.kernel_) == ("scale", model.features.kernel)
    for options, message in (
        ({"kernel": "cosine", "gamma": "scale"}, "the cosine kernel has no gamma"),
        ({"gamma": "scales"}, "gamma='scales': Input should be a valid number.*'scale'"),
    ):
        with pytest.raises(SpecError, match=message):
            KernelPCA(**options).fit(X)


@pytest.mark.parametrize("center", [True, False])
def test_eigenvectors_of_exact_models_are_those_of_scikit_learn(X, center):
    ours = KernelPCA(4, method="exact", gamma=5e-4, center=center).fit(X)
    K = ours.kernel_(X, X)
    H = np.eye(150) - center / 150
    np.testing.assert_allclose(ours.eigenvectors_.T @ ours.eigenvectors_, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(H @ K @ H @ ours.eigenvectors_, ours.eigenvectors_ * ours.eigenvalues_, atol=1e-8)
    np.testing.assert_allclose(ours.eigenvectors_ * np.sqrt(ours.eigenvalues_), ours.transform(X), atol=1e-8)
    if center:
        theirs = Peer(4, kernel="rbf", gamma=5e-4).fit(X)
        np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
        np.testing.assert_allclose(np.abs(ours.eigenvectors_), np.abs(theirs.eigenvectors_), atol=1e-8)
        np.testing.assert_allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)), atol=1e-8)


def test_eigenvectors_of_refined_models_and_precomputed_matrices_are_of_all_rows_and_others_have_none(X):
    refined = KernelPCA(3, size=75, refine=2, sigma=25.0, random_state=0).fit(X)
    scores, expected = refined.eigenvectors_ * np.sqrt(refined.eigenvalues_), refined.transform(X)
    np.testing.assert_allclose(scores, expected, atol=2e-2 * np.abs(expected).max())
    K = kernels.Gaussian(20.0)(X, X)
    ours = KernelPCA(3, kernel="precomputed").fit(K)
    theirs = Peer(3, kernel="precomputed").fit(K)
    np.testing.assert_allclose(np.abs(ours.eigenvectors_), np.abs(theirs.eigenvectors_), atol=1e-8)
    for method in ("nystroem", "rff"):
        kpca = KernelPCA(3, method=method, size=40, random_state=0).fit(X)
        assert not hasattr(kpca, "eigenvectors_")
        with pytest.raises(AttributeError, match="only models fitted with method='exact' or refine"):
            _ = kpca.eigenvectors_


def squared(A, B, weight=1.0):
    return (1 + weight * (A @ B.T)) ** 2


def test_a_callable_kernel_takes_its_parameters(X):
    rows = X / 50
    kernel = partial(squared, weight=0.5)
    ours = clone(KernelPCA(3, kernel=kernel, method="exact")).fit(rows)
    expected = KernelPCA(3, kernel="polynomial", degree=2, gamma=0.5, coef0=1, method="exact").fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    nystroem = KernelPCA(3, kernel=kernel, size=20, random_state=0)
    assert nystroem.partial_fit(rows[:100]).partial_fit(rows[100:]).model_.moments.count == 150


def test_kernel_pca_consistent_transform(X):
    rows = X.copy()
    kpca = KernelPCA(3, size=30, random_state=0).fit(rows)
    before = kpca.transform(X)
    rows[:, 0] = 666  # the rows of the fit are nobody's any more
    np.testing.assert_array_equal(kpca.transform(X), before)


def test_kernel_pca_linear_kernel():
    X = np.random.default_rng(0).normal(size=(50, 10))
    expected = PCA(3, svd_solver="full").fit(X)
    for method in ("exact", "nystroem"):
        kpca = KernelPCA(3, kernel="linear", method=method, size=30, random_state=0).fit(X)
        np.testing.assert_allclose(np.abs(kpca.transform(X)), np.abs(expected.transform(X)), atol=1e-7)
        np.testing.assert_allclose(kpca.explained_variance_ratio_, expected.explained_variance_ratio_, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
@pytest.mark.filterwarnings("ignore::bigkpca.errors.FewerComponentsWarning")
def test_components_that_are_rounding_are_never_kept():
    X = np.array([[1 - 1e-30, 1], [1, 1], [1, 1 - 1e-20], [2, 3.0]])  # a line of two points
    for count in (None, 2):
        kpca = KernelPCA(count, kernel="linear", method="exact").fit(X)
        assert kpca.n_components_ == 1
        assert kpca.transform(X).shape == (4, 1)
    X = np.array([[5.0, 1.0], [5 + 1e-8, 1e-8], [5 + 1e-8, 0]])
    kpca = KernelPCA(2, kernel="linear", method="exact").fit(X)
    assert np.isfinite(kpca.eigenvalues_).all()
    assert kpca.eigenvalues_.min() > 1e-12 * kpca.eigenvalues_.max()


def test_kernel_pca_raise_not_fitted_error():
    for method in ("transform", "inverse_transform", "denoise", "residual", "score", "save"):
        with pytest.raises(NotFittedError):
            getattr(KernelPCA(2), method)(np.zeros((3, 2)))
