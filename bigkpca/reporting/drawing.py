"""Inline SVG that follows the colours of the page, each drawing with words that say what is seen. Matplotlib's door.

Texts stay texts, and colours become variables of the page, so that one drawing is legible in light and in dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
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
_ON_WHITE = {INK: "#1c2126", FAINT: "#c5ccd3", PAPER: "#ffffff", ACCENT: "#1f6fb8", SECOND: "#c4420b"}
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
    "figure.facecolor": "none",
    "savefig.facecolor": "auto",
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
    """A figure of one pair of axes, in the style of the page."""
    with figure_of(_WIDTH, height) as figure:
        yield figure, figure.add_subplot()


@contextmanager
def figure_of(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of so many inches, in the style of the page."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]):  # not as a user's own settings are
        yield Figure(figsize=(width, height))


def drawing(figure: Figure, name: str, alt: str) -> Drawing:
    """The figure as an element of the page; `name` keeps its ids apart from those of others."""
    variables = {color: f"var(--{variable})" for color, variable in _VARIABLES.items()}
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", _svg(figure, name, variables))
    size = re.search(r'viewBox="[^"]*"', svg)
    assert size is not None
    return Drawing(_opened(svg, f'<svg role="img" {size[0]}', name, alt), alt)


def standalone(figure: Figure, name: str, alt: str) -> str:
    """The figure as a file of its own, dark on white, as every viewer shows it."""
    figure.set_facecolor(PAPER)
    svg = _svg(figure, name, _ON_WHITE)
    start = svg[: svg.index(">")]
    return _opened(svg, f'{start} role="img"', name, alt)


def _svg(figure: Figure, name: str, colors: Mapping[str, str]) -> str:
    """The figure from its <svg> on, with these colours for the stand-ins."""
    import matplotlib as mpl

    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": name}):  # else ids are random, and no two the same
        figure.savefig(file, format="svg", metadata=nothing)
    svg = file.getvalue()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for stand_in, color in colors.items():
        svg = svg.replace(stand_in, color)
    return svg


def _opened(svg: str, opening: str, name: str, alt: str) -> str:
    """The drawing with this opening tag and a title; coordinates, which stand in tags alone, to a hundredth."""
    title = f' aria-labelledby="{name}-title"><title id="{name}-title">{escape(alt)}</title>'
    rounded = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), svg[svg.index(">") + 1 :])
    return opening + title + rounded


def plain_ticks(axes: Axes) -> None:
    """Numbers as people write them on a logarithmic y axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def whole_ticks(axes: Axes) -> None:
    """Whole numbers on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
