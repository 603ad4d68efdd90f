"""Matplotlib figures as inline SVG in the colours of the page.

Text stays text, and colours become CSS variables of the page, so that a figure is legible in light and dark mode.
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


# Stand-in colours that no colour map contains, and the CSS variables of the page that replace them.
INK, FAINT, PAPER, ACCENT, SECOND = (f"#12345{number}" for number in range(5))
_VARIABLES = {INK: "ink", FAINT: "faint", PAPER: "paper", ACCENT: "accent", SECOND: "second"}
_ON_WHITE = {INK: "#1c2126", FAINT: "#c5ccd3", PAPER: "#ffffff", ACCENT: "#1f6fb8", SECOND: "#c4420b"}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.size": 11,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": PAPER,
    "axes.prop_cycle": f"cycler('color', ['{ACCENT}', '{SECOND}'])",
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
_WIDTH = 4.8  # inches; the page scales figures to the width of a card


@dataclass(frozen=True)
class Drawing:
    """An SVG element with its text alternative."""

    svg: str
    alt: str


@contextmanager
def axes_of(height: float = 3.2) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes, in the style of the page; `height` in inches."""
    with figure_of(_WIDTH, height) as figure:
        yield figure, figure.add_subplot()


@contextmanager
def figure_of(width: float, height: float) -> Iterator[Figure]:
    """An empty figure, in the style of the page; `width` and `height` in inches."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]):  # independent of the user's own settings
        yield Figure(figsize=(width, height))


def drawing(figure: Figure, name: str, alt: str) -> Drawing:
    """The figure as an element of the page; `name` keeps its ids distinct from those of other figures."""
    variables = {color: f"var(--{variable})" for color, variable in _VARIABLES.items()}
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", _svg(figure, name, variables))
    size = re.search(r'viewBox="[^"]*"', svg)
    assert size is not None
    return Drawing(_opened(svg, f'<svg role="img" {size[0]}', name, alt), alt)


def standalone(figure: Figure, name: str, alt: str) -> str:
    """The figure as an SVG file of its own, dark on white."""
    figure.set_facecolor(PAPER)
    svg = _svg(figure, name, _ON_WHITE)
    start = svg[: svg.index(">")]
    return _opened(svg, f'{start} role="img"', name, alt)


def _svg(figure: Figure, name: str, colors: Mapping[str, str]) -> str:
    """The SVG of a figure from its <svg> tag on, with `colors` in place of the stand-ins."""
    import matplotlib as mpl

    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": name}):  # otherwise ids are random and the file differs each time
        figure.savefig(file, format="svg", metadata=nothing)
    svg = file.getvalue()
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for stand_in, color in colors.items():
        svg = svg.replace(stand_in, color)
    return svg


def _opened(svg: str, opening: str, name: str, alt: str) -> str:
    """The SVG with this opening tag and a title; numbers inside tags, not in texts, are rounded to two decimals."""
    title = f' aria-labelledby="{name}-title"><title id="{name}-title">{escape(alt)}</title>'
    rounded = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), svg[svg.index(">") + 1 :])
    return opening + title + rounded


def legend_below(axes: Axes) -> None:
    """A legend below the axes, with as many columns as fit, to be read line by line."""
    marks, words = axes.get_legend_handles_labels()
    columns = max(1, min(6, int(330 / (26 + 6.5 * max(map(len, words))))))  # in points
    order = [i for column in range(columns) for i in range(column, len(words), columns)]  # Matplotlib fills columns
    axes.legend([marks[i] for i in order], [words[i] for i in order], loc="upper center", ncols=columns,
                bbox_to_anchor=(0.5, -0.18), handletextpad=0.1, columnspacing=1.2)  # fmt: skip
