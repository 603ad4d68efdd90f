"""Inline SVG that follows the colours of the page, each drawing with words that say what is seen. Matplotlib's door.

Texts stay texts, and colours become variables of the page, so that one drawing is legible in light and in dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Stand-ins that no colour map yields, and the variables of the page that take their place.
INK, FAINT, PAPER, ACCENT, SECOND = (f"#12345{number}" for number in range(5))
_VARIABLES = {INK: "ink", FAINT: "faint", PAPER: "paper", ACCENT: "accent", SECOND: "second"}
# Petroff 2021, "Accessible color sequences for data visualization", ten colours: told apart with any colour vision.
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadb",
)  # fmt: skip
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 11,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.alpha": 0.5,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
_WIDTH = 4.8  # inches of which the page makes as many as there is room for


@dataclass(frozen=True)
class Drawing:
    """An SVG element, and what it shows in words."""

    svg: str
    alt: str


@contextmanager
def axes_of(height: float = 3.2) -> Iterator[tuple[Figure, Axes]]:
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]):  # not as a user's own settings are
        figure = Figure(figsize=(_WIDTH, height))
        yield figure, figure.add_subplot()


def drawing(figure: Figure, name: str, alt: str) -> Drawing:
    """The figure as an element of the page; `name` keeps its ids apart from those of others."""
    import matplotlib as mpl

    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": name}):  # else ids are random, and no two reports the same
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    svg = file.getvalue()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, f"var(--{variable})")
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    size = re.search(r'viewBox="[^"]*"', svg)
    assert size is not None
    opening = f'<svg role="img" {size[0]} aria-labelledby="{name}-title"><title id="{name}-title">{escape(alt)}</title>'
    return Drawing(re.sub(r"(\.\d\d)\d+", r"\1", opening + svg[svg.index(">") + 1 :]), alt)


def plain_ticks(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def whole_ticks(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
