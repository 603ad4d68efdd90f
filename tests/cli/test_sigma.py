"""The command that chooses a length by cross-validation: what it prints, marks, saves and refuses."""

import csv
import json
import re
import shlex

import numpy as np
import pytest

from bigkpca import KernelPCA, preimages
from bigkpca.evaluating import LENGTHS, RIDGES
from bigkpca.numerics import preimages as preimages_by_name
from bigkpca.spec import FitSpec
from tests.helpers.commands import run

pytestmark = pytest.mark.usefixtures("quiet_signals")


@pytest.fixture(scope="module")
def X(digits):
    return digits[:90].astype(np.float64)


@pytest.fixture
def rows(tmp_path, X):
    np.save(tmp_path / "rows.npy", X)
    return tmp_path / "rows.npy"


def test_the_command_prints_the_curve_marks_the_best_and_saves_all(rows, tmp_path):
    options = ("--cv", "--components", "4, 12", "--size", 40)
    shown = run("sigma", rows, *options, "--save", tmp_path / "settings.csv", "-q")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert lines[0] == "mean squared error of pre-images, 3 folds of 90 rows"
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
    assert (facts["rows"], facts["folds"]) == (90, 3)
    assert facts["edges"] == [line for line in lines if line.startswith("the best ")]
    assert lines[-1].startswith("bigkpca fit")


@pytest.mark.full
def test_the_command_prints_the_error_of_pca_and_where_it_is_better(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "flat.npy", rng.normal(size=(90, 2)) @ rng.normal(size=(2, 6)))
    command = ("sigma", tmp_path / "flat.npy", "--cv", "--components", "2,4", "--size", 30, "-q")
    shown = run(*command)
    assert shown.exit_code == 0, shown.output
    told = re.findall(r"^ +linear PCA +(\d+) +(\S+) ± \S+$", shown.stdout, re.M)
    assert [components for components, _ in told] == ["2", "4"]
    assert "\nlinear PCA is better than every setting with as many components: 2 (" in shown.stdout
    facts = json.loads(run(*command, "--json").stdout)
    assert [f"{one['error']:.5g}" for one in facts["pca"]] == [error for _, error in told]
    assert facts["pca_note"] in shown.stdout


@pytest.mark.parametrize(("size", "ridge"), [(40, 0.01), pytest.param("auto", 0.1, marks=pytest.mark.full)])
def test_the_command_it_prints_makes_the_best_model(size, ridge, tmp_path, X, monkeypatch):
    monkeypatch.setattr("bigkpca.evaluating.RIDGES", (ridge,))
    rows = tmp_path / "my rows.npy"
    np.save(rows, X)
    typed = ("--kernel", "matern", "--standardize", "--seed", 3, "--size", size, "--preimage", "denoising:size=60")
    shown = run("sigma", rows, "--cv", *typed, "--noise", 0.5, "--components", "5,9", "-q")
    assert shown.exit_code == 0, shown.output
    assert re.match("mean squared .*, in standard deviations of the columns, 3 folds of 90 rows\n", shown.stdout)
    (best,) = (line.split() for line in shown.stdout.splitlines() if line.endswith("best"))
    words = shlex.split(shown.stdout.splitlines()[-1])
    assert words[:4] == ["bigkpca", "fit", str(rows), "MODEL"]
    assert run(*words[1:3], tmp_path / "model.zarr", *words[4:], "-q").exit_code == 0
    model = KernelPCA.load(tmp_path / "model.zarr").model_
    spec = FitSpec.of(model)
    assert (spec.sigma, spec.n_components) == (float(best[0]), int(best[1]))
    assert spec.preimage_value == preimages.Denoising(noise=0.5, ridge=ridge, size=60)
    assert (spec.kernel, spec.random_state, spec.standardize, spec.noise) == ("matern", 3, True, 0.5)
    assert model.features.size == (40 if size == 40 else 90)


def test_ways_are_written_as_they_are_typed():
    for way in (preimages.Ridge(ridge=1e-3, size=7), preimages.FixedPoint(mean_term=False, iterations=7)):
        assert preimages_by_name.named(preimages_by_name.written(way)) == way
    assert preimages_by_name.written(preimages.Ridge(ridge=1e-3)) == "ridge:ridge=0.001"


MISTAKES = [
    ("--cv --components 10,many", "--n-components many: give numbers of components, e.g. 10,50,200"),
    ("--cv --components 0", "--n-components 0: give numbers"),
    ("--cv --components ²", "--n-components ²: give numbers"),
    ("--cv --components 5,,6", "give numbers of components"),
    ("--cv --kernel linear", "has no length sigma"),
    ("--cv --preimage denoising", "need the standard deviation of the noise"),
    ("--cv --save nowhere/settings.csv", "nowhere/settings.csv cannot be written"),
    ("--cv --save rows.npy", "rows.npy exists and was not made by bigkpca sigma"),
    ("--cv --save .", "is a folder: specify a file name"),
]
FOR_CV = ("--n-components 10", "--noise 1", "--save settings.csv", "--size 100", "--preimage mds")


def test_what_goes_wrong_is_said_in_a_line(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for typed, message in [*MISTAKES, *((typed, f"{typed.split()[0]} works only with --cv") for typed in FOR_CV)]:
        result = run("sigma", rows, *typed.split(), "-q")
        assert (result.exit_code, result.stdout) == (2, ""), typed
        assert message in result.stderr


def test_ways_that_learn_nothing_have_no_ridge_and_settings_are_written_through_a_link(rows, tmp_path):
    notes, link, target = tmp_path / "notes.csv", tmp_path / "link.csv", tmp_path / "settings.csv"
    notes.write_text("my notes: sigma,components,ridge,error,standard_error\n")
    link.symlink_to(target)
    asked = ("sigma", rows, "--cv", "--preimage", "linear", "--components", "4", "--size", 40, "-q", "--save")
    refused = run(*asked, notes)  # which only quotes what the command writes
    assert refused.exit_code == 2
    assert "was not made by bigkpca sigma" in refused.stderr
    shown = run(*asked, link)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines()[-1].endswith("--preimage linear --size 40")
    assert "in Python" not in shown.stdout
    assert link.is_symlink()
    assert target.read_text().startswith("sigma,components")
