"""Comparisons: their numbers against naive ones, what lies in their folder, and what they leave out."""

import csv
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA, comparing, measures
from bigkpca.comparing import Comparison, Trial, all_methods
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.spec import FitSpec
from tests.helpers.commands import run
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


def test_every_method_size_and_seed_is_tried_once_and_stands_in_the_csv_and_the_figure(compared):
    wanted = [("exact", 400, 0), *((name, size, 0) for name in all_methods() for size in SIZES)]
    assert sorted(each[:3] for each in compared.trials) == sorted(wanted)
    assert compared.reference == "exact kernel PCA of 400 rows"
    lines = list(csv.DictReader((Path(compared.path) / "compare.csv").read_text().splitlines()))
    assert [float(line["score_error"]) for line in lines] == [trial.score_error for trial in compared.trials]
    assert list(lines[0]) == list(Trial._fields)
    exact = compared.trials[0]
    assert max(exact.eigenvalue_error, exact.score_error, 1 - exact.cosine) < 1e-12
    root = ElementTree.parse(Path(compared.path) / "compare.svg").getroot()
    texts = {"".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")}
    assert {"score error, %", "nystroem/kmeans", "rff-pca", "exact"} <= texts
    assert compared.advice in root.find(f"{SVG}title").text


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
    assert trial.unexplained == own.certificate_.unexplained


@pytest.mark.full
def test_a_sampled_reference_where_no_exact_one_fits(data, tmp_path, monkeypatch, compared):
    monkeypatch.setattr(comparing, "EXACT_MOST_ROWS", 100)
    monkeypatch.setattr(comparing, "_MOST_WORK", 0)
    options = {"n_components": COMPONENTS, "sizes": SIZES, "seeds": 1}
    found = bigkpca.compare(data, tmp_path / "out", methods=["nystroem/uniform"], **options)
    assert found.reference.startswith("Nyström with 180 landmarks, as exact kernel PCA of 400 rows would take hours;")
    assert "exact" not in {trial.method for trial in found.trials}
    exact = {(trial.method, trial.size): trial for trial in compared.trials}
    for trial in found.trials:
        same = exact[trial.method, trial.size]
        assert trial.score_error == pytest.approx(same.score_error, rel=0.1)
        assert trial.eigenvalue_error == pytest.approx(same.eigenvalue_error, rel=0.1)


@pytest.mark.full
def test_methods_that_do_not_suit_the_kernel_are_left_out_or_refused(data, tmp_path):
    notes, options = Recorder(), {"n_components": 4, "kernel": "laplacian", "sizes": [20], "seeds": 1}
    found = bigkpca.compare(data, tmp_path / "out", progress=notes, **options)
    assert len(found.trials) == 7
    assert "rff-pca" not in {trial.method for trial in found.trials}
    assert notes.notes[-1].startswith("6 of 6: rff with size 20, seed 0, in ")
    with pytest.raises(SpecError, match="needs the gaussian kernel"):
        bigkpca.compare(data, tmp_path / "asked", kernel="laplacian", methods=["rff-pca"])


def test_options_that_make_no_sense(data, tmp_path):
    for options, message in (
        ({"method": "rff"}, "a comparison varies method"),
        ({"size": 100}, "a comparison varies size"),
        ({"n_components": 0.9}, "n_components=0.9: a comparison needs a number"),
        ({"methods": "nystroem/kmeans, rfff"}, "unknown method to compare 'rfff': did you mean 'rff'"),
        ({"methods": ["nystroem/kmean"]}, "unknown method to compare 'nystroem/kmean': did you mean 'nystroem/kmeans'"),
        ({"methods": ["exact"]}, "unknown method to compare 'exact'"),
        ({"sizes": [1]}, "give sizes of at least 2"),
        ({"seeds": 0}, "and at least one seed"),
        ({"sigmaa": 3}, "did you mean 'sigma'"),
        ({"scheduler": "tcp://10.0.0.1:8786"}, "unknown option 'scheduler'"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.compare(data, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_files_of_others_are_never_replaced_and_comparisons_if_asked(data, tmp_path, monkeypatch):
    out, notes = tmp_path / "out", Recorder()
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    monkeypatch.setattr(comparing, "installed", lambda: False)  # without Matplotlib
    (out / "compare.svg").write_text('<svg><title id="compare-title">')
    bigkpca.compare(data, out, progress=notes, **FEW)
    assert not (out / "compare.svg").exists()
    assert notes.notes[-1] == "compare.svg is not drawn: pip install 'bigkpca[report]'"
    with pytest.raises(SpecError, match="already holds a comparison: choose another folder, or replace it with"):
        bigkpca.compare(data, out, **FEW)
    found = bigkpca.compare(data, out, overwrite=True, **FEW | {"sizes": [20]})
    lines = [line.split(",")[:2] for line in (out / "compare.csv").read_text().splitlines()[1:]]
    assert lines == [[each.method, str(each.size)] for each in found.trials]
    for name in ("compare.csv", "compare.svg"):
        (out / name).write_text("years of work")
        for overwrite in (False, True):
            with pytest.raises(SpecError, match=rf"{name} exists and was not made by bigkpca compare, so it is never"):
                bigkpca.compare(data, out, overwrite=overwrite, **FEW)
        assert (out / name).read_text() == "years of work"
        (out / name).unlink()
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
    with pytest.raises(SpecError, match="its folder does not exist"):
        bigkpca.compare(data, out / "notes.txt", **FEW)


def tried(method, size, seconds, error=math.nan, seed=0):
    return Trial(method, size, seed, seconds, 200, math.nan, error, math.nan, error)


def found_of(*trials):
    return Comparison("out", "exact kernel PCA", trials)


def test_advice_names_what_to_take_and_why():
    cheap = tried("rff", 9, 1, 0.04)
    for trials, said in (
        ([tried("rff", 10, 1, 0.2), tried("rff", 20, 2, 0.1)], "Use rff with size 20: scores are off by 10.00%"),
        ([cheap, tried("rff", 20, 2, 0.01)], "Use rff with size 9: scores are off by 4.00%"),
        ([cheap, tried("rff", 20, 1.4, 0.01)], "Use rff with size 20: scores are off by 1.00%"),
        ([cheap, tried("exact", 99, 0.5, 0)], "Use exact with size 99: scores are off by 0.00%"),
        ([cheap, tried("exact", 99, 5, 0)], "Use rff with size 9"),
        ([tried("rff", 9, 1, 0.2)], "(try larger sizes: no fit is within 5%)"),
    ):
        assert said in found_of(*trials).advice


def test_medians_over_seeds():
    fits = (0, 1, 0.1), (1, 3, 0.2), (2, 2, 0.6)
    trials = [tried("rff", 10, seconds, error, seed) for seed, seconds, error in fits]
    first, second = found_of(*trials, tried("columns", 10, 1)).medians
    assert (first.method, first.seed) == ("columns", 1)
    assert (second.seed, second.seconds, second.score_error) == (3, 2, 0.2)
    assert math.isnan(first.score_error)


def test_default_sizes_end_at_that_of_a_fit():
    for shape, spec, expected in (
        ((60_000, 784), FitSpec(), [125, 250, 500, 1000]),
        ((300, 64), FitSpec(n_components=10), [37, 75, 150, 300]),
    ):
        fits = comparing._fits(ArrayRows(np.broadcast_to(0.0, shape)), spec, "columns", (), 1)
        assert [size for _, size, _ in fits] == expected


def test_the_command_prints_a_table(data, tmp_path):
    command = ("compare", data, tmp_path / "out", "--components", 6, "--sizes", "30,90", "--seeds", 1, "-q")
    shown = run(*command, "--methods", "rff, columns")
    assert shown.exit_code == 0, shown.stderr
    first, head, *lines, advice, path = shown.stdout.splitlines()
    assert first == "errors against exact kernel PCA of 400 rows; medians over seeds"
    assert head.split()[:5] == ["method", "size", "seconds", "planned", "MB"]
    fits = [["columns", "30"], ["columns", "90"], ["exact", "400"], ["rff", "30"], ["rff", "90"]]
    assert [line.split()[:2] for line in lines] == fits
    assert advice.startswith("Use ")
    assert path == f"path  {tmp_path / 'out'}"
    wrong = run(*command, "--sizes", "3x")
    assert wrong.exit_code == 2
    assert "'3x' is not a list of whole numbers" in wrong.stderr
