"""Settings chosen by cross-validated pre-images, against naive loops."""

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, KFold

from bigkpca import KernelPCA, kernels, preimages
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.evaluating.cross_validation import LENGTHS, MAX_ROWS, RIDGES, CrossValidation, Setting, cross_validate
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics.preimages import Noise
from bigkpca.numerics.random_streams import FOLDS, SCORING, random_stream
from bigkpca.spec import FitSpec
from tests.helpers import oracles
from tests.helpers.commands import run
from tests.helpers.progress import Recorder

ONE = Engine(threads=1)
SIGMAS = (25.0, 40.0)
pytestmark = pytest.mark.usefixtures("quiet_signals")


def test_grid_search_picks_what_a_loop_picks(X):
    grid = {"sigma": [20.0, 35.0], "n_components": [2, 20], "preimage": ["linear", preimages.Ridge(size=60)]}
    folds = KFold(2)
    search = GridSearchCV(KernelPCA(size=60, landmarks="uniform", random_state=0), grid, cv=folds).fit(X)
    errors = {}
    for number, given in enumerate(search.cv_results_["params"]):
        found = []
        for train, test in folds.split(X):
            kpca = KernelPCA(size=60, landmarks="uniform", random_state=0, **given).fit(X[train])
            found.append(oracles.preimage_error(kpca, X[test]))
        errors[number] = np.mean(found)
    np.testing.assert_allclose(-search.cv_results_["mean_test_score"], list(errors.values()), rtol=1e-6)
    best = search.cv_results_["params"][min(errors, key=lambda number: errors[number])]
    assert search.best_params_ == best
    assert best["n_components"] == 20
    assert search.best_estimator_.inverse_transform(search.best_estimator_.transform(X)).shape == X.shape


def naive_settings(X, components, noise, way, sigmas=SIGMAS, **options):
    """The errors of folds, by estimators that are fitted for each setting alone."""
    X = X[random_stream(0, FOLDS).permutation(len(X))]
    parts = np.array_split(np.arange(len(X)), 3)
    key = np.random.SeedSequence(0, spawn_key=(SCORING,)).generate_state(2, np.uint64)
    found = {}
    for sigma in sigmas:
        for r in components:
            for part in parts:
                train = np.delete(X, part, axis=0)
                kpca = KernelPCA(r, sigma=sigma, preimage=way, noise=noise, random_state=0, **options).fit(train)
                if noise is None:
                    error = oracles.preimage_error(kpca, X[part])
                else:
                    given = Noise(noise, key, 1).added(X[part], 0, 0)
                    error = float(np.mean((X[part] - kpca.denoise(given)) ** 2))
                found.setdefault((sigma, r), []).append(error)
    return found


@pytest.mark.parametrize("noise", [None, 3.0])
@pytest.mark.parametrize("way", ["fixed-point", "linear", "mds"])
def test_settings_are_those_of_a_naive_loop(way, noise, X):
    options = {"size": 60, "landmarks": "uniform"}
    spec = FitSpec.checked(preimage=way, noise=noise, **options)
    found = cross_validate(ArrayRows(X), spec, Engine(), sigmas=SIGMAS, components=[4, 12])
    naive = naive_settings(X, [4, 12], noise, way, **options)
    assert [(one.sigma, one.components, one.ridge) for one in found.settings] == [(*key, None) for key in naive]
    for one, errors in zip(found.settings, naive.values(), strict=True):
        # A part of a fit's components is those of a smaller fit, but for rounding.
        assert one.error == pytest.approx(np.mean(errors), rel=1e-4)
        assert one.standard_error == pytest.approx(np.std(errors, ddof=1) / np.sqrt(3), rel=1e-2)
    assert found.best == min(found.settings, key=lambda one: one.error)
    assert (found.rows, found.folds) == (240, 3)
    assert found.curve() == found.settings


@pytest.mark.parametrize("noise", [None, 3.0])
def test_learned_ways_try_every_ridge_from_one_pass(noise, X):
    options = {"size": 60, "landmarks": "uniform"}
    way = preimages.Ridge(size=40) if noise is None else preimages.Denoising(size=40)
    spec = FitSpec.checked(preimage=way, noise=noise, **options)
    found = cross_validate(ArrayRows(X), spec, Engine(), sigmas=SIGMAS[:1], components=[4, 12])
    assert [(one.components, one.ridge) for one in found.settings] == [(r, ridge) for r in (4, 12) for ridge in RIDGES]
    for ridge in (RIDGES[0], RIDGES[-1]):
        given = type(way)(ridge=ridge, size=40)
        naive = naive_settings(X, [4, 12], noise, given, SIGMAS[:1], **options)
        errors = [one.error for one in found.settings if one.ridge == ridge]
        np.testing.assert_allclose(errors, np.mean(list(naive.values()), axis=1), rtol=1e-3)
    curve = found.curve()
    assert [one.components for one in curve] == [4, 12]
    for one in curve:
        assert one.error == min(other.error for other in found.settings if other.components == one.components)
    assert found.best in curve


@pytest.mark.bits
def test_settings_are_the_same_everywhere(engine, X):
    spec = FitSpec.checked(preimage=preimages.Ridge(size=30), size=40)
    given = {"sigmas": SIGMAS[:1], "components": [4, 12]}
    assert cross_validate(ArrayRows(X), spec, engine, **given) == cross_validate(ArrayRows(X), spec, ONE, **given)


def test_lengths_and_components_are_tried_by_default(X):
    spec = FitSpec.checked(preimage="linear", size=60)
    median = sample_lengths(ArrayRows(X), spec, ONE, Silent())["median"].sigma
    few = cross_validate(ArrayRows(X), spec.model_copy(update={"size": 30}), Engine(), folds=2, sigmas=[2 * median])
    assert [one.components for one in few.settings] == [10, 25]
    assert (few.folds, few.best.components) == (2, 25)
    found = cross_validate(ArrayRows(X), spec, Engine(), components=[10, 50])
    assert [one.sigma for one in found.settings[::2]] == [float(f"{factor * median:.6g}") for factor in LENGTHS]
    assert len({one.error for one in found.settings}) == 10


def test_more_components_than_a_fit_can_have_are_refused(X):
    spec = FitSpec.checked(preimage="linear", size=20)
    with pytest.raises(
        SpecError, match="components=200: fits of 160 rows with 20 landmarks have at most 20 components"
    ):
        cross_validate(ArrayRows(X), spec, Engine(), sigmas=SIGMAS[:1], components=[4, 200])
    by_default = cross_validate(ArrayRows(X), spec, Engine(), sigmas=SIGMAS[:1])
    assert [one.components for one in by_default.settings] == [10]


def test_progress_counts_every_sampled_row_once(X):
    told, spec = Recorder(), FitSpec.checked(preimage="linear", size=20)
    cross_validate(ArrayRows(X), spec, ONE, told, sigmas=SIGMAS, components=[4])
    assert told.started[-1] == ("cross-validating, 6 fits", 240)


def test_errors_of_standardized_columns_are_in_their_deviations(X):
    """Whatever the units of a column: else the one in the smallest would be all that counts."""
    given, spec = X[:120, 20:26], FitSpec.checked(preimage="linear", size=30, standardize=True, landmarks="uniform")
    found = [
        cross_validate(ArrayRows(given * units), spec, ONE, sigmas=[1.0, 3.0], components=[4])
        for units in (1.0, np.array([1, 1e3, 1, 1, 1, 1e-3]))
    ]
    assert all(one.standardized for one in found)
    np.testing.assert_allclose([one.error for one in found[1].settings], [one.error for one in found[0].settings], 1e-3)
    assert 0 < found[0].best.error < 1  # of the variance of a column


def test_a_best_value_at_the_edge_is_remarked(X):
    def found(*errors):
        values = zip(
            [(s, r, p) for s in (1.0, 2.0, 3.0) for r in (5, 9, 20) for p in (0.1, 1.0, 10.0)], errors, strict=True
        )
        return CrossValidation(tuple(Setting(*at, error, 0.1) for at, error in values), 100, 3, 40, False)

    middle, first, last = ([1.0 + (i != best) for i in range(27)] for best in (13, 0, 26))
    assert found(*middle).edge_notes == ()
    assert found(*first).edge_notes == (
        "the best sigma is the smallest that was tried: shorter ones may do better still",
        "the best number of components is the smallest that was tried: fewer may do better still",
        "the best ridge is the smallest that was tried: smaller ones may do better still",
    )
    assert found(*last).edge_notes[0] == "the best sigma is the largest that was tried: longer ones may do better still"
    assert CrossValidation((Setting(1.0, 5, None, 0.1, 0.1),), 100, 3, 40, False).edge_notes == ()


def test_folds_of_different_rank_are_compared(X):
    """A very long kernel in single precision has few components, and not as many in every fold."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(90, 2)) * [1, 0.3]).astype(np.float32)
    spec = FitSpec.checked(preimage="linear", size=60)
    found = cross_validate(ArrayRows(rows), spec, Engine(), sigmas=[30.0], components=[2, 5, 20, 40])
    assert [one.components for one in found.settings] == [2, 5, 20, 40]
    assert found.settings[-1].error == pytest.approx(found.settings[-2].error, rel=1e-6)
    assert found.best.error < found.settings[0].error


def test_only_a_sample_is_looked_at(X, monkeypatch):
    monkeypatch.setattr("bigkpca.evaluating.cross_validation.MAX_ROWS", 100)
    assert MAX_ROWS == 6000
    spec = FitSpec.checked(preimage="linear", size=20)
    assert cross_validate(ArrayRows(X), spec, ONE, sigmas=SIGMAS[:1], components=[4]).rows == 100


def test_a_gamma_gives_way_to_the_lengths_that_are_tried(X):
    given = {"sigmas": SIGMAS, "components": [12]}
    plain, with_gamma = (
        cross_validate(ArrayRows(X), FitSpec.checked(preimage="linear", size=40, gamma=gamma), Engine(), **given)
        for gamma in (None, 1e-3)
    )
    assert plain == with_gamma
    assert plain.settings[0].error != plain.settings[1].error


def test_what_cannot_be_cross_validated(X):
    for n in (2, 5):
        with pytest.raises(SpecError, match=f"the array has {n} rows: too few for 3 folds"):
            cross_validate(ArrayRows(X[:n]), FitSpec.checked(preimage="linear"), ONE, sigmas=SIGMAS)
    cross_validate(ArrayRows(X[:6]), FitSpec.checked(preimage="linear"), ONE, sigmas=[40.0])
    for kernel in ("linear", "polynomial", kernels.Gaussian(2.0)):
        for sigmas in (None, SIGMAS):
            with pytest.raises(SpecError, match="has no length sigma"):
                cross_validate(ArrayRows(X), FitSpec.checked(kernel=kernel, preimage="linear"), ONE, sigmas=sigmas)
    with pytest.raises(SpecError, match="pre-images of the laplacian kernel have no fixed point"):
        cross_validate(ArrayRows(X), FitSpec.checked(kernel="laplacian"), ONE, sigmas=[300.0])


def test_few_rows_are_refused(tmp_path, X):
    np.save(tmp_path / "few.npy", X[:4])
    result = run("sigma", tmp_path / "few.npy", "--cv", "-q")
    assert result.exit_code == 2
    assert "too few for 3 folds" in result.stderr


def test_settings_from_which_nothing_can_be_learned_lose(X):
    spec = FitSpec.checked(preimage="denoising", noise=40.0, size=50)
    found = cross_validate(ArrayRows(X), spec, ONE, sigmas=(3.0, 100.0), components=(5,))
    lost = [setting.error for setting in found.settings if setting.sigma == 3.0]
    assert lost == [np.inf] * len(RIDGES)
    assert found.best.sigma == 100.0
    assert np.isfinite(found.best.error)


def test_lengths_may_be_whole_numbers_and_far_too_long(X):
    spec = FitSpec.checked(preimage="ridge", size=40, noise=4.0)
    found = cross_validate(ArrayRows(X), spec, Engine(), sigmas=[20, 2000, 20_000], components=[4])
    assert sorted({one.sigma for one in found.settings}) == [20, 2000, 20_000]
