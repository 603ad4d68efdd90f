"""What the scripts share: tables, medians, norms, and how figures are saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import results
from bigkpca import KernelPCA
from bigkpca.errors import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Table(results.Table):
    """A table of a script, which is written as NAME.csv, or as NAME_suffix.csv beside another one."""

    suffix: str = ""


Tables = Iterator[Table]  # what a script yields, one after the other
Lines = Iterator[list[Any]]  # of a table


def medians(found: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """Of figures by name, one mapping for each seed: the medians over seeds."""
    return {name: np.median([one[name] for one in found], axis=0) for name in found[0]}


def relative(A: Array, B: Array) -> float:
    """|A - B|_F / |B|_F."""
    return float(np.linalg.norm(A - B) / np.linalg.norm(B))


def landmarks_of(fit: KernelPCA) -> Array:
    """The landmarks of a fit that has them."""
    assert fit.landmarks_ is not None
    return fit.landmarks_


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, folder: Path, name: str) -> None:
    """Write NAME.svg; the same figure gives the same bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def save_panels(
    panels: Mapping[str, Mapping[str, tuple[Any, Any]]], folder: Path, name: str, style: str = ".-", **axes: Any
) -> None:
    """Write NAME.svg: a panel for each title, and in it a line of points (x, y) for each name. `axes` are properties
    of every panel."""
    figure = new_figure(1 + 3.2 * len(panels), 3)
    for axis, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for label, (x, y) in lines.items():
            axis.plot(x, y, style, markersize=4, label=label)
        axis.set(**axes)
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=7)
    save_figure(figure, folder, name)
