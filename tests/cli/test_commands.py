"""The commands as a user types them: what they print where, and what they exit with."""

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import zarr
from distributed import LocalCluster

from bigkpca import reporting
from bigkpca.cli import main
from bigkpca.execution.planning.speed import Speed
from bigkpca.numerics.landmarks import RULES
from bigkpca.spec import FitSpec
from bigkpca.workflows import choosing
from tests.helpers.commands import run, run_apart
from tests.helpers.files import shared_file

pytestmark = pytest.mark.usefixtures("quiet_signals")


@pytest.fixture
def rows(tmp_path, digits):
    np.save(tmp_path / "digits.npy", digits)
    return tmp_path / "digits.npy"


@pytest.fixture
def dataset(tmp_path, rows):
    assert run("ingest", rows, tmp_path / "digits.zarr", "-q").exit_code == 0
    return tmp_path / "digits.zarr"


@pytest.fixture
def model(tmp_path, dataset):
    result = run("fit", dataset, tmp_path / "model.zarr", "--components", 12, "--size", 80, "-q")
    assert result.exit_code == 0, result.output
    return tmp_path / "model.zarr"


def test_the_whole_story(tmp_path, rows):
    dataset, model, scores = (tmp_path / name for name in ("d.zarr", "m.zarr", "s.zarr"))
    ingested = run("ingest", rows, dataset)
    assert re.search(r"shape +1,797 × 64", ingested.stdout)
    fitted = run_apart("fit", dataset, model, "--components", 12, "--size", 80, "--seed", 1)
    assert re.search(r"kernel +gaussian \(sigma \d+", fitted.stdout)
    assert "component   eigenvalue   share of variance   cumulative" in fitted.stdout
    assert "fitting: 1,797 rows in" in fitted.stderr
    transformed = run("transform", model, dataset, scores)
    assert re.search(r"shape +1,797 × 12", transformed.stdout)
    assert [ingested.exit_code, fitted.returncode, transformed.exit_code] == [0, 0, 0]
    again = run("transform", model, dataset, scores)
    assert again.exit_code == 0
    assert "nothing to do" in again.stderr
    assert "Traceback" not in again.stderr + fitted.stderr


def test_fit_and_transform_in_one_command(tmp_path, dataset, model):
    scores, alone = tmp_path / "s.zarr", tmp_path / "alone.zarr"
    fitted = run("fit", dataset, tmp_path / "m.zarr", "--components", 12, "--size", 80, "--transform", scores)
    assert fitted.exit_code == 0
    assert re.search(rf"scores +{re.escape(str(scores))}, 1,797 × 12", fitted.stdout)
    run("transform", model, dataset, alone, "-q")
    found, expected = (zarr.open_array(f"{path}/scores", mode="r")[:] for path in (scores, alone))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("what", ["a file", "a model", "scores of other rows"])
def test_nothing_is_fitted_where_scores_cannot_be_put(tmp_path, dataset, model, what):
    out = tmp_path / "s.zarr"
    if what == "a file":
        out.write_text("mine")
    elif what == "a model":
        out = model
    else:
        np.save(tmp_path / "other.npy", np.zeros((5, 64), np.float32))
        assert run("transform", model, tmp_path / "other.npy", out, "-q").exit_code == 0
    refused = run("fit", dataset, tmp_path / "m.zarr", "--components", 12, "--size", 80, "--transform", out)
    assert refused.exit_code == 2
    assert str(out) in refused.stderr
    assert not (tmp_path / "m.zarr").exists()
    assert what != "a file" or out.read_text() == "mine"
    over = run("fit", dataset, tmp_path / "m.zarr", "--components", 12, "--size", 80, "--transform", out, "--overwrite")
    assert over.exit_code == (0 if what == "scores of other rows" else 2)


def test_info_of_everything(dataset, model, rows, tmp_path):
    run("transform", model, dataset, tmp_path / "s.zarr", "-q")
    zarr.create_array(str(tmp_path / "plain.zarr"), data=np.ones((5, 2)))
    facts = {}
    for path in (dataset, model, rows, tmp_path / "s.zarr", tmp_path / "plain.zarr"):
        assert run("info", path).exit_code == 0
        facts[path.name] = json.loads(run("info", path, "--json").stdout)
    kinds = [fact["kind"] for fact in facts.values()]
    assert kinds == ["dataset", "model", "npy", "features", "zarr array"]
    assert facts["digits.zarr"]["shape"] == [1797, 64]
    assert facts["digits.zarr"]["provenance"][0]["rows"] == [0, 1797]
    assert facts["model.zarr"]["components"] == 12
    assert facts["s.zarr"]["finished"] is True
    assert facts["s.zarr"]["model"] == facts["model.zarr"]["digest"]


def test_info_tells_what_a_fit_used(rows, model, tmp_path):
    options = ("--kernel", "poly", "--degree", 2, "--no-center", "--standardize", "--noise", 2, "--components", 0.5,
               "--landmarks", "uniform", "--preimage", "ridge:ridge=0.01,size=50", "--size", 60)  # fmt: skip
    assert run("fit", rows, tmp_path / "m.zarr", *options, "-q").exit_code == 0
    shown, facts = (
        run("info", tmp_path / "m.zarr").stdout,
        json.loads(run("info", tmp_path / "m.zarr", "--json").stdout),
    )
    for line in ("center no", "standardize yes", "noise 2", "preimage ridge", "seed 0",
                 "options components 0.5, size 60, landmarks uniform"):  # fmt: skip
        assert re.search(f"^{line.replace(' ', ' +', 1)}$", shown, re.M), line
    assert re.search("^preimage options +ridge 0.01, size 50$", shown, re.M)
    assert facts["preimage_options"] == {"ridge": 0.01, "size": 50}
    assert "degree 2" in shown
    assert (facts["center"], facts["standardize"], facts["noise"]) == (False, True, 2.0)
    assert facts["options"] == {"components": 0.5, "size": 60, "landmarks": "uniform"}
    plain = json.loads(run("info", model, "--json").stdout)
    assert (plain["center"], plain["standardize"], plain["noise"]) == (True, False, None)
    assert (plain["preimage"], plain["preimage_options"]) == ("fixed-point", {})
    assert plain["options"] == {"components": 12, "size": 80}
    assert re.search("^noise +none$", run("info", model).stdout, re.M)
    assert re.search("^reference rows +1,797$", run("info", model).stdout, re.M)


def test_info_tells_missing_blocks(rows, model, tmp_path):
    run("ingest", rows, tmp_path / "blocks.zarr", "-q", "--block-rows", 250)
    run("transform", model, tmp_path / "blocks.zarr", tmp_path / "s.zarr", "-q", "--block-rows", 500)
    (tmp_path / "s.zarr" / "scores" / "manifest.json").unlink()
    (tmp_path / "s.zarr" / "scores" / "c" / "1" / "0").unlink()
    facts = json.loads(run("info", tmp_path / "s.zarr", "--json").stdout)
    assert facts["finished"] is False
    assert facts["missing_blocks"] == [1]


def test_sigma_prints_lengths_with_errors(dataset):
    shown = run("sigma", dataset, "-q")
    assert re.search(r"^median +\d+\.\d+ +± 0\.\d+$", shown.stdout, re.M)
    lengths = json.loads(run("sigma", dataset, "--json", "-q").stdout)
    assert lengths["sigest_low"]["sigma"] < lengths["median"]["sigma"] < lengths["sigest_high"]["sigma"]
    assert run("sigma", dataset, "--kernel", "linear").exit_code == 2


def test_plan_says_what_a_fit_costs(dataset):
    facts = json.loads(run("plan", dataset, "--size", 200, "--json").stdout)
    assert facts["rows"] == 1797
    assert facts["passes"] == 1
    assert run("plan", dataset, "--memory", "1 MB").exit_code == 4
    assert re.search(r"peak bytes +\d+\.\d MB", run("plan", dataset).stdout)


def test_plan_tells_the_time_of_a_fit_where_it_is_known(dataset, monkeypatch):
    speeds = {"1 GHz": 1e9, "1 MHz": 1e6, "slow": 1e4}
    for (name, speed), unit in zip(speeds.items(), ("s", "min", "h"), strict=True):
        monkeypatch.setattr(choosing, "measured_speed", lambda speed=speed: Speed(speed, speed, speed))
        shown = run("plan", dataset, "--size", 200).stdout
        assert re.search(rf"^expected time +about [\d.,]+ {unit} on this machine, \d+ threads?$", shown, re.M), name
    assert json.loads(run("plan", dataset, "--size", 200, "--json").stdout)["expected_seconds"] > 7200
    monkeypatch.setattr(choosing, "measured_speed", lambda: pytest.fail("nothing to measure for"))
    assert json.loads(run("plan", dataset, "--tol", 0.1, "--json").stdout)["expected_seconds"] is None
    shown = run("plan", dataset, "--tol", 0.1).stdout
    assert "expected seconds" not in shown
    assert re.search(r"^expected time +not known: the size depends on the data$", shown, re.M)


def test_every_field_of_the_spec_is_an_option_of_fit():
    shown = run("fit", "--help").output
    for field in FitSpec.model_fields:
        assert f"--{field.replace('_', '-')}" in shown


def test_options_reach_the_spec(dataset, tmp_path):
    options = ("--kernel", "poly", "--degree", 2, "--no-center", "--components", "none", "--dtype", "float64", "-q")
    assert run("fit", dataset, tmp_path / "m.zarr", "--size", 30, "--block-rows", 512, *options).exit_code == 0
    about = zarr.open_group(str(tmp_path / "m.zarr"), mode="r").attrs["bigkpca"]
    spec = about["spec"]
    assert (spec["kernel"], spec["degree"], spec["center"], spec["dtype"]) == ("polynomial", 2, False, "float64")
    assert (spec["components"], spec["size"], spec["block_rows"], spec["seed"]) == (None, 30, 512, 0)


ROUTES = {
    "nystroem": (("--method", "nystroem"), "nystroem", "kernel-rows", 1),
    "columns": (("--method", "columns"), "columns", "kernel-rows", 1),
    "rff": (("--method", "rff"), "rff", "fourier", 1),
    "rff-pca": (("--method", "rff-pca", "--n-directions", 9), "rff-pca", "principal-fourier", 2),
    "tensor sketch": (("--method", "rff", "--kernel", "poly", "--degree", 2), "rff", "tensor-sketch", 1),
    "exact": (("--method", "exact"), "exact", "kernel-rows", 0),
    "randomized": (("--method", "rff", "--solver", "randomized"), "rff", "fourier", 3),  # 14 columns a pass, of 40
    "standardize": (("--standardize",), "nystroem", "kernel-rows", 2),
    **{rule: (("--landmarks", rule), "nystroem", "kernel-rows", 1) for rule in RULES},
}


@pytest.mark.parametrize("route", ROUTES)
def test_every_method_and_rule_can_be_typed(route, tmp_path, digits):
    typed, method, features, passes = ROUTES[route]
    options = (*typed, "--components", 4, *(() if method == "exact" else ("--size", 40)))
    rows, model, scores = tmp_path / "few.npy", tmp_path / "model.zarr", tmp_path / "scores.zarr"
    np.save(rows, digits[:400])
    plan = json.loads(run("plan", rows, *options, "--json").stdout)
    assert plan["passes"] == passes
    shown = run("fit", rows, model, *options, "-q")
    assert shown.exit_code == 0, shown.output
    assert re.search(rf"^method +{method}$", shown.stdout, re.M)
    facts = json.loads(run("info", model, "--json").stdout)
    assert (facts["method"], facts["features"], facts["components"]) == (method, features, 4)
    count = 400 if method == "exact" else 40
    assert facts["random_features" if method.startswith("rff") else "landmarks"] == count == plan["size"]
    assert re.search(rf"^method +{method}$", run("info", model).stdout, re.M)
    assert run("transform", model, rows, scores, "-q").exit_code == 0
    squares = (zarr.open_group(str(scores), mode="r")["scores"][:].astype(float) ** 2).sum(axis=0)  # type: ignore[index, call-overload, union-attr]
    np.testing.assert_allclose(squares, facts["eigenvalues"], rtol=0.02 if method == "rff-pca" else 1e-4)


def test_exact_is_said_of_the_method_and_not_of_a_number(tmp_path, digits):
    np.save(tmp_path / "few.npy", digits[:300])
    for options, exact in ((("--method", "exact"), True), (("--kernel", "linear", "--size", 80), False)):
        shown = run("fit", tmp_path / "few.npy", tmp_path / "m.zarr", *options, "--components", 3, "-q", "--overwrite")
        assert ("exact: the whole Gram matrix was solved" in shown.stdout) == exact
        assert ("unexplained by the landmarks" in shown.stdout) != exact


def test_landmarks_of_a_file(tmp_path, rows, digits):
    np.save(tmp_path / "own.npy", digits[5:600:20] + 0.5)
    np.save(tmp_path / "numbers.npy", np.arange(5, 600, 20))
    for name in ("own.npy", "numbers.npy"):
        model = tmp_path / f"{name}.zarr"
        for note in ("", "nothing to do"):  # the same file again is the same request
            shown = run("fit", rows, model, "--landmarks", tmp_path / name, "--components", 4)
            assert shown.exit_code == 0, shown.output
            assert note in shown.stderr
        facts = json.loads(run("info", model, "--json").stdout)
        assert facts["landmarks"] == 30
    np.save(tmp_path / "own.npy", digits[6:600:20])
    assert run("fit", rows, model.with_name("own.npy.zarr"), "--landmarks", tmp_path / "own.npy").exit_code == 2


def test_workers_give_the_same_model(dataset, model, tmp_path):
    two = run("fit", dataset, tmp_path / "two.zarr", "--components", 12, "--size", 80, "--workers", 2)
    assert two.exit_code == 0, two.stderr
    digests = [json.loads(run("info", path, "--json").stdout)["digest"] for path in (model, tmp_path / "two.zarr")]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "nowhere.zarr", "m.zarr"], 2, "nowhere.zarr does not exist"),
        (["transform", "nowhere.zarr", "DATA", "s.zarr"], 2, "does not exist: no model"),
        (["fit", "DATA", "m.zarr", "--kernel", "gausian"], 2, "did you mean 'gaussian'"),
        (["fit", "DATA", "m.zarr", "--method", "exakt"], 2, "did you mean 'exact'"),
        (["fit", "DATA", "m.zarr", "--landmarks", "kmens"], 2, "did you mean 'kmeans'"),
        (["fit", "DATA", "m.zarr", "--sizes", "3"], 2, "No such option"),
        (["fit", "DATA", "m.zarr", "--size", "many"], 2, "size='many'"),
        (["fit", "DATA", "m.zarr", "--sigma", "2", "--gamma", "1"], 2, "both sigma and gamma"),
        (["fit", "DATA", "m.zarr", "--memory", "lots"], 2, "'lots' is not an amount of memory"),
        (["fit", "DATA", "m.zarr", "--memory", "1 MB"], 4, "1 MB are allowed"),
        (["fit", "DATA", "m.zarr", "--scheduler", "x", "--workers", "1"], 2, "not both"),
        (["fit", "NAN", "m.zarr"], 3, "row 4, column 1 is NaN"),
        (["fit", "CONSTANT", "m.zarr"], 3, "constant data"),
        (["fit", "ONE", "m.zarr"], 3, "two-dimensional"),
        (["fit", "DATA", "m.zarr", "--method", "rff-pcb"], 2, "did you mean 'rff-pca'"),
        (["fit", "DATA", "m.zarr", "--method", "rff", "--size", "61"], 2, "must be even"),
        (["fit", "DATA", "m.zarr", "--method", "rff", "--kernel", "linear"], 2, "method='nystroem' works with every"),
        (["fit", "DATA", "m.zarr", "--method", "rff", "--landmarks", "kmeans"], 2, "has no landmarks"),
        (["fit", "DATA", "m.zarr", "--n-directions", "5"], 2, "belongs to method='rff-pca'"),
        (["fit", "DATA", "m.zarr", "--method", "rff-pca", "--n-directions", "65"], 2, "has only 64 columns"),
        (["fit", "DATA", "m.zarr", "--solver", "randomized"], 2, "is for random features"),
        (["fit", "DATA", "m.zarr", "--solver", "quick"], 2, "solver='quick'"),
        (["fit", "DATA", "m.zarr", "--landmarks", "gone.npy"], 2, "landmarks cannot be read from gone.npy"),
        (["fit", "DATA", "m.zarr", "--landmarks", "broken.npy"], 2, "landmarks cannot be read from broken.npy"),
        (["fit", "DATA", "m.zarr", "--landmarks", "objects.npy"], 2, "landmarks cannot be read from objects.npy"),
        (["fit", "DATA", "m.zarr", "--landmarks", "nan.npy"], 3, "array of landmarks: row 4, column 1 is NaN"),
        (["fit", "DATA", "m.zarr", "--landmarks", "narrow.npy"], 2, "landmarks have 2 columns"),
        (["plan", "DATA", "--method", "rff", "--size", "61"], 2, "must be even"),
        (["fit", "TEXT", "m.zarr"], 3, "must be real numbers"),
        (["info", "HALF", "--json"], 0, '"finished": false'),
        (["fit", "HALF", "m.zarr"], 6, "its ingest did not finish"),
        (["fit", "DATA", "m.zarr", "--memory", "2"], 2, "--memory 2: give a unit, e.g. --memory '2 GB'"),
        (["compare", "DATA", "m.zarr", "--memory", "1.5"], 2, "--memory 1.5: give a unit, e.g. --memory '1.5 GB'"),
        (["fit", "DATA", "m.zarr", "--degree", "2"], 2, "--degree is for the polynomial kernel, not for gaussian"),
        (["fit", "DATA", "m.zarr", "--kernel", "rbf", "--coef0", "2"], 2, "--coef0 is for the polynomial and sigmoid"),
        (
            ["plan", "DATA", "--method", "Exact", "--size", "9"],
            2,
            "--size is not for method exact, which uses every row: leave it out",
        ),
        (["plan", "DATA", "--residual-tol", "0.1"], 2, "--residual-tol belongs to method exact and to refine"),
        (["fit", "DATA", "m.zarr", "--array", "x"], 2, "is one array, not a group that holds 'x': leave --array out"),
        (["info", "TEXT", "--array", "x"], 2, "text.zarr is one array, not a group that holds 'x'"),
        (
            ["info", "HALF", "--array", "x"],
            2,
            "half.zarr is a bigkpca dataset, described as a whole: leave --array out",
        ),
        (["plan", "DATA", "--scheduler", "x", "--workers", "1"], 2, "not both"),
        (["fit", "DATA", "m.zarr", "--scheduler", ""], 2, "the address of the scheduler is empty"),
        (["fit", "DATA", "m.zarr", "--kernel", "sigmoid"], 2, "take a smaller gamma, about 0.0002 for these rows"),
        (["sigma", "DATA", "--memory", "9 MB"], 4, "MB in a process, 9 MB are allowed: allow more"),
        (
            ["sigma", "DATA", "--cv", "--memory", "9 MB"],
            4,
            "MB in a process, 9 MB are allowed: ask for a smaller --size",
        ),
        (["plan", "DATA", "--memory", "9 MB"], 4, "9 MB are allowed: even a size of 10 needs "),
        (
            ["plan", "DATA", "--memory", "9 MB", "--landmarks", "few.npy"],
            4,
            "give fewer than 2 landmarks, or allow more",
        ),
    ],
)
def test_what_goes_wrong_is_said_in_a_line_with_a_code(arguments, code, message, rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = np.ones((10, 2))
    np.save("constant.npy", bad)
    bad[4, 1] = np.nan
    np.save("nan.npy", bad)
    np.save("one.npy", np.ones(4))
    Path("broken.npy").write_bytes(b"\x93NUMPY\x01\x00 and no more")
    np.save("objects.npy", np.array([None, "a"]), allow_pickle=True)
    np.save("narrow.npy", np.eye(2))
    np.save("few.npy", np.eye(64)[:2])
    zarr.create_array("text.zarr", data=np.array([["a", "b"]], dtype="<U1"), fill_value="", zarr_format=2)
    zarr.create_group("half.zarr", attributes={"bigkpca": {"format": "dataset", "format_version": 1}})
    names = {"DATA": rows, "NAN": "nan.npy", "CONSTANT": "constant.npy", "ONE": "one.npy"}
    names |= {"TEXT": "text.zarr", "HALF": "half.zarr"}
    result = run(*(names.get(argument, argument) for argument in arguments))
    assert message in result.output
    assert result.exit_code == code
    assert "Traceback" not in result.output
    assert not Path("m.zarr").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        "fit nowhere.zarr m.zarr -v",
        "fit -qv nowhere.zarr m.zarr",
        "fit nowhere.zarr m.zarr --verbose",
        "info nowhere -v",
        "fit --memory 2 nowhere.zarr m.zarr -v",
    ],
)
def test_a_traceback_is_shown_when_asked_for(arguments):
    shown = run(*arguments.split())
    assert shown.exit_code == 2
    assert "Traceback" in shown.stderr
    plain = run(*arguments.replace("-qv", "-q").replace("--verbose", "").replace("-v", "").split())
    assert plain.exit_code == 2
    assert "Traceback" not in plain.stderr


def test_an_evaluation_is_refused_where_it_needs_more_than_is_allowed(model, dataset):
    refused = run("evaluate", model, dataset, "--memory", "20 MB")
    assert refused.exit_code == 4
    assert re.search(r"needs \d+ MB in a process, 20 MB are allowed: ask for a smaller --sample", refused.stderr)
    assert run("evaluate", model, dataset, "--memory", "2 GB", "-q").exit_code == 0


def test_what_a_worker_allows_is_asked_by_every_command(dataset, model):
    commands = ("plan", dataset), ("fit", dataset, "none.zarr"), ("sigma", dataset), ("evaluate", model, dataset)
    options = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "memory_limit": "100 MB",
        "dashboard_address": "127.0.0.1:0",
    }
    with LocalCluster(processes=False, **options) as cluster:
        told = [run(*command, "--scheduler", cluster.scheduler_address, "-q") for command in commands]
    for shown in told:
        assert shown.exit_code == 4, shown.output
        assert re.search(r"worker .* may use 100 MB, the plan needs \d+ MB", shown.stderr)
    assert "peak bytes" in told[0].stdout
    assert "on 1 thread of workers, if each is as fast as one of this machine" in told[0].stdout


def test_help_names_the_commands_in_the_order_of_their_use_and_in_whole_sentences():
    shown = run("--help").stdout
    commands = re.findall(r"^  ([a-z]+) {2,}([A-Z].*)$", shown, re.M)
    assert [name for name, _ in commands][:5] == ["ingest", "info", "sigma", "plan", "fit"]
    assert all(text.endswith(".") and "..." not in text for _, text in commands)
    assert [name for name, _ in commands] == main.list_commands(click.Context(main))
    for name, _ in commands:
        text = run(name, "--help").stdout
        assert not re.search(r"\bas '|default: (True|False|None)|INTEGER RANGE", text), name


def test_help_is_quick_because_commands_import_their_own_modules():
    code = """
import sys
from bigkpca.cli import main
main(["--help"], standalone_mode=False)
print([name for name in ("numpy", "scipy", "dask", "zarr", "sklearn", "pydantic", "rich") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "Make a dataset from files." in found.stdout
    assert found.stdout.endswith("[]\n")


def test_demo_tells_the_whole_story_and_can_be_repeated(tmp_path, monkeypatch):
    for draws in (reporting.installed(), False):
        monkeypatch.setattr(reporting, "find_spec", lambda _, draws=draws: draws or None)
        shown = run("demo", tmp_path / "demo", "-q")
        assert shown.exit_code == 0, shown.output
        accuracy = re.search(r"accuracy: (\d+\.\d)% from 20 scores, (\d+\.\d)% from 64 pixels", shown.stdout)
        assert accuracy is not None
        assert float(accuracy[1]) > float(accuracy[2]) - 2
        assert str(tmp_path / "demo" / "scores.zarr") in shown.stdout
        page = tmp_path / "demo" / "report.html"
        assert (f"report   {page}" in shown.stdout) == draws
        assert ("for a page of figures: pip install 'bigkpca[report]'" in shown.stdout) != draws
        assert not draws or "What do the components mean?" in page.read_text("utf-8")


def test_mnist_from_raw_file_to_features(tmp_path):
    raw = shared_file("mnist", "t10k-images-idx3-ubyte.gz")
    dataset, model, scores = (tmp_path / name for name in ("mnist.zarr", "model.zarr", "scores.zarr"))
    assert run("ingest", raw, dataset).exit_code == 0
    assert run("fit", dataset, model, "--components", 20, "--size", 200).exit_code == 0
    assert run("transform", model, dataset, scores).exit_code == 0
    assert json.loads(run("info", scores, "--json").stdout)["shape"] == [10000, 20]


def test_verify_tells_what_it_read(rows, model):
    for path in (rows, model):
        shown = run("verify", path, "-q", "--timeout", "60 s")
        assert shown.exit_code == 0, shown.output
        assert re.search(r"^files +[1-9]", shown.stdout, re.M)
