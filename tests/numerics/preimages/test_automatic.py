"""The default: the map from scores with the smallest error on held-out rows, and the fixed point of known rows."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca import KernelPCA
from bigkpca.errors import SpecError
from bigkpca.numerics.kernels import Gaussian, Laplacian, Linear
from bigkpca.numerics.methods import Exact
from bigkpca.numerics.preimages import Automatic, FixedPoint, LinearMap, automatic
from bigkpca.numerics.preimages.automatic import kernel_count
from bigkpca.numerics.preimages.base import scores_of
from tests.numerics.preimages.models import back, decoder, fitted, pca, random_fitted, rows


def on_a_curve(n, noise=0.02, seed=0):
    """Rows near a curve in five dimensions, of which linear maps of few scores give little back."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-1, 1, n)
    return np.column_stack([t, t**2, t**3, np.sin(3 * t), np.cos(3 * t)]) + noise * rng.normal(size=(n, 5))


def learned(model, X):
    return decoder(Automatic(), model, X).learned(model.features, model.solution)


def squared_error(way, model, X, Q):
    return float(((back(way, model, model.scores(Q), None, X).rows - Q) ** 2).mean())


@pytest.mark.parametrize("size", [12, 20])
def test_the_map_of_kernels_equals_least_squares_with_a_penalty_on_the_kernels_only(size):
    X, Q = on_a_curve(100), on_a_curve(9, seed=5)
    model = fitted(Gaussian(0.5), 2, X=X, size=size)
    made = learned(model, X)
    T, p = made.landmarks, len(made.landmarks)
    Y, rows_ = model.scores(X), X
    if 4 * size <= len(X):  # few landmarks: they are rows of the regression too
        Y, rows_ = np.vstack([Y, model.scores(model.features.landmarks)]), np.vstack([X, model.features.landmarks])
    length = np.sqrt(np.median(scipy.spatial.distance.pdist(T, "sqeuclidean")) / 2)
    assert_allclose(made.sigma, length, rtol=1e-6)
    naive = {}
    for ridge in (0.01, 0.1, 1.0):
        F = np.hstack([np.exp(-scipy.spatial.distance.cdist(Y, T, "sqeuclidean") / (2 * length**2)), Y])
        f, x = F - F.mean(axis=0), rows_ - rows_.mean(axis=0)
        root = scipy.linalg.sqrtm(np.exp(-scipy.spatial.distance.cdist(T, T, "sqeuclidean") / (2 * length**2))).real
        penalty = np.hstack([np.sqrt(ridge) * root, np.zeros((p, Y.shape[1]))])
        w = np.linalg.lstsq(np.vstack([f, penalty]), np.vstack([x, np.zeros((p, 5))]), rcond=None)[0]
        of_Q = model.scores(Q)
        K = np.exp(-scipy.spatial.distance.cdist(of_Q, T, "sqeuclidean") / (2 * length**2))
        naive[ridge] = rows_.mean(axis=0) + (np.hstack([K, of_Q]) - F.mean(axis=0)) @ w
    found = back(Automatic(), model, model.scores(Q), None, X).rows
    assert min(np.abs(found - each).max() for each in naive.values()) < 1e-5


def test_a_curve_comes_back_better_than_from_pca_the_fixed_point_and_the_linear_map():
    X, Q = on_a_curve(300), on_a_curve(200, seed=5)
    for model in (fitted(Gaussian(0.8), 2, X=X, size=30), random_fitted("pairs", 2, X)):
        ours = squared_error(Automatic(), model, X, Q)
        assert ours < 0.7 * ((pca(X, Q, 2) - Q) ** 2).mean()
        assert ours < 0.7 * squared_error(FixedPoint(), model, X, Q)
        assert ours < 0.7 * squared_error(LinearMap(), model, X, Q)


@pytest.mark.parametrize("kernel", [Linear(), Gaussian(1e4)], ids=str)
@pytest.mark.parametrize("n", [10, 80, 1000])
def test_rows_that_no_map_gives_back_better_than_pca_come_back_as_from_pca(kernel, n):
    X, Q = rows(n, 5) * [5, 3, 2, 1, 0.5] + [3, -2, 9, 0, 1], rows(9, 5, seed=4)
    model = fitted(kernel, 3, X=X, size=min(n, 20), offset=X.mean(axis=0) if kernel != Linear() else None)
    assert learned(model, X).iterates
    assert_allclose(back(Automatic(), model, model.scores(Q), None, X).rows, pca(X, Q, 3), atol=1e-3)


def test_known_rows_start_the_fixed_point():
    X, Q = on_a_curve(300), on_a_curve(9, noise=0.3, seed=5)
    model = fitted(Gaussian(0.8), 2, X=X, size=30)
    found, expected = (back(way, model, model.scores(Q), Q, X) for way in (Automatic(), FixedPoint()))
    assert_allclose(found.rows, expected.rows, atol=1e-12)
    assert_array_equal(found.iterations, expected.iterations)
    assert expected.iterations.max() > 1
    assert not back(Automatic(), model, model.scores(Q), None, X).iterations.any()


def test_features_that_do_not_see_all_of_a_row_do_not_start_there():
    X = on_a_curve(400)
    model = random_fitted("principal-alpha", 3, X)
    assert not learned(model, X).iterates
    Y = model.scores(X[:5])
    known, unknown = (back(Automatic(), model, Y, start, X).rows for start in (X[:5] + 9.0, None))
    assert_allclose(known, unknown)


def test_equal_scores_and_few_rows_have_pre_images():
    X = on_a_curve(60)
    narrow = fitted(Gaussian(1e-6), 2, X=np.vstack([X, X[:1]]), size=61)
    Q = on_a_curve(9, seed=5)  # with no kernel value: their scores are equal
    assert np.isfinite(back(Automatic(), narrow, narrow.scores(Q), None, Q).rows).all()
    for n in (3, 15):
        few = fitted(Gaussian(0.8), 2, X=(Q := on_a_curve(n, noise=0)), size=n)
        assert learned(few, Q).iterates


def test_at_most_so_many_rows_are_kept_from_the_first_to_the_last():
    X = on_a_curve(300)
    model = fitted(Gaussian(0.8), 2, X=X, size=30)
    made = decoder(Automatic(rows=4), model, X)
    assert_allclose(made.reference_rows, X[[0, 99, 199, 299]])
    assert made.working_bytes(model.features, 64) >= FixedPoint().decoder(model).working_bytes(model.features, 64)
    assert kernel_count(784) == 500
    assert kernel_count(10**6) * 10**6 <= 8_000_000 < 2 * kernel_count(10**6) * 10**6


def test_a_decoder_learns_once_at_its_first_use_and_is_pickled_with_what_it_learned(monkeypatch):
    X, calls = on_a_curve(300), []
    model = fitted(Gaussian(0.8), 2, X=X, size=30)
    monkeypatch.setattr(automatic, "scores_of", lambda *given: calls.append(1) or scores_of(*given))
    made, Y = decoder(Automatic(), model, X), model.scores(X[:5])
    assert not calls
    stored = set(made.arrays()) | set(made.parameters())
    first = made.decoding(model.features, model.solution, 5)(Y, None).rows
    again = pickle.loads(pickle.dumps(made)).decoding(model.features, model.solution, 9)(Y, None).rows
    assert_allclose(first, again, rtol=1e-9)  # its arrays may be aligned in another way
    assert calls == [1]
    assert (
        stored
        == set(made.arrays()) | set(made.parameters())
        == {"name", "origin", "linear", "constant", "rows", "from_landmarks"}
    )
    anew = Automatic().decoder(model, X).decoding(model.features, model.solution, 5)(Y, None).rows
    assert_allclose(anew, first, rtol=1e-9)
    assert calls == [1, 1]


def test_a_number_of_rows_and_models_that_will_not_do_are_refused():
    with pytest.raises(SpecError, match="at least 2 rows are needed"):
        Automatic(rows=1)
    with pytest.raises(SpecError, match="pre-images by 'auto' need sampled rows"):
        Automatic().decoder(fitted())
    with pytest.raises(SpecError, match="use 'ridge', 'denoising' or 'linear'"):
        Automatic().check(Laplacian(1.0), Exact())


def test_a_decoder_without_its_kernels_is_linear():
    X = on_a_curve(300)
    model = fitted(Gaussian(0.8), 2, X=X, size=30)
    made = learned(model, X)
    bare = replace(made, landmarks=None)
    Y = model.scores(X[:5])
    found = bare.decoding(model.features, model.solution, 5)(Y, None).rows
    assert_allclose(found, made.mean_row + (Y - made.mean_score) @ made.weights)


@pytest.mark.parametrize("options", [{"method": "rff", "size": 100}, {"size": 100, "refine": 5}])
def test_columns_far_from_zero_are_restored_in_single_precision(options):
    """Times in seconds since 1970: float32 has steps of 128 s there, which differences from the mean do not have."""
    X = np.random.default_rng(0).normal(size=(600, 3)) + np.array([1.7e9, 0, 0])
    kpca = KernelPCA(6, sigma=2.0, dtype="float32", random_state=0, **options).fit(X[:400])
    if "refine" not in options:
        kpca.partial_fit(X[400:])
    restored = kpca.inverse_transform(kpca.transform(X))
    assert np.abs(restored[:, 1:] - X[:, 1:]).mean() < 0.5
