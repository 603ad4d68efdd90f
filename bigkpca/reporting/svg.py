"""Figures of Matplotlib as SVG: files of their own, and elements of a page that take its colours."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours of text, of lines in the background, and of paper; those of a page are variables, by day and by night. They
# are found by their value, so no colour map may contain them.
_INK, _FAINT, _PAPER = "#12345a", "#12345b", "#12345c"
VARIABLES = {_INK: "var(--ink)", _FAINT: "var(--faint)", _PAPER: "var(--paper)"}
_ON_WHITE = {_INK: "#1c2126", _FAINT: "#c5ccd3", _PAPER: "#ffffff"}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text
    "font.size": 11,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": _PAPER,
    "axes.prop_cycle": "cycler('color', ['#3d87cf', '#dd6600'])",  # legible on both papers
    "figure.facecolor": _PAPER,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.5,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


@contextmanager
def figure_of(width: float, height: float) -> Iterator[Figure]:
    """An empty figure in the style of reports; `width` and `height` in inches."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]):  # independent of the user's own settings
        yield Figure(figsize=(width, height))


def svg_of(figure: Figure, name: str, title: str, colors: dict[str, str] = _ON_WHITE) -> str:
    """The <svg> element of a figure with a title. `name` keeps its ids distinct from those of others on a page."""
    import matplotlib as mpl

    file, nothing = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": name}):  # otherwise ids are random and the file differs each time
        figure.savefig(file, format="svg", metadata=nothing)
    svg = file.getvalue()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    for color, shown in colors.items():
        svg = svg.replace(color, shown)
    opening, rest = svg.split(">", 1)
    rest = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), rest)  # of coordinates, not of texts
    return f'{opening} role="img" aria-labelledby="{name}-title"><title id="{name}-title">{escape(title)}</title>{rest}'
