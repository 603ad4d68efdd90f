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
from bigkpca.fitting import solve
from bigkpca.numerics import solvers
from bigkpca.numerics.certificates import nystroem_bounds, spectral
from bigkpca.numerics.certificates.residual_matrix import residual_matrix
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian, Linear, Sigmoid
from bigkpca.numerics.moments import Moments, block_moments
from bigkpca.numerics.rounding import Significant
from bigkpca.numerics.span import span_of
from tests.helpers import oracles


def gaussian_gram(X, sigma):
    """From differences, which do not cancel."""
    X = X.astype(np.float64)
    return np.exp(-cdist(X, X, "sqeuclidean") / (2 * sigma**2))


def spectrum(K, center=True):
    """(eigenvalues, eigenvectors), descending."""
    values, vectors = np.linalg.eigh(oracles.centred(K) if center else K)
    return values[::-1], vectors[:, ::-1]


def bounds_hold(kpca, values, slack=1e-12):
    found, r, slack = kpca.certificate_, kpca.n_components_, slack * values[0]
    assert (found.eigenvalue_lower <= values[:r] + slack).all()
    assert (values[:r] <= found.eigenvalue_upper + slack).all()
    assert (values[:r] <= found.eigenvalue_likely_upper + slack).all()


def cosines(kpca, X, vectors, center=True):
    """Of each component with the eigenvector of its rank."""
    Y = kpca.transform(X).astype(np.float64)
    Y = Y - Y.mean(axis=0) if center else Y
    return np.abs(np.einsum("ij,ij->j", Y, vectors[:, : Y.shape[1]])) / np.linalg.norm(Y, axis=0)


def normal(n=1200, d=3, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(n, d)).astype(dtype)


# Far values


@pytest.mark.parametrize(("value", "dtype"), [(1e6, "f4"), (3e5, "f4"), (1e10, "f8")])
def test_an_outlier_does_not_blur_the_other_rows(value, dtype):
    X = normal(dtype=dtype)
    X[0, 0] = value
    kpca = KernelPCA(8, size=300, random_state=0).fit(X)
    values, _ = spectrum(gaussian_gram(X, kpca.sigma_))
    assert_allclose(kpca.eigenvalues_, values[:8], rtol=1e-4)
    bounds_hold(kpca, values)
    assert kpca.certificate_.trust == ("solid",) * 8


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("sentinel", "rtol"), [(-9999, 0.01), (1e20, 0.05)])  # near 1e20 k-means sees no differences
def test_rows_that_share_a_sentinel_keep_their_distances(sentinel, rtol, dtype):
    X = normal(d=5, dtype=dtype)
    X[np.random.default_rng(1).random(1200) < 0.05, 2] = sentinel
    kpca = KernelPCA(8, size=300, random_state=0).fit(X)
    values, _ = spectrum(gaussian_gram(X, kpca.sigma_))
    assert_allclose(kpca.eigenvalues_, values[:8], rtol=rtol)
    bounds_hold(kpca, values)


@pytest.mark.parametrize("span", [100, 300])
def test_a_long_column_in_single_precision(span):
    X = normal()
    X[:, 0] = np.random.default_rng(2).random(1200) * span
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the longer one is narrow
        kpca = KernelPCA(8, sigma=1.0, size=300, random_state=0).fit(X)
        again = KernelPCA(8, sigma=1.0, size=300, random_state=0, dtype="float64").fit(X)
    values, _ = spectrum(gaussian_gram(X, 1.0))
    assert_allclose(kpca.eigenvalues_, again.eigenvalues_, rtol=0.01)
    bounds_hold(kpca, values)


def test_lower_bounds_of_a_wide_kernel_in_single_precision():
    X = normal()
    kpca = KernelPCA(7, sigma=150.0, size=300, random_state=0).fit(X)
    bounds_hold(kpca, spectrum(gaussian_gram(X, 150.0))[0])


def test_float64_is_chosen_where_single_precision_would_count_and_said():
    X = np.random.default_rng(3).normal(size=(2000, 2)).astype(np.float32) * [1, 30]
    X = X.astype(np.float32)
    kpca = KernelPCA(10, sigma=100.0, size=200, random_state=0).fit(X)
    (chosen,) = [each for each in kpca.model_.provenance["choices"] if each["option"] == "dtype"]
    assert (chosen["value"], kpca.model_.features.dtype) == ("float64", np.float64)
    assert "rounding in float32" in chosen["reason"]
    assert_allclose(kpca.eigenvalues_[:5], spectrum(gaussian_gram(X, 100.0))[0][:5], rtol=1e-5)


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
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(2000, 4)) * [4, 3, 2, 1] + offset).astype(dtype)
    kpca = KernelPCA(4, kernel="linear", size=100, random_state=0).fit(X)
    Z = X.astype(np.float64) - offset
    values, _ = spectrum(Z @ Z.T)
    assert_allclose(kpca.eigenvalues_, values[:4], rtol=1e-3 if dtype == "f4" else 1e-9)
    bounds_hold(kpca, values)
    assert kpca.certificate_.trust == ("solid",) * 4


# Indefinite kernels


def test_with_every_digit_a_landmark_the_sigmoid_is_exact(digits):
    X = digits[:1000].astype(np.float64)
    with pytest.warns(IndefiniteKernelWarning):
        kpca = KernelPCA(8, kernel="sigmoid", gamma=3e-4, coef0=-1, size=1000, random_state=0).fit(X)
    values, vectors = spectrum(Sigmoid(3e-4, -1.0).gram(X))
    assert_allclose(kpca.eigenvalues_, values[:8], rtol=1e-6)
    assert (cosines(kpca, X, vectors) > 0.999).all()
    found = kpca.certificate_
    assert (found.trace_error, found.relative_trace_error, found.eigenvalue_upper, found.spectral_error_likely) == (
        *(None, None, None, None),
    )


@pytest.mark.parametrize("method", ["nystroem", "columns", methods.Nystroem("thesis")])
def test_negative_eigenvalues_do_not_come_back_as_positive_ones(method):
    X = normal(1000, 10, float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndefiniteKernelWarning)
        kernel = kernels.Sigmoid(0.002, -2.0)
        kpca = KernelPCA(3, kernel=kernel, method=method, size=100, landmarks="uniform", center=False, random_state=0)
        kpca.fit(X)
    values, _ = spectrum(kernel.gram(X), center=False)
    assert values[-1] < -100 * values[0]
    assert kpca.eigenvalues_[0] < 2 * values[0]
    assert kpca.certificate_.eigenvalue_upper is None


# What no landmark saw


def far_clusters(seed=0):
    rng = np.random.default_rng(seed)
    return np.r_[rng.normal(size=(1400, 2)), np.full((30, 2), 40.0), np.full((30, 2), -40.0)]


@pytest.mark.parametrize("center", [True, False])
def test_products_find_a_cluster_that_no_landmark_saw(center):
    for seed in range(2):
        X = far_clusters(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnseenClusterWarning)
            options = {"sigma": 1.0, "size": 40, "landmarks": "uniform", "refine": 20, "center": center}
            kpca = KernelPCA(15, **options, random_state=seed).fit(X)
        values, _ = spectrum(gaussian_gram(X, 1.0), center)
        # The two clusters make equal eigenvalues: nothing tells which eigenvectors of theirs are meant.
        assert_allclose(kpca.eigenvalues_, values[:15], rtol=1e-3)


def far_rows():
    rng = np.random.default_rng(0)
    return np.r_[rng.normal(size=(1485, 3)), rng.normal(size=(15, 3)) * 0.1 + 60]


def test_no_component_is_solid_that_a_missed_cluster_may_outrank():
    X = far_rows()
    with pytest.warns(UnseenClusterWarning, match=r"an eigenvalue of about 1[45]"):
        kpca = KernelPCA(12, sigma=2, size=60, landmarks="uniform", random_state=0).fit(X)
    values, vectors = spectrum(gaussian_gram(X, 2.0))
    found = kpca.certificate_
    assert found.spectral_error_likely > 14.5
    assert (values[:12] <= found.eigenvalue_likely_upper).all()
    solid = np.array(found.trust) == "solid"
    assert solid.any()
    assert (cosines(kpca, X, vectors)[solid] > 0.99).all()


def test_added_rows_from_elsewhere_are_not_trusted():
    rng = np.random.default_rng(0)
    first, more = rng.normal(size=(700, 3)), rng.normal(size=(700, 3)) + 8
    kpca = KernelPCA(5, sigma=2.0, size=100, random_state=0).fit(first)
    assert kpca.certificate_.trust == ("solid",) * 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenClusterWarning)
        kpca.partial_fit(more)
    X = np.r_[first, more]
    values, _ = spectrum(gaussian_gram(X, 2.0))
    found = kpca.certificate_
    assert "solid" not in found.trust
    assert found.strata.shape == (2, 6)
    assert (values[:5] <= found.eigenvalue_likely_upper).all()
    assert found.spectral_error_likely > values[0] / 2


@pytest.mark.parametrize("sentinel", [False, True])
def test_added_rows_keep_the_basis_of_the_first_ones(sentinel):
    """Bounds of the first rows hold for parts of their basis: eigenvectors, where rounding would cost more without."""
    X = normal(1200, 5 if sentinel else 40)
    X[np.random.default_rng(1).random(1200) < 0.05, 2] += -9999 * sentinel
    for first, more in ((X[:900], X[900:]), (X[::4], normal(900, X.shape[1]))):
        kpca = KernelPCA(8, size=300 if len(first) > 300 else 200, random_state=0).fit(first)
        before = kpca.certificate_.strata
        found = kpca.partial_fit(more).certificate_
        assert before[0, 5] == (not sentinel)
        assert (found.strata[:, 5] == before[0, 5]).all()
        values, _ = spectrum(gaussian_gram(np.concatenate([first, more]), kpca.sigma_))
        bounds_hold(kpca, values)


@pytest.mark.parametrize("seed", range(8))
def test_the_sign_of_a_rounding_error_does_not_choose_the_basis(seed):
    """With every row a landmark tr(E) is zero, and of either sign after rounding."""

    class NothingDropped:
        def significant(self, span, most, in_order):
            return Significant(span, 1e-9, np.empty(0))

    X = np.random.default_rng(seed).normal(size=(47, 4))
    features = KernelRows(Gaussian(2.0), np.zeros(4), X)
    ((V, diagonal),) = features.tiles([X], len(X))
    moments = block_moments([(V.copy(), diagonal)], V.mean(axis=0))
    checks = solve.Checks(X, np.zeros(47), X[:0], 47, None)
    basis = solve._first_basis(features, checks, 1e-12, map)
    found = solve._significant_directions(moments, basis, NothingDropped(), checks, 1e-12, map)
    assert abs(found.span.trace_error) < 1e-8
    assert found.span.basis.triangular


def test_one_principal_direction_is_not_trusted(digits):
    X = digits[:600].astype(np.float64)
    kpca = KernelPCA(5, method="rff-pca", size=256, n_directions=1, random_state=0).fit(X)
    _, vectors = spectrum(gaussian_gram(X, kpca.sigma_))
    good = cosines(kpca, X, vectors) > 0.99
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
    assert kpca.certificate_.eigenvalue_upper[0] >= spectrum(gaussian_gram(X, 1.0))[0][0]


def test_components_of_a_kernel_of_finite_rank_are_solid():
    X = normal(500, 6, float)
    kpca = KernelPCA(6, kernel="linear", size=100, random_state=0).fit(X)
    assert kpca.certificate_.trust == ("solid",) * 6


def test_a_kernel_without_a_diagonal_is_fitted_or_refused_in_words():
    kernel = kernels.Function(lambda A, B: (A[:, :1] * B[:, 1] - A[:, 1:] * B[:, 0]) ** 2)  # k(x, x) = 0
    X = normal(100, 2, float)
    with pytest.warns(IndefiniteKernelWarning):
        kpca = KernelPCA(2, kernel=kernel, size=20, landmarks="uniform", random_state=0).fit(X)
    values, _ = spectrum(kernel(X, X))
    assert_allclose(kpca.eigenvalues_, values[: kpca.n_components_], atol=1e-6 * values[0])
    assert kpca.certificate_.relative_trace_error is None


def test_more_features_than_rows_have_no_more_components_than_rows():
    X = normal(40, 4, float)
    kpca = KernelPCA(None, method="rff-pca", size=256, random_state=0).fit(X)
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
    moments = Moments(1, np.zeros(40), np.eye(40), 1.0)
    span = span_of(features.gram(), moments, 1e-12)
    E = K - oracles.nystroem_gram(C, features.gram(), 1e-12)
    Q = np.random.default_rng(0).normal(size=(m, 3))
    with Engine(threads=2).small_work() as in_order:
        found = residual_matrix(features, span, X[-m:], in_order)
        assert_allclose(found.times(Q, in_order), E @ Q, atol=1e-9)
        assert found.times(Q, in_order).tobytes() == found.times(Q).tobytes()
    assert_allclose(found.diagonal(), np.diag(E), atol=1e-9)


def test_a_model_says_what_it_is_sure_of_after_a_round_trip(tmp_path):
    X = normal(300, 2, float)
    kpca = KernelPCA(3, size=30, random_state=0).fit(X)
    kpca.save(tmp_path / "m.zarr")
    found = KernelPCA.load(tmp_path / "m.zarr").certificate_
    assert found.spectral_error_likely == kpca.certificate_.spectral_error_likely
    assert found.confidence == 0.95
    assert found.trust == kpca.certificate_.trust
    assert kpca.model_.moments.largest == 1


def test_linear_rows_may_be_shifted_when_they_are_centred_and_others_not():
    assert Linear().allows_shift(True)
    assert not Linear().allows_shift(False)
    assert (2 * Linear() + Gaussian(1.0)).allows_shift(True)
    assert not (Linear() * Gaussian(1.0)).allows_shift(True)
    assert not kernels.Polynomial(1.0).allows_shift(True)
    assert (Linear() * Gaussian(1.0)).positive
    assert not (Linear() + Sigmoid(1.0)).positive
