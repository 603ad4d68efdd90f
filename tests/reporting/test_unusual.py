"""The section of a report on flagged rows."""

import re

import numpy as np
import pandas as pd
import pytest

import bigkpca
from tests.reporting.conftest import drawn

TITLE = "Which rows are unusual?"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder with a table, a model of it with calibration rows, and flags of its rows, of which one has a wrong
    age."""
    folder, rng = tmp_path_factory.mktemp("unusual"), np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, 3)), columns=["height", "weight", "age"])
    frame.to_parquet(folder / "a.parquet")
    frame.loc[7, "age"] = 9
    frame.to_parquet(folder / "b.parquet")
    for name in "ab":
        bigkpca.ingest(folder / f"{name}.parquet", folder / f"{name}.zarr")
    bigkpca.fit(folder / "a.zarr", folder / "m.zarr", n_components=3, sigma="3 median", size=40, calibration_rows=200)
    bigkpca.transform(folder / "m.zarr", folder / "b.zarr", folder / "s.zarr", flag=0.05)
    return folder


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
def test_unusual_rows_are_listed_with_the_columns_that_contribute_most(table):
    page = drawn(table / "m.zarr", table / "columns.html", scores=table / "s.zarr", overwrite=True)
    section = page[page.index(TITLE) :]
    assert re.search(r"\d+ of 600 rows flagged \([\d.]+%\); expected at most 5%, or up to", section)
    found = re.findall(r'<td data-name="row">([^<]*)</td>.*?<td data-name="columns">([^<]*)</td>', section, re.DOTALL)
    assert (len(found), found[0][0], found[0][1].split()[0]) == (10, "7", "age")
    names, rows = ["height", "weight", "age"], pd.read_parquet(table / "b.parquet")
    for number, words in found:
        (values,) = bigkpca.KernelPCADetector.load(table / "m.zarr").contributions(rows.iloc[[int(number)]])
        order = sorted(range(3), key=lambda j: -abs(values[j]))
        assert words == ", ".join(f"{names[j]} {values[j]:+.3g}".replace("-", "−") for j in order)


@pytest.mark.full
@pytest.mark.usefixtures("sketched")
def test_images_are_shown_with_their_pre_images_and_the_difference(place, tmp_path):
    bigkpca.fit(place / "d.zarr", tmp_path / "m.zarr", n_components=8, size=60, calibration_rows=300)
    bigkpca.transform(tmp_path / "m.zarr", place / "d.zarr", tmp_path / "s.zarr", flag=0.05)
    page = drawn(tmp_path / "m.zarr", tmp_path / "r.html", scores=tmp_path / "s.zarr")
    section = page[page.index(TITLE) : page.index("How was it made?")]
    assert re.findall(r'alt="Rows [\d, ]*(and below them their pre-images|minus their pre-images)"', section) == [
        "and below them their pre-images",
        "minus their pre-images",
    ]


@pytest.mark.usefixtures("sketched")
def test_a_report_without_flags_says_how_to_get_them(table):
    bigkpca.transform(table / "m.zarr", table / "b.zarr", table / "no-flags.zarr")
    page = drawn(table / "m.zarr", table / "none.html", scores=table / "no-flags.zarr")
    assert TITLE not in page
    assert "no unusual rows: --scores of bigkpca transform --flag 1% shows them" in page
