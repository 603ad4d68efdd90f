"""Parameters and attributes that scikit-learn's users know: the same meaning, or an error that says what to do."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import KernelPCA as Peer
from sklearn.metrics.pairwise import laplacian_kernel

import bigkpca
from bigkpca import KernelPCA, kernels
from bigkpca.errors import DataError, SpecError


@pytest.fixture
def X(digits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return digits[:300].astype(np.float64)


def test_parameters_that_we_lack_are_told_with_what_to_do() -> None:
    ours = set(KernelPCA().get_params())
    for name in set(inspect.signature(Peer).parameters) - ours:
        with pytest.raises(TypeError, match=f"KernelPCA has no {name}, as scikit-learn's has: "):
            KernelPCA(**{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_component'"):
        KernelPCA(n_component=3)


@pytest.mark.parametrize("kernel", ["gaussian", "polynomial", "sigmoid"])
@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
def test_gamma_means_what_it_means_there(X: np.ndarray[Any, Any], kernel: str) -> None:
    names = {"gaussian": "rbf", "polynomial": "poly"}
    gamma = 1e-5 if kernel == "sigmoid" else 5e-4
    ours = KernelPCA(3, kernel=kernel, gamma=gamma, method="exact", coef0=1).fit(X)
    theirs = Peer(3, kernel=names.get(kernel, kernel), gamma=gamma, coef0=1).fit(X)
    assert ours.gamma_ == pytest.approx(theirs.gamma_)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)


def test_gamma_of_the_laplacian_is_that_of_its_kernel_there(X: np.ndarray[Any, Any]) -> None:
    ours = KernelPCA(3, kernel="laplacian", gamma=5e-3, size=50, random_state=0).fit(X)
    assert ours.gamma_ == pytest.approx(5e-3)
    np.testing.assert_allclose(ours.kernel_(X, X), laplacian_kernel(X, gamma=5e-3), rtol=1e-9)


def test_kernels_without_an_inverse_width_have_none(X: np.ndarray[Any, Any]) -> None:
    assert KernelPCA(2, kernel="cosine", size=20, random_state=0).fit(X).gamma_ is None


def test_gamma_by_scale_is_that_of_scikit_learn(X: np.ndarray[Any, Any]) -> None:
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


def test_gamma_by_scale_is_an_option_of_commands_and_files(X: np.ndarray[Any, Any], tmp_path: Any) -> None:
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


def test_gamma_by_scale_needs_rows_that_vary() -> None:
    from bigkpca.numerics.bandwidth import scale_gamma

    with pytest.raises(DataError, match="gamma='scale' needs rows that vary"):
        scale_gamma(np.ones((5, 2)))


@pytest.mark.parametrize("center", [True, False])
def test_eigenvectors_of_exact_models_are_those_of_scikit_learn(X: np.ndarray[Any, Any], center: bool) -> None:
    ours = KernelPCA(4, method="exact", gamma=5e-4, center=center).fit(X)
    K = ours.kernel_(X, X)
    H = np.eye(300) - center / 300
    np.testing.assert_allclose(ours.eigenvectors_.T @ ours.eigenvectors_, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(H @ K @ H @ ours.eigenvectors_, ours.eigenvectors_ * ours.eigenvalues_, atol=1e-8)
    np.testing.assert_allclose(ours.eigenvectors_ * np.sqrt(ours.eigenvalues_), ours.transform(X), atol=1e-8)
    if center:
        theirs = Peer(4, kernel="rbf", gamma=5e-4).fit(X)
        np.testing.assert_allclose(np.abs(ours.eigenvectors_), np.abs(theirs.eigenvectors_), atol=1e-8)


def test_eigenvectors_of_refined_models_are_of_all_rows(X: np.ndarray[Any, Any]) -> None:
    refined = KernelPCA(3, size=150, refine=2, sigma=25.0, random_state=0).fit(X)
    scores = refined.transform(X)
    np.testing.assert_allclose(
        refined.eigenvectors_ * np.sqrt(refined.eigenvalues_), scores, atol=2e-2 * np.abs(scores).max()
    )


def test_eigenvectors_of_a_precomputed_matrix(X: np.ndarray[Any, Any]) -> None:
    K = kernels.Gaussian(20.0)(X, X)
    ours = KernelPCA(3, kernel="precomputed", method="exact").fit(K)
    theirs = Peer(3, kernel="precomputed").fit(K)
    np.testing.assert_allclose(np.abs(ours.eigenvectors_), np.abs(theirs.eigenvectors_), atol=1e-8)


def test_models_that_keep_few_rows_say_why_they_have_no_eigenvectors(X: np.ndarray[Any, Any]) -> None:
    for method in ("nystroem", "rff"):
        kpca = KernelPCA(3, method=method, size=40, random_state=0).fit(X)
        assert not hasattr(kpca, "eigenvectors_")
        with pytest.raises(AttributeError, match="held by models of method='exact' and with refine"):
            _ = kpca.eigenvectors_


def squared(A: Any, B: Any, weight: float = 1.0) -> Any:
    return (1 + weight * (A @ B.T)) ** 2


def test_a_callable_kernel_takes_its_parameters(X: np.ndarray[Any, Any]) -> None:
    rows = X / 50
    ours = KernelPCA(3, kernel=squared, kernel_params={"weight": 0.5}, method="exact").fit(rows)
    expected = KernelPCA(3, kernel="polynomial", degree=2, gamma=0.5, coef0=1, method="exact").fit(rows)
    np.testing.assert_allclose(ours.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    assert clone(ours).kernel_params == {"weight": 0.5}
    for kernel in ("matern", kernels.Linear(), 3):
        with pytest.raises(SpecError, match=r"kernel_params=.* is for callables"):
            KernelPCA(3, kernel=kernel, kernel_params={"nu": 2.5}).fit(rows)
