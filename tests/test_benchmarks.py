"""The suite that runs the benchmarks, and all of them at toy size, so that they do not rot; no figure is looked at."""

import json
import re
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn import decomposition
from sklearn.metrics import pairwise

from benchmarks import __main__ as command
from benchmarks import device, machine, peers, scheduling, sides, suite
from benchmarks.common import Eigenpairs, child
from benchmarks.page import as_json, markdown
from benchmarks.results import Results, Table, Target
from benchmarks.sides import Run, Side
from benchmarks.sources import complexity, error_bounds, example2
from benchmarks.suite import CENTRAL, FURTHER, Outcome
from bigkpca import KernelPCA, kernels
from bigkpca.data.devices import Device
from tests.helpers.files import ROOT, shared_file

# More than six seconds each: sweeps, and those that start many processes.
LONG = {"accuracy", "automatic_size", "chaos", "comparison", "containers"}
LONG |= {"denoise", "drift", "exact_held", "memory", "peers", "processors", "random_features", "scaling"}
LONG |= {"exact", "nights", "reconstruction", "scale", "startup", "unusual_rows"}


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
def test_a_benchmark_prints_the_tables_that_it_returns(each, tmp_path, capsys):
    shared_file("mnist", "train-images-idx3-ubyte.gz")
    if each.name in (
        "accuracy",
        "automatic_size",
        "classifier",
        "denoise",
        "drift",
        "landmarks",
        "random_features",
        "reconstruction",
    ):
        shared_file("usps", "usps_int16.npz")
    if each.name in ("accuracy", "automatic_size", "drift", "fit_pass", "landmarks", "reconstruction"):
        shared_file("covertype", "covtype_93k.npz")
    if each.name == "flights":
        shared_file("flights", "flights_200k.csv.gz")
    found = suite.run(each.name, [*each.toy, "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    assert found.tables
    assert all(table.printed() in printed for table in found.tables)
    assert str(each.rows) in printed
    assert "nan" not in printed


SPEED = Target("speed", "more", 3.0, "times")


def outcome_of(*values, measured=()):
    """Of a benchmark with one table of these values."""
    return Outcome("residual", 1.0, Results((Table("T", ["n"], [values]),), tuple(measured)), None)


def test_a_table_is_markdown_with_bars_escaped_or_aligned_and_a_target_is_reached_up_to_its_bound():
    shown = Table("Times of a|b", ["what", "seconds"], [["a|b", 1.23456], ["c", np.int64(12)]])
    lines = "Times of a|b:", "", "| what | seconds |", "| --- | --- |", r"| a\|b | 1.23 |", "| c | 12 |"
    assert shown.markdown().splitlines() == [*lines]
    assert Table("T", ["what", "s"], [["longer", 2.0]]).printed() == "T\nwhat    s\nlonger  2"
    for better, expected in (("less", [True, True, False, False]), ("more", [False, True, True, False])):
        target = Target("speed", better, 4.0, "times")
        assert [target.measured(value).reached for value in (3.9, 4.0, 4.1, None)] == expected


def test_the_page_begins_with_machine_and_targets_and_shows_every_table_and_json_has_its_figures():
    measured = [
        Target("seconds of a fit", "less", 2.0, "s").measured(1.5),
        SPEED.measured(2.5),
        Target("speed at equal error", "more", 3.0, "times").measured(None),
    ]
    found = [outcome_of(7, measured=measured), Outcome("exact", 2.0, None, "OSError: full")]
    page = markdown({"processor": "fast"}, found, toy=False)
    assert page.index("| processor | fast |") < page.index("## Targets") < page.index("## residual")
    assert "| seconds of a fit | at most 2 s | 1.5 s | yes |" in page
    assert "| speed | at least 3 times | 2.5 times | no |" in page
    assert "| speed at equal error | at least 3 times | none | no |" in page
    assert "T:\n\n| n |\n| --- |\n| 7 |\n" in page
    assert "It failed: `OSError: full`" in page
    assert "toy size (`--quick`)" not in page
    assert "toy size (`--quick`)" in markdown({}, found, toy=True)

    found = [outcome_of(np.int64(7), np.float32(0.5), measured=[SPEED.measured(np.float64(4.0))])]
    read = json.loads(as_json({"processor": "fast"}, found, toy=True))
    assert read["machine"] == {"processor": "fast"}
    (only,) = read["benchmarks"]
    assert only["results"]["tables"] == [{"title": "T", "header": ["n"], "rows": [[7, 0.5]]}]
    (target,) = only["results"]["measured"]
    assert (target["value"], target["reached"]) == (4.0, True)


def test_a_benchmark_that_fails_is_noted_and_the_others_run():
    for failure in (ValueError("no such row"), SystemExit(3)):

        def runner(name, argv, failure=failure):
            if name == "peers":
                raise failure
            return Results((Table(name, ["n"], [[len(argv)]]),))

        first, second = suite.outcomes(CENTRAL[:2], lambda each: ["--rows", "3"], runner)
        assert (first.name, first.results) == ("peers", None)
        assert first.error == f"{type(failure).__name__}: {failure}"
        assert (second.error, second.results) == (None, Results((Table("share_of_pass", ["n"], [[2]]),)))


def test_the_command_writes_what_is_finished_and_ends_with_1_if_something_failed(tmp_path, monkeypatch, capsys):
    def fake(chosen, argv_of):
        assert [each.name for each in chosen] == ["residual", "exact"]
        assert argv_of(chosen[1])[:2] == ["--rows", "3000"]
        yield outcome_of(7)
        assert "| 7 |" in (tmp_path / "benchmarks.md").read_text()
        yield Outcome("exact", 2.0, None, "OSError: full")

    monkeypatch.setattr(command, "outcomes", fake)
    assert command.main(["residual", "exact", "--quick", "--out", str(tmp_path)]) == 1
    assert "failed: exact" in capsys.readouterr().out
    read = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [each["error"] for each in read["benchmarks"]] == [None, "OSError: full"]
    assert {"processor", "cores", "memory", "system", "Python", "BLAS", "commit", "date", "dask"} <= {*read["machine"]}


def test_benchmarks_that_run_again_keep_the_figures_of_the_others(tmp_path, monkeypatch, capsys):
    runs = iter([[outcome_of(7, measured=[SPEED.measured(4.0)])], [Outcome("peers", 1.0, None, "E")]])
    monkeypatch.setattr(command, "outcomes", lambda chosen, argv_of: next(runs))
    now = {"processor": "fast", "commit": "1234567890abc", "date": "today"}
    monkeypatch.setattr(command, "described", lambda: now)
    assert command.main(["residual", "--out", str(tmp_path)]) == 0
    now = {**now, "commit": "fedcba", "date": "tomorrow"}
    assert command.main(["peers", "--out", str(tmp_path)]) == 1
    page = (tmp_path / "benchmarks.md").read_text()
    places = [page.index(text) for text in ("## peers", "## residual", "At commit 1234567890.", "| 7 |")]
    assert places == sorted(places)
    assert "| speed | at least 3 times | 4 times | yes |" in page
    now = {**now, "processor": "slow"}
    with pytest.raises(SystemExit, match="2"):
        command.main(["peers", "--out", str(tmp_path)])
    assert "it holds figures of another machine" in capsys.readouterr().err


def test_all_central_benchmarks_run_further_ones_if_asked_and_all_are_listed_or_have_options_of_their_own(
    tmp_path, monkeypatch, capsys
):
    ran = []
    monkeypatch.setattr(command, "outcomes", lambda chosen, argv_of: ran.append(chosen) or [])
    for more in ([], ["--all"]):
        assert command.main([*more, "--out", str(tmp_path)]) == 0
    assert [[*chosen] for chosen in ran] == [[*CENTRAL], [*CENTRAL, *FURTHER]]
    with pytest.raises(SystemExit, match="2"):
        command.main(["peer"])
    assert "no benchmark peer: there are peers, share_of_pass" in capsys.readouterr().err
    files = (ROOT / "benchmarks").glob("[!_]*.py")
    scripts = {path.stem for path in files if "\ndef main(" in path.read_text(encoding="utf-8")}
    assert scripts == {each.name for each in (*CENTRAL, *FURTHER)} | {"preimage_pictures", "scheduling", "task_stream"}


def test_a_process_that_fails_says_so(capfd):
    with pytest.raises(RuntimeError, match="a process of the benchmark ended with exit code 1"):
        child("raise ValueError('broken')")
    assert "broken" in capfd.readouterr().err


def run_of(seconds=1.0, peak=1.0, error=0.5, cosine=0.5):
    """A run whose estimates are half as wrong as its eigenvalues."""
    return Run(seconds, peak, error, error / 2, cosine)


def test_the_smallest_size_that_is_as_accurate_is_chosen():
    errors = {400: 0.03, 500: 0.02, 800: 0.021, 1000: 0.01}
    for error, size in {0.021: 500, 0.02: 1000, 0.019: 1000, 0.009: None, 0.04: 400}.items():
        assert sides.smallest_as_accurate(error, errors) == size


def test_the_smallest_cosine_is_that_of_the_largest_angle_between_spans_however_scores_are_mixed_and_scaled():
    rng, angle = np.random.default_rng(0), 0.3
    axes, _ = np.linalg.qr(rng.normal(size=(40, 4)))
    turned = np.column_stack([axes[:, 0], np.cos(angle) * axes[:, 1] + np.sin(angle) * axes[:, 3]])
    scores = (turned @ rng.normal(size=(2, 2))).astype(np.float32)
    assert sides.smallest_cosine(scores, axes[:, :2]) == pytest.approx(np.cos(angle), abs=1e-6)


@pytest.mark.parametrize("held", [0, 10_000])
def test_exact_eigenpairs_are_those_of_the_dense_matrix_and_computed_once(held, tmp_path, monkeypatch):
    monkeypatch.setattr(sides, "_HELD", held)
    X = np.random.default_rng(0).normal(size=(300, 30)).astype(np.float32)
    found = sides.leading_eigenpairs(X, X, 6.0, tmp_path)
    K = kernels.Gaussian(6.0).gram(X.astype(np.float64))
    K = K - K.mean(axis=0)
    values, vectors = np.linalg.eigh(K - K.mean(axis=1)[:, None])
    np.testing.assert_allclose(found.values, values[::-1][:20], rtol=1e-5)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(20), atol=1e-6)
    assert sides.smallest_cosine(vectors[:, ::-1][:, :20], found.vectors) == pytest.approx(1, abs=1e-6)
    monkeypatch.setattr(sides, "fit_rows", None)
    kept = sides.leading_eigenpairs(X, None, 6.0, tmp_path)
    assert all(map(np.array_equal, kept, found))


@pytest.fixture
def made_up_runs():
    """Two rounds in which the machine is twice as slow in the second; ours have an eighth of the error of the peer, and
    a third of its 1 - cosine; with 2000 of ours as exact as they get."""
    ours = [Side("bigkpca, k-means, in memory", size, "", ()) for size in (500, 1000, 2000, 4000)]
    theirs = [Side("scikit-learn", size, "", ()) for size in (1000, 2000, 4000)]

    def runs(side, parts, lost, error, seconds, peak):
        size = min(side.size, parts)
        return [run_of(slow * seconds, peak, error / size, 1 - lost / size) for slow in (1, 2)]

    found = {side: runs(side, 2000, 1.0, 2.0, side.size / 500, 400.0) for side in ours}
    return found | {side: runs(side, 4000, 3.0, 8.0, (side.size / 500) ** 2, 1000.0) for side in theirs}


def test_peers_are_compared_at_equal_eigenvalues_scores_and_sizes_by_ratios_of_neighbouring_runs(made_up_runs):
    sizes, measured = {}, {}
    for comparison in peers.COMPARISONS:
        only = replace(comparison, bounds={"in memory": comparison.bounds["in memory"]})
        shown, found = peers.compare(only, made_up_runs)
        sizes[comparison.title] = [row[3] for row in shown.rows]
        measured[comparison.title] = [each.value for each in found]
        assert [row[1] for row in shown.rows] == [1000, 2000, 4000]
        assert shown.rows[0][6] == f"{shown.rows[0][5]:g} to {shown.rows[0][5]:g}"
    assert [*sizes.values()] == [[500, 500, 1000], [500, 1000, 2000], [1000, 2000, 4000]]
    assert [*measured.values()] == [[4, 16, 32], [4, 8, 16], [2, 0.4, 4, 0.4, 8, 0.4]]
    none = replace(comparison, same_size=False, wrong=lambda runs: -runs[0].peak, bounds={"in memory": (1, 2, 3)})
    shown, found = peers.compare(none, made_up_runs)
    assert [row[3] for row in shown.rows] == ["none measured"] * 3
    assert [each.value for each in found] == [None] * 3


def test_the_figures_of_a_run_are_compared_with_the_exact_eigenpairs():
    code = "took, values, estimates = 7.0, np.array([9.0, 4.0]), np.array([10.0, 4.5])\nscores = np.eye(4)[:, [1, 0]]"
    side = Side("a", 1, f"import json, sys\nimport numpy as np\nleading = sys.argv[-1]\n{code}", ())
    exact = Eigenpairs(np.array([10.0, 5.0]), np.eye(4)[:, :2])
    ((run,),) = sides.runs_of([side], 1, exact).values()
    assert (run.seconds, run.error, run.estimated, run.cosine) == pytest.approx((7.0, 0.15, 0.05, 1.0))
    assert run.peak > 1


def runs_at_once(asked, repeats, monkeypatch, printed):
    """Sides that run without a process, with the scores of exact eigenvectors."""

    def child(code, *argv):
        np.save(argv[-1], np.eye(3))
        return json.dumps([printed(code, argv[-2]), [1.0] * 3, [1.0] * 3]), 3.0

    monkeypatch.setattr(sides, "child", child)
    return sides.runs_of(asked, repeats, Eigenpairs(np.ones(3), np.eye(3)))


def test_peers_that_lie_apart_are_found_there_and_nowhere_else(tmp_path, monkeypatch):
    (tmp_path / "a_peer").mkdir()
    monkeypatch.setattr(sides, "PEERS", tmp_path)
    apart, alone = Side("a", 1, "code", (), needs="a_peer"), Side("b", 1, "code", ())
    found = runs_at_once([apart, alone], 1, monkeypatch, lambda code, seed: float(str(tmp_path) in code))
    assert [found[each][0].seconds for each in (apart, alone)] == [1.0, 0.0]


def test_sides_run_in_turn_with_one_seed_a_turn_and_slow_ones_once(monkeypatch):
    ran = []
    asked = [Side("a", 1, "a", ()), Side("b", 1, "b", (), once=True), Side("c", 1, "c", (), needs="no_such_package")]
    found = runs_at_once(asked, 2, monkeypatch, lambda code, seed: ran.append(code[0] + seed) or 1.0)
    assert ran == ["a0", "b0", "a1"]
    assert [len(found[side]) for side in asked] == [2, 1, 0]
    assert sides.neighbouring(found[asked[0]], found[asked[1]]) == [1.0]
    assert peers.line(asked[2], found, asked[0])[2] == "not installed"


def test_cores_of_others_are_what_the_machine_used_without_this_process(monkeypatch):
    busy = iter([10.0, 16.0, None, 3.0])
    clock = iter([100.0, 104.0])
    monkeypatch.setattr(machine, "_seconds_of_others", lambda: next(busy))
    monkeypatch.setattr(machine.time, "monotonic", lambda: next(clock, 0.0))
    assert machine.cores_of_others()() == 1.5
    assert machine.cores_of_others()() is None


@pytest.mark.full
def test_scheduling_prints_the_cost_of_a_block(capsys):
    scheduling.main(["--blocks", "100", "300", "--repeats", "1"])
    assert re.search(r"^300 +19660800 +", capsys.readouterr().out, re.M)


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
    values, vectors = np.linalg.eigh(K)
    A = vectors * np.sqrt(np.maximum(values, 0))
    drawn = A[np.isin(example.X[:, 0], S[:, 0])]
    assert lines["Nyström, 2 |A'A - C_A C_A'|"][0] == pytest.approx(
        2 * np.linalg.norm(A.T @ A - 10 * drawn.T @ drawn, 2)
    )
    for name, factor in (("(n/l) CC'|_F", 10), ("CC'|_F, as printed", 1)):
        assert lines[f"columns, |KK' - {name}"][0] == pytest.approx(np.linalg.norm(K @ K - factor * C @ C.T))
    assert all(ours is None or found <= ours <= bound for found, ours, bound, *_ in lines.values())


def test_the_exponent_of_the_growth_is_without_what_does_not_grow():
    sizes = [1.0, 4.0, 16.0, 64.0]
    for power in (0.5, 1.0, 2.0):
        assert complexity.of_growth(sizes, [7 + 2 * n**power for n in sizes]) == pytest.approx(power)
    assert complexity.of_growth(sizes, [3.0, 3.0, 2.9, 3.5]) is None


def test_a_claim_is_counted_in_the_seeds_in_which_it_holds():
    found = {"a": np.array([[1.0, 2.0], [5.0, 6.0], [1.0, 1.0]]), "b": np.full((3, 2), 4.0)}

    def claims(given):
        return [("a is below b", bool(np.median(given["a"]) < np.median(given["b"])), "")]

    assert example2.with_seeds(claims, found) == [(("a is below b", True, ""), "2 of 3")]


@pytest.mark.full
def test_each_device_is_measured_beside_bare_products_and_a_gpu_beside_cuml_and_targets(tmp_path, monkeypatch):
    shared_file("mnist", "train-images-idx3-ubyte.gz")
    monkeypatch.setattr(device, "accelerators", lambda: [Device("array_api_strict", "cpu")])
    monkeypatch.setattr(device, "find_spec", lambda name: name == "cuml" or None)
    monkeypatch.setitem(sys.modules, "cuml.metrics", pairwise)
    monkeypatch.setitem(sys.modules, "cuml.decomposition", decomposition)
    found = device.main(["--rows", "300", "--size", "60", "--repeats", "1", "--folder", str(tmp_path)])
    lines = {(row[0], row[1]): row for row in found.tables[0].rows}
    gpu = "array_api_strict:cpu"
    on_cpu = ["pass of a fit", "pass of a fit, bare products", "fit", "scores", "scores, bare products"]
    on_cpu += ["Gram product", "Gram product, bare products"]
    there = {f"{name}, rows there" for name in ("pass of a fit", "fit", "scores", "Gram product", "exact fit")}
    assert {name for name, place in lines if place == gpu} == {*on_cpu, "exact fit", "kernels and PCA of cuML", *there}
    assert {name for name, place in lines if place != gpu} == {*on_cpu}
    ours, bare = lines["pass of a fit", gpu], lines["pass of a fit, bare products", gpu]
    here = lines["pass of a fit", "NumPy, two threads"]
    assert ours[6:8] == [4 * 784, 2 * (784 * 60 + 60 * 60) / 1e6]
    assert ours[8] == pytest.approx(300 * ours[7] / 1000 / ours[3])
    assert ours[-2:] == pytest.approx([100 * bare[3] / ours[3], here[3] / ours[3]], abs=0.006)
    figures = [*ours[-2:], lines["exact fit", gpu][3]]
    assert [each.value for each in found.measured] == pytest.approx(figures, abs=0.006)
