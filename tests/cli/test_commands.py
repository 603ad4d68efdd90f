"""The commands as a user types them: what they print where, and what they exit with."""

import errno
import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import zarr

import bigkpca
from bigkpca.cli import demo
from bigkpca.spec import FitSpec
from bigkpca.storage import describe
from bigkpca.workflows import scheduled
from tests.helpers.commands import run
from tests.helpers.jobs import LEAST, written

pytestmark = pytest.mark.usefixtures("quiet_signals")
OPTIONS = ("--components", 6, "--size", 40)


@pytest.fixture(scope="module")
def made(tmp_path_factory, digits):
    """300 digits as a file and as a dataset, and a model and features of them, in a folder."""
    folder = tmp_path_factory.mktemp("made")
    np.save(folder / "digits.npy", digits[:300])
    for command in (
        ("ingest", "digits.npy", "digits.zarr"),
        ("fit", "digits.zarr", "model.zarr", *OPTIONS),
        ("transform", "model.zarr", "digits.zarr", "scores.zarr"),
    ):
        done = run(*(folder / word if "." in str(word) else word for word in command), "-q")
        assert done.exit_code == 0, done.output
    files = {"rows": "digits.npy", "dataset": "digits.zarr", "model": "model.zarr"}
    return SimpleNamespace(folder=folder, **{kind: folder / name for kind, name in files.items()})


def facts_of(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def test_the_whole_story(made, tmp_path):
    dataset, model, scores = (tmp_path / name for name in ("d.zarr", "m.zarr", "s.zarr"))
    ingested = run("ingest", made.rows, dataset)
    assert re.search(r"shape +300 × 64", ingested.stdout)
    fitted = run("fit", dataset, model, *OPTIONS, "--seed", 1)
    assert re.search(r"^method +nystroem\nkernel +gaussian \(sigma \d+", fitted.stdout, re.M)
    head, first = re.search(
        r"(component   eigenvalue +exact .estimate.   share of variance   cumulative.*)\n(.*)", fitted.stdout
    ).groups()
    assert head.index("   cumulative") == first.index("%") + 1
    assert "unexplained by the landmarks" in fitted.stdout
    assert "exact: " not in fitted.stdout
    assert "fitting: 300 rows in" in fitted.stderr
    transformed = run("transform", model, dataset, scores)
    assert re.search(r"shape +300 × 6", transformed.stdout)
    assert [ingested.exit_code, fitted.exit_code, transformed.exit_code] == [0, 0, 0]
    both = run("fit", dataset, tmp_path / "n.zarr", *OPTIONS, "--seed", 1, "--transform", tmp_path / "t.zarr")
    assert re.search(rf"scores +{re.escape(str(tmp_path))}/t.zarr, 300 × 6", both.stdout)
    found, expected = (zarr.open_array(path / "scores", mode="r")[:] for path in (tmp_path / "t.zarr", scores))
    np.testing.assert_array_equal(found, expected)
    again = run("transform", model, dataset, scores)
    assert again.exit_code == 0
    assert "nothing to do" in again.stderr


def test_nothing_is_fitted_where_scores_cannot_be_put(made, tmp_path):
    np.save(tmp_path / "other.npy", np.zeros((5, 64), np.float32))
    assert run("transform", made.model, tmp_path / "other.npy", tmp_path / "others.zarr", "-q").exit_code == 0
    (tmp_path / "file").write_text("mine")
    shutil.copytree(made.model, tmp_path / "kept.zarr")
    for name in ("file", "kept.zarr", "others.zarr"):
        command = ("fit", made.dataset, tmp_path / "m.zarr", *OPTIONS, "--transform", tmp_path / name, "-q")
        refused = run(*command)
        assert (refused.exit_code, str(tmp_path / name) in refused.stderr) == (2, True), name
        assert not (tmp_path / "m.zarr").exists()
        assert run(*command, "--overwrite").exit_code == (0 if name == "others.zarr" else 2), name
    assert (tmp_path / "file").read_text() == "mine"


def test_info_of_everything(made, tmp_path):
    zarr.create_array(str(tmp_path / "plain.zarr"), data=np.ones((5, 2)))
    facts = {path.name: facts_of("info", path) for path in (*made.folder.glob("*.*"), tmp_path / "plain.zarr")}
    kinds = {"digits.npy": "npy", "digits.zarr": "dataset", "model.zarr": "model", "scores.zarr": "features"}
    assert {name: fact["kind"] for name, fact in facts.items()} == kinds | {"plain.zarr": "zarr array"}
    assert facts["digits.zarr"]["shape"] == [300, 64]
    assert facts["digits.zarr"]["provenance"][0]["rows"] == [0, 300]
    assert facts["scores.zarr"]["finished"] is True
    model = facts["model.zarr"]
    assert facts["scores.zarr"]["model"] == model["digest"]
    assert (model["method"], model["features"], model["landmarks"]) == ("nystroem", "kernel-rows", 40)
    assert (model["components"], model["center"], model["standardize"], model["noise"]) == (6, True, False, None)
    assert (model["preimage"], model["preimage_options"]) == ("fixed-point", {})
    assert model["options"] == {"n_components": 6, "size": 40}
    shown = run("info", made.model).stdout
    assert re.search("^noise +none$", shown, re.M)
    assert re.search("^calibration rows +none$", shown, re.M)


def test_options_reach_the_fit_and_info_tells_them(made, tmp_path):
    options = ("--kernel", "poly", "--degree", 2, "--no-center", "--standardize", "--noise", 2, "--components", 0.5,
               "--landmarks", "uniform", "--preimage", "ridge:ridge=0.01,size=50", "--size", 60,
               "--dtype", "float64", "--block-rows", 512)  # fmt: skip
    assert run("fit", made.rows, tmp_path / "m.zarr", *options, "-q").exit_code == 0
    spec = zarr.open_group(str(tmp_path / "m.zarr"), mode="r").attrs["bigkpca"]["spec"]
    assert (spec["kernel"], spec["degree"], spec["center"], spec["dtype"]) == ("polynomial", 2, False, "float64")
    assert (spec["n_components"], spec["size"], spec["block_rows"], spec["random_state"]) == (0.5, 60, 512, 0)
    shown, facts = run("info", tmp_path / "m.zarr").stdout, facts_of("info", tmp_path / "m.zarr")
    for line in ("center +no", "standardize +yes", "noise +2", "preimage +ridge", "random state +0"):
        assert re.search(f"^{line}$", shown, re.M), line
    assert re.search("^options +n components 0.5, size 60, landmarks uniform", shown, re.M)
    assert re.search("^preimage options +ridge 0.01, size 50$", shown, re.M)
    assert "degree 2" in shown
    assert facts["preimage_options"] == {"ridge": 0.01, "size": 50}
    assert (facts["center"], facts["standardize"], facts["noise"]) == (False, True, 2.0)
    assert facts["options"].items() >= {"n_components": 0.5, "size": 60, "landmarks": "uniform"}.items()
    shown = run("fit", "--help").output
    assert [name for name in FitSpec.model_fields if f"--{name.replace('_', '-')}" not in shown] == []
    shown = run("fit", made.rows, tmp_path / "n.zarr", "--components", "none", "--size", 20, "-q")
    assert (shown.exit_code, facts_of("info", tmp_path / "n.zarr")["options"]["n_components"]) == (0, None)


# For each way in which a command learns of a mistake; the mistakes themselves are those of tests/spec.
MISTAKES = [
    ("fit nowhere.zarr m.zarr", 2, "nowhere.zarr does not exist"),
    ("transform nowhere.zarr DATA s.zarr", 2, "does not exist: no model"),
    ("fit DATA m.zarr --sizes 3", 2, "No such option"),
    ("fit DATA m.zarr --size many", 2, "size='many'"),
    ("fit DATA m.zarr --memory 2", 2, "'2' is not an amount of memory with its unit, such as '2 GB'"),
    ("fit DATA m.zarr --scheduler x --workers 1", 2, "not both"),
    ("fit DATA m.zarr --landmarks objects.npy", 2, "landmarks cannot be read from objects.npy"),
    ("plan DATA --method Exact --size 9", 2, "--size does not work with method exact, which uses every row: leave"),
    ("fit nan.npy m.zarr", 3, "row 4, column 1 is NaN"),
    ("fit DATA m.zarr --memory 1MB", 4, "1 MB are allowed"),
    ("sigma DATA --memory 9MB", 4, "MB in a process, but 9 MB are allowed: allow more"),
    ("plan DATA --memory 9MB", 4, "9 MB are allowed: even a size of 10 needs "),
    ("fit DATA m.zarr --weight origin", 2, "--weight origin: give a column and its weight, 0 or more, e.g. --wei"),
    ("fit DATA m.zarr --weight =3", 2, "--weight =3: give a column and its weight"),
    ("fit DATA m.zarr --weight x=1 --weight x=much", 2, "--weight x=much: give a column and its weight"),
    ("fit DATA m.zarr --weight x=-1", 2, "the weight of 'x' is -1.0: give a finite number, 0 or more"),
    ("plan DATA --memory 9MB --landmarks few.npy", 4, "give fewer than 2 landmarks, or allow more"),
    ("fti DATA m.zarr", 2, "No such command 'fti'. Did you mean 'fit'?"),
    ("ingest", 2, "Missing argument 'SRC...'."),
    ("info half.zarr --json", 0, '"finished": false'),
    ("fit half.zarr m.zarr", 6, "half.zarr is not finished: run the command that makes it again"),
]


def test_typed_weights_reach_the_model_and_info_shows_them(tmp_path):
    rows, weights = tmp_path / "t.zarr", ("--weight", "origin=4", "--weight", "late=0.5")
    frame = pd.DataFrame(np.random.default_rng(4).normal(size=(90, 2)), columns=["day", "late"])
    frame.assign(origin=np.resize(["A", "B"], 90)).to_csv(tmp_path / "t.csv", index=False)
    bigkpca.ingest(tmp_path / "t.csv", rows, categorical="origin")
    options = ("--standardize", *weights, "--components", 2, "--size", 20, "-q")
    assert run("fit", rows, tmp_path / "m.zarr", *options).exit_code == 0
    facts = facts_of("info", tmp_path / "m.zarr")
    assert facts["options"]["column_weights"] == {"late": 0.5, "origin": 4.0}
    assert re.search("^options .*column weights late 0.5, origin 4$", run("info", tmp_path / "m.zarr").stdout, re.M)
    found = bigkpca.sigma(rows, column_weights={"origin=A": 9})["median"].sigma  # a name can contain "="
    assert run("sigma", rows, "--weight", "origin=A=9", "-q").stdout.split()[:2] == ["median", f"{found:.6g}"]


def test_what_goes_wrong_is_said_in_a_line_with_a_code(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = np.ones((10, 2))
    bad[4, 1] = np.nan
    np.save("nan.npy", bad)
    np.save("objects.npy", np.array([None, "a"]), allow_pickle=True)
    np.save("few.npy", np.eye(64)[:2])
    bigkpca.ingest("few.npy", "few.zarr")
    Path("half.zarr.partial").mkdir()
    Path("half.zarr.partial/claim.json").write_text('{"format": "dataset"}')
    for line, code, message in MISTAKES:
        result = run(*(made.rows if word == "DATA" else word for word in line.split()))
        assert message in result.output, line
        assert result.exit_code == code, line
        assert "Traceback" not in result.output
        assert not Path("m.zarr").exists()


def test_a_traceback_is_shown_when_asked_for():
    for line in ("fit nowhere.zarr m.zarr -v", "fit -qv nowhere.zarr m.zarr", "info nowhere --verbose"):
        shown = run(*line.split())
        assert (shown.exit_code, "Traceback" in shown.stderr) == (2, True), line
        plain = run(*line.replace("-qv", "-q").replace("--verbose", "").replace("-v", "").split())
        assert (plain.exit_code, "Traceback" in plain.stderr) == (2, False), line


@pytest.mark.full
def test_commands_in_processes_of_their_own_have_exit_codes_also_below_dask():
    for words in (["bigkpca.cli"], ["dask", "bigkpca"]):
        command = [sys.executable, "-m", *words, "info", "/nowhere.zarr"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (2, "bigkpca: /nowhere.zarr does not exist\n")


def test_a_full_disk_is_no_fault_of_the_program(made, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(describe, "info", mock.Mock(side_effect=full))
    done = run("info", made.model)
    assert done.exit_code == 6
    assert "the disk is full" in done.stderr


@pytest.mark.parametrize("draws", [False, pytest.param(True, marks=pytest.mark.full)])
def test_demo_tells_the_whole_story_and_can_be_repeated(draws, tmp_path, monkeypatch):
    if not draws:
        monkeypatch.setattr(demo, "installed", lambda: False)
    elif not demo.installed():
        pytest.skip("the extra that draws reports is not installed")
    page = tmp_path / "demo" / "report.html"
    for _ in range(2 if draws else 1):
        shown = run("demo", tmp_path / "demo", "-q")
        assert shown.exit_code == 0, shown.output
        accuracy = re.search(r"accuracy: (\d+\.\d)% from 20 scores, (\d+\.\d)% from 64 pixels", shown.stdout)
        assert float(accuracy[1]) > float(accuracy[2]) - 2
        assert str(tmp_path / "demo" / "scores.zarr") in shown.stdout
        assert (f"report   {page}" in shown.stdout) == draws
        assert ("for a report with figures: pip install 'bigkpca[report]'" in shown.stdout) != draws
        assert not draws or "Pre-images along component 1" in page.read_text("utf-8")


def test_plan_and_sigma_tell_what_they_found_and_evaluate_what_memory_it_needs(made):
    assert re.search(r"peak bytes +\d+\.\d MB", run("plan", made.dataset, "--size", 200).stdout)
    facts = facts_of("plan", made.dataset, "--size", 200)
    assert (facts["rows"], facts["passes"]) == (300, 1)
    assert re.search(r"^median +\d+\.\d+ +± 0\.\d+$", run("sigma", made.dataset, "-q").stdout, re.M)
    lengths = facts_of("sigma", made.dataset)
    assert lengths["sigest_low"]["sigma"] < lengths["median"]["sigma"] < lengths["sigest_high"]["sigma"]
    refused = run("evaluate", made.model, made.dataset, "--memory", "20 MB")
    assert refused.exit_code == 4
    assert re.search(r"needs \d+ MB in a process, but 20 MB are allowed: ask for a smaller --sample", refused.stderr)
    evaluated = run("evaluate", made.model, made.dataset, "-q").stdout
    errors = r"explained by the scores    0\.\d+ ± \S+\nmissed by the features .*\nerror of the kernel .*\n"
    those = r"\(\d+ rows that were left out of PCA, but not of kernel PCA\)\n"
    captured = r"captured of the columns: \d\d\.\d% by 6 scores, \d\d\.\d% by PCA " + those
    assert re.search(errors + captured + r"\Z", evaluated)


def test_warnings_are_said_on_stderr_and_bugs_raised(tmp_path, monkeypatch):
    def noisy(*_, **__):
        warnings.warn("strange", UserWarning, stacklevel=1)
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(scheduled, "run", noisy)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = run("run", written(tmp_path, LEAST))
    assert (done.stderr, type(done.exception)) == ("bigkpca: warning: strange\n", ZeroDivisionError)
