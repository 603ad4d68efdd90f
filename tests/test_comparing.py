"""Comparisons: their numbers against naive ones, what lies in their folder, and what they leave out."""

import csv
import json
import math
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA, comparing, measures
from bigkpca.comparing import Comparison, Trial, all_methods
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.spec import FitSpec
from tests.helpers.commands import run
from tests.helpers.files import ROOT
from tests.helpers.progress import Recorder

COMPONENTS, SIZES = 6, (30, 90)
FEW = {"n_components": 6, "methods": ["nystroem/kmeans", "rff"], "sizes": [30], "seeds": 1}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def X(digits):
    return digits[:400].astype(np.float64)


@pytest.fixture(scope="module")
def data(X, tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "digits.npy"
    np.save(path, X)
    return str(path)


@pytest.fixture(scope="module")
def compared(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("compare") / "all"
    return bigkpca.compare(data, out, n_components=COMPONENTS, sizes=SIZES, seeds=1)


@pytest.fixture(scope="module")
def few(data, tmp_path_factory):
    return bigkpca.compare(data, tmp_path_factory.mktemp("compare") / "few", **FEW).path


def test_every_method_size_and_seed_is_tried_once_and_stands_in_the_csv_and_the_figure(compared):
    wanted = [("exact", 400, 0), *((name, size, 0) for name in all_methods() for size in SIZES)]
    assert sorted((each.method, each.size, each.seed) for each in compared.trials) == sorted(wanted)
    assert compared.reference == "exact kernel PCA of 400 rows (the whole Gram matrix)"
    lines = list(csv.DictReader((Path(compared.path) / "compare.csv").read_text().splitlines()))
    assert list(lines[0])[:6] == ["method", "size", "seed", "seconds", "planned_mb", "unexplained"]
    assert [float(line["seconds"]) for line in lines] == [trial.seconds for trial in compared.trials]
    assert (lines[0]["method"], lines[0]["score_error"]) == ("exact", "nan")
    assert all(float(line["planned_mb"]) > 0 for line in lines)
    root = ElementTree.parse(Path(compared.path) / "compare.svg").getroot()
    texts = {"".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")}
    assert {"score error, %", "nystroem/kmeans", "rff-pca", "exact"} <= texts
    assert any(text.endswith("errors against exact kernel PCA of 400 rows") for text in texts)
    title = root.find(f"{SVG}title").text
    assert compared.advice in title


@pytest.mark.parametrize("way", ["nystroem/uniform", "columns", "rff", "rff-pca"])
def test_errors_are_those_of_the_estimator_against_exact_kernel_pca(compared, X, way):
    exact = KernelPCA(COMPONENTS, method="exact", random_state=0).fit(X)
    method, _, rule = way.partition("/")
    (trial,) = [each for each in compared.trials if (each.method, each.size) == (way, 90)]
    ruled = {"landmarks": rule} if rule else {}
    own = KernelPCA(COMPONENTS, method=method, size=90, sigma=exact.sigma_, random_state=0, **ruled).fit(X)
    Y, Z = exact.transform(X), own.transform(X)
    relative = [abs(a - b) / a for a, b in zip(exact.eigenvalues_, own.eigenvalues_, strict=True)]
    assert trial.eigenvalue_error == pytest.approx(sum(relative) / len(relative), rel=1e-6)
    assert trial.cosine == pytest.approx(measures.subspace_cosine(Y, Z), abs=1e-6)
    projected = Z @ np.linalg.inv(Z.T @ Z) @ (Z.T @ Y)
    assert trial.score_error == pytest.approx(np.sqrt(np.sum((Y - projected) ** 2) / np.sum(Y**2)), rel=1e-6)
    judged = np.arange(3, len(X), 4)
    assert trial.preimage_error == pytest.approx(share_lost(X, own.inverse_transform(Z[judged])), rel=1e-3)
    if own.certificate_.proven:
        assert trial.unexplained == own.certificate_.unexplained
    else:
        assert math.isnan(trial.unexplained)


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


def found_of(*trials, pca_error=math.nan):
    return Comparison("out", trials, "exact kernel PCA", 6, pca_error)


def test_pca_is_compared_with_the_best_pre_images():
    trials = [
        Trial("rff", size, 0, 1, 1, preimage_error=error) for size, error in ((9, 0.3), (20, 0.2), (30, math.nan))
    ]
    start, best = "Linear PCA with 6 components: the error of reconstruction is 10.00%", "20.00% (rff with size 20)."
    assert found_of(*trials, pca_error=0.1).pca_note == f"{start}, of the best pre-images {best}"
    assert found_of(trials[2], pca_error=0.1).pca_note == f"{start}."
    assert found_of(*trials).pca_note == ""


@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
def test_pca_of_few_equal_or_textual_rows_is_not_known(digits):
    def error(X, **options):
        return comparing._reference(
            ArrayRows(X), FitSpec.checked(n_components=2, **options), 2, None, Engine()
        ).pca_error

    assert error(digits[:14]) > 0
    assert math.isnan(error(digits[:12]))  # 9 rows, of 10 that two components need
    assert math.isnan(error(digits[:3]))  # none is held out
    assert math.isnan(error(digits[:257].astype(np.int64), kernel="spectrum"))


def test_errors_of_standardized_columns_do_not_depend_on_their_units(digits, tmp_path):
    found = []
    for number, units in enumerate((np.ones(6), np.array([1, 1e3, 1, 1, 1, 1e-3]))):
        options = {"n_components": 3, "standardize": True, "sigma": 3.0, "methods": "nystroem/uniform", "sizes": [30]}
        X = digits[:200, 20:26] * units
        found.append(bigkpca.compare(X, tmp_path / str(number), seeds=1, **options).trials[1].preimage_error)
    assert found[0] == pytest.approx(found[1], rel=1e-3)


@pytest.mark.full
def test_the_same_call_does_nothing_and_more_of_it_adds(few, data, tmp_path, monkeypatch):
    out, notes = shutil.copytree(few, tmp_path / "out"), Recorder()
    before = (out / "compare.csv").read_text()
    found = bigkpca.compare(data, out, progress=notes, **FEW)
    assert notes.notes == []
    assert found.reference.startswith("exact kernel PCA of 400 rows")
    assert (out / "compare.csv").read_text() == before
    (out / "compare.svg").unlink()
    monkeypatch.setattr(comparing, "installed", lambda: False)  # without matplotlib
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
    assert notes.notes[:2] == ["fitting the exact reference", "4 of 8: rff, size 30, seed 1"]
    after = (out / "compare.csv").read_text()
    assert after.startswith(before)
    assert after.count("\n") == 10


@pytest.mark.full
def test_a_sampled_reference_where_no_exact_one_fits(data, tmp_path, monkeypatch, compared):
    monkeypatch.setattr(comparing, "EXACT_MOST_ROWS", 100)
    monkeypatch.setattr(comparing, "_MOST_WORK", 0)
    notes, options = Recorder(), {"n_components": COMPONENTS, "sizes": SIZES, "seeds": 1}
    found = bigkpca.compare(data, tmp_path / "out", progress=notes, methods=["nystroem/uniform"], **options)
    why = "products with the Gram matrix of 400 rows would take hours"
    assert f"{why}: using a sampled reference" in notes.notes
    assert found.reference.startswith(f"a sampled reference, since {why}: Nyström with 180 landmarks, with the eigen")
    assert "exact" not in {trial.method for trial in found.trials}
    exact = {(trial.method, trial.size): trial for trial in compared.trials}
    for trial in found.trials:
        same = exact[trial.method, trial.size]
        assert trial.score_error == pytest.approx(same.score_error, rel=0.1)
        assert trial.eigenvalue_error == pytest.approx(same.eigenvalue_error, rel=0.1)


@pytest.mark.full
def test_a_memory_limit_leaves_out_what_does_not_fit(digits, tmp_path):
    path, notes = tmp_path / "all.npy", Recorder()
    np.save(path, digits)
    rows = open_rows(str(path))

    def planned(method, size):
        spec = FitSpec.checked(n_components=COMPONENTS, method=method, size=size)
        return plan_fit(rows, spec, Engine().threads).peak_bytes

    limit = planned("rff", 400) - 1
    assert max(planned("nystroem", 400), planned("rff", 30)) < limit
    found = bigkpca.compare(path, tmp_path / "out", memory=limit, progress=notes, **(FEW | {"sizes": [30, 400]}))
    told = "\n".join(notes.notes)
    assert re.search(rf"an exact fit needs \d+ MB, {limit / 1e6:.0f} MB are allowed: using a sampled reference", told)
    assert "rff is left out at 400" in told
    assert {(t.method, t.size) for t in found.trials} == {
        ("nystroem/kmeans", 30),
        ("nystroem/kmeans", 400),
        ("rff", 30),
    }
    with pytest.raises(SpecError, match="nothing is left to compare: allow more memory"):
        bigkpca.compare(path, tmp_path / "none", memory="10 MB", **FEW)


@pytest.mark.full
def test_methods_that_do_not_suit_the_kernel_are_left_out_or_refused(data, tmp_path):
    notes, options = Recorder(), {"n_components": 4, "kernel": "laplacian", "sizes": [20], "seeds": 1}
    found = bigkpca.compare(data, tmp_path / "out", progress=notes, **options)
    assert len(found.trials) == 7
    (told,) = [note for note in notes.notes if "left out" in note]
    assert told.startswith("rff-pca is left out: method='rff-pca' needs the gaussian kernel")
    with pytest.raises(SpecError, match="needs the gaussian kernel"):
        bigkpca.compare(data, tmp_path / "asked", kernel="laplacian", methods=["rff-pca"])


def test_options_that_make_no_sense(data, tmp_path):
    for options, message in (
        ({"method": "rff"}, "a comparison varies method"),
        ({"size": 100}, "a comparison varies size"),
        ({"n_components": 0.9}, "n_components=0.9: a comparison needs a number"),
        ({"gamma": "scale"}, "gamma='scale' depends on the sample of each fit"),
        ({"methods": "nystroem/kmeans, rfff"}, "unknown method to compare 'rfff': did you mean 'rff'"),
        ({"methods": ["nystroem/kmean"]}, "unknown method to compare 'nystroem/kmean': did you mean 'nystroem/kmeans'"),
        ({"methods": ["exact"]}, "unknown method to compare 'exact'"),
        ({"sizes": [1]}, "each at least 2"),
        ({"seeds": 0}, "seeds=0: at least one is needed"),
        ({"sigmaa": 3}, "did you mean 'sigma'"),
        ({"scheduler": "tcp://10.0.0.1:8786"}, "unknown option 'scheduler'"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.compare(data, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


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
    found = bigkpca.compare(data, out, overwrite=True, **(FEW | {"n_components": 5}))
    assert (found.components, len(found.trials)) == (5, 3)
    assert (out / "notes.txt").read_text() == "mine"


def test_files_that_were_damaged(few, data, tmp_path):
    out = shutil.copytree(few, tmp_path / "out")
    text = (out / "compare.json").read_text()
    (out / "compare.json").write_text(text.replace('"size": 30', '"size": "many"'))
    with pytest.raises(
        CorruptionError, match=r"compare\.json is not the record of a comparison .*; remove .*, and run the same again"
    ):
        bigkpca.compare(data, out, **FEW)
    (out / "compare.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"compare\.json.* remove"):
        bigkpca.compare(data, out, **FEW)


def tried(method, size, seconds, error=math.nan, seed=0):
    return Trial(method, size, seed, seconds, 200, eigenvalue_error=error, score_error=error)


def test_advice_names_what_to_take_and_why():
    cheap = tried("rff", 9, 1, 0.04)
    for trials, said in (
        ([], "Nothing was compared."),
        ([tried("rff", 10, 1, 0.2), tried("rff", 20, 2, 0.1)], "Use rff with size 20: scores are off by 10.00%"),
        ([cheap, tried("rff", 20, 2, 0.01)], "Use rff with size 9: scores are off by 4.00%"),
        ([cheap, tried("rff", 20, 1.4, 0.01)], "Use rff with size 20: scores are off by 1.00%"),
        ([cheap, tried("exact", 99, 0.5)], "Use the exact method: it took 0.5 s, no longer than rff with size 9."),
        ([cheap, tried("exact", 99, 5)], "exact took 5 s"),
        ([tried("rff", 9, 1, 0.2)], "none is within 5%; try larger sizes"),
    ):
        assert said in found_of(*trials).advice


def test_medians_over_seeds():
    trials = [
        tried("rff", 10, seconds, error, seed) for seed, seconds, error in ((0, 1, 0.1), (1, 3, 0.2), (2, 2, 0.6))
    ]
    first, second = found_of(*trials, tried("columns", 10, 1)).medians
    assert (first.method, first.seed) == ("columns", 1)
    assert (second.seed, second.seconds, second.score_error) == (3, 2, 0.2)
    assert math.isnan(first.score_error)


def test_default_sizes_end_at_that_of_a_fit():
    wide, small = (ArrayRows(np.broadcast_to(0.0, shape)) for shape in ((60_000, 784), (300, 64)))
    assert comparing._checked_sizes(wide, FitSpec(), ()) == [125, 250, 500, 1000]
    assert comparing._checked_sizes(small, FitSpec(n_components=10), ()) == [37, 75, 150, 300]


def test_the_command_prints_a_table_and_json(compared, data):
    command = ("compare", data, compared.path, "--components", 6, "--sizes", "30,90", "--seeds", 1, "-q")
    shown = run(*command)
    assert shown.exit_code == 0, shown.stderr
    first, head, *lines = shown.stdout.splitlines()
    assert first == f"errors against {compared.reference}; medians over seeds"
    assert head.split()[:5] == ["method", "size", "seconds", "planned", "MB"]
    assert sorted(line.split()[0] for line in lines[:-3]) == sorted(trial.method for trial in compared.trials)
    assert lines[-3:] == [compared.advice, compared.pca_note, f"path  {compared.path}"]
    as_json = json.loads(run(*command, "--json").stdout)
    assert as_json["trials"][0]["score_error"] is None
    assert as_json["trials"][1]["method"].startswith("nystroem/")
    assert (as_json["advice"], as_json["pca_note"]) == (compared.advice, compared.pca_note)
    assert as_json["pca_error"] == compared.pca_error
    wrong = run(*command, "--sizes", "3x")
    assert wrong.exit_code == 2
    assert "'3x' is not a list of whole numbers" in wrong.stderr
