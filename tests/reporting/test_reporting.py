"""The report: what its page says, what it is made from, and when it is made again."""

import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import bigkpca
from bigkpca import reporting
from bigkpca.errors import SpecError
from tests.helpers.commands import run
from tests.helpers.progress import Recorder
from tests.reporting.conftest import facts_of, titles_of


def drawn(model, out, **options):
    """The page of a report."""
    return Path(bigkpca.report(model, out, **options)).read_text("utf-8")


def test_the_page_states_what_was_fitted_and_how_good_it_is(place, page):
    facts, model = facts_of(page), bigkpca.load(place / "m.zarr")
    assert facts["data"] == str(place / "d.zarr")
    assert facts["rows"] == "1,797 × 64, uint8"
    assert facts["kernel"].startswith("gaussian (sigma ")
    assert (facts["landmarks"], facts["components"], facts["pre-images"]) == ("60", "8", "fixed-point")
    assert "median distance" in facts["chosen: sigma"]
    assert facts["approximation"].startswith("accurate, ")
    assert re.fullmatch(r"\d+\.\d\d% of the variance at most \(proven\)", facts["unexplained by the landmarks"])
    assert re.fullmatch(
        r"\d\d\.\d% of the variance; by the .* at least \d\d\.\d% \(proven\)", facts["captured in feature space"]
    )
    assert facts["captured of the columns"].startswith("not known: fit with calibration_rows=2000")
    assert facts["rows shown"] == "1,797 of 1,797"
    assert facts["drawn by"] == f"bigkpca {version('bigkpca')}"
    along = [f"Pre-images along component {j}" for j in range(1, 7)]
    assert titles_of(page) == ["Spectrum", "Scores of components 1 and 2", "Scores of components 3 and 4", *along]
    table = page[page.index("<h2>Components</h2>") :]
    head, *rows = (re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall("<tr>(.*?)</tr>", table))
    assert head == [
        "component", "eigenvalue", "share of variance", "proven at least", "at most, 95%", "exact (estimate)", "trust",
    ]  # fmt: skip
    cells = dict(zip(head, zip(*rows, strict=True), strict=True))
    assert cells["trust"] == model.certificate.trust
    assert (np.array(cells["at most, 95%"], float) >= model.certificate.upper).all()  # no nearer than they are
    assert (np.array(cells["proven at least"], float) <= model.certificate.lower).all()


def test_every_figure_has_words_and_ids_of_its_own_and_the_page_needs_nothing_else(page):
    drawings = re.findall(r'<svg [^>]*role="img"[^>]*aria-labelledby="(.*?)"', page)
    assert len(drawings) == page.count("<svg ") == 9
    assert [re.search(rf'<title id="{name}">(.*?)</title>', page)[1] for name in drawings] == titles_of(page)
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', page)) <= set(ids)
    assert page.count("<image") >= 6  # pictures along components, whose shape the dataset records
    assert "#12345" not in page  # every colour of the style became a variable of the page
    assert page.count("var(--ink)") > 100
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(each.startswith(("data:", "#")) for each in sources)
    assert "<script" not in page
    assert len(page) < 400_000


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The digits of a model of two components: quickly drawn."""
    folder = tmp_path_factory.mktemp("small")
    np.save(folder / "x.npy", load_digits().data[:60])
    bigkpca.fit(folder / "x.npy", folder / "m.zarr", n_components=2, size=20)
    return folder


def test_the_same_report_is_left_alone_and_others_are_not_replaced(small, tmp_path):
    model, out, notes = small / "m.zarr", tmp_path / "r.html", Recorder()
    other = bigkpca.KernelPCA(1, size=20, random_state=0).fit(np.load(small / "x.npy")).model_
    page = drawn(model, out, progress=notes)
    assert notes.notes == [f"drawn: {title}" for title in titles_of(page)]
    assert (notes.started[0], notes.finished) == (("sampling rows", 60), len(notes.started))
    assert notes.rows == sum(rows for _, rows in notes.started)
    first, before = out.read_bytes(), out.stat()
    bigkpca.report(model, out, overwrite=True, progress=notes)
    assert notes.notes[-1] == f"{out} exists already, of the same model and rows: nothing to do"
    for asked in ({"model": other}, {"model": model, "image_shape": (8, 8)}, {"model": model, "scores": np.eye(60, 2)}):
        with pytest.raises(SpecError, match="already exists: it is another report"):
            bigkpca.report(**asked, out=out)
    assert (out.read_bytes(), out.stat().st_mtime_ns) == (first, before.st_mtime_ns)
    bigkpca.report(other, out, overwrite=True)
    assert out.read_bytes() != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html"]
    out.write_text("somebody's own page")
    for place, message in (
        (out, "was not made by bigkpca report, so it is never replaced"),
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "r.html", "its folder does not exist"),
        (tmp_path / "r.pdf", r"r\.pdf: a report is a page of HTML: take a name that ends in \.html"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.report(model, place, overwrite=True)


@pytest.mark.full
def test_other_labels_and_rows_make_another_report(tmp_path):
    rows, labels, out = load_digits().data[:60], np.arange(60) % 3, tmp_path / "r.html"
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", np.where(labels, "<few>", "many"))
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", n_components=2, size=20)
    first = drawn(tmp_path / "m.zarr", out, labels=tmp_path / "y.npy")
    assert "&lt;few&gt;" in first
    assert "<few>" not in first
    for changed, values in (("y.npy", labels[::-1]), ("x.npy", rows + 1)):
        np.save(tmp_path / changed, values)
        os.utime(tmp_path / changed, ns=(1, 1))
        with pytest.raises(SpecError, match="already exists: it is another report"):
            bigkpca.report(tmp_path / "m.zarr", out, labels=tmp_path / "y.npy")
        assert drawn(tmp_path / "m.zarr", out, labels=tmp_path / "y.npy", overwrite=True) != first
    assert "written again since the fit" in facts_of(out.read_text("utf-8"))["data"]


@pytest.mark.usefixtures("sketched")
def test_rows_that_are_gone_or_have_changed_are_said_to(place, tmp_path):
    np.save(tmp_path / "x.npy", load_digits().data[:60, :60])
    bigkpca.fit(place / "d.zarr", tmp_path / "m.zarr", n_components=2, size=20)
    model = bigkpca.load(tmp_path / "m.zarr")
    model.provenance["identity"]["path"] = str(tmp_path / "x.npy")
    narrow = facts_of(drawn(model, tmp_path / "1.html"))
    assert "has 60 columns, but the model was fitted on 64" in narrow["rows shown"]
    (tmp_path / "x.npy").unlink()
    gone = drawn(model, tmp_path / "2.html", image_shape=(8, 8))
    assert re.match("none: .*x.npy", facts_of(gone)["rows shown"])
    assert titles_of(gone) == ["Spectrum", "Pre-images along component 1", "Pre-images along component 2"]
    with pytest.raises(SpecError, match=r"labels need rows, and there are none: .*x\.npy"):
        bigkpca.report(model, tmp_path / "3.html", labels=place / "labels.npy")


@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
@pytest.mark.parametrize(
    ("options", "columns", "facts", "last"),
    [
        ({"method": "rff", "size": 100}, 64, {"random features": "100"}, "Pre-images along component 2"),
        (
            {"refine": 1, "size": 20},
            64,
            {"largest relative residual": "(proven: an eigenvalue lies within it)"},
            "component 2",
        ),
        ({"method": "exact"}, 64, {"approximation": "exact: the whole Gram matrix was solved"}, "component 2"),
        (
            {"kernel": "laplacian", "size": 4, "n_components": 3},
            64,
            {"approximation": "inaccurate, 0 of 3"},
            "Spectrum",
        ),
        ({"kernel": "sigmoid", "gamma": 1e-5, "size": 30}, 64, {"pre-images": "none"}, "Spectrum"),
        ({"column_weights": [2, 1]}, 2, {"column weights": "2"}, "component 2"),
    ],
)
@pytest.mark.usefixtures("sketched")
def test_every_kind_of_model_has_a_page(options, columns, facts, last, tmp_path):
    X = load_digits().data[:200, 10 : 10 + columns]
    model = bigkpca.KernelPCA(**{"n_components": 2, "random_state": 0, **options}).fit(X).model_
    page = drawn(model, tmp_path / "r.html")
    assert "<title>Kernel PCA of an array</title>" in page
    found = facts_of(page)
    assert found["rows shown"].startswith("none: the rows were in memory and were not kept")
    assert all(words in found[name] for name, words in facts.items())
    assert titles_of(page)[-1].endswith(last)


@pytest.mark.usefixtures("sketched")
def test_precomputed_kernels_two_columns_and_added_rows(tmp_path):
    X = load_digits().data[:100]
    np.save(tmp_path / "k.npy", np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2000))
    bigkpca.fit(tmp_path / "k.npy", tmp_path / "k.zarr", n_components=2, kernel="precomputed", method="exact")
    assert titles_of(drawn(tmp_path / "k.zarr", tmp_path / "k.html")) == ["Spectrum", "Scores of components 1 and 2"]
    np.save(tmp_path / "x.npy", X[:, 20:22])
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "x.zarr", n_components=2, size=20)
    assert titles_of(drawn(tmp_path / "x.zarr", tmp_path / "x.html"))[2:] == [
        "Contours of component 1",
        "Contours of component 2",
    ]
    model = bigkpca.KernelPCA(2, size=30, random_state=0).fit(X).partial_fit(X[:50]).model_
    assert facts_of(drawn(model, tmp_path / "t.html"))["rows"].endswith("; 50 added later")


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
@pytest.mark.usefixtures("sketched")
def test_an_accurate_approximation_is_not_called_a_useful_one(tmp_path):
    """Distances between these rows are those of one column: kernel PCA is well known, and knows nothing else."""
    rng, n = np.random.default_rng(5), 900
    table = {"distance": rng.uniform(0, 4000, n), "delay": rng.normal(size=n), "carrier": rng.choice(["UA", "AA"], n)}
    pd.DataFrame(table).to_parquet(tmp_path / "a.parquet")
    bigkpca.ingest(tmp_path / "a.parquet", tmp_path / "x.zarr", categorical="carrier")
    bigkpca.fit(tmp_path / "x.zarr", tmp_path / "m.zarr", n_components=4, size=100, calibration_rows=225)
    page = drawn(tmp_path / "m.zarr", tmp_path / "r.html")
    assert facts_of(page)["approximation"].startswith("accurate")
    captured = facts_of(page)["captured of the columns"]
    assert re.fullmatch(r"9\d\.\d% by 4 scores, .* by PCA \(56 rows that were left out of both\)", captured)
    assert titles_of(page)[1] == "What all scores explain of columns"
    shown = run("info", tmp_path / "m.zarr").stdout
    assert re.search(r"^approximation: accurate, 4 of 4 .* \(how well kernel PCA is known, not how useful", shown, re.M)
    assert re.search(r"^captured of each column: distance 9\d% \(PCA 100%\), .*carrier 0% \(PCA \d+%\)", shown, re.M)
    found = json.loads(run("info", tmp_path / "m.zarr", "--json").stdout)["captured"]
    assert (found["rows"], found["held_out"], found["components"]) == (169, 56, 4)
    assert next(iter(found["columns"])) == "distance"


@pytest.mark.usefixtures("sketched")
def test_flagged_rows_are_counted_listed_and_drawn(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", np.where(np.arange(600)[:, None] == 7, [0, 0, 9], X))
    options = {"n_components": 3, "sigma": "3 median", "size": 40, "calibration_rows": 200}
    bigkpca.fit(tmp_path / "a.npy", tmp_path / "m.zarr", **options)
    for name, flag in (("s", 0.05), ("plain", None)):
        bigkpca.transform(tmp_path / "m.zarr", tmp_path / "b.npy", tmp_path / f"{name}.zarr", flag=flag)
    page = drawn(tmp_path / "m.zarr", tmp_path / "r.html", scores=tmp_path / "s.zarr")
    assert re.match(r"\d+ of 600 rows flagged \([\d.]+%\); expected at most 5%, or up", facts_of(page)["unusual rows"])
    assert re.match(r"row 7 \(\d+\.?\d*, (residual|distance)\), row ", facts_of(page)["most unusual"])
    assert titles_of(page)[-1] == "Unusual rows"
    page = drawn(tmp_path / "m.zarr", tmp_path / "plain.html", scores=tmp_path / "plain.zarr")
    assert "unusual rows" not in facts_of(page)


@pytest.mark.usefixtures("quiet_signals", "sketched")
def test_the_command(small, tmp_path, monkeypatch):
    arguments = ("report", small / "m.zarr", tmp_path / "r.html", "--image-shape", "8,8")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert re.search(r"bytes +\d", result.stdout)
    assert "nothing to do" in run(*arguments).stderr
    refused = run(*arguments[:2], tmp_path / "bad.html", "--image-shape", "8xnine")
    assert refused.exit_code == 2
    assert "'8xnine' is not a list of whole numbers such as 28,28" in refused.stderr
    monkeypatch.setattr(reporting, "installed", lambda: False)
    assert "a report needs matplotlib: pip install 'bigkpca[report]'" in run(*arguments[:2], tmp_path / "n.html").stderr
