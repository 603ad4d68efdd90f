"""The passes of ingest, and how many rows each of them is said to have."""

import numpy as np
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting import ingest
from bigkpca.ingesting.formats import text
from tests.helpers.progress import Recorder
from tests.ingesting.files import csv_text, write

ROWS = 3000
LATE = "a,b\n" + "1,2\n" * (ROWS - 4) + "oops,\nouch,\nwhy,\nno,\n"
CODES = "a,b\n" + "x,2\ny,\n" * 50


def passes(folder, *contents, **options):
    """The passes of ingest, all of which end."""
    shown = Recorder()
    sources = [write(folder, content, name) for content, name in zip(contents, "ab", strict=False)]
    try:
        ingest(sources, folder / "o.zarr", progress=shown, overwrite=True, **options)
    finally:
        assert shown.finished == len(shown.started)
    return shown.started


def test_each_pass_is_shown_with_the_rows_that_are_known(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_TEXT_BYTES", 5000)  # of the first rows, which decide on the kinds of columns
    X = np.ones((30, 2))
    encoded = {"categories": "one-hot", "missing": "mean"}
    assert passes(tmp_path, X) == [("ingest", 30)]
    assert passes(tmp_path, csv_text(X)) == [("ingest", 0)]
    assert passes(tmp_path, {"a": ["x", "y"]}, **encoded) == [("inspecting columns", 2), ("ingest", 2)]
    assert passes(tmp_path, CODES, **encoded) == [("inspecting columns", 0), ("ingest", 100)]
    assert passes(tmp_path, CODES, CODES, **encoded)[-1] == ("ingest", 200)
    assert passes(tmp_path, CODES, categories="one-hot", missing="drop")[-1] == (
        "ingest",
        0,
    )  # of which some are dropped
    both = ("inspecting columns", 0), ("searching for words", 0), ("inspecting columns", 0), ("ingest", ROWS)
    assert passes(tmp_path, LATE, **encoded) == [*both]


@pytest.mark.parametrize(
    ("content", "options", "titles"),
    [
        (LATE, {}, ["ingest", "searching for errors"]),
        ("a,b\n1,2\n3,\n", {}, ["ingest", "searching for errors"]),
        (LATE, {"missing": "mean"}, ["inspecting columns", "searching for errors"]),
    ],
)
def test_the_search_for_an_error_is_a_pass(content, options, titles, tmp_path):
    shown = Recorder()
    with pytest.raises(DataError, match=r"not a number|missing|empty"):
        ingest(write(tmp_path, content), tmp_path / "o.zarr", progress=shown, **options)
    assert [title for title, _ in shown.started] == titles
    assert shown.finished == len(titles)
