"""Fits whose landmarks lie in the leading principal subspace of the rows."""

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from scipy.sparse.linalg import eigsh

import bigkpca
from bigkpca import KernelPCA, kernels, landmarks
from bigkpca.numerics.features import KernelRows, SubspaceRows
from tests.helpers import oracles

OPTIONS = {"n_components": 10, "size": 500, "sigma": 3.0, "random_state": 0}


def exact_eigenvalues(kernel, X):
    return eigsh(oracles.centred(kernel.gram(X)), 10, which="LA")[0][::-1]


@pytest.fixture(scope="module")
def X():
    """Rows of 300 columns, most of whose variance is along few axes, far from the origin."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(300, 300)))[0]
    return (rng.normal(size=(4000, 300)) * 0.85 ** np.arange(300) @ axes + 5).astype("f4")


@pytest.fixture(scope="module")
def found(X):
    return KernelPCA(**OPTIONS).fit(X)


def test_the_axes_are_found_and_told(found):
    features = found.model_.features
    assert isinstance(features, SubspaceRows)
    p = features.axes.shape[1]
    assert (features.axes.shape, features.landmarks.shape, found.landmarks_.shape) == ((300, p), (500, p), (500, 300))
    assert p <= 64
    (told,) = (each for each in found.model_.provenance["choices"] if each["option"] == "axes")
    assert told["value"] == p
    assert "of 300" in told["reason"]


def test_bounds_and_estimates_hold_and_little_is_lost(X, found):
    exact = exact_eigenvalues(kernels.Gaussian(3.0), X)
    known = found.certificate_
    assert (known.lower <= exact).all()
    assert (exact <= known.upper).all()
    assert known.trust.count("solid") >= 8
    assert np.abs(known.estimate - exact).max() <= 4 * known.standard_error.max()
    whole = KernelPCA(**OPTIONS, landmarks=landmarks.KMeans(subspace=False)).fit(X)
    assert type(whole.model_.features) is KernelRows
    assert found.eigenvalues_.sum() >= 0.999 * whole.eigenvalues_.sum()
    ours, theirs = (np.mean((each.denoise(X[:200]) - X[:200]) ** 2) for each in (found, whole))
    assert ours <= 1.05 * theirs
    assert ours < 0.7 * X.var(axis=0).mean()


def test_a_saved_model_and_fits_from_disk_and_by_workers_have_the_same_bits(X, found, tmp_path):
    np.save(tmp_path / "rows.npy", X)
    bigkpca.ingest([tmp_path / "rows.npy"], tmp_path / "rows.zarr")
    bigkpca.fit(tmp_path / "rows.zarr", tmp_path / "model.zarr", **OPTIONS)
    loaded = KernelPCA.load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(loaded.transform(X), found.transform(X))
    local = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)
    with local as cluster, Client(cluster):
        there = KernelPCA(**OPTIONS).fit(X)
    for other in (loaded, there):
        np.testing.assert_array_equal(other.eigenvalues_, found.eigenvalues_)
        np.testing.assert_array_equal(other.model_.features.axes, found.model_.features.axes)


def test_rows_are_added_to_the_same_axes(X, found):
    grown = KernelPCA(**OPTIONS).fit(X[:3700])
    axes = grown.model_.features.axes
    grown.partial_fit(X[3700:])
    np.testing.assert_array_equal(grown.model_.features.axes, axes)
    np.testing.assert_allclose(grown.eigenvalues_, found.eigenvalues_, rtol=0.01)


@pytest.mark.parametrize(
    "kernel", [kernels.Matern(3.0, nu=1.5), kernels.Polynomial(0.01, degree=2, coef0=1.0)], ids=str
)
def test_other_kernels_have_bounds_that_hold(X, kernel):
    found = KernelPCA(10, size=600, kernel=kernel, landmarks="kmeans", random_state=0).fit(X)
    exact = exact_eigenvalues(kernel, X - found.model_.features.offset.astype("f4"))
    assert (found.certificate_.lower <= exact * (1 + 1e-6)).all()
    assert (exact <= found.certificate_.upper).all()


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ((slice(None, None, 9), 3), 1e25),  # a giant in the sample, whose square overflows in float32
        ((1234, 3), 1e25),  # one giant
        ((slice(None, None, 20), 2), -9999),  # a sentinel
        (slice(50, None), 0),  # mostly equal
        ((slice(None), slice(20, None)), 0),  # of rank 20
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_without_a_principal_subspace(X, where, value):
    rows = X.copy()
    rows[where] = value
    found, whole = (
        KernelPCA(5, size=500, sigma=3.0, random_state=0, landmarks=landmarks.KMeans(subspace=inside)).fit(rows)
        for inside in (True, False)
    )
    assert np.isfinite(found.transform(rows[:99])).all()
    np.testing.assert_allclose(found.eigenvalues_, whole.eigenvalues_, rtol=0.02)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "float64"}, {"standardize": True, "sigma": 20.0}, {"column_weights": np.r_[0.5, np.ones(299)]}],
    ids=["double precision", "standardised", "weighted"],
)
def test_double_precision_standardised_and_weighted_columns(X, options):
    found = KernelPCA(**OPTIONS | options).fit(X)
    assert np.isfinite(found.eigenvalues_).all()
    assert found.certificate_.proven
    assert found.transform(X[:5]).dtype == (np.float64 if "dtype" in options else np.float32)
