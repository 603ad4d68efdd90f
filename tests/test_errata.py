"""The errata that `docs/sources.md` lists: what the sources print is wrong, and what the page says instead is right."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

from benchmarks.sources.example1 import exact_alpha, printed_alpha, two_discs
from bigkpca import KernelPCA, kernels, measures, methods, preimages

pytestmark = pytest.mark.full

rng = np.random.default_rng(0)
n, m, k = 600, 100, 60
X = np.concatenate([rng.normal(size=(n // 2, 20)), rng.normal(size=(n // 2, 20)) + 1.5])
K = kernels.Gaussian(6.0).gram(X)
S = np.sort(rng.choice(n, m, replace=False))
C, W = K[:, S], K[np.ix_(S, S)]


def truncated(A, rank):
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return (vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T


def root(A):
    values, vectors = np.linalg.eigh(A)
    return (vectors * np.sqrt(values)) @ vectors.T


def columns():
    """(25), corrected."""
    return np.sqrt(n / m) * C @ np.linalg.inv(root(C.T @ C)) @ C.T


def test_centring_of_the_notes_and_the_listing_is_not_symmetric():
    ones, H = np.full((n, n), 1 / n), np.eye(n) - 1 / n
    notes = K - 2 * ones @ K + ones @ K @ ones
    assert np.abs(notes - notes.T).max() > 0.1
    assert np.abs(notes.sum(axis=1)).max() > 1 > 1e-9 > np.abs((H @ K @ H).sum(axis=1)).max()


def test_equations_of_a_singular_matrix_are_not_equivalent():
    G = X @ X.T  # of rank 20
    values, vectors = np.linalg.eigh(G)
    alpha = vectors[:, -1] + vectors[:, 0]
    assert np.allclose(values[-1] * G @ alpha, G @ G @ alpha)
    assert not np.allclose(values[-1] * alpha, G @ alpha)


def test_the_sign_of_b_gives_nearly_all_rows_to_one_class():
    G, positive = X @ X.T, np.arange(n) >= n // 2
    nearer = G[:, positive].mean(axis=1) - G[:, ~positive].mean(axis=1)
    printed = (G[np.ix_(positive, positive)].mean() - G[np.ix_(~positive, ~positive)].mean()) / 2
    assert np.mean((nearer - printed > 0) == positive) > 0.99
    assert np.mean((nearer + printed > 0) == positive) < 0.55


def test_the_factor_of_column_sampling_is_the_root_of_n_over_l():
    printed = columns() / np.sqrt(m)
    assert np.linalg.norm(K - columns()) < 0.2 * np.linalg.norm(K - printed)
    assert np.allclose(columns(), C @ np.linalg.inv(root(m / n * C.T @ C)) @ C.T)


def test_eigenpairs_of_pk_give_pkp():
    P = C @ np.linalg.pinv(C)
    values, vectors = np.linalg.eigh(P @ K @ P)
    assert np.allclose(P @ K @ vectors[:, -m:], vectors[:, -m:] * values[-m:])
    spectral = (vectors[:, -m:] * values[-m:]) @ vectors[:, -m:].T
    assert np.linalg.norm(K - spectral) < 0.5 * np.linalg.norm(K - columns())


def test_columns_have_worse_eigenvectors_than_orthogonalised_nystroem():
    exact = KernelPCA(5, sigma=6.0, method="exact").fit_transform(X)
    options = {"sigma": 6.0, "landmarks": "uniform", "size": 60, "random_state": 0}
    ways = ("columns", methods.Nystroem(form="thesis"), "nystroem")
    agreement = [measures.subspace_cosine(exact, KernelPCA(5, method=way, **options).fit_transform(X)) for way in ways]
    assert agreement[2] > max(agreement[:2])


def test_vectors_of_nystroem_are_the_worst_at_the_length_of_their_formula_alone():
    values, vectors = np.linalg.eigh(W)
    u = np.sqrt(m / n) * C @ vectors[:, [-2]] / values[-2]
    true = np.linalg.eigh(K)[1][:, [-2]]
    assert abs((true.T @ u).item()) < 0.97 < measures.vector_agreement(true, u)[0]


def test_truncating_w_first_is_worse():
    first, last = C @ np.linalg.pinv(truncated(W, k)) @ C.T, truncated(C @ np.linalg.pinv(W) @ C.T, k)
    assert np.linalg.norm(K - last) < np.linalg.norm(K - first)


def test_sigma_of_example_1_is_its_square():
    A = two_discs(1000, np.random.default_rng(1))[0]
    leading = [5 * np.linalg.eigvalsh(kernels.Gaussian(sigma).gram(A))[-1] for sigma in (np.sqrt(8.69), 8.69)]
    assert np.allclose(leading, [1850, 4460], rtol=0.05)


def test_the_pre_image_iteration_of_the_thesis_drops_the_mean():
    wide = KernelPCA(5, sigma=60.0, method="exact", dtype="float64").fit(X)
    flat = PCA(5, svd_solver="full").fit(X)
    assert np.allclose(wide.denoise(X), flat.inverse_transform(flat.transform(X)), atol=0.1)
    thesis = preimages.FixedPoint(mean_term=False, iterations=30)
    found = KernelPCA(5, sigma=60.0, method="exact", dtype="float64", preimage=thesis).fit(X).denoise(X)
    assert np.mean((found - X) ** 2) > 2 * np.mean((wide.denoise(X) - X) ** 2)


def test_alpha_of_rff_pca_has_a_closed_form_and_is_too_large_as_printed():
    A = two_discs(1000, np.random.default_rng(1))[0]
    left = (A - A.mean(axis=0)) @ np.linalg.eigh(np.cov(A.T))[1][:, :-50]
    assert np.isclose(np.log(exact_alpha(A)), np.mean(pdist(left, "sqeuclidean")) / (2 * 8.69), rtol=0.01)
    assert printed_alpha(A) > 1.03 * exact_alpha(A)


def test_ranks_of_features_rows_and_kernels():
    five = np.linalg.eigh(np.cov(X.T))[1][:, -5:]
    draws = np.random.default_rng(1)
    Z = np.cos(X @ five @ draws.normal(size=(5, 200)) / 6.0 + draws.uniform(0, 2 * np.pi, 200))
    pairs = kernels.Polynomial(degree=2, gamma=1.0, coef0=0.0).gram(X[:, :2])
    ranks = [np.linalg.matrix_rank(each) for each in (Z, X, kernels.Gaussian(2.0).gram(X), pairs)]
    assert ranks == [200, 20, n, 3]


def test_the_expectation_of_random_features_needs_the_two_of_b2():
    w, x, y = np.random.default_rng(1).normal(size=1_000_000), 0.8, -1.2
    of_cosines, of_sines = np.mean(np.cos(w * x) * np.cos(w * y)), np.mean(np.sin(w * x) * np.sin(w * y))
    assert np.isclose(of_cosines + of_sines, np.exp(-((x - y) ** 2) / 2), atol=0.005)  # 0.135
    assert of_cosines + of_sines / 2 > 0.3


def test_the_factor_of_55_for_phases():
    for d in range(1, 2000):  # exp(-l eps² / 32) = 1, and sigma_p diam(M) = eps
        r = (4 / (5 * 4**2)) ** (1 / (d + 2)) * 4 ** (d / (d + 2))
        at_centres, between = 4 * (4 / r) ** d, 5 * (4 * r) ** 2
        assert np.isclose(at_centres, between)
        assert at_centres + between < 2**12


def test_36_is_a_bound_of_the_scaled_columns_alone():
    bound = (1 + np.sqrt(np.log(2 / 0.05) * (1 - m / n))) * n / np.sqrt(m) * np.max(np.sum(K**2, axis=0))
    assert np.linalg.norm(K @ K - n / m * C @ C.T) < bound / 10 < bound < np.linalg.norm(K @ K - C @ C.T)


def test_the_diameter_of_kumars_bound_is_in_feature_space():
    assert np.max(pdist(K)) > 3 * np.sqrt(np.max(2 - 2 * K))
