"""Run everything once on real digits."""

from __future__ import annotations

import click

from bigkpca.cli.help_pages import command
from bigkpca.cli.options import PATH, common
from bigkpca.cli.output import show_spectrum
from bigkpca.execution.shown_progress import ShownProgress


@command(
    "bigkpca demo",
    "bigkpca demo my-folder",
)
@click.argument("folder", default="bigkpca-demo", metavar="[DIR]", type=PATH)
@common
def demo(folder: str, quiet: bool) -> None:
    """Run ingest, fit, transform and report on 1797 real digits, and write all files to DIR."""
    from bigkpca.cli.demonstration import demonstrate
    from bigkpca.reporting import INSTALL
    from bigkpca.storage.describe import model_info

    shown = demonstrate(folder, ShownProgress(quiet))
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
