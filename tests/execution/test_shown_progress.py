"""Lines about progress where there is no terminal."""

import re

import pytest

from bigkpca.execution import progress


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (4000, r"ingest: 1,000 of 4,000 rows \([\d,]+ rows/s\), \d:\d\d:\d\d left"),
        (0, r"ingest: 1,000 rows \([\d,]+ rows/s\)"),  # files of text do not say how many they hold
    ],
)
def test_a_line_says_what_is_left_only_where_the_number_of_rows_is_known(rows, told, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0)
    notes = []
    shown = progress.ShownProgress(quiet=False)
    monkeypatch.setattr(shown, "note", notes.append)
    shown.start("ingest", rows)
    shown.advance(1000)
    (line,) = notes
    assert re.fullmatch(told, line)
