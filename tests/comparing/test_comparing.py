"""Comparisons: their numbers against naive ones, what lies in their folder, and what they leave out."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from distributed import Client

import bigkpca
from bigkpca import KernelPCA, measures
from bigkpca.comparing import results, trials
from bigkpca.comparing.results import Spread, TrialGroup, advice, pca_note
from bigkpca.comparing.trials import Candidate, MethodVariant, TrialResult, parse_variants, run_trial
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.numerics import landmarks
from bigkpca.spec import FitSpec
from tests.comparing.options import COMPONENTS, FEW, SIZES
from tests.execution.test_tls import certificates, configured, options_of
from tests.helpers.commands import run, run_apart
from tests.helpers.dask_processes import DaskProcesses
from tests.helpers.files import ROOT
from tests.helpers.progress import Recorder


def key_of(trial):
    return trial.method, trial.landmarks, trial.size, trial.seed


def test_every_method_size_and_seed_is_tried_once_and_stands_in_the_csv_and_the_figure(compared):
    ruled = [("nystroem", rule) for rule in landmarks.RULES]
    ways = [*ruled, ("columns", ""), ("rff", ""), ("rff-pca", "")]
    wanted = [(*way, size, 0) for way in ways for size in SIZES]
    assert sorted(map(key_of, compared.trials)) == sorted([("exact", "", 400, 0), *wanted])
    assert compared.missing == 0
    assert compared.reference == "exact kernel PCA of 400 rows (the whole Gram matrix)"
    lines = list(csv.DictReader((Path(compared.path) / "compare.csv").read_text().splitlines()))
    columns = "method landmarks size seed seconds planned_mb relative_trace_error eigenvalue_error subspace_cosine"
    assert list(lines[0])[:9] == columns.split()
    assert [float(line["seconds"]) for line in lines] == [trial.seconds for trial in compared.trials]
    assert (lines[0]["method"], lines[0]["score_error"]) == ("exact", "")
    assert all(float(line["planned_mb"]) > 0 for line in lines)
    root = ElementTree.parse(Path(compared.path) / "compare.svg").getroot()
    texts = {"".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"error of the scores", "nystroem kmeans", "rff-pca", "exact"} <= texts
    title = root.find("{http://www.w3.org/2000/svg}title").text
    assert "nystroem kmeans with size 90" in title
    assert "nan" not in title


@pytest.mark.parametrize("way", ["nystroem", "columns", "rff", "rff-pca"])
def test_errors_are_those_of_the_estimator_against_exact_kernel_pca(compared, X, way):
    exact = KernelPCA(COMPONENTS, method="exact", random_state=0).fit(X)
    rule = {"landmarks": "uniform"} if way == "nystroem" else {}
    (trial,) = [each for each in compared.trials if key_of(each) == (way, rule.get("landmarks", ""), 90, 0)]
    own = KernelPCA(COMPONENTS, method=way, size=90, sigma=exact.sigma_, random_state=0, **rule).fit(X)
    Y, Z = exact.transform(X), own.transform(X)
    relative = [abs(a - b) / a for a, b in zip(exact.eigenvalues_, own.eigenvalues_, strict=True)]
    assert trial.eigenvalue_error == pytest.approx(sum(relative) / len(relative), rel=1e-6)
    assert trial.subspace_cosine == pytest.approx(measures.subspace_cosine(Y, Z), abs=1e-6)
    projected = Z @ np.linalg.inv(Z.T @ Z) @ (Z.T @ Y)
    assert trial.score_error == pytest.approx(np.sqrt(np.sum((Y - projected) ** 2) / np.sum(Y**2)), rel=1e-6)
    judged = np.arange(3, len(X), 4)
    assert trial.preimage_error == pytest.approx(share_lost(X, own.inverse_transform(Z[judged])), rel=1e-3)
    assert trial.relative_trace_error == own.certificate_.unexplained


def share_lost(X, restored):
    """The error of every fourth row, restored, over its distance from the mean of the others."""
    judged = np.arange(3, len(X), 4)
    return np.sum((X[judged] - restored) ** 2) / np.sum((X[judged] - np.delete(X, judged, axis=0).mean(axis=0)) ** 2)


def test_the_error_of_pca_is_that_of_rows_that_it_has_not_seen(compared, X):
    judged = np.arange(3, len(X), 4)
    train = np.delete(X, judged, axis=0)
    V = np.linalg.svd(train - train.mean(axis=0), full_matrices=False)[2][:COMPONENTS]
    restored = train.mean(axis=0) + (X[judged] - train.mean(axis=0)) @ V.T @ V
    assert compared.pca_error == pytest.approx(share_lost(X, restored), rel=1e-5)
    assert compared.pca_note in repr(compared)


def test_pca_is_compared_with_the_best_pre_images():
    def tried(size, error):
        return TrialGroup(MethodVariant("rff"), size, 1, {"preimage_error": error and Spread(error, error, error)})

    groups = tried(9, 0.3), tried(20, 0.2), tried(30, None)
    start = "Linear PCA with 6 components: the error of reconstruction is"
    best = partial(pca_note, groups, 6)
    fitted = "(20.00%, rff with size 20); unlike PCA, kernel PCA was fitted to the rows that are judged."
    assert best(0.1) == f"{start} 10.00%, better than the best pre-images {fitted}"
    assert best(0.25) == f"{start} 25.00%, worse than the best pre-images {fitted}"
    assert pca_note(groups[2:], 6, 0.25) == f"{start} 25.00%."
    assert best(None) is None


@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
def test_pca_of_few_equal_or_textual_rows_is_not_known(digits):
    def error(X, **options):
        return trials.exact_reference(ArrayRows(X), FitSpec.checked(n_components=2, **options), Engine()).pca_error

    assert error(digits[:14]) is not None
    assert error(digits[:12]) is None  # 9 rows, of 10 that two components need
    assert error(digits[:3]) is None  # none is held out
    assert error(digits[:257].astype(np.int64), kernel="spectrum") is None


def test_errors_of_standardized_columns_do_not_depend_on_their_units(digits):
    variant, given = MethodVariant("nystroem", "uniform"), FitSpec(n_components=3, standardize=True, sigma=3.0)
    found = []
    for units in (np.ones(6), np.array([1, 1e3, 1, 1, 1, 1e-3])):
        rows = ArrayRows(digits[:200, 20:26] * units)
        exact = trials.exact_reference(rows, given, Engine())
        found.append(
            run_trial(rows, variant.spec(given, 30, 0), Candidate(variant, 30, 0), exact, Engine()).preimage_error
        )
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.full
def test_the_same_call_does_nothing_and_more_of_it_adds(few, data, tmp_path, monkeypatch):
    out, notes = shutil.copytree(few, tmp_path / "out"), Recorder()
    before = (out / "compare.csv").read_text()
    bigkpca.compare(data, out, progress=notes, **FEW)
    assert notes.notes == ["continuing: 2 of 2 fits are already done"]
    assert (out / "compare.csv").read_text() == before
    (out / "compare.svg").unlink()
    monkeypatch.setattr(results, "find_spec", lambda name: None)  # without matplotlib
    bigkpca.compare(data, out, progress=notes, **(FEW | {"sizes": [30, 40]}))
    after = (out / "compare.csv").read_text()
    assert after.startswith(before)
    assert after.count("\n") == before.count("\n") + 2
    assert "compare.svg is not drawn: pip install 'bigkpca[report]', and run this again" in notes.notes
    assert not (out / "compare.svg").exists()


_ENDED = """
import os, signal, sys
import bigkpca
from tests.helpers.progress import Recorder
class Ends(Recorder):
    def note(self, message):
        if "3 of 8" in message:
            os.kill(os.getpid(), signal.SIGKILL)
bigkpca.compare(*sys.argv[1:], n_components=6, methods="nystroem/kmeans,rff", sizes=[30, 60], seeds=2, progress=Ends())
"""


@pytest.mark.full
def test_a_killed_comparison_goes_on(data, tmp_path):
    out = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", _ENDED, data, str(out)], cwd=ROOT).returncode == -signal.SIGKILL
    before = (out / "compare.csv").read_text()
    assert before.count("\n") == 5  # a head, the exact fit and three others
    notes = Recorder()
    bigkpca.compare(data, out, progress=notes, **FEW | {"sizes": [30, 60], "seeds": 2})
    assert notes.notes[0] == "continuing: 3 of 8 fits are already done"
    assert [title.split()[0] for title, _ in notes.started] == ["fitting"] * 5
    assert notes.finished == 5
    after = (out / "compare.csv").read_text()
    assert after.startswith(before)
    assert after.count("\n") == 10


@pytest.mark.full
def test_a_sampled_reference_where_no_exact_one_fits(data, tmp_path, monkeypatch, compared):
    monkeypatch.setattr(trials, "EXACT_MOST_ROWS", 100)
    monkeypatch.setattr(trials, "_MAX_WORK", 0)  # an exact reference of too many rows would take hours
    notes, options = Recorder(), {"n_components": COMPONENTS, "sizes": SIZES, "seeds": 1}
    found = bigkpca.compare(data, tmp_path / "out", progress=notes, methods=["nystroem/uniform"], **options)
    assert "products with the Gram matrix of 400 rows would take hours: using a sampled reference" in notes.notes
    assert found.reference.startswith(
        "a sampled reference, since an exact one is too large: Nyström with 180 landmarks, with the estimated "
    )
    assert "exact" not in {trial.method for trial in found.trials}
    exact = {key_of(trial): trial for trial in compared.trials}
    for trial in found.trials:
        same = exact[key_of(trial)]
        assert trial.score_error == pytest.approx(same.score_error, rel=0.1)
        assert trial.eigenvalue_error == pytest.approx(same.eigenvalue_error, rel=0.1)


@pytest.mark.full
def test_a_memory_limit_leaves_out_what_does_not_fit(digits, tmp_path):
    path, notes = tmp_path / "all.npy", Recorder()
    np.save(path, digits)
    rows, (kmeans, rff) = open_rows(str(path)), parse_variants(FEW["methods"])

    def planned(way, size):
        return plan_fit(rows, way.spec(FitSpec(n_components=COMPONENTS), size, 0), Engine().threads).peak_bytes

    limit = planned(rff, 400) - 1
    assert max(planned(kmeans, 400), planned(rff, 30)) < limit
    found = bigkpca.compare(path, tmp_path / "out", memory=limit, progress=notes, **(FEW | {"sizes": [30, 400]}))
    told = "\n".join(notes.notes)
    assert re.search(rf"an exact fit needs \d+ MB, {limit / 1e6:.0f} MB are allowed: using a sampled reference", told)
    assert f"this needs {(limit + 1) / 1e6:.0f} MB in a process" in told
    assert "rff is left out at 400" in told
    assert {(t.method, t.size) for t in found.trials} == {("nystroem", 30), ("nystroem", 400), ("rff", 30)}
    with pytest.raises(SpecError, match="nothing is left to compare: allow more memory"):
        bigkpca.compare(path, tmp_path / "none", memory="10 MB", **FEW)


@pytest.mark.full
def test_methods_that_do_not_suit_the_kernel_are_left_out_or_refused_and_no_fit_starts_after_its_time(data, tmp_path):
    notes, options = Recorder(), {"n_components": 4, "kernel": "laplacian", "sizes": [20], "seeds": 1}
    found = bigkpca.compare(data, tmp_path / "out", time_budget=0.001, progress=notes, **options)
    assert found.missing == 6
    assert notes.notes[-1] == "time budget used up, 6 of 6 fits left: rerun the same command to resume"
    assert found.advice == "Nothing was compared yet."
    (told,) = [note for note in notes.notes if "left out" in note]
    assert told.startswith("rff-pca is left out: method='rff-pca' needs the gaussian kernel")
    with pytest.raises(SpecError, match="needs the gaussian kernel"):
        bigkpca.compare(data, tmp_path / "asked", kernel="laplacian", methods=["rff-pca"])


def test_options_that_make_no_sense(data, tmp_path):
    for options, message in (
        ({"method": "rff"}, "a comparison varies method"),
        ({"size": 100}, "a comparison varies size"),
        ({"n_components": 0.9}, "n_components=0.9: a comparison needs a number"),
        ({"methods": "nystroem/kmeans, rfff"}, "unknown method 'rfff': did you mean 'rff'"),
        ({"methods": ["nystroem/kmean"]}, "unknown method to compare 'nystroem/kmean': did you mean 'nystroem/kmeans'"),
        ({"methods": ["exact"]}, "unknown method to compare 'exact'"),
        ({"sizes": []}, "give a list of numbers of landmarks or random features"),
        ({"sizes": [1]}, "each at least 2"),
        ({"seeds": 0}, "seeds=0: at least one is needed"),
        ({"sigmaa": 3}, "did you mean 'sigma'"),
        ({"scheduler": "10.0.0.1 8786"}, "'10.0.0.1 8786' is not the address of a Dask scheduler"),
        ({"scheduler": ""}, "the address of the scheduler is empty"),
        ({"scheduler": "tls://127.0.0.1:1"}, "needs certificates: specify --tls-ca"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.compare(data, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_fits_on_a_cluster_have_the_errors_of_those_here_and_their_times_do_not_mix(few, data, tmp_path):
    own, out = certificates(tmp_path / "own"), tmp_path / "out"
    tls = options_of(own, "--tls-ca-file")
    with configured(**own), DaskProcesses(tmp_path / "cluster", 2, tls=tls) as cluster:
        where = ["--scheduler", cluster.address, *options_of(own)]
        grid = ["--components", 6, "--methods", "nystroem/kmeans,rff", "--sizes", 30, "--seeds", 1]
        found = run_apart("compare", data, out, *grid, *where)
        with Client(cluster.address, set_as_default=False) as client:
            ran = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
    assert found.returncode == 0, found.stderr
    assert ran > 0
    first, second, *_ = found.stdout.splitlines()
    assert first.startswith("errors against exact kernel PCA of 400 rows")
    assert second == f"fits ran on {cluster.address}"
    here, there = (list(csv.reader((Path(place) / "compare.csv").read_text().splitlines())) for place in (few, out))
    assert [line[:4] + line[6:] for line in here] == [line[:4] + line[6:] for line in there]  # but seconds and memory
    with pytest.raises(SpecError, match=r"already holds .*on_cluster is True there and False here"):
        bigkpca.compare(data, out, **FEW)


@pytest.mark.full
def test_folders_with_anything_else_in_them(few, data, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(SpecError, match="is not an empty folder and was not made by bigkpca compare"):
            bigkpca.compare(data, mine, overwrite=overwrite, **FEW)
    with pytest.raises(SpecError, match="is not an empty folder"):
        bigkpca.compare(data, mine / "thesis.tex", **FEW)
    assert [path.name for path in mine.iterdir()] == ["thesis.tex"]
    out = shutil.copytree(few, tmp_path / "out")
    (out / "notes.txt").write_text("mine")
    with pytest.raises(SpecError, match=r"already holds .*components is 6 there and 5 here"):
        bigkpca.compare(data, out, **(FEW | {"n_components": 5}))
    found = bigkpca.compare(data, out, overwrite=True, time_budget=0.001, **(FEW | {"n_components": 5}))
    assert found.missing == 2
    assert (out / "notes.txt").read_text() == "mine"


def test_files_that_were_damaged(compared, data, tmp_path):
    out, options = shutil.copytree(compared.path, tmp_path / "out"), {"n_components": 6, "sizes": SIZES, "seeds": 1}
    text = (out / "compare.csv").read_text()
    (out / "compare.csv").write_text(text.replace("rff,,30", "rff,,many"))
    with pytest.raises(CorruptionError, match=r"compare\.csv is not a list of trials: move it away"):
        bigkpca.compare(data, out, **options)
    (out / "compare.csv").write_text(text)
    (out / "reference.npz").write_bytes((out / "reference.npz").read_bytes()[:200])
    with pytest.raises(CorruptionError, match=r"reference\.npz cannot be read: remove it"):
        bigkpca.compare(data, out, **options)


def line(way, size, seconds, error):
    spreads = {"seconds": Spread(seconds, seconds, seconds), "planned_mb": Spread(200, 200, 200)}
    for measure in ("score_error", "eigenvalue_error"):
        spreads[measure] = None if error is None else Spread(error, error, error)
    return TrialGroup(MethodVariant(*way.split("/")), size, 1, spreads)


def test_advice_names_what_to_take_and_why():
    cheap = line("rff", 9, 1, 0.04)
    for lines, said in (
        ([line("rff", 10, 1, 0.2), line("rff", 20, 2, 0.1)], "Use rff with size 20: scores are off by 10.00%"),
        ([cheap, line("rff", 20, 2, 0.01)], "Use rff with size 9: scores are off by 4.00%"),
        ([cheap, line("rff", 20, 1.4, 0.01)], "Use rff with size 20: scores are off by 1.00%"),
        ([cheap, line("exact", 99, 0.5, None)], "Use the exact method: it took 0.5 s and 200 MB"),
        ([cheap, line("exact", 99, 5, None)], "exact took 5 s"),
        ([cheap, line("columns", 9, 3, 0.02)], "columns with size 9 leaves 2.00% in 3 s"),
        ([line("rff", 9, 1, 0.2)], "none is within 5%; try larger sizes"),
    ):
        assert said in advice(lines)


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("exact kernel PCA of 10,000 rows (by products)", "exact kernel PCA of 10,000 rows"),
        ("a sampled reference, since an exact one is too large: Nyström", "a sampled reference"),
    ],
)
def test_the_title_of_the_figure_names_the_reference(reference, told):
    drawn = results.comparison_svg([line("rff", 9, 1, 0.2)], "x.npy", reference)
    texts = [
        "".join(node.itertext()) for node in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert f"x.npy, sizes 9 along each line; errors against {told}" in texts


def test_medians_and_spreads_over_seeds():
    seeds = ((0, 1.0, 0.1), (1, 3.0, 0.2), (2, 2.0, 0.6))
    trials = [TrialResult("rff", "", 10, seed, seconds, 100, None, error) for seed, seconds, error in seeds]
    (found,) = results.group_trials(trials)
    assert found.spreads["seconds"] == Spread(2.0, 1.0, 3.0)
    assert found.spreads["eigenvalue_error"] == Spread(0.2, 0.1, 0.6)
    assert found.spreads["score_error"] is None
    assert np.isnan(found.median("score_error"))


def test_default_sizes_end_at_that_of_a_fit():
    assert trials.default_sizes(FitSpec(), ArrayRows(np.broadcast_to(0.0, (60_000, 784)))) == (125, 250, 500, 1000)
    assert trials.default_sizes(FitSpec(n_components=10), ArrayRows(np.zeros((300, 64)))) == (37, 75, 150, 300)


def test_the_command_prints_a_table_and_json(compared, data):
    command = ("compare", data, compared.path, "--components", 6, "--sizes", "30,90", "--seeds", 1, "-q")
    shown = run(*command)
    assert shown.exit_code == 0
    first, head, *lines = shown.stdout.splitlines()
    assert first == f"errors against {compared.reference}; medians over seeds"
    assert head.split()[:6] == ["method", "landmarks", "size", "seconds", "planned", "MB"]
    assert sorted(line.split()[0] for line in lines[:-3]) == sorted(trial.method for trial in compared.trials)
    assert lines[-3].startswith("Use ")
    assert lines[-2] == compared.pca_note
    as_json = json.loads(run(*command, "--json").stdout)
    assert as_json["trials"][1]["method"] == "nystroem"
    assert as_json["advice"] == lines[-3]
    assert (as_json["pca_note"], as_json["pca_error"]) == (lines[-2], compared.pca_error)
    wrong = run(*command, "--sizes", "3x")
    assert wrong.exit_code == 2
    assert "--sizes 3x: give whole numbers, e.g. 100,400,1600" in wrong.stderr
