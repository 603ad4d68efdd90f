"""What the scripts share: their options, where they write, and how a figure is saved."""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results import table
from bigkpca import KernelPCA
from bigkpca.errors import Array, DominantVariableWarning, FewerComponentsWarning, NarrowKernelWarning

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def arguments(description: str, argv: Sequence[str] | None, rows: int, repeats: int = 1) -> argparse.Namespace:
    """The options of every script: rows and repeats are those of the source unless given, fewer to try it out.

    From here on, what the settings of the sources bring about is not warned of: kernels that are too narrow, columns of
    different scale, and fewer components than asked for.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=int, default=rows, help="rows at most  [%(default)s]")
    parser.add_argument("--repeats", type=int, default=repeats, help="seeds  [%(default)s]")
    parser.add_argument("--folder", type=Path, default=Path("build") / "sources", help="where results are written")
    given = parser.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    for kind in (NarrowKernelWarning, DominantVariableWarning, FewerComponentsWarning):
        warnings.simplefilter("ignore", kind)
    return given


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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1 + 3.2 * len(panels), 3), layout="constrained")
    for axis, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for label, (x, y) in lines.items():
            axis.plot(x, y, style, markersize=4, label=label)
        axis.set(**axes)
        axis.set_title(title, fontsize=9)
        axis.legend(fontsize=7)
    save_figure(figure, folder, name)


def save_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], folder: Path, name: str) -> None:
    """Print rows under a title and write NAME.csv."""
    table(title, header, rows)
    with open(folder / f"{name}.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
