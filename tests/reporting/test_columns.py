"""Reports of tables: columns that explain components, and values in the words of the table."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bigkpca
from bigkpca.errors import CorruptionError
from bigkpca.plots.tables import shown_columns
from tests.helpers.commands import run

RNG = np.random.default_rng(2)
N = 600


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table whose first component is its distance and carrier, a model, and its scores."""
    folder = tmp_path_factory.mktemp("table")
    carrier = RNG.choice(["UA", "AA", "DL"], N)
    distance = np.where(carrier == "UA", 2000.0, 300.0) + RNG.normal(0, 50, N).round()
    days = pd.Timestamp("2013-01-01") + pd.to_timedelta(RNG.integers(0, 365, N), "D")
    table = {"day": days.astype(str), "carrier": carrier, "distance": distance, "late": RNG.random(N) < 0.5}
    pd.DataFrame(table).to_csv(folder / "a.csv", index=False)
    bigkpca.ingest(folder / "a.csv", folder / "x.zarr", categorical="carrier")
    options = {"standardize": True, "n_components": 4, "size": 80, "transform": folder / "s.zarr"}
    bigkpca.fit(folder / "x.zarr", folder / "m.zarr", **options)
    return folder


@pytest.mark.usefixtures("sketched")
def test_pre_images_along_a_component_are_rows_in_words(place):
    page = Path(bigkpca.report(place / "m.zarr", place / "r.html", scores=place / "s.zarr")).read_text("utf-8")
    tables = re.findall(r"<table.*?</table>", page, re.S)
    (first, *_) = [table for table in tables if ">deviations<" in table]
    carriers = re.findall(r'<td data-name="carrier">(\w+)</td>', first)
    assert len(carriers) == 5
    assert set(carriers) <= {"UA", "AA", "DL"}
    assert ("UA" in (carriers[0], carriers[-1])) == (carriers[0] != carriers[-1])  # at one end
    assert [re.search(rf">{step}<", first) is not None for step in ("−2", "0", r"\+2")] == [True] * 3
    assert "a column of categories shows the nearest one" in page


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
def test_a_column_that_dominates_and_weights_are_named(place):
    bigkpca.fit(place / "x.zarr", place / "raw.zarr", n_components=2, size=30)
    page = Path(bigkpca.report(place / "raw.zarr", place / "raw.html")).read_text("utf-8")
    assert re.search(r"Column \d \(&#39;distance&#39;\) makes 9\d\.\d% of the mean squared distance", page)
    weights = {"carrier": 2, "day": 0.5}
    bigkpca.fit(place / "x.zarr", place / "w.zarr", n_components=2, size=30, standardize=True, column_weights=weights)
    page = Path(bigkpca.report(place / "w.zarr", place / "w.html")).read_text("utf-8")
    assert "of the mean squared distance between rows" not in page
    assert "carrier 2, day 0.5" in page


@pytest.mark.usefixtures("sketched")
def test_the_page_names_the_columns_of_components_and_shows_rows_with_their_values(place):
    page = Path(bigkpca.report(place / "m.zarr", place / "r.html", scores=place / "s.zarr")).read_text("utf-8")
    (told,) = re.findall(r"Of the columns, (\w+) explains (\d+)% of component 1", page)
    assert told[0] in ("distance", "carrier")
    assert int(told[1]) > 80
    assert ">day (days since 1970-01-01)</td>" in page
    assert re.search(r'<td data-name="day">2013-\d\d-\d\d</td>', page)
    for text in (
        '<td data-name="carrier">UA</td>',
        "no labels: --labels gives some",
        "no residuals: --scores of bigkpca transform",
    ):
        assert text in page
    assert "no pictures" not in page


@pytest.mark.usefixtures("sketched")
@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
def test_the_page_tells_an_accurate_approximation_from_a_useful_one(tmp_path):
    """Distances between these rows are those of one column: kernel PCA is well known, and knows nothing else."""
    rng, n = np.random.default_rng(5), 900
    table = {"distance": rng.uniform(0, 4000, n), "delay": rng.normal(size=n), "carrier": rng.choice(["UA", "AA"], n)}
    pd.DataFrame(table).to_csv(tmp_path / "a.csv", index=False)
    bigkpca.ingest(tmp_path / "a.csv", tmp_path / "x.zarr", categorical="carrier")
    bigkpca.fit(tmp_path / "x.zarr", tmp_path / "m.zarr", n_components=4, size=100, calibration_rows=225)
    page = Path(bigkpca.report(tmp_path / "m.zarr", tmp_path / "r.html")).read_text("utf-8")
    tiles = dict(re.findall(r"<p>([^<]*)</p><strong>([^<]*)</strong>", page))
    assert tiles["Approximation"] == "Accurate"
    assert "It says how well kernel PCA is known, not how useful it is." in page
    assert "Both were fitted to 169 other rows. Kernel PCA was not fitted to the judged rows." in page
    assert "Kernel PCA was fitted to the judged rows, too, which favours it if they are few" in page  # the pre-images
    assert "The scores follow distance only." in page
    found = re.findall(r'<td data-name="column">(.*?)</td><td data-name="4 scores">(\d+)%</td>', page)
    shares = {name: int(share) for name, share in found}
    assert set(shares) == {"all columns", "distance", "delay", "carrier"}
    assert min(shares["all columns"], shares["distance"]) > 90
    assert max(shares["delay"], shares["carrier"]) < 5
    shown = run("info", tmp_path / "m.zarr").stdout
    assert re.search(
        r"^approximation: accurate, 4 of 4 .* \(how well kernel PCA is known, not how useful it is\)$", shown, re.M
    )
    assert "\nthe scores follow distance only; --standardize gives each column the same weight\n" in shown
    assert re.search(r"^captured of each column: distance 9\d% \(PCA 100%\), .*carrier 0% \(PCA \d+%\)", shown, re.M)
    told = json.loads(run("info", tmp_path / "m.zarr", "--json").stdout)["captured"]
    assert (told["rows"], told["held_out"], told["components"]) == (169, 56, 4)
    assert next(iter(told["columns"])) == "distance"
    evaluated = run("evaluate", tmp_path / "m.zarr", tmp_path / "x.zarr", "-q").stdout
    assert "the scores follow distance only" in evaluated
    (tmp_path / "x.zarr").rename(tmp_path / "gone")  # what is stored with the model remains
    page = Path(bigkpca.report(tmp_path / "m.zarr", tmp_path / "again.html")).read_text("utf-8")
    assert "The scores follow distance only." in page
    assert '<td data-name="column">carrier</td>' in page


def test_datasets_that_describe_other_columns_are_damaged(place):
    about = bigkpca.info(str(place / "x.zarr"))
    names = about["column_names"]
    assert [column.name for column in shown_columns(names, about, "x")] == ["day", "carrier", "distance", "late"]
    with pytest.raises(CorruptionError, match=r"x describes 6 columns, and has 5"):
        shown_columns(names[:-1], about, "x")
    assert shown_columns(None, about, "x") == ()
