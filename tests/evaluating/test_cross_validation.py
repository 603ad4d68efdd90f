"""Errors of pre-images: scores of models, and settings chosen by cross-validation, against naive loops."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bigkpca import KernelPCA, kernels, preimages
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import DataError, SpecError
from bigkpca.evaluating import LENGTHS, RIDGES, CrossValidation, PCASetting, Setting, cross_validate, preimage_error
from bigkpca.execution.engine import Engine
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics.preimages import Noise
from bigkpca.numerics.random_streams import FOLDS, SCORING, random_stream
from bigkpca.spec import FitSpec, resolve
from tests.fitting.cases import other_engines
from tests.helpers import oracles
from tests.helpers.progress import Recorder

ONE = Engine(threads=1)
SIGMAS = (25.0, 40.0)


@pytest.fixture(scope="module")
def X(digits):
    return digits[:240].astype(np.float64)


def errors_of(X, spec, engine=ONE, **given):
    """The result of a cross-validation of these rows with the options of a spec."""
    spec = FitSpec.checked(**{"preimage": "linear", "landmarks": "uniform"} | spec)
    return cross_validate(ArrayRows(X), spec, engine, **given)


# Scores of one model


def noised(X, noise):
    """Rows with the noise that belongs to them in a score."""
    key = np.random.SeedSequence(0, spawn_key=(SCORING,)).generate_state(2, np.uint64)
    return Noise(noise, key, 1).added(X, 0, 0)


@pytest.mark.parametrize("way", ["fixed-point", "mds", preimages.Denoising(noise=2.0)], ids=str)
def test_the_score_is_minus_the_mean_squared_error(way, X):
    kpca = KernelPCA(6, size=50, preimage=way, random_state=0, block_rows=70).fit(X)
    assert kpca.score(X[:100]) == pytest.approx(-oracles.preimage_error(kpca, X[:100]), rel=1e-6)
    assert KernelPCA(30, size=50, preimage=way, random_state=0).fit(X).score(X) > kpca.score(X)


@pytest.mark.parametrize("weights", [None, [2.0, 0.0, 1.0, 0.5]])
@pytest.mark.parametrize("standardize", [False, True])
def test_the_score_is_in_standard_deviations_times_weights(standardize, weights):
    rows = np.random.default_rng(3).normal(size=(90, 4)) * [1, 2, 3, 4]
    options = {"standardize": standardize, "column_weights": weights, "preimage": "linear", "size": 40}
    kpca = KernelPCA(3, random_state=0, **options).fit(rows)
    errors = rows - kpca.inverse_transform(kpca.transform(rows))
    errors = errors / (rows.std(axis=0) if standardize else 1) * (1 if weights is None else weights)
    assert kpca.score(rows) == pytest.approx(-np.mean(errors**2), rel=1e-6)


def test_with_noise_the_score_is_that_of_denoising(X, monkeypatch):
    # Noise is that of a row, whatever its tile.
    monkeypatch.setattr("bigkpca.evaluating.tile_rows", lambda *_: 32)
    clean, noisy, loud = (
        KernelPCA(6, size=50, random_state=0, block_rows=70, noise=noise).fit(X) for noise in (None, 3.0, 9.0)
    )
    given = noised(X, 3.0)
    assert 2.9 < (given - X).std() < 3.1
    expected = float(np.mean((X - noisy.denoise(given)) ** 2))
    assert noisy.score(X) == pytest.approx(-expected, rel=1e-6)
    assert loud.score(X) < noisy.score(X) < clean.score(X)
    assert noisy.score(X) == noisy.score(X)


@pytest.mark.bits
@other_engines
def test_scores_are_the_same_everywhere(engine, X):
    model = KernelPCA(6, size=50, random_state=0, block_rows=50).fit(X).model_
    for noise in (None, 2.0):
        here, there = (preimage_error(model, ArrayRows(X), noise, runs) for runs in (ONE, engine))
        assert here == there


def test_rows_that_cannot_be_scored(X):
    kpca = KernelPCA(6, size=50, random_state=0).fit(X)
    with pytest.raises(DataError, match="row 0, column 3 is NaN"):
        kpca.score(np.where(np.arange(64) == 3, np.nan, X))
    with pytest.raises(ValueError, match="64 features"):
        kpca.score(X[:, :5])


# Settings


def naive_settings(X, components, noise, way, sigmas=SIGMAS, folds=3, **options):
    """The errors of folds, by estimators that are fitted for each setting alone."""
    X = X[random_stream(0, FOLDS).permutation(len(X))]
    parts = np.array_split(np.arange(len(X)), folds)
    found = {}
    for sigma in sigmas:
        for r in components:
            for part in parts:
                train = np.delete(X, part, axis=0)
                kpca = KernelPCA(r, sigma=sigma, preimage=way, noise=noise, random_state=0, **options).fit(train)
                if noise is None:
                    error = oracles.preimage_error(kpca, X[part])
                else:
                    error = float(np.mean((X[part] - kpca.denoise(noised(X[part], noise))) ** 2))
                found.setdefault((sigma, r), []).append(error)
    return found


@pytest.mark.parametrize(("way", "noise"), [("fixed-point", 3.0), pytest.param("mds", None, marks=pytest.mark.full)])
def test_settings_are_those_of_a_naive_loop(way, noise, X):
    options = {"size": 40, "landmarks": "uniform"}
    found = errors_of(X, options | {"preimage": way, "noise": noise}, Engine(), sigmas=SIGMAS, n_components=[4, 12])
    naive = naive_settings(X, [4, 12], noise, way, **options)
    assert [(one.sigma, one.components, one.ridge) for one in found.settings] == [(*key, None) for key in naive]
    for one, errors in zip(found.settings, naive.values(), strict=True):
        # A part of a fit's components is those of a smaller fit, but for rounding.
        assert one.error == pytest.approx(np.mean(errors), rel=1e-4)
        assert one.standard_error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(3), rel=1e-2)
    assert found.best == min(found.settings, key=lambda one: one.error)
    assert (found.rows, found.folds) == (240, 3)
    assert found.curve() == found.settings


@pytest.mark.parametrize(
    ("way", "noise"), [(preimages.Ridge, None), pytest.param(preimages.Denoising, 3.0, marks=pytest.mark.full)]
)
def test_learned_ways_try_every_ridge_from_one_pass(way, noise, X):
    options = {"size": 40, "landmarks": "uniform"}
    spec = options | {"preimage": way(size=40), "noise": noise}
    found = errors_of(X, spec, sigmas=SIGMAS[:1], n_components=[4, 12])
    assert [(one.components, one.ridge) for one in found.settings] == [(r, ridge) for r in (4, 12) for ridge in RIDGES]
    for ridge in (RIDGES[0], RIDGES[-1]):
        naive = naive_settings(X, [4, 12], noise, way(ridge=ridge, size=40), SIGMAS[:1], **options)
        errors = [one.error for one in found.settings if one.ridge == ridge]
        np.testing.assert_allclose(errors, np.mean(list(naive.values()), axis=1), rtol=1e-3)
    curve = found.curve()
    assert [one.components for one in curve] == [4, 12]
    for one in curve:
        assert one.error == min(other.error for other in found.settings if other.components == one.components)
    assert found.best in curve


@pytest.mark.bits
@other_engines
def test_settings_are_the_same_everywhere(engine, X):
    spec, given = {"preimage": preimages.Ridge(size=30), "size": 40}, {"sigmas": SIGMAS[:1], "n_components": [4, 12]}
    assert errors_of(X, spec, engine, **given) == errors_of(X, spec, **given)


def test_lengths_and_components_are_tried_by_default(X):
    median = sample_lengths(ArrayRows(X), resolve(FitSpec.checked(size=30), ArrayRows(X)), ONE)["median"].sigma
    few = errors_of(X, {"size": 30}, folds=2, sigmas=[2 * median])
    assert [one.components for one in few.settings] == [10, 25]
    assert (few.folds, few.best.components) == (2, 25)
    found = errors_of(X, {"size": 30}, n_components=[10, 20])
    assert [one.sigma for one in found.settings[::2]] == [float(f"{factor * median:.6g}") for factor in LENGTHS]
    assert len({one.error for one in found.settings}) == 10


def test_a_sample_is_looked_at_and_its_rows_are_counted_once(X, monkeypatch):
    told = Recorder()
    errors_of(X, {"size": 20}, replace(ONE, progress=told), sigmas=SIGMAS, n_components=[4])
    assert told.started[-1] == ("cross-validating, 6 fits", 240)
    monkeypatch.setattr("bigkpca.evaluating.MAX_ROWS", 100)
    assert errors_of(X, {"size": 20}, sigmas=SIGMAS[:1], n_components=[4]).rows == 100


def test_errors_of_standardized_columns_are_in_their_deviations(X):
    """Whatever the units of a column: else the one in the smallest would be all that counts."""
    found = [
        errors_of(X[:120, 20:26] * units, {"size": 30, "standardize": True}, sigmas=[1.0, 3.0], n_components=[4])
        for units in (1.0, np.array([1, 1e3, 1, 1, 1, 1e-3]))
    ]
    assert all(one.standardized for one in found)
    np.testing.assert_allclose([one.error for one in found[1].settings], [one.error for one in found[0].settings], 1e-3)
    assert 0 < found[0].best.error < 1  # of the variance of a column


def naive_pca(X, r, noise=None, units=1.0, folds=3):
    """The errors of folds of PCA by a singular value decomposition."""
    X = X[random_stream(0, FOLDS).permutation(len(X))]
    errors = []
    for part in np.array_split(np.arange(len(X)), folds):
        train, test = np.delete(X, part, axis=0) / units, X[part]
        V = np.linalg.svd(train - train.mean(axis=0), full_matrices=False)[2][:r]
        given = (test if noise is None else noised(test, noise)) / units - train.mean(axis=0)
        errors.append(np.mean((test / units - train.mean(axis=0) - given @ V.T @ V) ** 2))
    return errors


@pytest.mark.parametrize(("noise", "standardize"), [(None, False), (3.0, False), (None, True)])
def test_linear_pca_is_scored_on_the_same_rows(noise, standardize, X):
    X = X[:, 20:44]
    spec = {"size": 30, "noise": noise, "standardize": standardize}
    found = errors_of(X, spec, sigmas=[3.0], n_components=[2, 9])
    assert [one.components for one in found.pca] == [2, 9]
    deviations = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    for one in found.pca:
        errors = naive_pca(X, one.components, noise, deviations if standardize else 1.0)
        assert one.error == pytest.approx(np.mean(errors), rel=1e-5)
        assert one.standard_error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(3), rel=1e-4)


def test_it_is_said_where_pca_is_better_than_every_setting():
    """Rows in a plane: two components of PCA restore them, and no component of a short kernel does."""
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 8))
    found = errors_of(flat, {"size": 40}, sigmas=[1.0, 2.0], n_components=[2, 5])
    assert max(one.error for one in found.pca) < 1e-20 < found.best.error
    least = {r: min(one.error for one in found.settings if one.components == r) for r in (2, 5)}
    assert found.pca_note == (
        "linear PCA is better than every setting with as many components: "
        f"2 ({found.pca[0].error:.5g}, the best setting {least[2]:.5g}), "
        f"5 ({found.pca[1].error:.5g}, the best setting {least[5]:.5g})"
    )
    assert f"PCA of {found.best.components}" in repr(found)


def test_pca_is_compared_with_the_best_setting_of_as_many_components():
    settings = (Setting(1.0, 5, None, 3.0, 0.1), Setting(2.0, 5, None, 2.0, 0.1), Setting(2.0, 9, None, 1.0, 0.1))
    pca = PCASetting(5, 2.5, 0.1), PCASetting(9, 0.5, 0.1)
    found = CrossValidation(settings, 100, 3, 40, False, pca=pca)
    assert found.pca_note == (
        "linear PCA is better than every setting with as many components: 9 (0.5, the best setting 1)"
    )
    assert replace(found, pca=pca[:1]).pca_note is None
    assert replace(found, pca=()).pca_note is None


def test_a_best_value_at_the_edge_is_remarked():
    def notes(best):
        values = enumerate(product((1.0, 2.0, 3.0), (5, 9, 20), (0.1, 1.0, 10.0)))
        settings = tuple(Setting(*at, 1.0 + (i != best), 0.1) for i, at in values)
        return CrossValidation(settings, 100, 3, 40, False).edge_notes

    assert notes(13) == ()
    assert notes(0) == (
        "the best sigma is the smallest that was tried: shorter ones could be better still",
        "the best number of components is the smallest that was tried: fewer could be better still",
        "the best ridge is the smallest that was tried: smaller ones could be better still",
    )
    assert notes(26)[0] == "the best sigma is the largest that was tried: longer ones could be better still"
    assert CrossValidation((Setting(1.0, 5, None, 0.1, 0.1),), 100, 3, 40, False).edge_notes == ()


def test_folds_of_different_rank_are_compared():
    """A very long kernel in single precision has few components, and not as many in every fold."""
    rows = (np.random.default_rng(0).normal(size=(90, 2)) * [1, 0.3]).astype(np.float32)
    found = errors_of(rows, {"size": 60, "landmarks": "kmeans"}, sigmas=[30.0], n_components=[2, 5, 20, 40])
    assert [one.components for one in found.settings] == [2, 5, 20, 40]
    assert found.settings[-1].error == pytest.approx(found.settings[-2].error, rel=1e-6)
    assert found.best.error < found.settings[0].error


@pytest.mark.full
def test_a_gamma_gives_way_to_the_lengths_that_are_tried(X):
    one, other = (errors_of(X, {"size": 40, "gamma": g}, sigmas=SIGMAS, n_components=[12]) for g in (None, 1e-3))
    assert one == other


def test_there_are_as_many_parts_as_folds(X):
    options = {"size": 5, "landmarks": "uniform"}
    found = errors_of(X[:12], options | {"preimage": "mds"}, folds=5, sigmas=[40.0], n_components=[2])
    (errors,) = naive_settings(X[:12], [2], None, "mds", [40.0], 5, **options).values()
    assert found.best.standard_error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(5), rel=1e-6)
    for folds in (-1, 0, 1):
        with pytest.raises(SpecError, match=f"folds={folds}: give 2 or more"):
            errors_of(X, {}, folds=folds, sigmas=SIGMAS)


def test_what_cannot_be_cross_validated(X):
    with pytest.raises(SpecError, match="the array has 5 rows: too few for 3 folds"):
        errors_of(X[:5], {}, sigmas=SIGMAS)
    errors_of(X[:6], {}, sigmas=[40.0])
    for kernel in ("linear", kernels.Gaussian(2.0)):
        for sigmas in (None, SIGMAS):
            with pytest.raises(SpecError, match="has no length sigma"):
                errors_of(X, {"kernel": kernel}, sigmas=sigmas)
    with pytest.raises(SpecError, match="pre-images of the laplacian kernel have no fixed point"):
        errors_of(X, {"kernel": "laplacian", "preimage": "fixed-point"}, sigmas=[300.0])
    message = "n_components=200: fits of 160 rows with 20 landmarks have at most 20 components"
    with pytest.raises(SpecError, match=message):
        errors_of(X, {"size": 20}, sigmas=SIGMAS[:1], n_components=[4, 200])


def test_settings_from_which_nothing_can_be_learned_lose(X):
    given = {"preimage": "denoising", "noise": 40.0, "size": 50}
    found = errors_of(X, given, sigmas=(3, 100.0, 20_000), n_components=(5,))
    lost = [setting.error for setting in found.settings if setting.sigma == 3]
    assert lost == [np.inf] * len(RIDGES)
    assert found.best.sigma != 3
    assert np.isfinite(found.best.error)
