"""Hard but ordinary data: outliers, sentinels, offsets, far clusters, indefinite kernels. Each case once was wrong."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from bigkpca import KernelPCA, kernels, methods
from bigkpca.errors import (
    DataError,
    FarRowsWarning,
    FewerComponentsWarning,
    IndefiniteKernelWarning,
    RoundingWarning,
    ToleranceWarning,
)
from bigkpca.numerics.kernels import Gaussian
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
    assert (found.lower <= values[:r] + slack).all()
    assert (values[:r] <= found.upper + slack).all()


def cosines(kpca, X, vectors, values=None):
    """Of each component with the eigenvector of its rank, or with those of `values` within 2 % of that."""
    Y = kpca.transform(X).astype(np.float64)
    Y -= Y.mean(axis=0)
    near = np.eye(vectors.shape[1]) if values is None else np.abs(values - values[:, None]) <= 0.02 * values
    return np.linalg.norm((vectors.T @ Y) * near[:, : Y.shape[1]], axis=0) / np.linalg.norm(Y, axis=0)


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


@pytest.mark.parametrize(
    ("factor", "degree", "options"),
    [
        (1e5, 1, {"landmarks": "uniform", "size": 20}),
        (1e5, 1, {"landmarks": "uniform", "size": 20, "dtype": "float32"}),
        (3e6, 1, {}),
        (3e3, 2, {"landmarks": "uniform", "size": 20}),
    ],
)
@pytest.mark.filterwarnings("ignore::bigkpca.errors.FewerComponentsWarning")
def test_bounds_hold_where_a_few_rows_are_giants(factor, degree, options):
    """No random row of the sample is one: a tile with one is summed in float64."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 5)).astype("f4")
    X[rng.choice(4000, 3, replace=False)] *= np.float32(factor)
    kernel = kernels.Linear() if degree == 1 else kernels.Polynomial(0.2, 2, 1.0)
    kpca = KernelPCA(5, kernel=kernel, random_state=3, **options).fit(X.astype("f8") if "dtype" in options else X)
    F = X.astype(np.float64)  # features, whose products are kernels
    if degree == 2:
        F = np.column_stack([0.2 * np.einsum("ni,nj->nij", F, F).reshape(4000, 25), np.sqrt(0.4) * F])
    values = np.linalg.svd(F - F.mean(axis=0), compute_uv=False) ** 2
    found, r = kpca.certificate_, kpca.n_components_
    assert (found.lower <= values[:r] * (1 + 1e-9) + 1e-12 * values[0]).all()
    assert (values[:r] <= found.upper * (1 + 1e-9)).all()


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
@pytest.mark.filterwarnings("ignore::bigkpca.errors.FewerComponentsWarning")
@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
def test_long_columns_and_wide_kernels_in_single_precision():
    X = normal()
    X[:, 0] = np.random.default_rng(2).random(800) * 300
    kpca, again = (KernelPCA(8, sigma=1.0, size=300, random_state=0, dtype=each).fit(X) for each in (None, "float64"))
    assert_allclose(kpca.eigenvalues_, again.eigenvalues_, rtol=0.01)
    bounds_hold(kpca, eigenvalues(gaussian_gram(X, 1.0)))
    wide = KernelPCA(7, sigma=150.0, size=300, random_state=0).fit(normal())
    bounds_hold(wide, eigenvalues(gaussian_gram(normal(), 150.0)))


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
def test_float64_is_chosen_where_single_precision_would_count_and_said():
    X = (np.random.default_rng(3).normal(size=(1000, 2)) * [1, 30]).astype(np.float32)
    kpca = KernelPCA(10, sigma=100.0, size=200, random_state=0).fit(X)
    (chosen,) = [each for each in kpca.model_.provenance["choices"] if each["option"] == "dtype"]
    assert (chosen["value"], kpca.model_.features.dtype) == ("float64", np.float64)
    assert "rounding in float32" in chosen["reason"]
    true = eigenvalues(gaussian_gram(X, 100.0))[:5]
    assert_allclose(kpca.eigenvalues_[:4], true[:4], rtol=1e-5)
    assert_allclose(kpca.certificate_.estimate[:5], true, rtol=1e-5)


def test_single_precision_that_was_asked_for_is_warned_of_where_it_counts():
    X = normal(500) + np.float32(3000)
    with pytest.warns(FewerComponentsWarning, match="the others would be rounding errors"):
        KernelPCA(5, kernel="polynomial", size=50, dtype="float32", random_state=0).fit(X)
    options = {"sigma": 1000.0, "size": 50, "landmarks": "uniform", "random_state": 0}  # k(x, y) is nearly 1
    with pytest.warns(RoundingWarning, match=r"rounding in float32 may move an eigenvalue by 0\.\d+ of itself"):
        kpca = KernelPCA(3, dtype="float32", **options).fit(normal(500))
    assert "doubtful" in kpca.certificate_.trust


def test_a_function_that_claims_to_be_positive_semidefinite_and_is_not_is_found_out():
    X = normal(400, 5, float)
    lied = kernels.Function(lambda A, B: np.tanh(0.5 * A @ B.T - 0.5), psd=True)
    with pytest.raises(DataError, match="omit psd=True from a kernel function"):
        KernelPCA(3, kernel=lied, size=390, landmarks="uniform", random_state=0).fit(X)

    def only_between_halves(A, B):  # W of the first half is the identity, and K is indefinite
        same = cdist(A, B) == 0
        return same + 2.0 * (np.subtract.outer(A[:, 0], B[:, 0]) ** 2 == 1)

    X = np.c_[np.repeat([0.0, 1.0], 50), np.tile(np.arange(50.0), 2)]
    lied = kernels.Function(only_between_halves, psd=True)
    kpca = KernelPCA(3, kernel=lied, landmarks=np.arange(50), center=False, random_state=0)
    with pytest.raises(DataError, match="more than all of it: rounding, or a kernel that is not positive"):
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


# Indefinite kernels


@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
def test_negative_eigenvalues_do_not_come_back_as_positive_ones():
    X, kernel = normal(600, 10, float), kernels.Sigmoid(0.002, -2.0)
    values = eigenvalues(kernel.gram(X), center=False)
    assert values[-1] < -100 * values[0]
    for method in ("nystroem", "columns", methods.Nystroem("thesis")):
        options = {"method": method, "size": 100, "landmarks": "uniform", "center": False}
        kpca = KernelPCA(3, kernel=kernel, random_state=0, **options).fit(X)
        assert kpca.eigenvalues_[0] < 2 * values[0], method
        assert kpca.certificate_.confidence == 0


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("rule", ["uniform", "rpcholesky"])
def test_a_kernel_that_is_indefinite_on_rows_and_not_on_landmarks_is_found_out(rule, center):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 3)) + 4 * rng.normal(size=(5, 3))[rng.integers(0, 5, 600)]

    def epanechnikov(A, B):
        return np.maximum(1 - cdist(A, B) ** 2 / 4, 0)

    values = eigenvalues(epanechnikov(X, X), center)
    assert values[-1] < -0.05 * values[0]
    options = {"landmarks": rule, "size": 10 if rule == "uniform" else 60, "center": center}
    with pytest.warns(IndefiniteKernelWarning):
        KernelPCA(3, kernel=epanechnikov, **options, random_state=0).fit(X)


# What no landmark saw


def mixed():
    """Rows, and a fit whose landmarks see eigenvalues of 1020 and 980 apart, where 1265 and 998 are true ones of other
    directions."""
    rng, A = np.random.default_rng(0), np.arange(2000) < 1020
    X = np.column_stack([A, ~A, 0.4 * (rng.random(2000) < 0.9)]).astype(float)
    S = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [1, 2, 0.0]])
    return X, KernelPCA(2, kernel="linear", center=False, landmarks=S, random_state=0).fit(X)


def test_components_that_what_is_missed_may_mix_are_not_solid():
    X, kpca = mixed()
    U, _, _ = np.linalg.svd(X, full_matrices=False)
    Y = kpca.transform(X).astype(np.float64)
    assert (np.abs(np.einsum("ij,ij->j", U[:, :2], Y)) < 0.9 * np.linalg.norm(Y, axis=0)).all()
    assert (kpca.certificate_.cosine < 0.95).all()
    assert "solid" not in kpca.certificate_.trust


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
    kpca = KernelPCA(12, sigma=2, size=60, landmarks="uniform", random_state=0).fit(X)
    found, (values, vectors) = kpca.certificate_, spectrum(gaussian_gram(X, 2.0))
    assert found.missed[0] * kpca.eigenvalues_[0] > 14.5
    assert (values[:12] <= found.upper).all()
    solid = np.array(found.trust) == "solid"
    assert solid.any()
    assert (cosines(kpca, X, vectors)[solid] > 0.99).all()


def test_added_rows_from_elsewhere_are_not_trusted():
    rng = np.random.default_rng(0)
    first, more = rng.normal(size=(400, 3)), rng.normal(size=(400, 3)) + 8
    kpca = KernelPCA(5, sigma=2.0, size=100, random_state=0).fit(first)
    assert kpca.certificate_.trust == ("solid",) * 5
    with pytest.warns(FarRowsWarning):
        kpca.partial_fit(more)
    values = eigenvalues(gaussian_gram(np.r_[first, more], 2.0))
    found = kpca.certificate_
    assert "solid" not in found.trust
    assert len(kpca.model_.drawn.X) == 800
    assert (values[:5] <= found.upper).all()
    assert found.missed[0] * kpca.eigenvalues_[0] > values[0] / 2


@pytest.mark.parametrize("sentinel", [False, True])
def test_bounds_hold_of_added_rows(sentinel):
    X = normal(800, 5 if sentinel else 40)
    X[np.random.default_rng(1).random(len(X)) < 0.05, 2] += -9999 * sentinel
    for first, more in ((X[:600], X[600:]), (X[::4], normal(600, X.shape[1]))):
        kpca = KernelPCA(8, size=200 if len(first) > 300 else 130, random_state=0).fit(first).partial_fit(more)
        bounds_hold(kpca, eigenvalues(gaussian_gram(np.concatenate([first, more]), kpca.sigma_)))


def test_one_principal_direction_is_not_trusted(digits):
    X = digits[:300].astype(np.float64)
    kpca = KernelPCA(5, method="rff-pca", size=256, n_directions=1, random_state=0).fit(X)
    good = cosines(kpca, X, spectrum(gaussian_gram(X, kpca.sigma_))[1]) > 0.99
    assert not good.all()
    assert not (np.array(kpca.certificate_.trust)[~good] == "solid").any()


# Smaller ones


def test_landmarks_that_are_far_from_all_rows_stop_no_fit():
    X, far = normal(200, 2, float), np.full((3, 2), 1e3) * [[1], [2], [3]]
    kpca = KernelPCA(1, sigma=1.0, landmarks=np.r_[far[:1], X[:1], far[1:]], random_state=0).fit(X)
    assert kpca.certificate_.trust == ("doubtful",)
    assert kpca.certificate_.upper[0] >= eigenvalues(gaussian_gram(X, 1.0))[0]


@pytest.mark.filterwarnings("ignore::bigkpca.errors.FewerComponentsWarning")
def test_a_kernel_without_a_diagonal_is_fitted_or_refused_in_words():
    kernel = kernels.Function(lambda A, B: (A[:, :1] * B[:, 1] - A[:, 1:] * B[:, 0]) ** 2)  # k(x, x) = 0
    X = normal(100, 2, float)
    with pytest.warns(IndefiniteKernelWarning):
        kpca = KernelPCA(2, kernel=kernel, size=20, landmarks="uniform", random_state=0).fit(X)
    values = eigenvalues(kernel(X, X))
    assert_allclose(kpca.eigenvalues_, values[: kpca.n_components_], atol=1e-6 * values[0])
    assert not kpca.certificate_.proven


def test_far_rows_that_float32_merges_leave_no_bound():
    X = np.random.default_rng(0).normal(size=(1500, 3)) * 0.05
    X += (np.random.default_rng(1).normal(size=(8, 3)) * 6)[np.arange(1500) % 8]
    X[:6] = 1e8 + 0.3 * np.random.default_rng(2).normal(size=(6, 3))
    options = {"sigma": 1.0, "landmarks": X[:66], "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        single, double = (KernelPCA(4, dtype=dtype, **options).fit(X).certificate_ for dtype in ("float32", None))
    assert (single.confidence == 0) or (single.missed >= double.missed / 2).all()
    assert double.confidence > 0


def coupled(last):
    """Rows whose first component E mixes with the 14th, of an eigenvalue of `last` times the first, and a fit with
    landmarks along the axes, which see the two apart."""
    values = np.r_[1.0, np.minimum(np.linspace(0.97, last + 0.01, 12), 0.975), np.linspace(last, 0.5, 7)]
    A = np.random.default_rng(0).normal(size=(1500, 20))
    Q = np.linalg.qr(A - A.mean(axis=0))[0]
    X = np.column_stack([Q * np.sqrt(values), 0.3 * (Q[:, 0] + Q[:, 13])]) * np.sqrt(1500)
    landmarks = np.column_stack([np.eye(20), np.zeros(20)])
    return X, KernelPCA(1, kernel="linear", landmarks=landmarks, random_state=0).fit(X)


@pytest.mark.parametrize("last", [0.92, 0.85])
def test_a_component_that_mixes_with_one_that_is_not_asked_for_is_not_solid(last):
    X, kpca = coupled(last)
    U, _, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    (cosine,) = cosines(kpca, X, U)
    assert cosine < 0.95
    assert kpca.certificate_.trust == ("doubtful",)
    assert kpca.certificate_.cosine[0] < cosine + 0.03


@pytest.mark.full
@pytest.mark.parametrize("most", [16, 80, 200])
def test_few_sampled_rows_make_no_component_solid_that_is_not(most, monkeypatch):
    """As with many columns: close eigenvalues are split by chance."""
    monkeypatch.setattr("bigkpca.spec.resolved.DRAWN_ROWS", most)
    rng = np.random.default_rng([31, 4])
    X = rng.normal(size=(4, 3))[rng.integers(0, 4, 900)] * 5 + 0.6 * rng.normal(size=(900, 3))
    S = X[: int(rng.choice([15, 25, 40]))].copy()
    kernel = Gaussian(float(rng.choice([1.5, 2.0, 3.0])))
    values, vectors = spectrum(gaussian_gram(X, kernel.sigma))
    for seed in range(12):
        kpca = KernelPCA(5, kernel=kernel, landmarks=S, random_state=seed).fit(X)
        solid = np.array(kpca.certificate_.trust) == "solid"
        assert (cosines(kpca, X, vectors, values)[solid] > 0.99).all()


@pytest.mark.full
def test_angles_to_nystroem_and_to_the_exact_component_add_up():
    counts = {"solid": 0, "fair": 0}
    for seed in range(30):
        rng = np.random.default_rng([12, seed])
        centres = rng.normal(size=(int(rng.integers(2, 8)), 3)) * rng.uniform(0, 3)
        X = centres[rng.integers(0, len(centres), 500)] + rng.normal(size=(500, 3)) * rng.uniform(0.2, 1, 3)
        kpca = KernelPCA(6, sigma=1.7, size=100, method="columns", random_state=seed).fit(X)
        values, vectors = spectrum(gaussian_gram(X, 1.7))
        for word, least in (("solid", 0.99), ("fair", 0.9)):
            rated = np.array(kpca.certificate_.trust) == word
            assert (cosines(kpca, X, vectors, values)[rated] > least).all(), seed
            counts[word] += int(rated.sum())
    assert min(counts.values()) > 5


def test_eigenvalues_that_the_landmarks_may_miss_have_no_estimate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))[np.arange(1200) % 60] * 8 + rng.normal(size=(1200, 5)) * 0.3
    kpca = KernelPCA(25, sigma=2.0, size=30, landmarks="uniform", random_state=0).fit(X)
    found = kpca.certificate_
    known = ~np.isnan(found.estimate)
    assert (found.missed[known] <= 1).all()
    assert not known.all()
    values = eigenvalues(gaussian_gram(X, 2.0))[:25]
    off = np.abs(found.estimate - values)[known]
    assert (off <= 4 * found.standard_error[known]).all()
    assert (np.diff(found.estimate[known]) <= 0).all()


@pytest.mark.full
def test_the_likely_bound_holds_as_often_as_it_says(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(460, 2)), rng.normal(size=(20, 2)) * 0.05 + 9]
    monkeypatch.setattr("bigkpca.spec.resolved.DRAWN_ROWS", 120)
    held, bounds, K = [], [], gaussian_gram(X, 1.0)
    for seed in range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kpca = KernelPCA(3, sigma=1.0, size=12, landmarks="uniform", center=False, random_state=seed).fit(X)
        S = kpca.landmarks_
        C = np.exp(-cdist(X, S, "sqeuclidean") / 2)
        E = K - oracles.nystroem_gram(C, Gaussian(1.0).gram(S), 1e-12)
        missed = kpca.certificate_.missed[0] * kpca.eigenvalues_[0]
        held.append(np.linalg.eigvalsh(E)[-1] <= missed)
        bounds.append(missed / np.trace(E))
    assert np.mean(held) >= 0.95
    assert np.median(bounds) < 1  # tr(E) is the bound that nothing proves wrong


# Kernel values that are no numbers


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "options",
    [{"tol": 0.1}, *({"landmarks": rule, "size": 20} for rule in ("uniform", "rpcholesky"))],
    ids=str,
)
def test_kernels_that_are_no_numbers_are_refused_by_every_rule(options, value):
    def kernel(A, B):
        return np.where(cdist(A, B) > 3, value, 1.0)

    def everywhere(A, B):
        return np.full((len(A), len(B)), value)

    for each in (kernel, everywhere):
        with pytest.raises(DataError, match="kernel values overflow"):
            KernelPCA(3, kernel=each, **options, random_state=0).fit(normal(300))


def test_a_kernel_without_a_positive_eigenvalue_is_not_called_a_precomputed_matrix():
    with pytest.raises(DataError, match="the Gram matrix has no positive eigenvalue"):
        KernelPCA(3, kernel=lambda A, B: -np.exp(-cdist(A, B)), method="exact", random_state=0).fit(normal(100))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::bigkpca.errors.FarRowsWarning")
def test_added_rows_that_exceed_the_tolerance_are_told():
    rng, message = np.random.default_rng(0), r"tol=0\.1 is not met: the features were chosen for the rows"
    first, more = rng.normal(size=(500, 3)), rng.normal(size=(1500, 3)) * 4
    kpca, like = (KernelPCA(3, sigma=3.0, tol=0.1, random_state=0) for _ in range(2))
    kpca.fit(first)
    with pytest.warns(ToleranceWarning, match=message):
        like.fit(more, like=kpca)
    with pytest.warns(ToleranceWarning, match=message):
        kpca + like
    with pytest.warns(ToleranceWarning, match=message):
        kpca.partial_fit(more)
