"""What a model found, for people: report, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bigkpca.cli.options import common, overwrite_option
from bigkpca.cli.progress import Report
from bigkpca.cli.shown import show, show_spectrum
from bigkpca.errors import SpecError


@click.command(short_help="Draw a page about a model.")
@click.argument("model")
@click.argument("out", metavar="OUT.html")
@click.option("--scores", metavar="PATH", help="Feature store, or array of scores, to show.  [default: sampled rows]")
@click.option("--labels", metavar="PATH|NAME", help="Labels: a file, or an array beside the rows.  [default: y]")
@click.option("--image-shape", metavar="H,W", help="Show rows as pictures.  [default: their shape before ingest]")
@click.option("--array", metavar="NAME", help="Array of the rows inside their Zarr group.")
@overwrite_option
@common
def report(model: str, out: str, image_shape: str | None, quiet: bool, **options: Any) -> None:
    """Draw one page, OUT.html, that says whether MODEL is good and what it found."""
    from bigkpca.reporting import report as draw

    shape = _shape(image_shape) if image_shape else None
    path = draw(model, out, image_shape=shape, progress=Report(quiet), **options)
    show({"path": path, "bytes": Path(path).stat().st_size}, False)


def _shape(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise SpecError(f"--image-shape {text}: give height and width, e.g. 28,28")
    return tuple(map(int, parts))


@click.command(short_help="Try it all on small data.")
@click.argument("folder", default="bigkpca-demo", metavar="[DIR]")
@common
def demo(folder: str, quiet: bool) -> None:
    """Run ingest, fit, transform and report on 1797 real digits, and write all that they make to DIR."""
    from bigkpca.demo import demonstrate
    from bigkpca.reporting import INSTALL
    from bigkpca.storage.describe import model_info

    shown = demonstrate(Path(folder), Report(quiet))
    facts = model_info(shown.model, shown.paths["model"])
    click.echo(f"sigma = {facts['kernel']['sigma']:.4g} (the median pair of digits has k = exp(-1))")
    show_spectrum(facts)
    click.echo(
        f"nearest-centroid accuracy: {shown.accuracy_scores:.1%} from {facts['components']} scores, "
        f"{shown.accuracy_pixels:.1%} from {facts['columns']} pixels"
    )
    click.echo("seconds: " + ", ".join(f"{step} {seconds:.2f}" for step, seconds in shown.seconds.items()))
    for name, path in shown.paths.items():
        click.echo(f"{name:<8} {path}")
    if "report" not in shown.paths:
        click.echo(f"for a page of figures: {INSTALL}")
