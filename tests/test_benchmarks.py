"""The suite that runs the benchmarks, and all of them at toy size, so that they do not rot; no figure is looked at."""

import json
import re
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import peers, suite
from benchmarks.data import Eigenpairs
from benchmarks.peers import Comparison, Run, Side
from benchmarks.results import Results, Table, Target
from benchmarks.sources import error_bounds
from benchmarks.suite import CENTRAL, FURTHER, Outcome
from bigkpca import KernelPCA, kernels
from tests.helpers.files import ROOT, shared_file

# More than six seconds each: sweeps, and those that start many processes.
LONG = {"accuracy", "denoise", "exact", "memory", "nights", "peers", "processors", "reconstruction", "scale", "scaling"}
LONG |= {"startup", "unusual_rows"}
DATA = {  # beside MNIST
    "usps/usps_int16.npz": {"accuracy", "classifier", "denoise", "reconstruction", "subspace", "unusual_rows"},
    "covertype/covtype_93k.npz": {"accuracy", "fit_pass", "reconstruction", "subspace", "unusual_rows"},
    "flights/flights_200k.csv.gz": {"flights", "subspace"},
}


def at_toy_size(each):
    """The parameter of a test that runs a benchmark."""
    return pytest.param(each, id=each.name, marks=pytest.mark.long if each.name in LONG else pytest.mark.full)


def test_names_that_benchmarks_import_exist_also_in_the_programs_that_they_start():
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for module, names in re.findall(r"^from (bigkpca[\w.]*) import ([\w, ]+)", path.read_text("utf-8"), re.M):
            for name in re.findall(r"(\w+)(?: as \w+)?", names):
                home = import_module(module)
                found = hasattr(home, name) or (hasattr(home, "__path__") and find_spec(f"{module}.{name}"))
                assert found, f"{path.name} imports {name} from {module}"


@pytest.mark.parametrize("each", [at_toy_size(each) for each in (*CENTRAL, *FURTHER)])
def test_a_benchmark_prints_the_tables_that_it_returns(each, tmp_path, monkeypatch, capsys):
    shared_file("mnist", "train-images-idx3-ubyte.gz")
    for file in (file for file, names in DATA.items() if each.name in names):
        shared_file(*file.split("/"))
    monkeypatch.setattr(peers, "SHARES", (0.3, 1))
    monkeypatch.setattr(peers, "FEATURES", (0.5,))
    found = suite.run(each.name, {**each.toy, "folder": tmp_path})
    printed = capsys.readouterr().out
    assert found.tables
    assert all(table.printed() in printed for table in found.tables)
    assert all(len(target.cells()) == 4 for target in found.targets)
    assert str(each.rows) in printed
    assert "nan" not in printed


def test_all_central_benchmarks_run_further_ones_if_asked_and_all_are_listed(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr(command, "outcome", lambda name, options: ran.append(name) or Outcome(name, 1.0, None, "none"))
    for more, expected in (([], CENTRAL), (["--all"], (*CENTRAL, *FURTHER))):
        ran.clear()
        assert command.main([*more, "--folder", str(tmp_path)]) == 1
        assert ran == [each.name for each in expected]
    with pytest.raises(SystemExit, match="2"):
        command.main(["peer"])
    assert "no benchmark peer: there are peers, share_of_pass" in capsys.readouterr().err
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert {*re.findall(r"python -m benchmarks (\w+)", pages)} <= {*ran}
    assert {*re.findall(r"python -m benchmarks\.(\w+)", pages)} == {"sources"}
    files = (ROOT / "benchmarks").glob("[!_]*.py")
    assert {path.stem for path in files if "\ndef main(" in path.read_text(encoding="utf-8")} == {*ran}


def test_the_page_has_targets_and_tables_and_keeps_figures_of_this_machine_that_are_not_run_again(
    tmp_path, monkeypatch, capsys
):
    targets = (
        Target("speed", 4.0, "at least", 3.0),
        Target("slow", 4.1, "at most", 4.0),
        Target("share", None, "at most", 1.0),
    )
    came = {
        "serving": Outcome("serving", 1.0, Results((Table("T", ["n"], [["a|b"]]),), targets), others=0.25),
        "exact": Outcome("exact", 2.0, None, "OSError: full"),
        "peers": Outcome("peers", 1.0, Results((Table("U", ["n"], [[8]]),))),
    }
    monkeypatch.setattr(command, "outcome", lambda name, options: came[name])
    now = {"processor": "fast", "commit": "1234567890abc", "date": "today"}
    monkeypatch.setattr(command, "described", lambda: now)
    out = ["--folder", str(tmp_path)]
    assert command.main(["serving", "exact", *out]) == 1
    assert "failed: exact" in capsys.readouterr().out
    now = {**now, "commit": "fedcba", "date": "tomorrow"}
    assert command.main(["peers", "--rows", "9", *out]) == 0
    written = (tmp_path / "benchmarks.md").read_text()
    parts = ["kept at most 0.25 cores busy", "| processor | fast |", "| speed | ≥ 3 | 4 | yes |", "| slow | ≤ 4 |"]
    parts += ["## peers", "`python -m benchmarks peers --rows 9`, 1 s.\n", "| 8 |"]
    parts += ["## serving", "`python -m benchmarks serving`, 1 s. Commit 1234567890.", r"| a\|b |"]
    parts += ["## exact", "It failed: `OSError: full`"]
    assert [written.index(part) for part in parts] == sorted(written.index(part) for part in parts)
    now = {**now, "processor": "slow"}
    for more in (["--quick"], []):
        with pytest.raises(SystemExit, match="2"):
            command.main(["peers", *more, *out])
        assert "holds figures of another machine" in capsys.readouterr().err
    assert command.main(["peers", "--quick", "--folder", str(tmp_path / "toy")]) == 0
    assert json.loads((tmp_path / "toy" / "benchmarks.json").read_text())["toy"]


@pytest.mark.parametrize("held", [0, 10_000])
def test_exact_eigenpairs_are_those_of_the_dense_matrix_and_computed_once(held, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "_HELD", held)
    X = np.random.default_rng(0).normal(size=(300, 30)).astype(np.float32)
    found = peers.leading_eigenpairs(X, X, 6.0, tmp_path)
    K = kernels.Gaussian(6.0).gram(X.astype(np.float64))
    K = K - K.mean(axis=0)
    values, vectors = np.linalg.eigh(K - K.mean(axis=1)[:, None])
    np.testing.assert_allclose(found.values, values[::-1][:20], rtol=1e-5)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(20), atol=1e-6)
    assert peers.angle_and_cosine(vectors[:, ::-1][:, :20], found.vectors)[1] == pytest.approx(1, abs=1e-6)
    monkeypatch.setattr(peers, "fit_rows", None)
    kept = peers.leading_eigenpairs(X, None, 6.0, tmp_path)
    assert all(map(np.array_equal, kept, found))


def test_peers_are_compared_at_equal_accuracy_by_ratios_of_neighbouring_runs():
    """The machine is twice as slow in the second round; ours have a quarter of the error of the peer."""

    def runs(size, error, seconds, memory):
        return [Run(slow * seconds, memory, error / size, 0.0, 0.0, 0.0) for slow in (1, 2)]

    ours = {Side("ours", size, "", ()): runs(size, 2.0, size / 500, 400.0) for size in (500, 1000)}
    theirs = {Side("peer", size, "", ()): runs(size, 8.0, (size / 500) ** 2, 1000.0) for size in (1000, 2000, 8000)}
    bounds = {"ours": (3.0, 17.0, 9.0)}
    *targets, shown = Comparison("By error", "peer", "error of eigenvalues", bounds).compare({**ours, **theirs})
    assert [row[3] for row in shown.rows] == [500, 500, "none measured"]
    assert shown.rows[0][5:] == [4.0, "4 to 4", 0.4]
    assert [(each.value, each.reached) for each in targets] == [(4, True), (16, False), (None, False)]


def test_sides_run_in_turn_and_their_figures_are_compared_with_the_exact_eigenpairs():
    code = "import json, sys\nimport numpy as np\nleading, seed = sys.argv[-1], int(sys.argv[-2])\ntook = 7.0 + seed\n"
    code += "values, estimates = np.array([9.0, 4.0]), np.array([10.0, 4.5])\n"
    code += (
        "scores = np.array([[0, 0.75**0.5], [0.5, 0], [0, 0.5], [0.75**0.5, 0]])"  # at 60 and 30 degrees to exact ones
    )
    sides = [Side("a", 1, code, ()), Side("b", 1, code, ())]
    found = peers.runs_of(sides, 2, Eigenpairs(np.array([10.0, 5.0]), np.eye(4)[:, :2]))
    assert [*found] == sides
    for runs in found.values():
        assert [run.seconds for run in runs] == [7.0, 8.0]
        run = runs[0]
        assert (run.error, run.estimated, run.angle, run.cosine) == pytest.approx((0.15, 0.05, 45.0, 0.5))
        assert runs[0].peak > 1


def test_the_bounds_of_the_thesis_are_at_the_probability_that_is_left():
    delta = error_bounds.DELTA
    for pairs in (1, 1e6):
        epsilon = error_bounds.hoeffding(100, 8, pairs)
        assert 2 * pairs * np.exp(-100 * epsilon**2 / 8) == pytest.approx(delta)
    epsilon = error_bounds.uniformly(100, 2**12, 16, 5, diameter=3.0)
    scale = np.sqrt(5) / error_bounds.SIGMA * 3.0  # sigma_p times the diameter
    assert 2**12 * (scale / epsilon) ** 2 * np.exp(-100 * epsilon**2 / (16 * 7)) == pytest.approx(delta)
    assert error_bounds.kumar_spectral(50, 50, 2.0, 1.0) == pytest.approx(2 + 2 * 50**0.5)  # all rows: nothing is drawn
    assert error_bounds.kumar_frobenius(50, 50, 2.0, 1.0) == pytest.approx(2 + 64**0.25 * 50)
    assert error_bounds.columns_bound(50, 50, 3.0) == pytest.approx(50**0.5 * 9)


def test_errors_of_a_small_example_are_those_of_dense_matrices():
    example = error_bounds.Example(200, 0)
    lines, K = example.landmarks(20), example.K
    options = {"sigma": error_bounds.SIGMA, "landmarks": "uniform", "size": 20, "center": False}
    S = KernelPCA(2, dtype="float64", random_state=0, **options).fit(example.X).landmarks_
    C = kernels.Gaussian(error_bounds.SIGMA)(example.X, S)
    W = kernels.Gaussian(error_bounds.SIGMA).gram(S)
    E = K - C @ np.linalg.solve(W, C.T)
    assert lines["Nyström, |E|"][0] == pytest.approx(np.linalg.norm(E, 2), rel=1e-4)
    assert lines["Nyström, |E|_F"][:2] == pytest.approx((np.linalg.norm(E), np.trace(E)), rel=1e-4)
    assert lines["columns, |K - PK|"][0] == pytest.approx(np.linalg.norm(K - C @ np.linalg.pinv(C) @ K, 2), rel=1e-4)
    assert all(ours is None or found <= ours <= bound for found, ours, bound, *_ in lines.values())
