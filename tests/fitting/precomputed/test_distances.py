"""A matrix of squared distances: classical scaling, and what is wrong with it."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca import kernels
from bigkpca.errors import CorruptionError, DataError, IndefiniteKernelWarning
from bigkpca.fitting import precomputed_products
from tests.fitting.precomputed.matrices import SOURCES, K, N, R, X, fitted, scaled, squared
from tests.helpers import oracles
from tests.helpers.fits import scores
from tests.helpers.stores import as_zarr


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_squared_distances_give_classical_scaling(dtype, path):
    given = (-squared(X[:N], X[:N]) / 2).astype(dtype)
    model, (values, coordinates) = fitted(given, components=5, residual_tol=1e-5), scaled(squared(X[:N], X[:N]), 5)
    close = 1e-9 if dtype == np.float64 else 1e-5
    assert_allclose(model.solution.eigenvalues, values, rtol=close)
    assert model.solution.negative == 0  # no warning
    found, size = scores(model, given), np.sqrt(values[0])
    assert_allclose(oracles.with_signs_of(found, coordinates), coordinates, atol=max(close, 1e-5) * size)
    assert_allclose(model.solution.total_variance, np.square(X[:N] - X[:N].mean(axis=0)).sum(), rtol=close)
    assert_allclose(model.solution.explained_variance_ratio.sum(), 1, rtol=1e-4)
    axes = np.linalg.svd(X[:N] - X[:N].mean(axis=0), full_matrices=False)[2].T
    expected = (X[N:] - X[:N].mean(axis=0)) @ axes  # new rows are where principal axes have them
    new = scores(model, (-squared(X[N:], X[:N]) / 2).astype(dtype))
    assert_allclose(oracles.with_signs_of(new, expected), expected, atol=max(close, 1e-5) * size)


@pytest.mark.parametrize("kind", ["zarr", "zarr, odd chunks", "dask", "npy"])
def test_distances_of_no_space_give_the_positive_part_and_a_warning(kind, path, tmp_path):
    D = np.abs(X[:N, None] - X[None, :N]).sum(axis=2)  # of city blocks
    values, coordinates = scaled(D**2, R)
    spectrum = np.linalg.eigvalsh(oracles.centred(-(D**2) / 2))
    with pytest.warns(IndefiniteKernelWarning, match="most negative eigenvalue is -"):
        model = fitted(SOURCES[kind](tmp_path, -(D**2) / 2))
    assert_allclose(model.solution.eigenvalues, values, rtol=1e-9)
    found = scores(model, -(D**2) / 2)
    assert_allclose(oracles.with_signs_of(found, coordinates), coordinates, atol=1e-5 * np.sqrt(values[0]))
    assert_allclose(model.solution.negative, spectrum[0] / spectrum[-1], rtol=1e-6 if path == "held" else 0.2)
    certificate = model.certificate
    assert certificate.eigenvalue_lower is not None
    assert (certificate.eigenvalue_lower <= values * (1 + 1e-14)).all()
    assert certificate.eigenvalue_upper is None or (values <= certificate.eigenvalue_upper).all()
    assert certificate.explained_variance_ratio_lower is None  # nothing of the kind is proven
    assert certificate.explained_variance_ratio_upper is None
    if path == "held":
        assert_allclose(model.solution.total_variance, spectrum[spectrum > 0].sum(), rtol=1e-9)


@pytest.mark.parametrize("center", [True, False])
def test_a_diagonal_of_either_sign_is_kept_to_its_positive_part(center, path):
    signs = np.where(np.arange(N) % 3, 1.0, -1.0)
    given = K * signs[:, None] + signs * K  # indefinite, with a diagonal of both signs
    spectrum = np.linalg.eigvalsh(oracles.centred(given) if center else given)[::-1]
    with pytest.warns(IndefiniteKernelWarning):
        model = fitted(given, center=center)
    assert_allclose(model.solution.eigenvalues, spectrum[:R], rtol=1e-9)
    rows = scores(model, given)
    assert_allclose(np.square(rows).sum(axis=0), spectrum[:R], rtol=1e-6)


@pytest.mark.parametrize("given", ["kernels", "distances"])
def test_without_a_positive_eigenvalue_nothing_is_left(given, path):
    matrix = -K if given == "kernels" else squared(X[:N], X[:N]) - 1e-3
    with pytest.raises(
        DataError, match=r"has no positive eigenvalue, and -.* entries must be large where rows are alike"
    ):
        fitted(matrix)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_a_wrong_entry_among_squared_distances_is_named_and_rounding_is_not(dtype, scale, path):
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    given = -squared(X[:N], X[:N]) / 2 * scale
    rounded = (given * (1 + 8 * eps * rng.uniform(-1, 1, given.shape))).astype(dtype)
    assert fitted(rounded, components=3, residual_tol=1e-3).components == 3
    rounded[201, 77] *= 1.1
    with pytest.raises(DataError, match=r"is not symmetric: entry \((201, 77|77, 201)\)"):
        fitted(rounded, components=3)


def test_chunks_that_are_missing_among_squared_distances_are_named(path, tmp_path):
    given = -squared(X[:N], X[:N]) / 2
    for row, column, says in ((1, 6, "rows 50 to 99, columns 300 to 329"), (6, 6, "rows 300 to 329, columns 300")):
        place = as_zarr(tmp_path, given, (50, 50), f"{row}.zarr")
        (Path(place) / f"c/{row}/{column}").unlink()
        with pytest.raises(CorruptionError, match=says):
            fitted(place, components=5)


def test_a_chunk_of_rows_at_no_distance_from_each_other_need_not_be_stored(path, tmp_path):
    rows = X[:N].copy()
    rows[50:100] = rows[50]
    given = 0 - squared(rows, rows) / 2  # without negative zeros, which would be stored
    place = as_zarr(tmp_path, given, (50, 50))
    assert not (Path(place) / "c/1/1").exists()
    assert_allclose(fitted(place, components=5).solution.eigenvalues, scaled(-2 * given, 5)[0], rtol=1e-9)


def test_a_sample_without_a_positive_eigenvalue_is_no_reason_to_stop(large, monkeypatch):
    given = -np.eye(N)
    given[200:, 200:] += 0.5 * np.exp(-squared(X[200:N], X[200:N]) / 20)

    class OnlyTheFirst:
        def choice(self, n, size, replace):
            return np.arange(0, 200, 4)[:size]

        def standard_normal(self, shape):
            return np.random.default_rng(0).standard_normal(shape)

    spectrum = np.linalg.eigvalsh(oracles.centred(given))
    monkeypatch.setattr(precomputed_products, "random_stream", lambda *_: OnlyTheFirst())
    with pytest.warns(IndefiniteKernelWarning):
        model = fitted(given, components=3)
    assert_allclose(model.solution.eigenvalues, spectrum[::-1][:3], rtol=1e-9)


@pytest.mark.parametrize("sigma", [2.5, 30.0, 300.0])
def test_single_precision_makes_no_matrix_indefinite(sigma, path):
    given = kernels.Gaussian(sigma).gram(X[:N]).astype(np.float32)
    assert fitted(given, residual_tol=1e-2, components=3).solution.negative == 0
