"""The report: what it says, what it is drawn from, and whether a browser shows it without complaint."""

from __future__ import annotations

import base64
import html
import io
import os
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner, Result
from sklearn.datasets import load_digits

import bigkpca
from bigkpca import reporting
from bigkpca.cli import main
from bigkpca.errors import SpecError
from bigkpca.execution.progress import Silent
from bigkpca.ingesting.streaming import ingest
from bigkpca.reporting import figures, pictures, report_data, sections, text
from bigkpca.reporting.drawing import Drawing
from bigkpca.reporting.report_data import Labels, spread_row_numbers

pytest.importorskip("matplotlib", reason="a report needs matplotlib: pip install 'bigkpca[report]'")
pytest.importorskip("jinja2", reason="a report needs jinja2: pip install 'bigkpca[report]'")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits (1797, 8, 8) and their labels ingested, a model, and scores with residuals."""
    folder = tmp_path_factory.mktemp("report")
    digits = load_digits()
    np.save(folder / "digits.npy", digits.images.astype(np.uint8))
    np.save(folder / "labels.npy", digits.target)
    ingest([folder / "digits.npy"], folder / "d.zarr", labels=str(folder / "labels.npy"))
    bigkpca.fit(folder / "d.zarr", folder / "m.zarr", components=8, size=60)
    bigkpca.transform(folder / "m.zarr", folder / "d.zarr", folder / "s.zarr", residual=True)
    return folder


@pytest.fixture(scope="module")
def page(place: Path) -> str:
    """The whole report."""
    return Path(bigkpca.report(place / "m.zarr", place / "r.html", scores=place / "s.zarr")).read_text("utf-8")


def drawn(model: Any, out: Path, **options: Any) -> str:
    """The page, with entities turned into what a reader sees."""
    return html.unescape(Path(bigkpca.report(model, out, **options)).read_text("utf-8"))


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures without their lines, for tests of what is around them: drawing takes most of a report's time."""
    monkeypatch.setattr(figures, "drawing", lambda figure, name, alt: Drawing("<svg></svg>", alt))


class Elements(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_answers_and_has_every_section(page: str) -> None:
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


def test_the_page_needs_nothing_else(page: str) -> None:
    elements = Elements(page)
    sources = [value for _, at in elements.found for key, value in at.items() if key.split(":")[-1] in ("src", "href")]
    assert sources
    assert all(value is not None and value.startswith(("data:", "#")) for value in sources)
    assert not elements.named("script")
    assert len(page) < 1_000_000


def test_every_figure_has_words_and_ids_of_its_own(page: str) -> None:
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


def test_extreme_rows_and_labels_are_the_right_ones(place: Path, page: str) -> None:
    scores = np.asarray(zarr.open(place / "s.zarr")["scores"][:])
    labels = np.load(place / "labels.npy")
    lowest = np.argsort(scores[:, 0], kind="stable")[:6]
    assert "Lowest scores: rows " + ", ".join(f"{row:,} ({labels[row]})" for row in lowest) in page
    residual = np.asarray(zarr.open(place / "s.zarr")["residual"][:])
    assert f"Largest first: rows {residual.argmax():,} ({labels[residual.argmax()]})" in page


@pytest.mark.usefixtures("sketched")
def test_the_same_report_is_left_alone_and_others_are_not_replaced(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.usefixtures("sketched")
def test_projected_rows_give_the_same_page_as_their_scores(place: Path, tmp_path: Path) -> None:
    text, given = (
        drawn(place / "m.zarr", tmp_path / "a.html"),
        drawn(place / "m.zarr", tmp_path / "b.html", scores=place / "s.zarr"),
    )
    rows = r"(?:Lowest|Highest) scores: rows [^<]*"
    assert re.findall(rows, text) == re.findall(rows, given)
    assert "What is new?" not in text  # residuals are in feature stores alone


@pytest.mark.usefixtures("sketched")
def test_a_model_whose_data_are_gone(place: Path, tmp_path: Path) -> None:
    rows = load_digits().data[:300]
    np.save(tmp_path / "x.npy", rows)
    model = bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", components=4, size=20)
    np.save(tmp_path / "s.npy", np.concatenate(list(model.project([rows], 300))))
    os.rename(tmp_path / "x.npy", tmp_path / "elsewhere.npy")
    text = drawn(tmp_path / "m.zarr", tmp_path / "r.html", image_shape=(8, 8))
    assert "the rows cannot be read" in text
    assert "give --scores" in text
    assert "What did it find?" not in text
    assert "Walk from −3 to 3" in text  # these need no rows
    text = drawn(tmp_path / "m.zarr", tmp_path / "t.html", scores=tmp_path / "s.npy")
    assert "lowest score" in text  # a table in place of pictures
    assert "no pictures: rows have no image shape" in text
    with pytest.raises(SpecError, match="labels need rows to belong to, and there are none"):
        bigkpca.report(tmp_path / "m.zarr", tmp_path / "u.html", labels=place / "labels.npy")


@pytest.mark.usefixtures("sketched")
def test_rows_that_changed_are_said_to(tmp_path: Path) -> None:
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
def test_every_method_has_a_page(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    np.save(tmp_path / "x.npy", load_digits().data[:500])
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", **options)
    assert says in drawn(tmp_path / "m.zarr", tmp_path / "r.html", image_shape=(8, 8))


@pytest.mark.usefixtures("sketched")
def test_rows_in_memory_and_kernels_without_a_way_back(tmp_path: Path) -> None:
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


def test_labels_from_everywhere(place: Path, tmp_path: Path) -> None:
    model = bigkpca.load(str(place / "m.zarr"))
    for labels in (place / "labels.npy", "y", place / "d.zarr", place / "d.zarr" / "y"):
        found = report_data.collect_report_data(model, None, labels, None, None, Silent())
        assert found.labels is not None
        np.testing.assert_array_equal(found.labels.values, load_digits().target[found.numbers].astype(str))


@pytest.mark.usefixtures("sketched")
def test_other_labels_and_rows_make_another_report(tmp_path: Path) -> None:
    rows, labels = load_digits().data[:60], np.arange(60) % 3
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", labels)
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "m.zarr", components=2, size=20)
    out, given = tmp_path / "r.html", {"labels": tmp_path / "y.npy"}
    bigkpca.report(tmp_path / "m.zarr", out, **given)
    first = out.read_bytes()
    bigkpca.report(tmp_path / "m.zarr", out, **given)
    for changed, values in (("y.npy", labels[::-1]), ("x.npy", rows + 1)):
        np.save(tmp_path / changed, values)
        os.utime(tmp_path / changed, ns=(1, 1))
        with pytest.raises(SpecError, match="is in the way: it is another report"):
            bigkpca.report(tmp_path / "m.zarr", out, **given)
        bigkpca.report(tmp_path / "m.zarr", out, overwrite=True, **given)
        assert out.read_bytes() != first


def test_labels_are_escaped(place: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "words.npy", np.where(np.load(place / "labels.npy") < 5, "<few>", "many"))
    text = Path(bigkpca.report(place / "m.zarr", tmp_path / "e.html", labels=tmp_path / "words.npy")).read_text("utf-8")
    assert "&lt;few&gt;" in text
    assert "<few>" not in text


@pytest.mark.usefixtures("sketched")
def test_labels_with_names_many_kinds_or_numbers(tmp_path: Path) -> None:
    values = np.arange(40)
    lines = [f"{value},{value % 3},{'low' if value < 20 else 'high'}" for value in values]
    (tmp_path / "x.csv").write_text("\n".join(["a,b,kind", *lines]))
    ingest([tmp_path / "x.csv"], tmp_path / "d.zarr", labels="kind")
    bigkpca.fit(tmp_path / "d.zarr", tmp_path / "m.zarr", components=2, size=20)
    text = drawn(tmp_path / "m.zarr", tmp_path / "r.html")
    assert re.search("with (low at the low end and high|high at the low end and low) at the high one", text)
    many = report_data._as_labels(np.repeat(np.arange(12), np.arange(1, 13)), "")
    assert many.names == ("3", "4", "5", "6", "7", "8", "9", "10", "11", "other")
    assert np.count_nonzero(many.values == "other") == 1 + 2 + 3
    numbers = report_data._as_labels(np.linspace(0, 1, 100), "")
    assert numbers.names == ("0 to 0.2", "0.2 to 0.4", "0.4 to 0.6", "0.6 to 0.8", "0.8 to 1")
    assert [np.count_nonzero(numbers.values == name) for name in numbers.names] == [20] * 5


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
def test_what_does_not_fit_is_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
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


def test_what_is_missing_can_be_installed(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "find_spec", lambda name: None if name == "jinja2" else name)
    with pytest.raises(SpecError, match=re.escape("needs matplotlib and jinja2: pip install 'bigkpca[report]'")):
        bigkpca.report(place / "m.zarr", tmp_path / "r.html")


def test_few_rows_are_read_of_many() -> None:
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
def test_a_sample_is_said_to_be_one(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_data, "_MAX_SCORES", 640)
    text = drawn(place / "m.zarr", tmp_path / "r.html", scores=place / "s.zarr")
    assert "Scores of 640 of 1,797 rows, in 64 stretches spread evenly over them." in text
    scores, labels = np.asarray(zarr.open(place / "s.zarr")["scores"][:]), np.load(place / "labels.npy")
    numbers = spread_row_numbers(1797, 640)
    lowest = numbers[np.argsort(scores[numbers, 1], kind="stable")[:6]]
    assert "Lowest scores: rows " + ", ".join(f"{row:,} ({labels[row]})" for row in lowest) in text


def test_pictures_show_rows() -> None:
    from matplotlib.image import imread

    frame = pictures.Frame((2, 3), 0, 10)
    rows = np.array([[0, 5, 10, 0, 0, 0], [10, 10, 10, 20, -5, 0]])
    uri = frame.strip(rows, rows[::-1])
    image = imread(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    assert image.shape == (16 + 1 + 16, 24 + 1 + 24, 4)
    np.testing.assert_allclose(image[:16:8, :24:8, 0], np.array([[0, 0.5, 1], [0, 0, 0]]), atol=1 / 255)
    np.testing.assert_allclose(image[17::8, :24:8, 0], np.array([[1, 1, 1], [1, 0, 0]]), atol=1 / 255)
    assert image[16, 0, 3] == 0  # a gap
    assert image[0, 0, 3] == 1
    large = pictures.Frame((200, 100, 3), 0, 1)
    assert large.pictures(np.zeros((1, 60_000))).shape == (1, 67, 34, 3)
    flat = pictures.Frame.of((1, 2), np.full((4, 2), 3.0))
    assert (flat.black, flat.white) == (3, 4)
    sparse = pictures.Frame.of((1, 2), np.eye(1, 100_000).reshape(-1, 2))
    assert (sparse.black, sparse.white) == (0, 1)


def test_labels_explain_what_they_explain() -> None:
    labels = Labels(np.array(["a", "a", "b", "b"]), ("a", "b"))
    scores = np.array([[1.0, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0]])
    np.testing.assert_allclose(text.explained_by_labels(scores, labels), [1, 0, 0])
    assert text.extreme_labels(scores[:, 0], labels) == "with b at the low end and a at the high one"


SOUND, SHAKY = "solid", "doubtful"


@pytest.mark.parametrize(
    ("trust", "shares", "says"),
    [
        ([SOUND] * 8, [0.1] * 8, "Good: all 8 components can be trusted."),
        ([SOUND], [0.9], "Good: its only component can be trusted."),
        ([SOUND, "fair", SHAKY, SHAKY], [0.8, 0.15, 0.003, 0.002], "Good: 2 of 4 components can be trusted, and those "
         "hold 99.4% of what all do."),
        ([SHAKY, SOUND], [0.02, 0.9], "Good: 1 of 2 components can be trusted, and those hold 97.8% of what all do."),
        ([SOUND] * 8, [0.03] * 8, "Sound but incomplete: all 8 components can be trusted, but most of the variance lies"
         " outside."),
        ([SOUND, SOUND, SHAKY], [0.3, 0.3, 0.2], "Good in part: 2 of 3 components can be trusted, and those hold 75.0% "
         "of what all do; a larger size would help."),
        ([SOUND, SHAKY], [0.03, 0.02], "Of limited use: 1 of 2 components can be trusted, and those hold 60.0% of what "
         "all do; a larger size would help."),
        ([SHAKY, SOUND], [0.6, 0.3], "Not good: only 1 of 2 components can be trusted, and those hold 33.3% of what all"
         " do; a larger size would help."),
        ([SHAKY, SHAKY], [0.6, 0.3], "Not good: no component can be trusted; a larger size would help."),
    ],
)  # fmt: skip
def test_the_verdict_weighs_components_by_what_they_hold(trust: list[str], shares: list[float], says: str) -> None:
    assert text.components_verdict(tuple(trust), np.array(shares), "a larger size") == says


def test_doubtful_components_that_hold_next_to_nothing_do_not_spoil_a_model() -> None:
    rng = np.random.default_rng(0)
    amounts = np.stack([rng.exponential(10, 1500), rng.integers(0, 24, 1500), rng.normal(0, 1, 1500),
                        rng.gamma(1, 100, 1500)], axis=1)  # fmt: skip
    model = bigkpca.KernelPCA(40, size=300, random_state=0).fit(amounts).model_
    assert "doubtful" in (model.certificate.trust or ())
    said = text.verdict(model)
    assert re.match(
        r"Good: \d+ of 40 components can be trusted, and those hold 9\d\.\d% of what all do\. Trust: ", said
    )
    assert re.search(r"doubtful \(estimated\); the first doubtful one is component \d+\.", said)
    assert re.search(
        r"Together they hold at least 9\d\.\d% of the variance \(proven\)\. Further components would", said
    )
    assert "To hold more" not in said


def test_trustworthy_components_that_hold_little_are_called_incomplete(digits: np.ndarray[Any, Any]) -> None:
    few = bigkpca.KernelPCA(4, size=600, random_state=0).fit(digits).model_
    said = text.verdict(few)
    assert said.startswith("Sound but incomplete: all 4 components can be trusted, but most of the variance lies outsi")
    assert re.search(r"Further components would hold about \d\d\.\d%\.", said)
    assert "To hold more, keep more components or take a longer sigma." in said
    narrow = bigkpca.KernelPCA(4, size=100, sigma=18.0, random_state=0).fit(digits).model_
    assert "To hold more, fit with a larger size or take a longer sigma." in text.verdict(narrow)


def test_exact_is_said_of_the_method_and_not_of_a_number(digits: np.ndarray[Any, Any]) -> None:
    landmarks = bigkpca.KernelPCA(9, kernel="linear", size=80, dtype="float64", random_state=0).fit(digits[:300]).model_
    rounded = replace(landmarks, certificate=replace(landmarks.certificate, trace_error=0.0, relative_trace_error=0.0))
    for model in (landmarks, rounded):
        said = text.verdict(model)
        assert said.startswith("Good: all 9 components can be trusted.")
        assert "Less than 0.1% of the variance is out of reach of its" in said
        assert "Exact" not in said
        assert figures.trust(model) is not None
    exact = bigkpca.KernelPCA(3, method="exact", random_state=0).fit(digits[:300]).model_
    assert text.verdict(exact).startswith("Exact: the whole Gram matrix was solved, there is no error of approximation")
    assert "landmarks" not in text.verdict(exact)
    assert figures.trust(exact) is None


def test_the_last_point_of_the_learning_curve_is_the_bound(digits: np.ndarray[Any, Any]) -> None:
    model = bigkpca.KernelPCA(4, size=100, random_state=0).fit(digits).model_
    curve = figures.learning_curve(model)
    assert curve is not None
    shown = float(re.search(r"([\d.]+)% with 100\.$", curve.alt)[1])  # type: ignore[index]
    assert shown / 100 >= model.certificate.relative_trace_error  # type: ignore[operator]


def test_what_other_components_hold_is_not_said_of_these(digits: np.ndarray[Any, Any]) -> None:
    own = bigkpca.KernelPCA(4, size=100, random_state=0).fit(digits[:300]).model_
    columns = bigkpca.KernelPCA(4, size=100, method="columns", random_state=0).fit(digits[:300]).model_
    assert re.search(r"Together they hold at least \d\d\.\d% of the variance \(proven\)", text.verdict(own))
    assert re.search(r"The first 4 exact components hold at least \d\d\.\d% of the va", text.verdict(columns))


def test_bounds_in_the_table_are_no_nearer_than_they_are(digits: np.ndarray[Any, Any]) -> None:
    certificate = (model := bigkpca.KernelPCA(20, size=100, random_state=0).fit(digits).model_).certificate
    table = sections.quality(model).table
    shown = dict(zip(table.head, np.array(table.rows).T, strict=True))
    assert (shown["proven at least"].astype(float) <= certificate.eigenvalue_lower).all()
    assert (shown["proven at most"].astype(float) >= certificate.eigenvalue_upper).all()
    assert (shown["at most, 95%"].astype(float) >= certificate.eigenvalue_likely_upper).all()


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("quiet_signals")
def test_the_command(place: Path, tmp_path: Path) -> None:
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


# The page in a frame as wide as a phone or a desktop; what its script finds stays in the DOM that the browser prints.
_WRAPPER = """<!doctype html><title>wrapper</title><style>body {{ margin: 0 }} iframe {{ border: 0 }}</style>
<iframe id="page" src="{name}" width="{width}" height="2000"></iframe><pre id="found"></pre>
<script>
addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const shown = [...page.querySelectorAll("svg, img")].filter((one) => one.getBoundingClientRect().height > 20);
  document.getElementById("found").textContent = JSON.stringify([
    page.documentElement.scrollWidth, shown.length, page.defaultView.getComputedStyle(page.body).backgroundColor,
  ]);
}});
</script>"""


def browse(address: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What headless chromium makes of a file; skips the test where there is none."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    quiet = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --hide-scrollbars"
    own = f"--allow-file-access-from-files --enable-logging=stderr --user-data-dir={address.parent / 'profile'}"
    command = [browser, *quiet.split(), *own.split(), *options, address.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it_without_a_complaint(page: str, tmp_path: Path, width: int, scheme: str) -> None:
    (tmp_path / "r.html").write_text(page, encoding="utf-8")
    wrapper, picture = tmp_path / "wrapper.html", tmp_path / "picture.png"
    wrapper.write_text(_WRAPPER.format(name="r.html", width=width), encoding="utf-8")
    look = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}", f"--window-size={width},2000"
    seen = browse(wrapper, *look, "--dump-dom", "--virtual-time-budget=5000")
    assert "CONSOLE" not in seen.stderr
    found = re.search(r'<pre id="found">\[(\d+),(\d+),"(.*?)"\]', seen.stdout)
    assert found, seen.stdout[-500:]
    assert int(found[1]) <= width  # nothing sticks out to the side
    assert int(found[2]) == 7 + 20
    assert found[3] == {"light": "rgb(243, 245, 247)", "dark": "rgb(20, 24, 28)"}[scheme]
    browse(wrapper, *look, f"--screenshot={picture}")
    assert picture.stat().st_size > 20_000


def test_the_browser_test_would_see_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text("<script>console.error('seen')</script>")
    assert "CONSOLE" in browse(tmp_path / "bad.html", "--dump-dom").stderr
