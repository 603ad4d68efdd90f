"""The style of figures: the colours of the current style of Matplotlib, axes, and ticks."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bigkpca.errors import SpecError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL = "pip install 'bigkpca[report]'"
# The least CIEDE2000 difference of two of them is 22.9, and 12.5 as simulated for the three kinds of colour blindness.
PALETTE = (
    "#1155cc", "#ddcc00", "#bb0011", "#77ddff", "#665566", "#aa88ff", "#dd6600", "#aa9977", "#557755", "#aaddaa",
    "#0088aa", "#ee99bb",
)  # fmt: skip


@dataclass(frozen=True)
class Colors:
    """Colours of text, of the background, and of the first two things that are drawn."""

    ink: str
    paper: str
    accent: str
    second: str


def current_colors() -> Colors:
    """The colours of the current style: a report and a user have different ones."""
    from matplotlib import rcParams

    ink = rcParams["text.color"]
    papers = [color for color in (rcParams["axes.facecolor"], rcParams["figure.facecolor"]) if color != "none"]
    accent, second, *_ = *_cycle(), ink, ink
    return Colors(ink, next(iter(papers), "white"), accent, second)


def label_colors(count: int) -> tuple[str, ...]:
    """A colour for each of `count` labels: from the current style if it has enough, or else from PALETTE."""
    cycle = _cycle()
    return cycle if len(cycle) >= count else PALETTE


def _cycle() -> tuple[str, ...]:
    """The distinct colours of the current style, in the order in which lines take them."""
    from matplotlib import rcParams

    return tuple(dict.fromkeys(rcParams["axes.prop_cycle"].by_key().get("color", PALETTE)))


def check_axes(axes: Any) -> None:
    """Raise SpecError unless Matplotlib is installed, and `axes` is None or one Axes."""
    if not find_spec("matplotlib"):
        raise SpecError(f"plots need matplotlib: {INSTALL}")
    from matplotlib.axes import Axes

    if not isinstance(axes, Axes | None):
        kind = type(axes).__name__
        raise SpecError(f"axes must be one Axes of Matplotlib, not a value of type {kind}: pass e.g. axes=axes[0]")


def own_or_new(axes: Axes | None, height: float | None = None) -> Axes:
    """These axes, or the axes of a new figure; `height` in inches, by default that of the style."""
    if axes is not None:
        return axes
    from matplotlib import pyplot, rcParams

    width, usual = rcParams["figure.figsize"]
    return pyplot.subplots(figsize=(width, height or usual), layout="constrained")[1]


def plain_ticks(axis: Any, unit: str = "", scale: float = 1.0, **where: Any) -> None:
    """Label a logarithmic axis with plain numbers, `scale` times the values, without exponents."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5), **where))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{scale * value:g}{unit}"))
    axis.set_minor_formatter(NullFormatter())


def whole_ticks(axes: Axes) -> None:
    """Ticks at whole numbers only, along x."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def without_frame(axes: Axes) -> None:
    """No frame, grid or tick marks, as around pictures."""
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def legend_beside(axes: Axes) -> None:
    """A legend to the right of the axes, where it covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def legend_above(axes: Axes) -> None:
    """A legend above the axes, where it covers no data, if anything has a label; in one column where words are long."""
    words = axes.get_legend_handles_labels()[1]
    columns = len(words) if sum(map(len, words)) < 28 else 1
    if words:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2)
