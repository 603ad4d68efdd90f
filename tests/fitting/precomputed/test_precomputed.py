"""Kernel PCA of a Gram matrix that the caller has: as scikit-learn's, and as our own exact method's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import KernelPCA as Peer

from bigkpca import KernelPCA, kernels
from bigkpca.data import matrix_tiles
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import EVERY
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import SpecError
from bigkpca.execution.planning import plan_fit
from bigkpca.fitting import precomputed_products
from bigkpca.spec import FitSpec
from bigkpca.storage.models import load_model, save_model
from tests.fitting.precomputed.matrices import K_NEW, KERNEL, OPTIONS, SOURCES, K, N, R, X, estimator, fitted, saved
from tests.helpers import oracles
from tests.helpers.fits import scores


@pytest.mark.parametrize("kind", SOURCES)
def test_it_is_scikit_learns(kind, path, tmp_path):
    theirs = Peer(R, kernel="precomputed").fit(K)
    ours = estimator().fit(SOURCES[kind](tmp_path, K))
    assert ("products" in ours.model_.provenance) == (path != "held")
    assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-11)
    for values in (K, K_NEW):
        expected = theirs.transform(values)
        found = np.asarray(ours.transform(SOURCES[kind](tmp_path, values)))
        assert_allclose(oracles.with_signs_of(found, expected), expected, atol=1e-6)


@pytest.mark.parametrize("center", [True, False])
def test_it_is_the_exact_method_on_the_rows(center, path):
    rows = fitted(X[:N], kernel=KERNEL, center=center)
    given = fitted(K, center=center)
    assert_allclose(given.solution.eigenvalues, rows.solution.eigenvalues, rtol=1e-11)
    assert_allclose(given.solution.total_variance, rows.solution.total_variance, rtol=1e-11)
    assert_allclose(given.solution.mean, rows.solution.mean, rtol=1e-10, atol=1e-13)
    assert_allclose(scores(given, K), scores(rows, X[:N]), atol=1e-6)  # signs as well
    assert_allclose(scores(given, K_NEW), scores(rows, X[N:]), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("asked", [None, "float32", "float64"])
def test_precision_is_that_of_the_matrix_or_as_asked(dtype, asked, path):
    given = K.astype(dtype)
    exact = np.linalg.eigvalsh(oracles.centred(given.astype(np.float64)))[::-1][:R]
    model = fitted(given, residual_tol=1e-4, dtype=asked)
    assert model.features.dtype == (asked or np.result_type(dtype, np.float32))
    assert_allclose(model.solution.eigenvalues, exact, rtol=1e-7 if model.features.dtype == np.float64 else 1e-5)


def test_integers_are_kernels_too(path):
    counts = np.random.default_rng(1).integers(0, 4, (N, 4))
    model = fitted((counts @ counts.T).astype(np.uint8), components=3)
    exact = np.linalg.eigvalsh(oracles.centred((counts @ counts.T).astype(np.float64)))[::-1][:3]
    assert_allclose(model.solution.eigenvalues, exact, rtol=1e-5)


def subsequences(a, b):
    """How many pairs of substrings of three letters are the same."""
    return sum(a[i : i + 3] == b[j : j + 3] for i in range(len(a) - 2) for j in range(len(b) - 2))


def test_strings_by_a_similarity_of_their_own(path):
    rng = np.random.default_rng(0)
    strings = ["".join(rng.choice(list("acgt"), 12)) for _ in range(100)]
    strings += ["".join(rng.choice(list("aacc"), 12)) for _ in range(50)]
    similar = np.array([[subsequences(a, b) for b in strings] for a in strings], np.float64)
    similar /= np.sqrt(np.outer(similar.diagonal(), similar.diagonal()))
    model = estimator(n_components=2).fit(similar[:140, :140])
    expected, vectors = oracles.gram_kpca(similar[:140, :140], 2)
    assert_allclose(model.eigenvalues_, expected, rtol=1e-8)
    found = model.transform(similar[:140, :140])
    assert_allclose(oracles.with_signs_of(found, vectors), vectors, atol=1e-5)
    of_strings = model.transform(similar[140:, :140])[:, 0]  # ten strings of a and c, never seen
    assert abs(found[:100, 0].mean() - of_strings.mean()) > 2 * found[:100, 0].std()


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("tol", [0.1, 1e-2, 1e-5])
def test_residuals_are_the_true_ones(tol, center, large):
    model = fitted(K, residual_tol=tol, center=center)
    Kc, certificate = oracles.centred(K) if center else K, model.certificate
    U, values = model.solution.components * np.sqrt(model.solution.eigenvalues), model.solution.eigenvalues
    assert certificate.residuals is not None
    left = np.linalg.norm(Kc @ U - U * values, axis=0) / values
    assert (certificate.residuals >= left).all()  # widened by rounding
    assert_allclose(certificate.residuals, left, rtol=1e-6, atol=1e-12)
    assert certificate.residuals.max() <= tol + 1e-12
    assert_allclose(certificate.eigenvalue_lower, values, rtol=1e-11)
    assert (certificate.eigenvalue_lower < values).all()
    assert_allclose(model.solution.total_variance, np.trace(Kc), rtol=1e-12)


def test_a_matrix_that_is_held_has_no_error():
    certificate = fitted(K).certificate
    assert (certificate.trace_error, certificate.residuals) == (0.0, None)


def test_components_by_the_largest_gap_are_those_of_the_exact_method():
    found, rows = fitted(K, components="auto"), fitted(X[:N], kernel=KERNEL, components="auto")
    assert len(found.solution.eigenvalues) == len(rows.solution.eigenvalues)
    assert found.provenance["choices"] == rows.provenance["choices"][-1:]
    again = fitted(K, components=len(found.solution.eigenvalues))
    assert_array_equal(again.solution.components, found.solution.components)


@pytest.mark.parametrize("components", [None, 0.9])
def test_components_by_share_or_all_where_the_matrix_is_held(components, request):
    found = fitted(K, components=components).solution
    true = np.linalg.eigvalsh(oracles.centred(K))[::-1]
    count = N if components is None else int(np.searchsorted(np.cumsum(true) / true.sum(), 0.9)) + 1
    assert_allclose(found.eigenvalues, true[: len(found.eigenvalues)], rtol=1e-6)
    assert count - 1 - (components is None) <= len(found.eigenvalues) <= count
    request.getfixturevalue("large")
    with pytest.raises(SpecError, match="above 100 rows needs a number of components"):
        fitted(K, components=components)
    with pytest.raises(SpecError, match="above 100 rows needs a number of components"):
        plan_fit(ArrayRows(K), FitSpec.checked(components=components, **OPTIONS), 1)


def test_parts_that_nothing_ties_to_the_rest_are_found(large):
    apart = np.zeros((N, N))
    apart[:200, :200] = 0.5 + 0.5 * np.eye(200)
    apart[200:, 200:] = 0.7 * np.outer(*[np.sign(X[200:N, 0])] * 2) + 0.3 * np.eye(N - 200)
    numbers = np.arange(0, 200, 2)  # which columns the start knows
    rng = np.random.default_rng(0)

    class OnlyTheFirst:
        def choice(self, n, size, replace):
            return numbers[:size]

        def standard_normal(self, shape):
            return rng.standard_normal(shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precomputed_products, "random_stream", lambda *_: OnlyTheFirst())
        model = fitted(apart, components=2, center=False)
    true = np.linalg.eigvalsh(apart)[::-1][:2]
    assert_allclose(model.solution.eigenvalues, true, rtol=1e-8)


def test_low_rank_takes_no_products_to_speak_of(large):
    vectors = X[:N, :4].astype(np.float32)
    model = fitted(vectors @ vectors.T, components=20)
    assert model.components == 4
    assert model.provenance["products"] <= 3
    assert_allclose(model.solution.eigenvalues, np.linalg.eigvalsh(np.cov(vectors.T))[::-1] * (N - 1), rtol=1e-5)


def test_the_size_of_the_start_changes_the_products_alone(large):
    few, many = (fitted(K, size=size) for size in (8, 200))
    assert few.provenance["products"] > many.provenance["products"]
    assert_allclose(few.solution.eigenvalues, many.solution.eigenvalues, rtol=1e-10)


@pytest.mark.parametrize(("kind", "dtype"), [("zarr", np.float64), ("zarr, rows", np.float32), ("dask", np.float32)])
@pytest.mark.bits
def test_models_and_scores_are_the_same_bytes_everywhere(kind, dtype, path, engine, tmp_path):
    """With pieces as they come, since workers do not see the small constants; parts are cut here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_tiles, "_TALL", 512)
        patch.setattr(matrix_tiles, "TILE_BYTES", 2**23)
        source = SOURCES[kind](tmp_path, K.astype(dtype))
        one, other = (fitted(source, runs, residual_tol=1e-3) for runs in (None, engine))
        assert saved(one, tmp_path / "one") == saved(other, tmp_path / "other")
        assert_array_equal(scores(one, source), scores(one, source, engine))


def test_models_are_saved_and_loaded(path, tmp_path):
    model = fitted(K)
    save_model(model, str(tmp_path / "model.zarr"))
    loaded = load_model(str(tmp_path / "model.zarr"))
    assert_array_equal(scores(loaded, K_NEW), scores(model, K_NEW))
    assert loaded.features.kernel == kernels.Precomputed()
    assert loaded.features.dtype == model.features.dtype
    assert loaded.provenance["content"] == model.provenance["content"]
    assert FitSpec.of(loaded) == FitSpec.of(model)
    assert FitSpec.of(loaded).precomputed
    again = KernelPCA.load(tmp_path / "model.zarr")
    assert_array_equal(again.transform(K_NEW), scores(model, K_NEW))
    assert again.get_params()["kernel"] == "precomputed"
    size = sum(file.stat().st_size for file in (tmp_path / "model.zarr").rglob("*"))
    assert size < 20 * 8 * N + 80_000  # vectors and their certificate, but no matrix


def test_contents_tell_matrices_apart(path):
    other = K.copy()
    other[7, 7] = 1.01
    assert fitted(K).provenance["content"] == fitted(K.copy()).provenance["content"]
    assert fitted(K).provenance["content"] != fitted(other).provenance["content"]


@pytest.mark.parametrize("kind", ["zarr", "zarr, rows", "zarr, odd chunks"])
def test_each_chunk_is_decoded_once_for_the_start_and_at_most_once_for_each_product(kind, large, tmp_path, monkeypatch):
    rows = open_rows(SOURCES[kind](tmp_path, K))
    height, width = rows.grid
    decoded, block = np.zeros([-(-N // size) for size in rows.grid], int), ZarrRows.block

    def counting(self, start, stop, columns=EVERY):
        left, right, _ = columns.indices(N)
        decoded[start // height : -(-stop // height), left // width : -(-right // width)] += 1
        return block(self, start, stop, columns)

    monkeypatch.setattr(ZarrRows, "block", counting)
    products = fitted(rows).provenance["products"]
    lower = np.tril(np.ones(decoded.shape, bool), -1) if kind == "zarr" else np.zeros(decoded.shape, bool)
    assert_array_equal(decoded, np.where(lower, 1, 1 + products))
    decoded[:] = 0
    scores(fitted(K), rows)
    assert_array_equal(decoded, 1)
