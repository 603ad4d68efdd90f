"""The report: what its page says, what it is made from, and when it is made again."""

import os
import re
from html.parser import HTMLParser
from importlib.metadata import version

import numpy as np
import pytest
import zarr
from sklearn.datasets import load_digits

import bigkpca
from bigkpca import reporting
from bigkpca.errors import SpecError
from bigkpca.reporting import report_data
from bigkpca.reporting.report_data import spread_row_numbers
from tests.helpers.commands import run
from tests.reporting.test_report_data import drawn

pytest.importorskip("matplotlib", reason="a report needs matplotlib: pip install 'bigkpca[report]'")
pytest.importorskip("jinja2", reason="a report needs jinja2: pip install 'bigkpca[report]'")


class Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_answers_and_has_every_section(page):
    assert re.search(r"(Good in part|Of limited use): \d of 8 components can be trusted", page)
    assert re.search(r"Together they hold at least \d+\.\d% of the variance \(proven\)", page)
    assert re.search(r"At most \d+\.\d% of the variance is out of reach of its 60 landmarks \(proven\)", page)
    titles = re.findall(r"<h2>(.*?)</h2>", page)
    assert titles == [
        "Is it good?", "What did it find?", "What do the components mean?", "What do they keep of a row?",
        "What is new?", "How was it made?",
    ]  # fmt: skip
    for word in (
        "1 over the rows, beside a sample",
        "MB at most in a process",
        "median pair",
        "kmeans",
        "seed",
        "1,797 × 64, uint8",
        f"bigkpca {version('bigkpca')}",
    ):
        assert word in page


def test_the_page_needs_nothing_else(page):
    elements = Elements(page)
    sources = [value for _, at in elements.found for key, value in at.items() if key.split(":")[-1] in ("src", "href")]
    assert sources
    assert all(value is not None and value.startswith(("data:", "#")) for value in sources)
    assert not elements.named("script")
    assert len(page) < 1_000_000


def test_every_figure_has_words_and_ids_of_its_own(page):
    elements = Elements(page)
    drawings, images = elements.named("svg"), elements.named("img")
    assert len(drawings) == 7  # spectrum, share, trust, learning curve, two maps, residuals
    assert len(images) == 6 * 3 + 1 + 1  # walks and extremes of six components, pre-images, novelties
    ids = [at["id"] for _, at in elements.found if at.get("id")]
    assert len(ids) == len(set(ids))
    for at in drawings:
        assert at["role"] == "img"
        title = re.search(rf'<title id="{at["aria-labelledby"]}">(.*?)</title>', page)
        assert title
        assert re.search(r"\d", title[1])
    assert all(re.search(r"\d", at["alt"] or "") for at in images)
    assert "#12345" not in page  # every stand-in became a variable of the page


def test_extreme_rows_and_labels_are_the_right_ones(place, page):
    scores = np.asarray(zarr.open(place / "s.zarr")["scores"][:])
    labels = np.load(place / "labels.npy")
    lowest = np.argsort(scores[:, 0], kind="stable")[:6]
    assert "Lowest scores: rows " + ", ".join(f"{row:,} ({labels[row]})" for row in lowest) in page
    residual = np.asarray(zarr.open(place / "s.zarr")["residual"][:])
    assert f"Largest first: rows {residual.argmax():,} ({labels[residual.argmax()]})" in page


@pytest.mark.usefixtures("sketched")
def test_the_same_report_is_left_alone_and_others_are_not_replaced(place, tmp_path, monkeypatch):
    model, other = place / "few.zarr", place / "others.zarr"  # of two components: quickly drawn
    for path, seed in ((model, 0), (other, 1)):
        bigkpca.fit(np.load(place / "digits.npy")[:60].reshape(60, 64), path, components=2, size=20, seed=seed)
    out, Y = tmp_path / "r.html", np.zeros((60, 2))
    bigkpca.report(model, out)
    first = out.stat()
    bigkpca.report(model, out)
    assert out.stat().st_mtime_ns == first.st_mtime_ns
    with monkeypatch.context() as nothing_is_drawn:  # to find out that something is in the way
        nothing_is_drawn.setattr(reporting, "collect_report_data", None)
        bigkpca.report(model, out)
        for asked in ({"model": other}, {"model": model, "image_shape": (8, 8)}, {"model": model, "scores": Y}):
            with pytest.raises(SpecError, match="is in the way: it is another report"):
                bigkpca.report(**asked, out=out)
    bigkpca.report(other, out, overwrite=True)
    assert out.stat().st_mtime_ns > first.st_mtime_ns
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html"]
    out.write_text("somebody's own page")
    with pytest.raises(SpecError, match="was not made by bigkpca report, so it is never replaced"):
        bigkpca.report(model, out, overwrite=True)
    with pytest.raises(SpecError, match="is a folder"):
        bigkpca.report(model, tmp_path)
    with pytest.raises(SpecError, match="its folder does not exist"):
        bigkpca.report(model, tmp_path / "none" / "r.html")
    with pytest.raises(SpecError, match=r"r\.pdf: a report is a page of HTML: take a name that ends in \.html"):
        bigkpca.report(model, tmp_path / "r.pdf")


@pytest.mark.usefixtures("sketched")
def test_projected_rows_give_the_same_page_as_their_scores(place, tmp_path):
    text, given = (
        drawn(place / "m.zarr", tmp_path / "a.html"),
        drawn(place / "m.zarr", tmp_path / "b.html", scores=place / "s.zarr"),
    )
    rows = r"(?:Lowest|Highest) scores: rows [^<]*"
    assert re.findall(rows, text) == re.findall(rows, given)
    assert "What is new?" not in text  # residuals are in feature stores alone


@pytest.mark.usefixtures("sketched")
def test_a_model_whose_data_are_gone(place, tmp_path):
    rows = load_digits().data[:300]
    np.save(tmp_path / "x.npy", rows)
    model = bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", components=4, size=20)
    np.save(tmp_path / "s.npy", np.concatenate(list(model.project([rows], 300))))
    os.rename(tmp_path / "x.npy", tmp_path / "elsewhere.npy")
    text = drawn(tmp_path / "m.zarr", tmp_path / "r.html", image_shape=(8, 8))
    assert "the rows cannot be read" in text
    assert "give --scores" in text
    assert "What did it find?" not in text
    assert "Along the axis, −3 to 3" in text  # these need no rows
    text = drawn(tmp_path / "m.zarr", tmp_path / "t.html", scores=tmp_path / "s.npy")
    assert "lowest score" in text  # a table in place of pictures
    assert "no pictures: rows have no image shape" in text
    with pytest.raises(SpecError, match="labels need rows, and there are none"):
        bigkpca.report(tmp_path / "m.zarr", tmp_path / "u.html", labels=place / "labels.npy")


@pytest.mark.usefixtures("sketched")
def test_rows_that_changed_are_said_to(tmp_path):
    rows = load_digits().data[:300]
    np.save(tmp_path / "x.npy", rows)
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", components=3, size=20)
    np.save(tmp_path / "s.npy", np.zeros((400, 3)))
    assert "fewer rows than there are scores" in drawn(
        tmp_path / "m.zarr", tmp_path / "a.html", scores=tmp_path / "s.npy"
    )
    os.utime(tmp_path / "x.npy", (1, 1))
    assert "was written again since" in drawn(tmp_path / "m.zarr", tmp_path / "r.html")
    np.save(tmp_path / "x.npy", rows[:, :60])
    assert "has 60 columns now, and the model takes 64" in drawn(tmp_path / "m.zarr", tmp_path / "s.html")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "rff", "components": 5}, "The kernel matrix is off by"),
        ({"method": "exact", "components": 5}, "Exact: the whole Gram matrix was solved"),
        ({"refine": 1, "size": 40, "components": 5}, "The largest relative residual is"),
        ({"method": "columns", "size": 40, "components": 5}, "out of reach of its 40 landmarks"),
        ({"kernel": "linear", "size": 40, "components": 2}, "out of reach"),
        ({"size": 40, "components": 1}, "Component 1 holds"),
        ({"kernel": "laplacian", "size": 4, "components": 3}, "doubtful"),
    ],
)
def test_every_method_has_a_page(tmp_path, options, says):
    np.save(tmp_path / "x.npy", load_digits().data[:500])
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", **options)
    assert says in drawn(tmp_path / "m.zarr", tmp_path / "r.html", image_shape=(8, 8))


@pytest.mark.usefixtures("sketched")
def test_rows_in_memory_and_kernels_without_a_way_back(tmp_path):
    X = load_digits().data[:200]
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 2000)
    model = bigkpca.KernelPCA(3, kernel="precomputed", method="exact").fit(K).model_
    text = drawn(model, tmp_path / "r.html")
    assert "Kernel PCA of an array" in text
    assert "the rows were in memory and were not kept" in text
    assert "no pictures" in text
    np.save(tmp_path / "k.npy", K)
    bigkpca.fit(tmp_path / "k.npy", tmp_path / "k.zarr", components=3, kernel="precomputed", method="exact")
    assert "Scores of all 200 rows" in drawn(tmp_path / "k.zarr", tmp_path / "k.html")
    model = bigkpca.KernelPCA(3, kernel="sigmoid", gamma=1e-5, size=30, random_state=0).fit(X).model_
    assert "no pre-images: " in drawn(model, tmp_path / "s.html", image_shape=(8, 8))
    model = bigkpca.KernelPCA(3, size=30, random_state=0).fit(X).partial_fit(X[:50]).model_
    assert re.search(r"rows added later</dt><dd>50<", drawn(model, tmp_path / "t.html"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "short.npy"}, r"short.npy holds 10 labels, and there are 1,797 rows"),
        ({"labels": "table.npy"}, r"holds an array of shape \(10, 2\), and there are 1,797 rows"),
        ({"labels": "objects.npy"}, "labels cannot be read from"),
        ({"labels": "nothing"}, "holds no array 'nothing', but"),
        ({"labels": "no/such.npy"}, "no labels at no/such.npy: give a .npy file"),
        ({"labels": "m.zarr"}, "m.zarr holds no array 'y'"),
        ({"labels": "x.npy.d"}, "is not a Zarr array or group"),
        ({"labels": "s.zarr/scores"}, r"has shape \(1797, 8\): one value for each row"),
        ({"image_shape": (8, 7)}, "an image shape of 8 × 7 makes 56 values, and rows have 64"),
        ({"image_shape": (64,)}, "give height and width"),
        ({"scores": "short.npy"}, "rows must be two-dimensional"),
        ({"scores": "table.npy"}, "but the model has 8 components"),
        ({"scores": "other.zarr"}, "holds scores of the model"),
    ],
)
def test_what_does_not_fit_is_refused(place, monkeypatch, options, message):
    monkeypatch.chdir(place)
    np.save("short.npy", np.zeros(10))
    np.save("table.npy", np.zeros((10, 2)))
    np.save("objects.npy", np.array([None, "a"], dtype=object))
    os.makedirs("x.npy.d", exist_ok=True)
    if "other.zarr" in options.values() and not os.path.exists("other.zarr"):
        bigkpca.fit("d.zarr", "n.zarr", components=8, size=50)
        bigkpca.transform("n.zarr", "d.zarr", "other.zarr")
    with pytest.raises(ValueError, match=message):
        bigkpca.report("m.zarr", "bad.html", **options)
    assert not os.path.exists("bad.html")


def test_what_is_missing_can_be_installed(place, tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "find_spec", lambda name: None if name == "jinja2" else name)
    with pytest.raises(SpecError, match=re.escape("needs matplotlib and jinja2: pip install 'bigkpca[report]'")):
        bigkpca.report(place / "m.zarr", tmp_path / "r.html")


def test_few_rows_are_read_of_many():
    assert spread_row_numbers(5, 10).tolist() == [0, 1, 2, 3, 4]
    for n in (65_537, 10_000_000):
        numbers = spread_row_numbers(n, 65_536)
        assert 65_536 * 0.9 < len(numbers) <= 65_536
        assert numbers[0] == 0
        assert numbers[-1] == n - 1
        assert (np.diff(numbers) > 0).all()
        assert np.count_nonzero(np.diff(numbers) > 1) < 64
    assert len(spread_row_numbers(1000, 10)) <= 64


@pytest.mark.usefixtures("sketched")
def test_a_sample_is_said_to_be_one(place, tmp_path, monkeypatch):
    monkeypatch.setattr(report_data, "_MAX_SCORES", 640)
    text = drawn(place / "m.zarr", tmp_path / "r.html", scores=place / "s.zarr")
    assert "Scores of 640 of 1,797 rows, in 64 evenly spaced stretches." in text
    scores, labels = np.asarray(zarr.open(place / "s.zarr")["scores"][:]), np.load(place / "labels.npy")
    numbers = spread_row_numbers(1797, 640)
    lowest = numbers[np.argsort(scores[numbers, 1], kind="stable")[:6]]
    assert "Lowest scores: rows " + ", ".join(f"{row:,} ({labels[row]})" for row in lowest) in text


@pytest.mark.usefixtures("quiet_signals")
def test_the_command(place, tmp_path):
    out = tmp_path / "r.html"
    arguments = ("report", place / "m.zarr", out, "--scores", place / "s.zarr", "--labels", "y", "--image-shape", "8,8")
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert re.search(r"bytes +0\.\d MB", result.stdout)
    again = run(*arguments)
    assert again.exit_code == 0
    assert "nothing to do" in again.stderr
    for bad, message in (("8,9", "makes 72 values, and rows have 64"), ("8xnine", "give height and width, e.g. 28,28")):
        refused = run("report", place / "m.zarr", tmp_path / "bad.html", "--image-shape", bad)
        assert refused.exit_code == 2
        assert message in refused.stderr
