"""Hard but ordinary data: outliers, sentinels, offsets, far clusters, indefinite kernels. Each case once was wrong."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from bigkpca import KernelPCA, kernels, methods
from bigkpca.errors import (
    IndefiniteKernelWarning,
    RoundingError,
    RoundingWarning,
    UniformLandmarksWarning,
    UnseenClusterWarning,
)
from bigkpca.execution.engine import Engine
from bigkpca.numerics import solvers
from bigkpca.numerics.certificates import nystroem_bounds, spectral
from bigkpca.numerics.certificates.residual_matrix import residual_matrix
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian, Linear, Sigmoid
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.span import span_of
from tests.helpers import oracles


def gaussian_gram(X, sigma):
    """From differences, which do not cancel."""
    X = X.astype(np.float64)
    return np.exp(-cdist(X, X, "sqeuclidean") / (2 * sigma**2))


def eigenvalues(K, center=True):
    return np.linalg.eigvalsh(oracles.centred(K) if center else K)[::-1]


def spectrum(K):
    """(eigenvalues, eigenvectors) of the centred K, descending."""
    values, vectors = np.linalg.eigh(oracles.centred(K))
    return values[::-1], vectors[:, ::-1]


def bounds_hold(kpca, values, slack=1e-12):
    found, r, slack = kpca.certificate_, kpca.n_components_, slack * values[0]
    assert (found.eigenvalue_lower <= values[:r] + slack).all()
    assert (values[:r] <= found.eigenvalue_upper + slack).all()
    assert (values[:r] <= found.eigenvalue_likely_upper + slack).all()


def cosines(kpca, X, vectors):
    """Of each component with the eigenvector of its rank."""
    Y = kpca.transform(X).astype(np.float64)
    Y -= Y.mean(axis=0)
    return np.abs(np.einsum("ij,ij->j", Y, vectors[:, : Y.shape[1]])) / np.linalg.norm(Y, axis=0)


def normal(n=800, d=3, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(n, d)).astype(dtype)


# Far values


@pytest.mark.parametrize(("value", "dtype"), [(1e6, "f4"), pytest.param(1e10, "f8", marks=pytest.mark.full)])
def test_an_outlier_does_not_blur_the_other_rows(value, dtype):
    X = normal(dtype=dtype)
    X[0, 0] = value
    kpca = KernelPCA(8, size=200, random_state=0).fit(X)
    values = eigenvalues(gaussian_gram(X, kpca.sigma_))
    assert_allclose(kpca.eigenvalues_, values[:8], rtol=1e-4)
    bounds_hold(kpca, values)
    assert kpca.certificate_.trust == ("solid",) * 8


@pytest.mark.parametrize(
    ("sentinel", "dtype", "rtol"), [(-9999, "f4", 0.01), pytest.param(1e20, "f8", 0.05, marks=pytest.mark.full)]
)  # near 1e20 k-means sees no differences
def test_rows_that_share_a_sentinel_keep_their_distances(sentinel, dtype, rtol):
    X = normal(1200, 5, dtype)
    X[np.random.default_rng(1).random(len(X)) < 0.05, 2] = sentinel
    kpca = KernelPCA(8, size=300, random_state=0).fit(X)
    values = eigenvalues(gaussian_gram(X, kpca.sigma_))
    assert_allclose(kpca.eigenvalues_, values[:8], rtol=rtol)
    bounds_hold(kpca, values)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
def test_long_columns_and_wide_kernels_in_single_precision():
    X = normal()
    X[:, 0] = np.random.default_rng(2).random(800) * 300
    kpca = KernelPCA(8, sigma=1.0, size=300, random_state=0).fit(X)
    again = KernelPCA(8, sigma=1.0, size=300, random_state=0, dtype="float64").fit(X)
    assert_allclose(kpca.eigenvalues_, again.eigenvalues_, rtol=0.01)
    bounds_hold(kpca, eigenvalues(gaussian_gram(X, 1.0)))
    kpca = KernelPCA(7, sigma=150.0, size=300, random_state=0).fit(normal())
    bounds_hold(kpca, eigenvalues(gaussian_gram(normal(), 150.0)))


def test_float64_is_chosen_where_single_precision_would_count_and_said():
    X = (np.random.default_rng(3).normal(size=(1000, 2)) * [1, 30]).astype(np.float32)
    kpca = KernelPCA(10, sigma=100.0, size=200, random_state=0).fit(X)
    (chosen,) = [each for each in kpca.model_.provenance["choices"] if each["option"] == "dtype"]
    assert (chosen["value"], kpca.model_.features.dtype) == ("float64", np.float64)
    assert "rounding in float32" in chosen["reason"]
    assert_allclose(kpca.eigenvalues_[:5], eigenvalues(gaussian_gram(X, 100.0))[:5], rtol=1e-5)


def test_single_precision_that_was_asked_for_is_warned_of_where_it_counts():
    X = normal(500) + np.float32(3000)
    with pytest.warns(RoundingWarning, match="rounding in float32 may move the bounds"):
        KernelPCA(5, kernel="polynomial", size=50, dtype="float32", random_state=0).fit(X)


def test_a_function_that_claims_to_be_positive_semidefinite_and_is_not_is_found_out():
    X = normal(400, 5, float)
    lied = kernels.Function(lambda A, B: np.tanh(0.5 * A @ B.T - 0.5), psd=True)
    with pytest.warns(IndefiniteKernelWarning):
        kpca = KernelPCA(3, kernel=lied, size=390, landmarks="uniform", random_state=0).fit(X)
    assert kpca.certificate_.eigenvalue_upper is None

    def only_between_halves(A, B):  # W of the first half is the identity, and K is indefinite
        same = cdist(A, B) == 0
        return same + 2.0 * (np.subtract.outer(A[:, 0], B[:, 0]) ** 2 == 1)

    X = np.c_[np.repeat([0.0, 1.0], 50), np.tile(np.arange(50.0), 2)]
    lied = kernels.Function(only_between_halves, psd=True)
    kpca = KernelPCA(3, kernel=lied, landmarks=np.arange(50), center=False, random_state=0)
    with pytest.raises(RoundingError, match="more than all of it: rounding, or a kernel that is not positive"):
        kpca.fit(X)


@pytest.mark.parametrize(("offset", "dtype"), [(1000, "f4"), (1e6, "f8")])
def test_the_centred_linear_kernel_does_not_notice_an_offset(offset, dtype):
    X = (np.random.default_rng(0).normal(size=(2000, 4)) * [4, 3, 2, 1] + offset).astype(dtype)
    kpca = KernelPCA(4, kernel="linear", size=100, random_state=0).fit(X)
    Z = X.astype(np.float64) - offset
    values = np.linalg.eigvalsh(np.cov(Z.T, bias=True) * len(Z))[::-1]
    assert_allclose(kpca.eigenvalues_, values, rtol=1e-3 if dtype == "f4" else 1e-9)
    bounds_hold(kpca, values)
    assert kpca.certificate_.trust == ("solid",) * 4


def test_kernels_of_which_centring_takes_a_shift_away():
    shifted = (Linear(), 2 * Linear() + Gaussian(1.0), Linear() * Gaussian(1.0), kernels.Polynomial(1.0))
    assert [kernel.allows_shift(True) for kernel in shifted] == [True, True, False, False]
    assert not Linear().allows_shift(False)


# Indefinite kernels


def test_with_every_digit_a_landmark_the_sigmoid_is_exact(digits):
    X = digits[:300].astype(np.float64)
    with pytest.warns(IndefiniteKernelWarning):
        kpca = KernelPCA(8, kernel="sigmoid", gamma=3e-4, coef0=-1, size=300, random_state=0).fit(X)
    values, vectors = spectrum(Sigmoid(3e-4, -1.0).gram(X))
    assert_allclose(kpca.eigenvalues_, values[:8], rtol=1e-6)
    assert (cosines(kpca, X, vectors) > 0.999).all()
    found = kpca.certificate_
    known = (found.trace_error, found.relative_trace_error, found.eigenvalue_upper, found.spectral_error_likely)
    assert known == (None,) * 4


@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
def test_negative_eigenvalues_do_not_come_back_as_positive_ones():
    X, kernel = normal(600, 10, float), kernels.Sigmoid(0.002, -2.0)
    values = eigenvalues(kernel.gram(X), center=False)
    assert values[-1] < -100 * values[0]
    for method in ("nystroem", "columns", methods.Nystroem("thesis")):
        options = {"method": method, "size": 100, "landmarks": "uniform", "center": False}
        kpca = KernelPCA(3, kernel=kernel, random_state=0, **options).fit(X)
        assert kpca.eigenvalues_[0] < 2 * values[0], method
        assert kpca.certificate_.eigenvalue_upper is None


# What no landmark saw


@pytest.mark.filterwarnings("ignore::bigkpca.errors.UnseenClusterWarning")
@pytest.mark.parametrize("center", [True, pytest.param(False, marks=pytest.mark.full)])
def test_products_find_a_cluster_that_no_landmark_saw(center):
    X = np.r_[np.random.default_rng(0).normal(size=(940, 2)), np.full((30, 2), 40.0), np.full((30, 2), -40.0)]
    options = {"sigma": 1.0, "size": 40, "landmarks": "uniform", "refine": 20, "center": center}
    kpca = KernelPCA(15, **options, random_state=0).fit(X)
    # The two clusters make equal eigenvalues: nothing tells which eigenvectors of theirs are meant.
    assert_allclose(kpca.eigenvalues_, eigenvalues(gaussian_gram(X, 1.0), center)[:15], rtol=1e-3)


@pytest.mark.full
def test_no_component_is_solid_that_a_missed_cluster_may_outrank():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(1485, 3)), rng.normal(size=(15, 3)) * 0.1 + 60]
    with pytest.warns(UnseenClusterWarning, match=r"an eigenvalue of about 1[45]"):
        kpca = KernelPCA(12, sigma=2, size=60, landmarks="uniform", random_state=0).fit(X)
    found, (values, vectors) = kpca.certificate_, spectrum(gaussian_gram(X, 2.0))
    assert found.spectral_error_likely > 14.5
    assert (values[:12] <= found.eigenvalue_likely_upper).all()
    solid = np.array(found.trust) == "solid"
    assert solid.any()
    assert (cosines(kpca, X, vectors)[solid] > 0.99).all()


@pytest.mark.filterwarnings("ignore::bigkpca.errors.UnseenClusterWarning")
def test_added_rows_from_elsewhere_are_not_trusted():
    rng = np.random.default_rng(0)
    first, more = rng.normal(size=(400, 3)), rng.normal(size=(400, 3)) + 8
    kpca = KernelPCA(5, sigma=2.0, size=100, random_state=0).fit(first)
    assert kpca.certificate_.trust == ("solid",) * 5
    kpca.partial_fit(more)
    values = eigenvalues(gaussian_gram(np.r_[first, more], 2.0))
    found = kpca.certificate_
    assert "solid" not in found.trust
    assert found.strata.shape == (2, 6)
    assert (values[:5] <= found.eigenvalue_likely_upper).all()
    assert found.spectral_error_likely > values[0] / 2


def began_with_cholesky(kpca):
    return kpca.certificate_.strata[:, 5]


@pytest.mark.parametrize("sentinel", [False, True])
def test_added_rows_keep_the_basis_of_the_first_ones(sentinel):
    """Bounds of the first rows hold for parts of their basis: eigenvectors, where rounding would cost more without."""
    X = normal(800, 5 if sentinel else 40)
    X[np.random.default_rng(1).random(len(X)) < 0.05, 2] += -9999 * sentinel
    for first, more in ((X[:600], X[600:]), (X[::4], normal(600, X.shape[1]))):
        kpca = KernelPCA(8, size=200 if len(first) > 300 else 130, random_state=0).fit(first)
        assert began_with_cholesky(kpca) == [not sentinel]
        assert (began_with_cholesky(kpca.partial_fit(more)) == (not sentinel)).all()
        bounds_hold(kpca, eigenvalues(gaussian_gram(np.concatenate([first, more]), kpca.sigma_)))


def test_the_sign_of_a_rounding_error_does_not_choose_the_basis():
    """With every row a landmark tr(E) is zero, and of either sign after rounding."""
    for seed in range(8):
        X = np.random.default_rng(seed).normal(size=(47, 4))
        kpca = KernelPCA(3, sigma=2.0, size=47, landmarks="uniform", random_state=0).fit(X)
        assert kpca.certificate_.trace_error < 1e-8
        assert began_with_cholesky(kpca) == [True], seed


def test_one_principal_direction_is_not_trusted(digits):
    X = digits[:300].astype(np.float64)
    kpca = KernelPCA(5, method="rff-pca", size=256, n_directions=1, random_state=0).fit(X)
    good = cosines(kpca, X, spectrum(gaussian_gram(X, kpca.sigma_))[1]) > 0.99
    assert not good.all()
    assert not (np.array(kpca.certificate_.trust)[~good] == "solid").any()


# Smaller ones


def test_what_supposes_uniform_landmarks_is_not_said_of_added_rows():
    X = normal(400, 3, float)
    kpca = KernelPCA(3, size=40, landmarks="uniform", random_state=0).fit(X[:200])
    assert kpca.certificate_.leave_one_out_residual is not None
    assert kpca.partial_fit(X[200:]).certificate_.leave_one_out_residual is None
    columns = KernelPCA(3, method="columns", size=40, random_state=0).fit(X[:200])
    with pytest.warns(UniformLandmarksWarning, match="drawn uniformly from all rows, and these are from some of them"):
        columns.partial_fit(X[200:])


def test_halves_of_the_landmarks_that_span_nothing_stop_no_fit():
    X, far = normal(200, 2, float), np.full((3, 2), 1e3) * [[1], [2], [3]]
    kpca = KernelPCA(1, sigma=1.0, landmarks=np.r_[far[:1], X[:1], far[1:]], random_state=0).fit(X)
    assert kpca.certificate_.stability is None
    assert kpca.certificate_.eigenvalue_upper[0] >= eigenvalues(gaussian_gram(X, 1.0))[0]


def test_a_kernel_without_a_diagonal_is_fitted_or_refused_in_words():
    kernel = kernels.Function(lambda A, B: (A[:, :1] * B[:, 1] - A[:, 1:] * B[:, 0]) ** 2)  # k(x, x) = 0
    X = normal(100, 2, float)
    with pytest.warns(IndefiniteKernelWarning):
        kpca = KernelPCA(2, kernel=kernel, size=20, landmarks="uniform", random_state=0).fit(X)
    values = eigenvalues(kernel(X, X))
    assert_allclose(kpca.eigenvalues_, values[: kpca.n_components_], atol=1e-6 * values[0])
    assert kpca.certificate_.relative_trace_error is None


def test_more_features_than_rows_have_no_more_components_than_rows():
    kpca = KernelPCA(None, method="rff-pca", size=256, random_state=0).fit(normal(40, 4, float))
    assert kpca.n_components_ <= 39
    moments = Moments(10, *oracles.two_pass_moments(normal(10, 20, float)), 200.0)
    found = solvers.plain(moments, None, unexplained=0.3, center=True, tolerance=1e-30)
    assert len(found.eigenvalues) == 9


def test_shares_of_the_variance_are_bounded_where_they_are_called_proven():
    """All of the variance may be in reach though tr(E) is large, since tr(HEH) may be anything below it."""
    found = nystroem_bounds._upper_shares(np.array([50.0, 5.0, 1.0]), 1000.0, 60.0)
    for j in range(3):
        for h in np.linspace(0, 1000, 200):
            largest = min(([50.0, 5.0, 1.0][i] + h / (j - i + 1)) / (60 + h) for i in range(j + 1))
            assert largest <= found[j] + 1e-12
    assert found[2] < 0.5


# The bound that holds with 95 % confidence


@pytest.mark.full
def test_the_likely_bound_holds_as_often_as_it_says(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(460, 2)), rng.normal(size=(20, 2)) * 0.05 + 9]
    monkeypatch.setattr(spectral, "HELD_OUT_ROWS", 120)
    held, bounds, K = [], [], gaussian_gram(X, 1.0)
    for seed in range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kpca = KernelPCA(3, sigma=1.0, size=12, landmarks="uniform", center=False, random_state=seed).fit(X)
        S = kpca.landmarks_
        C = np.exp(-cdist(X, S, "sqeuclidean") / 2)
        E = K - oracles.nystroem_gram(C, Gaussian(1.0).gram(S), 1e-12)
        held.append(np.linalg.eigvalsh(E)[-1] <= kpca.certificate_.spectral_error_likely)
        bounds.append(kpca.certificate_.spectral_error_likely / kpca.certificate_.trace_error)
    assert np.mean(held) >= 0.95
    assert np.median(bounds) < 1  # tr(E) is the bound that nothing proves wrong


def test_the_bound_is_the_solution_of_its_equation():
    for norm, m, n, R in ((1.3, 4096, 60_000, 1.0), (0.0, 100, 5000, 1.0), (7.0, 500, 10_000, 4.0)):
        found = spectral.spectral_error([spectral.Stratum(n, m, norm, 5)], R) / (n * R)
        q = norm / (m * R)
        kl = (q * np.log(q / found) if q else 0) + (1 - q) * np.log((1 - q) / (1 - found))
        assert_allclose(m * kl, np.log(1 / (0.05 - 1e-4)), rtol=1e-4)
        assert found > q
    whole = spectral.Stratum(100, 100, 2.5, 5)
    assert spectral.spectral_error([whole], 1.0) == 2.5
    part = spectral.Stratum(1000, 100, 2.5, 5)
    assert spectral.spectral_error([whole, part], 1.0) > 2.5 + spectral.spectral_error([part], 1.0)
    assert spectral.spectral_error([spectral.Stratum(1000, 10, 50.0, 5)], 1.0) == 1000
    for q in (0.9, 1 - 1e-6, 1 - 1e-12, 1.0, 1.1):
        assert 950 < spectral.spectral_error([spectral.Stratum(1000, 100, q * 100, 5)], 1.0) <= 1000
    many = [spectral.Stratum(50, 50, 3.0, 5)] * 600 + [spectral.Stratum(5000, 4096, 3.0, 5)]
    assert spectral.spectral_error(many, 1.0) == 35_000
    assert spectral.spectral_error(many[:400], 1.0) == 1200
    # Directions of W that the stratum was drawn with, and that rounding has taken since.
    assert spectral.spectral_error([whole], 1.0, 3, np.array([0.5, 0.25, 9.0])) == 3.25
    assert spectral.spectral_error([whole], 1.0, 5, np.array([9.0])) == 2.5


def test_the_largest_eigenvalue_is_not_missed():
    rng = np.random.default_rng(0)
    for m, decay in ((5, 1.0), (300, 0.5), (700, 0.02)):
        Q = np.linalg.qr(rng.normal(size=(m, m)))[0]
        values = np.exp(-decay * np.arange(m))
        E = (Q * values) @ Q.T
        upper, found = spectral.largest_eigenvalue(lambda B, E=E: E @ B, m, rng)
        assert 1 - 1e-9 <= upper <= 1.1
        assert upper >= found.values[0] > 0.99
        assert abs(found.vectors[:, 0] @ Q[:, 0]) > 0.9


@pytest.mark.parametrize("m", [1, 511, 512, 1100])
def test_products_with_the_residual_matrix_are_those_of_the_matrix(m):
    X = normal(1400, 3, float)
    features = KernelRows(Gaussian(1.5), np.zeros(3), X[:40])
    K, C = features.kernel.gram(X[-m:]), features.kernel(X[-m:], X[:40])
    span = span_of(features.gram(), Moments(1, np.zeros(40), np.eye(40), 1.0), 1e-12)
    E = K - oracles.nystroem_gram(C, features.gram(), 1e-12)
    Q = np.random.default_rng(0).normal(size=(m, 3))
    with Engine(threads=2).small_work() as in_order:
        found = residual_matrix(features, span, X[-m:], in_order)
        assert_allclose(found.times(Q, in_order), E @ Q, atol=1e-9)
        assert found.times(Q, in_order).tobytes() == found.times(Q).tobytes()
    assert_allclose(found.diagonal(), np.diag(E), atol=1e-9)
