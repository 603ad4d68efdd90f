"""The report: what its page says, what it is made from, and when it is made again."""

import os
import re
from importlib.metadata import version

import numpy as np
import pytest
import zarr
from sklearn.datasets import load_digits

import bigkpca
from bigkpca import reporting
from bigkpca.errors import SpecError
from bigkpca.plots.rows import spread_row_numbers
from tests.helpers.commands import run
from tests.helpers.progress import Recorder
from tests.reporting.conftest import drawn


def test_the_page_answers_and_has_every_section(page):
    tiles = dict(re.findall(r"<p>([^<]*)</p><strong>([^<]*)</strong>", page))
    assert list(tiles) == [
        "Approximation", "Error of approximation", "Captured in feature space", "Captured of the columns",
    ]  # fmt: skip
    assert tiles["Approximation"] == "Accurate"
    assert re.match(r"at most \d+\.\d%$", tiles["Error of approximation"])
    assert re.match(r"at least \d+\.\d%$", tiles["Captured in feature space"])
    assert re.match(r"\d\d%, PCA \d\d%$", tiles["Captured of the columns"])
    assert page.index("<summary>Digests and all options") < page.index("digest of the model") < page.index("</main>")
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles == [
        "How accurate is it?", "What do they capture?", "What did it find?", "What do the components mean?",
        "What do they keep of a row?", "What is new?", "How was it made?",
    ]  # fmt: skip
    for word in ("1 over the rows, beside a sample", "MB of arrays at most", "median distance", "kmeans", "seed",
                 "1,797 × 64, uint8", f"bigkpca {version('bigkpca')}"):  # fmt: skip
        assert word in page


def test_every_figure_has_words_and_ids_of_its_own(page):
    drawings = re.findall(r'<svg [^>]*role="img"[^>]*aria-labelledby="(.*?)"', page)
    assert len(drawings) == page.count("<svg ") == 6  # spectrum, share, trust, two maps, residuals
    titles = [re.search(rf'<title id="{name}">(.*?)</title>', page)[1] for name in drawings]
    images = re.findall(r'<img [^>]*alt="([^"]*)"', page)
    assert len(images) == 6 * 3 + 1 + 1  # walks and extremes of six components, pre-images, novelties
    assert all(re.search(r"\d", words) for words in titles + images)
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "#12345" not in page  # every stand-in became a variable of the page
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(each.startswith(("data:", "#")) for each in sources)  # the page needs nothing else
    assert "<script" not in page
    assert len(page) < 1_000_000


def test_extreme_rows_and_labels_are_the_right_ones(place, page):
    scores = np.asarray(zarr.open(place / "s.zarr")["scores"][:])
    labels = np.load(place / "labels.npy")
    lowest = np.argsort(scores[:, 0], kind="stable")[:6]
    assert "Labels explain" in page
    assert "RowLabels" not in page
    assert "Lowest scores: rows " + ", ".join(f"{row:,} ({labels[row]})" for row in lowest) in page
    residual = np.asarray(zarr.open(place / "s.zarr")["residual"][:])
    assert f"Largest first: rows {residual.argmax():,} ({labels[residual.argmax()]})" in page


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The digits of a model of two components: quickly drawn."""
    folder = tmp_path_factory.mktemp("small")
    np.save(folder / "x.npy", load_digits().data[:60])
    bigkpca.fit(folder / "x.npy", folder / "m.zarr", n_components=2, size=20)
    return folder


@pytest.mark.usefixtures("sketched")
def test_the_same_report_is_left_alone_and_others_are_not_replaced(small, tmp_path, monkeypatch):
    model, out = small / "m.zarr", tmp_path / "r.html"
    other = bigkpca.load(model).leading(1)
    bigkpca.report(model, out)
    first = out.read_bytes()
    with monkeypatch.context() as nothing_is_drawn:  # to find out that a file exists already
        nothing_is_drawn.setattr(reporting, "collect_report_data", None)
        bigkpca.report(model, out)
        scores = np.zeros((60, 2))
        for asked in ({"model": other}, {"model": model, "image_shape": (8, 8)}, {"model": model, "scores": scores}):
            with pytest.raises(SpecError, match="already exists: it is another report"):
                bigkpca.report(**asked, out=out)
    assert out.read_bytes() == first
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


@pytest.mark.usefixtures("sketched")
def test_it_tells_what_it_reads_and_draws(small, tmp_path):
    shown = Recorder()
    bigkpca.report(small / "m.zarr", tmp_path / "r.html", scores=np.zeros((60, 2)), progress=shown)
    assert shown.notes[0] == "reading 60 of 60 scores"
    assert shown.started[0] == ("reading scores", 60)
    assert shown.finished == len(shown.started)
    assert shown.rows == sum(rows for _, rows in shown.started)
    titles = re.findall("<h2>(.*?)</h2>", (tmp_path / "r.html").read_text("utf-8"))
    assert shown.notes[1:] == [f"drawn: {title}" for title in titles if title.endswith("?")][:-1]
    assert len(titles) > 3


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
def test_projected_rows_give_the_same_page_as_their_scores(small, tmp_path):
    model = bigkpca.load(small / "m.zarr")
    np.save(tmp_path / "s.npy", np.concatenate(list(model.project([np.load(small / "x.npy")], 60))))
    text = drawn(small / "m.zarr", tmp_path / "a.html", image_shape=(8, 8))
    given = drawn(small / "m.zarr", tmp_path / "b.html", scores=tmp_path / "s.npy", image_shape=(8, 8))
    table = drawn(small / "m.zarr", tmp_path / "c.html")
    rows = r"(?:Lowest|Highest) scores: rows [^<]*"
    assert re.findall(rows, text) == re.findall(rows, given) != []
    assert "What is new?" not in text  # residuals are in feature stores alone
    assert "lowest score" in table  # in place of pictures
    assert "no pictures: rows have no image shape" in table


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
def test_rows_that_are_gone_or_have_changed_are_said_to(small, place, tmp_path):
    np.save(tmp_path / "x.npy", load_digits().data[:60])
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", n_components=2, size=20)
    np.save(tmp_path / "s.npy", np.zeros((80, 2)))

    def page(number, **options):
        return drawn(tmp_path / "m.zarr", tmp_path / f"{number}.html", **options)

    assert "fewer rows than there are scores" in page(1, scores=tmp_path / "s.npy")
    os.utime(tmp_path / "x.npy", (1, 1))
    assert "was written again since" in page(2)
    np.save(tmp_path / "x.npy", load_digits().data[:60, :60])
    assert "has 60 columns now, and the model takes 64" in page(3)
    (tmp_path / "x.npy").unlink()
    text = page(4, image_shape=(8, 8))
    assert "the rows cannot be read" in text
    assert "give --scores" in text
    assert "What did it find?" not in text
    assert "Along the axis, −2 to 2" in text  # these need no rows
    with pytest.raises(SpecError, match="labels need rows, and there are none"):
        page(5, labels=place / "labels.npy")


@pytest.mark.filterwarnings("ignore::bigkpca.errors.IndefiniteKernelWarning")
@pytest.mark.usefixtures("sketched")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "rff", "size": 100, "n_components": 2}, "<strong>not known</strong>"),
        ({"refine": 1, "size": 20, "n_components": 2}, "Largest relative residual of a component (proven)"),
        ({"size": 20, "n_components": 1}, "Component 1 holds"),
        ({"kernel": "laplacian", "size": 4, "n_components": 3}, "doubtful"),
        ({"kernel": "sigmoid", "gamma": 1e-5, "size": 30, "n_components": 2}, "no pre-images: "),
    ],
)
def test_every_kind_of_model_has_a_page(options, says, tmp_path):
    model = bigkpca.KernelPCA(random_state=0, **options).fit(load_digits().data[:200]).model_
    text = drawn(model, tmp_path / "r.html", image_shape=(8, 8))
    assert says in text
    assert "Kernel PCA of an array" in text
    assert "the rows were in memory and were not kept" in text


@pytest.mark.usefixtures("sketched")
def test_precomputed_kernels_and_added_rows(tmp_path):
    X = load_digits().data[:100]
    np.save(tmp_path / "k.npy", np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2000))
    bigkpca.fit(tmp_path / "k.npy", tmp_path / "k.zarr", n_components=2, kernel="precomputed", method="exact")
    text = drawn(tmp_path / "k.zarr", tmp_path / "k.html")
    assert "Scores of all 100 rows" in text
    assert "no pictures" in text
    model = bigkpca.KernelPCA(2, size=30, random_state=0).fit(X).partial_fit(X[:50]).model_
    assert re.search(r"rows added later</dt><dd>50<", drawn(model, tmp_path / "t.html"))


@pytest.mark.full
def test_what_does_not_fit_is_refused(place, monkeypatch):
    monkeypatch.chdir(place)
    np.save("short.npy", np.zeros(10))
    np.save("table.npy", np.zeros((10, 2)))
    np.save("objects.npy", np.array([None, "a"], dtype=object))
    os.makedirs("x.npy.d", exist_ok=True)
    bigkpca.fit("d.zarr", "n.zarr", n_components=8, size=16)
    bigkpca.transform("n.zarr", "d.zarr", "other.zarr")
    for options, message in (
        ({"labels": "short.npy"}, r"short.npy holds 10 labels, and there are 1,797 rows"),
        ({"labels": "table.npy"}, r"holds an array of shape \(10, 2\), and there are 1,797 rows"),
        ({"labels": "objects.npy"}, "labels cannot be read from"),
        ({"labels": "nothing"}, "does not contain an array 'nothing', but"),
        ({"labels": "no/such.npy"}, "no labels at no/such.npy: give a .npy file"),
        ({"labels": "m.zarr"}, "m.zarr does not contain an array 'y'"),
        ({"labels": "x.npy.d"}, "is not a Zarr array or group"),
        ({"labels": "s.zarr/scores"}, r"has shape \(1797, 8\): one value per row"),
        ({"labels": [0] * 1797}, "labels must be a path or a name, not list"),
        ({"image_shape": (8, 7)}, "an image shape of 8 × 7 makes 56 values, and rows have 64"),
        ({"image_shape": (64,)}, "give height and width"),
        ({"scores": "short.npy"}, "rows must be two-dimensional"),
        ({"scores": "table.npy"}, "but the model has 8 components"),
        ({"scores": "other.zarr"}, "holds scores of the model"),
    ):
        with pytest.raises(ValueError, match=message):
            bigkpca.report("m.zarr", "bad.html", **options)
        assert not os.path.exists("bad.html")
    monkeypatch.setattr(reporting, "find_spec", lambda name: None if name == "jinja2" else name)
    with pytest.raises(SpecError, match=re.escape("needs matplotlib and jinja2: pip install 'bigkpca[report]'")):
        bigkpca.report("m.zarr", "bad.html")


def test_few_rows_are_read_of_many():
    assert spread_row_numbers(5, 10).tolist() == [0, 1, 2, 3, 4]
    for n in (65_537, 10_000_000):
        numbers = spread_row_numbers(n, 65_536)
        assert 65_536 * 0.9 < len(numbers) <= 65_536
        assert (numbers[0], numbers[-1]) == (0, n - 1)
        assert (np.diff(numbers) > 0).all()
        assert np.count_nonzero(np.diff(numbers) > 1) < 64


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
def test_a_sample_is_said_to_be_one(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(70_000, 2)))
    options = {"n_components": 2, "size": 20, "transform": tmp_path / "s.zarr"}
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", **options)
    text = drawn(tmp_path / "m.zarr", tmp_path / "r.html", scores=tmp_path / "s.zarr")
    assert re.search(r"Scores of 65,\d{3} of 70,000 rows, in 64 evenly spaced stretches\.", text)
    scores, numbers = np.asarray(zarr.open(tmp_path / "s.zarr")["scores"][:]), spread_row_numbers(70_000, 65_536)
    lowest = numbers[np.argsort(scores[numbers, 1], kind="stable")[:6]]
    assert all(f'<td data-name="row">{row:,}</td>' in text for row in lowest)


@pytest.mark.usefixtures("quiet_signals", "sketched")
def test_the_command(small, tmp_path):
    arguments = ("report", small / "m.zarr", tmp_path / "r.html", "--image-shape", "8,8")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert re.search(r"bytes +\d", result.stdout)
    assert "nothing to do" in run(*arguments).stderr
    refused = run(*arguments[:2], tmp_path / "bad.html", "--image-shape", "8xnine")
    assert refused.exit_code == 2
    assert "give height and width, e.g. 28,28" in refused.stderr
