"""Scores of models by their pre-images, and settings chosen by them."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.model_selection import GridSearchCV, KFold

from bigkpca import KernelPCA, kernels, preimages
from bigkpca.cli import main
from bigkpca.data.memory import ArrayRows
from bigkpca.errors import DataError, SpecError
from bigkpca.evaluating.cross_validation import LENGTHS, MAX_ROWS, RIDGES, CrossValidation, Setting, cross_validate
from bigkpca.evaluating.preimage_error import preimage_error
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics import preimages as preimages_by_name
from bigkpca.numerics.preimages import Noise
from bigkpca.numerics.random_streams import FOLDS, SCORING, random_stream
from bigkpca.spec import FitSpec

ONE = Engine(threads=1)
SIGMAS = (25.0, 40.0)

pytestmark = pytest.mark.usefixtures("quiet_signals")


@pytest.fixture(scope="module")
def X(digits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return digits[:240].astype(np.float64)


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def naive_error(kpca: KernelPCA, X: np.ndarray[Any, Any]) -> float:
    return float(np.mean((X - kpca.inverse_transform(kpca.transform(X))) ** 2))


# -- one score -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["fixed-point", "linear", "mds", "ridge", preimages.Denoising(noise=2.0)], ids=str)
def test_the_score_is_minus_the_mean_squared_error(way: Any, X: np.ndarray[Any, Any]) -> None:
    kpca = KernelPCA(6, size=50, preimage=way, random_state=0, block_rows=70).fit(X)
    assert kpca.score(X[:100]) == pytest.approx(-naive_error(kpca, X[:100]), rel=1e-6)
    assert KernelPCA(30, size=50, preimage=way, random_state=0).fit(X).score(X) > kpca.score(X)


@pytest.mark.parametrize("way", ["fixed-point", "ridge"])
def test_with_noise_the_score_is_that_of_denoising(
    way: str, X: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bigkpca.evaluating.preimage_error.tile_rows", lambda *_: 32
    )  # noise is that of a row, whatever its tile
    clean = KernelPCA(6, size=50, preimage=way, random_state=0, block_rows=70).fit(X)
    noisy = KernelPCA(6, size=50, preimage=way, random_state=0, block_rows=70, noise=3.0).fit(X)
    key = np.random.SeedSequence(0, spawn_key=(SCORING,)).generate_state(2, np.uint64)
    given = Noise(3.0, key, 1).added(X, 0, 0)
    assert 2.9 < (given - X).std() < 3.1
    expected = float(np.mean((X - noisy.denoise(given)) ** 2))
    assert noisy.score(X) == pytest.approx(-expected, rel=1e-6)
    assert noisy.score(X) < clean.score(X)
    assert noisy.score(X) == noisy.score(X)
    loud = KernelPCA(6, size=50, preimage=way, random_state=0, noise=9.0).fit(X)
    assert loud.score(X) < noisy.score(X)


@pytest.mark.bits
def test_scores_are_the_same_everywhere(engine: Engine, X: np.ndarray[Any, Any]) -> None:
    model = KernelPCA(6, size=50, random_state=0, block_rows=50).fit(X).model_
    for noise in (None, 2.0):
        found = preimage_error(model, ArrayRows(X), noise, engine, Silent())
        assert found == preimage_error(model, ArrayRows(X), noise, ONE, Silent())


def test_rows_that_cannot_be_scored(X: np.ndarray[Any, Any]) -> None:
    kpca = KernelPCA(6, size=50, random_state=0).fit(X)
    bad = X.copy()
    bad[17, 3] = np.nan
    with pytest.raises(DataError, match="row 17, column 3 is NaN"):
        kpca.score(bad)
    with pytest.raises(ValueError, match="64 features"):
        kpca.score(X[:, :5])


def test_grid_search_picks_what_a_loop_picks(X: np.ndarray[Any, Any]) -> None:
    grid = {"sigma": [20.0, 35.0], "n_components": [2, 20], "preimage": ["linear", preimages.Ridge(size=60)]}
    folds = KFold(2)
    search = GridSearchCV(KernelPCA(size=60, landmarks="uniform", random_state=0), grid, cv=folds).fit(X)
    errors = {}
    for number, given in enumerate(search.cv_results_["params"]):
        found = []
        for train, test in folds.split(X):
            kpca = KernelPCA(size=60, landmarks="uniform", random_state=0, **given).fit(X[train])
            found.append(naive_error(kpca, X[test]))
        errors[number] = np.mean(found)
    np.testing.assert_allclose(-search.cv_results_["mean_test_score"], list(errors.values()), rtol=1e-6)
    best = search.cv_results_["params"][min(errors, key=lambda number: errors[number])]
    assert search.best_params_ == best
    assert best["n_components"] == 20
    assert search.best_estimator_.inverse_transform(search.best_estimator_.transform(X)).shape == X.shape


# -- settings ------------------------------------------------------------------------------------------------


def naive_settings(
    X: np.ndarray[Any, Any], components: list[int], noise: float | None, way: Any, sigmas: Any = SIGMAS, **options: Any
) -> dict[tuple[float, int], list[float]]:
    """The errors of folds, by estimators that are fitted for each setting alone."""
    X = X[random_stream(0, FOLDS).permutation(len(X))]
    parts = np.array_split(np.arange(len(X)), 3)
    key = np.random.SeedSequence(0, spawn_key=(SCORING,)).generate_state(2, np.uint64)
    found: dict[tuple[float, int], list[float]] = {}
    for sigma in sigmas:
        for r in components:
            for part in parts:
                train = np.delete(X, part, axis=0)
                kpca = KernelPCA(r, sigma=sigma, preimage=way, noise=noise, random_state=0, **options).fit(train)
                if noise is None:
                    error = naive_error(kpca, X[part])
                else:
                    given = Noise(noise, key, 1).added(X[part], 0, 0)
                    error = float(np.mean((X[part] - kpca.denoise(given)) ** 2))
                found.setdefault((sigma, r), []).append(error)
    return found


@pytest.mark.parametrize("noise", [None, 3.0])
@pytest.mark.parametrize("way", ["fixed-point", "linear", "mds"])
def test_settings_are_those_of_a_naive_loop(way: str, noise: float | None, X: np.ndarray[Any, Any]) -> None:
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
def test_learned_ways_try_every_ridge_from_one_pass(noise: float | None, X: np.ndarray[Any, Any]) -> None:
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
def test_settings_are_the_same_everywhere(engine: Engine, X: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(preimage=preimages.Ridge(size=30), size=40)
    given = {"sigmas": SIGMAS[:1], "components": [4, 12]}
    assert cross_validate(ArrayRows(X), spec, engine, **given) == cross_validate(ArrayRows(X), spec, ONE, **given)


def test_lengths_and_components_are_tried_by_default(X: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(preimage="linear", size=60)
    median = sample_lengths(ArrayRows(X), spec, ONE, Silent())["median"].sigma
    few = cross_validate(ArrayRows(X), spec.model_copy(update={"size": 30}), Engine(), folds=2, sigmas=[2 * median])
    assert [one.components for one in few.settings] == [10, 25]
    assert (few.folds, few.best.components) == (2, 25)
    found = cross_validate(ArrayRows(X), spec, Engine(), components=[10, 50])
    assert [one.sigma for one in found.settings[::2]] == [float(f"{factor * median:.6g}") for factor in LENGTHS]
    assert len({one.error for one in found.settings}) == 10


def test_more_components_than_a_fit_can_have_are_refused(X: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(preimage="linear", size=20)
    with pytest.raises(
        SpecError, match="components=200: fits of 160 rows with 20 landmarks have at most 20 components"
    ):
        cross_validate(ArrayRows(X), spec, Engine(), sigmas=SIGMAS[:1], components=[4, 200])
    by_default = cross_validate(ArrayRows(X), spec, Engine(), sigmas=SIGMAS[:1])
    assert [one.components for one in by_default.settings] == [10]


class Told(Silent):
    """Progress that keeps what it is told."""

    def __init__(self) -> None:
        object.__setattr__(self, "told", [])
        object.__setattr__(self, "done", 0)

    def start(self, title: str, rows: int) -> None:
        self.told.append((title, rows))


def test_progress_counts_every_sampled_row_once(X: np.ndarray[Any, Any]) -> None:
    told, spec = Told(), FitSpec.checked(preimage="linear", size=20)
    cross_validate(ArrayRows(X), spec, ONE, told, sigmas=SIGMAS, components=[4])
    assert told.told[-1] == ("cross-validating, 6 fits", 240)


def test_errors_of_standardized_columns_are_in_their_deviations(X: np.ndarray[Any, Any]) -> None:
    """Whatever the units of a column: else the one in the smallest would be all that counts."""
    given, spec = X[:120, 20:26], FitSpec.checked(preimage="linear", size=30, standardize=True, landmarks="uniform")
    found = [
        cross_validate(ArrayRows(given * units), spec, ONE, sigmas=[1.0, 3.0], components=[4])
        for units in (1.0, np.array([1, 1e3, 1, 1, 1, 1e-3]))
    ]
    assert all(one.standardized for one in found)
    np.testing.assert_allclose([one.error for one in found[1].settings], [one.error for one in found[0].settings], 1e-3)
    assert 0 < found[0].best.error < 1  # of the variance of a column


def test_a_best_value_at_the_edge_is_remarked(X: np.ndarray[Any, Any]) -> None:
    def found(*errors: float) -> CrossValidation:
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


def test_folds_of_different_rank_are_compared(X: np.ndarray[Any, Any]) -> None:
    """A very long kernel in single precision has few components, and not as many in every fold."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(90, 2)) * [1, 0.3]).astype(np.float32)
    spec = FitSpec.checked(preimage="linear", size=60)
    found = cross_validate(ArrayRows(rows), spec, Engine(), sigmas=[30.0], components=[2, 5, 20, 40])
    assert [one.components for one in found.settings] == [2, 5, 20, 40]
    assert found.settings[-1].error == pytest.approx(found.settings[-2].error, rel=1e-6)
    assert found.best.error < found.settings[0].error


def test_only_a_sample_is_looked_at(X: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigkpca.evaluating.cross_validation.MAX_ROWS", 100)
    assert MAX_ROWS == 6000
    spec = FitSpec.checked(preimage="linear", size=20)
    assert cross_validate(ArrayRows(X), spec, ONE, sigmas=SIGMAS[:1], components=[4]).rows == 100


def test_a_gamma_gives_way_to_the_lengths_that_are_tried(X: np.ndarray[Any, Any]) -> None:
    given = {"sigmas": SIGMAS, "components": [12]}
    plain, with_gamma = (
        cross_validate(ArrayRows(X), FitSpec.checked(preimage="linear", size=40, gamma=gamma), Engine(), **given)
        for gamma in (None, 1e-3)
    )
    assert plain == with_gamma
    assert plain.settings[0].error != plain.settings[1].error


def test_what_cannot_be_cross_validated(X: np.ndarray[Any, Any]) -> None:
    for n in (2, 5):
        with pytest.raises(SpecError, match=f"the array has {n} rows: too few for 3 folds"):
            cross_validate(ArrayRows(X[:n]), FitSpec.checked(preimage="linear"), ONE, sigmas=SIGMAS)
    cross_validate(ArrayRows(X[:6]), FitSpec.checked(preimage="linear"), ONE, sigmas=[40.0])
    for kernel in ("linear", "polynomial", kernels.Gaussian(2.0)):
        for sigmas in (None, SIGMAS):
            with pytest.raises(SpecError, match="has no length that distances could give"):
                cross_validate(ArrayRows(X), FitSpec.checked(kernel=kernel, preimage="linear"), ONE, sigmas=sigmas)
    with pytest.raises(SpecError, match="pre-images of the laplacian kernel have no fixed point"):
        cross_validate(ArrayRows(X), FitSpec.checked(kernel="laplacian"), ONE, sigmas=[300.0])


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def rows(tmp_path: Path, X: np.ndarray[Any, Any]) -> Path:
    np.save(tmp_path / "rows.npy", X)
    return tmp_path / "rows.npy"


def test_the_command_prints_the_curve_marks_the_best_and_saves_all(rows: Path, tmp_path: Path) -> None:
    options = ("--cv", "--components", "4, 12", "--size", 40)
    shown = run("sigma", rows, *options, "--save", tmp_path / "settings.csv", "-q")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert lines[0] == "mean squared error of pre-images, 3 folds of 240 rows"
    assert lines[1].split() == ["sigma", "components", "ridge", "error"]
    curve = [re.fullmatch(r" *([\d.]+) +(\d+) +([\d.]+) +([\d.]+) ± [\d.]+(  best)?", line) for line in lines[2:12]]
    assert all(curve)
    best = [row for row in curve if row and row[5]]
    assert len(best) == 1
    assert float(best[0][4]) == min(float(row[4]) for row in curve if row)
    with (tmp_path / "settings.csv").open(newline="") as file:
        saved = list(csv.DictReader(file))
    assert len(saved) == len(LENGTHS) * 2 * len(RIDGES)
    assert list(saved[0]) == ["sigma", "components", "ridge", "error", "standard_error"]
    smallest = min(saved, key=lambda one: float(one["error"]))
    assert (smallest["components"], float(smallest["ridge"])) == (best[0][2], float(best[0][3]))
    assert f"{float(smallest['error']):.5g}" == best[0][4]
    facts = json.loads(run("sigma", rows, *options, "--json", "-q").stdout)
    assert [one["error"] for one in facts["settings"]] == [float(one["error"]) for one in saved]
    assert facts["best"] == min(facts["settings"], key=lambda one: one["error"])
    assert (facts["rows"], facts["folds"]) == (240, 3)
    assert facts["edges"] == [line for line in lines if line.startswith("the best ")]
    assert lines[-1].startswith("bigkpca fit")


@pytest.mark.parametrize("ridge", [0.01, 0.1])
@pytest.mark.parametrize("size", [40, "auto"])
def test_the_command_it_prints_makes_the_best_model(
    size: Any, ridge: float, tmp_path: Path, X: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigkpca.evaluating.cross_validation.RIDGES", (ridge,))
    rows = tmp_path / "my rows.npy"
    np.save(rows, X)
    typed = ("--kernel", "matern", "--standardize", "--seed", 3, "--size", size, "--preimage", "denoising:size=60")
    shown = run("sigma", rows, "--cv", *typed, "--noise", 0.5, "--components", "5,9", "-q")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(
        "mean squared error of pre-images, columns in their standard deviations, 3 folds of 240"
    )
    (best,) = (line.split() for line in shown.stdout.splitlines() if line.endswith("best"))
    words = shlex.split(shown.stdout.splitlines()[-1])
    assert words[:4] == ["bigkpca", "fit", str(rows), "MODEL"]
    assert run(*words[1:3], tmp_path / "model.zarr", *words[4:], "-q").exit_code == 0
    model = KernelPCA.load(tmp_path / "model.zarr").model_
    spec = FitSpec.of(model)
    assert (spec.sigma, spec.components) == (float(best[0]), int(best[1]))
    assert spec.preimage_value == preimages.Denoising(noise=0.5, ridge=ridge, size=60)
    assert (spec.kernel, spec.seed, spec.standardize, spec.noise) == ("matern", 3, True, 0.5)
    assert model.features.size == (40 if size == 40 else 240)


def test_ways_are_written_as_they_are_typed() -> None:
    for way in (
        preimages.Ridge(),
        preimages.Ridge(ridge=1e-3, size=7),
        preimages.FixedPoint(mean_term=False, iterations=7),
    ):
        assert preimages_by_name.named(preimages_by_name.written(way)) == way
    assert preimages_by_name.written(preimages.Ridge(ridge=1e-3)) == "ridge:ridge=0.001"
    assert FitSpec.checked(preimage="ridge:ridge=1e-3").preimage == preimages.Ridge(ridge=1e-3)
    assert FitSpec.checked(preimage="ridge").preimage == "ridge"
    for typed, message in (
        ("ridge:rigde=1", "unknown option of preimage 'ridge' 'rigde': did you mean 'ridge'"),
        ("ridge:ridge=much", "preimage='ridge:ridge=much': ridge cannot be 'much'"),
        ("fixed-point:mean_term=perhaps", "mean_term cannot be 'perhaps'"),
        ("ridge:ridge=-1", "ridge is a number that is not negative"),
    ):
        with pytest.raises(SpecError, match=message):
            FitSpec.checked(preimage=typed)


def test_ways_that_learn_nothing_have_no_ridge(rows: Path) -> None:
    shown = run("sigma", rows, "--cv", "--preimage", "linear", "--components", "4", "--size", 40, "-q")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[-1].endswith("--preimage linear --size 40")
    assert "in Python" not in shown.stdout


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--cv", "--components", "10,many"], "--components many: give numbers of components, e.g. 10,50,200"),
        (["--cv", "--components", "0"], "--components 0: give numbers"),
        (["--cv", "--components", "²"], "--components ²: give numbers"),
        (["--cv", "--components", "5,,6"], "give numbers of components"),
        (["--cv", "--kernel", "linear"], "has no length that distances could give"),
        (["--cv", "--preimage", "rigde"], "did you mean 'ridge'"),
        (["--cv", "--preimage", "denoising"], "need the standard deviation of the noise"),
        (["--cv", "--kernel", "laplacian", "--preimage", "fixed-point"], "pre-images of the laplacian kernel"),
        (["--cv", "--save", "nowhere/settings.csv"], "nowhere/settings.csv cannot be written"),
        (["--components", "10"], "--components is for --cv"),
        (["--noise", "1"], "--noise is for --cv"),
        (["--save", "settings.csv"], "--save is for --cv"),
        (["--size", "100"], "--size is for --cv"),
        (["--preimage", "mds"], "--preimage is for --cv"),
        (["--cv", "--components", "5,500", "--size", "40"], "components=500: fits of 160 rows with 40 landmarks have"),
        (["--cv", "--save", "rows.npy"], "rows.npy exists and was not made by bigkpca sigma"),
        (["--cv", "--save", "."], "is a folder: give the name of a file"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(
    typed: list[str], message: str, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("sigma", rows, *typed, "-q")
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stdout == ""


def test_few_rows_are_refused(tmp_path: Path, X: np.ndarray[Any, Any]) -> None:
    np.save(tmp_path / "few.npy", X[:4])
    result = run("sigma", tmp_path / "few.npy", "--cv", "-q")
    assert result.exit_code == 2
    assert "too few for 3 folds" in result.stderr


def test_settings_from_which_nothing_can_be_learned_lose(X: np.ndarray[Any, Any]) -> None:
    spec = FitSpec.checked(preimage="denoising", noise=40.0, size=50)
    found = cross_validate(ArrayRows(X), spec, ONE, sigmas=(3.0, 100.0), components=(5,))
    lost = [setting.error for setting in found.settings if setting.sigma == 3.0]
    assert lost == [np.inf] * len(RIDGES)
    assert found.best.sigma == 100.0
    assert np.isfinite(found.best.error)
