"""Lines about progress where there is no terminal, and bars where there is one."""

import io
import re

import pytest
from rich.console import Console

from bigkpca.execution import progress


@pytest.fixture
def shown(monkeypatch):
    """Progress whose notes are in `notes`."""
    shown = progress.ShownProgress(quiet=False)
    shown.notes = []
    monkeypatch.setattr(shown, "note", shown.notes.append)
    return shown


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (4000, r"ingest: 1,000 of 4,000 rows \([\d,]+ rows/s\), \d:\d\d:\d\d left"),
        (0, r"ingest: 1,000 rows \([\d,]+ rows/s\)"),  # files of text do not say how many they hold
    ],
)
def test_a_line_says_what_is_left_only_where_the_number_of_rows_is_known(rows, told, shown, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0)
    shown.start("ingest", rows)
    shown.advance(1000)
    (line,) = shown.notes
    assert re.fullmatch(told, line)


@pytest.fixture
def terminal(monkeypatch):
    """What a terminal of 100 columns shows, each time as a whole."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100)
    monkeypatch.setattr(progress, "stderr", lambda: console)

    def shown(bars):
        text.seek(0)
        text.truncate()
        bars.refresh()
        return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text.getvalue())

    return shown


@pytest.mark.parametrize(("rows", "done"), [(4000, "1,000 of 4,000 rows ("), (0, " 1,000 rows (")])
def test_a_bar_shows_the_rows_that_are_done_and_a_pass_within_ends_it(rows, done, shown, terminal):
    with progress.shown_pass(shown, "ingest", rows) as advance:
        advance(1000)
        first, line = shown._bars, terminal(shown._bars)
        with progress.shown_pass(shown, "searching for errors") as search:
            search(2)
            assert not first.live.is_started
            assert "searching for errors" in terminal(shown._bars)
    assert re.search(rf"ingest .*{re.escape(done)}[\d,]+ rows/s\)", line)
    assert bool(re.search(r"[\d-]:[\d-]{2}:[\d-]{2}", line)) == bool(rows)  # time left
    assert shown._bars is None
    (note,) = shown.notes  # once
    assert note.startswith("searching for errors: 2 rows in ")


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_shows_a_bar_if_it_has_widgets(widgets, monkeypatch):
    monkeypatch.setattr(progress, "stderr", lambda: Console(file=io.StringIO(), force_jupyter=True))
    monkeypatch.setattr(progress, "find_spec", lambda name: widgets or None)
    monkeypatch.setattr("rich.live.Live.start", lambda self, refresh: None)  # which draws with the widgets
    for quiet in (False, True):
        shown = progress.ShownProgress(quiet)
        shown.start("fit", 10)
        assert bool(shown._bars) == (widgets and not quiet)
