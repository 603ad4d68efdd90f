"""What scikit-learn's users know: parameters and attributes of the same meaning, or an error that says what to do.

The second part has counterparts of what scikit-learn's own tests of KernelPCA, Nystroem and RBFSampler check, under
their names where they have one. Without counterpart are those of what is not here (`remove_zero_eig=False`, which keeps
components that are rounding; array API; chi-squared samplers; `normalized` iterations), and
`test_kernel_pca_inverse_correct_gamma`, since the default of gamma is another one. Precomputed matrices have a folder
of tests, `tests/fitting/precomputed`; frames and names stand in `tests/test_estimator.py`.
"""

import inspect

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_circles
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as Peer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Perceptron
from sklearn.metrics.pairwise import laplacian_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import bigkpca
from bigkpca import KernelPCA, kernels
from bigkpca.errors import DataError, SpecError


@pytest.fixture
def X(digits):
    return digits[:300].astype(np.float64)


def test_parameters_that_we_lack_are_told_with_what_to_do():
    ours = set(KernelPCA().get_params())
    for name in set(inspect.signature(Peer).parameters) - ours:
        with pytest.raises(TypeError, match=f"KernelPCA has no {name}, as scikit-learn's has: "):
            KernelPCA(**{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_component'"):
        KernelPCA(n_component=3)


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "sigmoid"])
@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
def test_gamma_means_what_it_means_there(X, kernel):
    names = {"gaussian": "rbf", "polynomial": "poly"}
    gamma = 1e-5 if kernel == "sigmoid" else 5e-4
    ours = KernelPCA(3, kernel=kernel, gamma=gamma, method="exact", coef0=1).fit(X)
    theirs = Peer(3, kernel=names.get(kernel, kernel), gamma=gamma, coef0=1).fit(X)
    assert ours.gamma_ == pytest.approx(theirs.gamma_)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)


def test_gamma_of_the_laplacian_is_that_of_its_kernel_there(X):
    ours = KernelPCA(3, kernel="laplacian", gamma=5e-3, size=50, random_state=0).fit(X)
    assert ours.gamma_ == pytest.approx(5e-3)
    np.testing.assert_allclose(ours.kernel_(X, X), laplacian_kernel(X, gamma=5e-3), rtol=1e-9)


def test_kernels_without_an_inverse_width_have_none(X):
    assert KernelPCA(2, kernel="cosine", size=20, random_state=0).fit(X).gamma_ is None


def test_gamma_by_scale_is_that_of_scikit_learn(X):
    ours = KernelPCA(3, gamma="scale", method="rff", size=20, random_state=0).fit(X)
    assert ours.gamma_ == pytest.approx(1 / (64 * X.var()))
    (choice,) = [each for each in ours.model_.provenance["choices"] if each["option"] == "sigma"]
    assert "variance of the sampled rows" in choice["reason"]
    polynomial = KernelPCA(3, kernel="polynomial", gamma="scale", size=20, random_state=0).fit(X)
    assert polynomial.gamma_ == pytest.approx(1 / (64 * X.var()))
    scaled = KernelPCA(3, gamma="scale", standardize=True, size=20, random_state=0).fit(X)
    varying = X[:, X.std(axis=0) > 0].shape[1]
    assert scaled.gamma_ == pytest.approx(1 / varying, rel=1e-3)  # d var = number of columns that vary
    matern = KernelPCA(3, kernel="matern", gamma="scale", size=20, random_state=0).fit(X)
    assert matern.sigma_ == pytest.approx(ours.sigma_)


def test_gamma_by_scale_is_an_option_of_commands_and_files(X, tmp_path):
    model = bigkpca.fit(X, tmp_path / "model.zarr", components=2, size=20, gamma="scale")
    again = KernelPCA.load(tmp_path / "model.zarr")
    assert again.gamma == "scale"
    assert model.features.kernel == again.kernel_
    with pytest.raises(SpecError, match="the cosine kernel has no gamma"):
        bigkpca.fit(X, tmp_path / "other.zarr", kernel="cosine", gamma="scale")
    with pytest.raises(SpecError, match="gamma='scales': give a number or 'scale'"):
        bigkpca.fit(X, tmp_path / "other.zarr", gamma="scales")
    with pytest.raises(SpecError, match="gamma='scale' is measured on the sample of each fit"):
        bigkpca.compare(X, tmp_path / "compared", gamma="scale", components=2)


def test_gamma_by_scale_needs_rows_that_vary():
    from bigkpca.numerics.bandwidth import scale_gamma

    with pytest.raises(DataError, match="gamma='scale' needs rows that vary"):
        scale_gamma(np.ones((5, 2)))
    X = np.random.default_rng(0).normal(size=(50, 3))
    for unit in (1e-120, 1.0, 1e120):
        np.testing.assert_allclose(scale_gamma(X * unit), 1 / (3 * X.var()) / unit / unit, rtol=1e-9)


@pytest.mark.parametrize("center", [True, False])
def test_eigenvectors_of_exact_models_are_those_of_scikit_learn(X, center):
    ours = KernelPCA(4, method="exact", gamma=5e-4, center=center).fit(X)
    K = ours.kernel_(X, X)
    H = np.eye(300) - center / 300
    np.testing.assert_allclose(ours.eigenvectors_.T @ ours.eigenvectors_, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(H @ K @ H @ ours.eigenvectors_, ours.eigenvectors_ * ours.eigenvalues_, atol=1e-8)
    np.testing.assert_allclose(ours.eigenvectors_ * np.sqrt(ours.eigenvalues_), ours.transform(X), atol=1e-8)
    if center:
        theirs = Peer(4, kernel="rbf", gamma=5e-4).fit(X)
        np.testing.assert_allclose(np.abs(ours.eigenvectors_), np.abs(theirs.eigenvectors_), atol=1e-8)


def test_eigenvectors_of_refined_models_are_of_all_rows(X):
    refined = KernelPCA(3, size=150, refine=2, sigma=25.0, random_state=0).fit(X)
    scores = refined.transform(X)
    np.testing.assert_allclose(
        refined.eigenvectors_ * np.sqrt(refined.eigenvalues_), scores, atol=2e-2 * np.abs(scores).max()
    )


def test_eigenvectors_of_a_precomputed_matrix(X):
    K = kernels.Gaussian(20.0)(X, X)
    ours = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    theirs = Peer(3, kernel="precomputed").fit(K)
    np.testing.assert_allclose(np.abs(ours.eigenvectors_), np.abs(theirs.eigenvectors_), atol=1e-8)


def test_models_that_keep_few_rows_say_why_they_have_no_eigenvectors(X):
    for method in ("nystroem", "rff"):
        kpca = KernelPCA(3, method=method, size=40, random_state=0).fit(X)
        assert not hasattr(kpca, "eigenvectors_")
        with pytest.raises(AttributeError, match="held by models of method='exact' and with refine"):
            _ = kpca.eigenvectors_


def squared(A, B, weight=1.0):
    return (1 + weight * (A @ B.T)) ** 2


def test_a_callable_kernel_takes_its_parameters(X):
    rows = X / 50
    ours = KernelPCA(3, kernel=squared, kernel_params={"weight": 0.5}, method="exact").fit(rows)
    expected = KernelPCA(3, kernel="polynomial", degree=2, gamma=0.5, coef0=1, method="exact").fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    assert clone(ours).kernel_params == {"weight": 0.5}
    nystroem = KernelPCA(3, kernel=squared, kernel_params={"weight": 0.5}, size=50, random_state=0)
    assert nystroem.partial_fit(rows[:200]).partial_fit(rows[200:]).model_.moments.count == 300
    for kernel in ("matern", kernels.Linear(), 3):
        with pytest.raises(SpecError, match=r"kernel_params=.* is for callables"):
            KernelPCA(3, kernel=kernel, kernel_params={"nu": 2.5}).fit(rows)


def test_kernel_pca_deterministic_output():
    X = np.random.default_rng(0).normal(size=(30, 10))
    for method in ("nystroem", "exact", "rff"):
        found = [KernelPCA(2, method=method, size=20, random_state=0).fit_transform(X)[0] for _ in range(5)]
        np.testing.assert_array_equal(found, np.tile(found[0], (5, 1)))


def test_kernel_pca_consistent_transform(X):
    rows = X.copy()
    kpca = KernelPCA(3, size=30, random_state=0).fit(rows)
    before = kpca.transform(X)
    rows[:, 0] = 666  # the rows of the fit are nobody's any more
    np.testing.assert_array_equal(kpca.transform(X), before)


@pytest.mark.parametrize("container", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
def test_kernel_pca_sparse(X, container, kernel):
    dense, sparse = (KernelPCA(3, kernel=kernel, size=40, random_state=0) for _ in range(2))
    np.testing.assert_allclose(sparse.fit_transform(container(X)), dense.fit_transform(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sparse.transform(container(X[:7])), dense.transform(X[:7]), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_features", [4, 10])
@pytest.mark.parametrize("method", ["exact", "nystroem"])
def test_kernel_pca_linear_kernel(method, n_features):
    X = np.random.default_rng(0).normal(size=(50, n_features))
    kpca = KernelPCA(3, kernel="linear", method=method, size=30, random_state=0).fit(X)
    expected = PCA(3, svd_solver="full").fit_transform(X)
    np.testing.assert_allclose(np.abs(kpca.transform(X)), np.abs(expected), atol=1e-7)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("method", ["exact", "nystroem", "rff"])
def test_kernel_pca_n_components(count, method):
    X = np.random.default_rng(0).normal(size=(40, 5))
    assert KernelPCA(count, method=method, size=30, random_state=0).fit(X).transform(X[:2]).shape == (2, count)


@pytest.mark.parametrize("count", [None, 2])
def test_components_that_are_rounding_are_never_kept(count):
    X = np.array([[1 - 1e-30, 1], [1, 1], [1, 1 - 1e-20], [2, 3.0]])  # a line of two points
    kpca = KernelPCA(count, kernel="linear", method="exact").fit(X)
    assert kpca.n_components_ == 1
    assert kpca.transform(X).shape == (4, 1)


def test_gridsearch_pipeline():
    X, y = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    pipeline = make_pipeline(KernelPCA(2, size=60, random_state=0), Perceptron(max_iter=5, tol=None))
    search = GridSearchCV(pipeline, {"kernelpca__gamma": 2.0 ** np.arange(-2, 2)}, cv=3).fit(X, y)
    assert search.best_score_ == 1


def test_nested_circles():
    X, y = make_circles(400, factor=0.3, noise=0.05, random_state=0)
    assert Perceptron(max_iter=5, tol=None).fit(X, y).score(X, y) < 0.8
    scores = KernelPCA(2, gamma=2.0, size=60, random_state=0).fit_transform(X)
    assert Perceptron(max_iter=5, tol=None).fit(scores, y).score(scores, y) == 1


def test_kernel_conditioning():
    X = np.array([[5.0, 1.0], [5 + 1e-8, 1e-8], [5 + 1e-8, 0]])
    kpca = KernelPCA(2, kernel="linear", method="exact").fit(X)
    assert np.isfinite(kpca.eigenvalues_).all()
    assert kpca.eigenvalues_.min() > 1e-12 * kpca.eigenvalues_.max()


@pytest.mark.parametrize("count", [4, 30])
def test_kernel_pca_solvers_equivalence(X, count):
    whole = KernelPCA(count, method="exact", sigma=25.0).fit(X)
    every_row = KernelPCA(count, size=300, landmarks="uniform", sigma=25.0, random_state=0).fit(X)
    refined = KernelPCA(count, size=200, refine=6, residual_tol=1e-8, sigma=25.0, random_state=0).fit(X)
    for other in (every_row, refined):
        np.testing.assert_allclose(other.eigenvalues_, whole.eigenvalues_, rtol=1e-7)
        np.testing.assert_allclose(np.abs(other.transform(X)), np.abs(whole.transform(X)), atol=1e-4)


def test_kernel_pca_inverse_transform_reconstruction():
    X, _ = make_blobs(n_samples=100, n_features=6, random_state=0)
    for preimage in ("fixed-point", "ridge:ridge=1e-3"):
        kpca = KernelPCA(20, preimage=preimage, size=100, random_state=0).fit(X)
        rebuilt = kpca.inverse_transform(kpca.transform(X))
        assert np.linalg.norm(X - rebuilt) / np.linalg.norm(X) < 1e-1


def test_kernel_pca_raise_not_fitted_error():
    kpca, X = KernelPCA(2), np.zeros((3, 2))
    for method in ("transform", "inverse_transform", "denoise", "residual", "score", "to_sklearn"):
        with pytest.raises(NotFittedError):
            getattr(kpca, method)(*([] if method == "to_sklearn" else [X]))


def test_32_64_decomposition_shape():
    X, _ = make_blobs(n_samples=30, centers=[[0, 0, 0], [1, 1, 1]], random_state=0, cluster_std=0.1)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    shapes = {KernelPCA(None, kernel="linear", method="exact").fit_transform(X.astype(t)).shape for t in ("f4", "f8")}
    assert shapes == {(30, 3)}


@pytest.mark.parametrize("kernel", ["linear", "polynomial", "gaussian", "sigmoid", "cosine", "laplacian", "matern"])
@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
def test_nystroem_approximation(X, kernel):
    rows = X[:60] / 30
    kpca = KernelPCA(None, kernel=kernel, landmarks="uniform", size=60, random_state=0, coef0=0.5).fit(rows)
    K, H = kpca.kernel_(rows, rows), np.eye(60) - 1 / 60
    scores = kpca.transform(rows)
    if kernel != "sigmoid":  # the negative part of which is dropped
        np.testing.assert_allclose(scores @ scores.T, H @ K @ H, atol=1e-6)
    assert kpca.landmarks_.shape[1] == 64


def test_nystroem_singular_kernel():
    rows = np.random.default_rng(0).random((10, 20))
    X = np.vstack([rows] * 2)  # each row twice
    kpca = KernelPCA(None, landmarks="uniform", size=20, gamma=100.0, random_state=0, center=False)
    scores = kpca.fit_transform(X)
    np.testing.assert_allclose(scores @ scores.T, kpca.kernel_(X, X), atol=1e-9)
    assert np.isfinite(kpca.transform(X + 0.1)).all()


def test_rbf_sampler(X):
    rows = X[:50] / 30
    kpca = KernelPCA(None, method="rff", size=1500, gamma=0.05, center=False, random_state=0).fit(rows)
    scores = kpca.transform(rows)
    off = np.abs(scores @ scores.T - kpca.kernel_(rows, rows))
    assert off.max() <= 0.1
    assert off.mean() <= 0.05


@pytest.mark.parametrize("method", ["nystroem", "rff"])
def test_rbf_sampler_dtype_equivalence(X, method):
    single, double = (
        KernelPCA(5, method=method, size=60, sigma=25.0, random_state=0).fit(X.astype(dtype)) for dtype in ("f4", "f8")
    )
    np.testing.assert_allclose(single.eigenvalues_, double.eigenvalues_, rtol=1e-4)
    assert (single.transform(X.astype("f4")).dtype, double.transform(X).dtype) == (np.float32, np.float64)
