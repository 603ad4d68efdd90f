"""What all figures share: colours, axes, ticks and legends."""

from __future__ import annotations

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
MOST_VECTORS = 500  # dots of a plot, or points of a line, that a vector graphic holds one by one


def installed() -> bool:
    """Whether the library that draws figures is installed."""
    return find_spec("matplotlib") is not None


def check_axes(axes: Any) -> None:
    """Raise SpecError unless Matplotlib is installed, and `axes` is None or one Axes."""
    if not installed():
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


def ink() -> Any:
    """The colour of text in the current style."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def label_colors(count: int) -> tuple[str, ...]:
    """A colour for each of `count` labels: from the current style if it has enough, or else from PALETTE."""
    from matplotlib import rcParams

    cycle = tuple(dict.fromkeys(rcParams["axes.prop_cycle"].by_key().get("color", ())))
    return cycle if len(cycle) >= count else PALETTE


def dots(axes: Axes, x: Any, y: Any, **how: Any) -> Any:
    """A scatter plot; more dots are smaller and lighter, and a picture in a vector graphic."""
    crowd = max(len(x), 2000) / 2000
    size, light = max(3.2 / crowd**0.25, 1.2), {"alpha": max(crowd**-0.5, 0.25)}
    return axes.scatter(x, y, s=size**2, linewidth=0, rasterized=len(x) > MOST_VECTORS, **(light | how))


def plain_ticks(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, without exponents."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend(axes: Axes) -> None:
    """A legend above the axes, where it covers no data, in as many columns as fit."""
    words = axes.get_legend_handles_labels()[1]
    columns = max(1, min(5, len(words), 48 // (6 + max(map(len, words)))))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, columnspacing=1)
