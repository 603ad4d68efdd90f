"""Matplotlib figures as inline SVG in the colours of the page, and rows as pictures in small PNG files.

Text stays text, and colours become CSS variables of the page, so that a figure is legible in light and dark mode.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from bigkpca.errors import Array, SpecError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Stand-in colours that no colour map contains, and the CSS variables of the page that replace them.
INK, FAINT, PAPER, ACCENT, SECOND = (f"#12345{number}" for number in range(5))
_VARIABLES = {INK: "ink", FAINT: "faint", PAPER: "paper", ACCENT: "accent", SECOND: "second"}
_ON_WHITE = {INK: "#1c2126", FAINT: "#c5ccd3", PAPER: "#ffffff", ACCENT: "#1f6fb8", SECOND: "#c4420b"}
# The least CIEDE2000 difference of two of them is 22.9, and 12.5 as simulated for the three kinds of colour blindness.
PALETTE = (
    "#1155cc", "#ddcc00", "#bb0011", "#77ddff", "#665566", "#aa88ff", "#dd6600", "#aa9977", "#557755", "#aaddaa",
    "#0088aa", "#ee99bb",
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


def legend_above(axes: Axes) -> None:
    """A legend above the axes, where it covers no data; in one column where its words are long."""
    words = axes.get_legend_handles_labels()[1]
    columns = len(words) if sum(map(len, words)) < 28 else 1
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2)


def plain_ticks(axis: Any, unit: str = "", scale: float = 1.0, **where: Any) -> None:
    """Label a logarithmic axis with plain numbers, `scale` times the values, without exponents."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5), **where))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{scale * value:g}{unit}"))
    axis.set_minor_formatter(NullFormatter())


def whole_ticks(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


_MAX_SIDE = 96  # pixels; larger pictures are subsampled, so that the page stays small
_MIN_SIDE = 24  # pixels; those of smaller pictures are repeated, so that gaps look narrow
_GAP = 1


@dataclass(frozen=True)
class PictureFrame:
    """How rows become pictures: the shape (H, W) or (H, W, 3), and the values shown as black and white."""

    shape: tuple[int, ...]
    black: float
    white: float

    @classmethod
    def of(cls, shape: tuple[int, ...], rows: Array) -> PictureFrame:
        """The frame in which the rows (m, d) use the whole range of grey, but for 0.1 % at either end."""
        black, white = np.percentile(rows, [0.1, 99.9]).tolist()
        if white == black:  # nearly all values are the same
            black, white = float(rows.min()), float(rows.max())
        return cls(shape, black, white if white > black else black + 1)

    def pictures(self, rows: Array) -> Array:
        """Pictures (m, h, w, 3), uint8, of rows (m, d)."""
        scaled = np.clip((rows.astype(np.float64) - self.black) / (self.white - self.black), 0, 1)
        side = max(self.shape[:2])
        step, times = max(1, math.ceil(side / _MAX_SIDE)), max(1, _MIN_SIDE // side)
        found = (scaled * 255).round().astype(np.uint8).reshape(len(rows), *self.shape[:2], -1)[:, ::step, ::step]
        found = found.repeat(times, axis=1).repeat(times, axis=2)
        return np.broadcast_to(found, (*found.shape[:3], 3))

    def strip(self, *lines: Array) -> str:
        """One line of pictures for each array of rows (m, d), below each other, as the data URI of a PNG."""
        from matplotlib.image import imsave

        pictures = [np.pad(self.pictures(rows), ((0, 0), (0, _GAP), (0, _GAP), (0, 0))) for rows in lines]
        image = np.concatenate([np.concatenate(list(line), axis=1) for line in pictures])
        seen = np.pad(np.full(self.pictures(lines[0][:1]).shape[1:3], 255, np.uint8), ((0, _GAP), (0, _GAP)))
        alpha = np.tile(seen, (len(lines), len(lines[0])))[..., None]  # gaps are transparent
        file = io.BytesIO()
        imsave(file, np.ascontiguousarray(np.concatenate([image, alpha], axis=2)[:-_GAP, :-_GAP]), format="png")
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def image_shape(given: Sequence[int] | None, columns: int) -> tuple[int, ...] | None:
    """The shape, which must be (H, W) or (H, W, 3) and fit the number of columns. Raises SpecError."""
    if given is None:
        return None
    shape = tuple(given)
    if not is_picture(shape):
        raise SpecError(f"image shape {shape}: give height and width, e.g. 28,28, and 3 after them for colours")
    if math.prod(shape) != columns:
        raise SpecError(
            f"an image shape of {' × '.join(map(str, shape))} makes {math.prod(shape)} values, and rows have {columns}"
        )
    return shape


def is_picture(shape: Sequence[int]) -> bool:
    """Whether rows of this shape can be shown as pictures."""
    return len(shape) in (2, 3) and min(shape) >= 1 and tuple(shape[2:]) in ((), (1,), (3,))
