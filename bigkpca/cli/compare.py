"""Compare all methods on the user's data."""

from __future__ import annotations

from typing import Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import PATH, common, given, overwrite_option, spec_options, whole_numbers
from bigkpca.execution.progress import ShownProgress
from bigkpca.spec import VARIED, FitSpec
from bigkpca.spec.units import SEEDS


@command(
    "bigkpca compare rows.zarr comparison",
    "bigkpca compare rows.zarr comparison --methods nystroem/kmeans,rff --sizes 200,800 --seeds 2",
)
@click.argument("data", type=PATH)
@click.argument("outdir", type=PATH)
@option("--methods", metavar="M,M,...", show_default="all", help="Methods to fit, e.g. nystroem/kmeans,columns,rff.")
@option(
    "--sizes",
    callback=whole_numbers,
    metavar="L,L,...",
    show_default="up to that of a fit",
    help="Numbers of landmarks or random features.",
)
@option("--seeds", type=click.IntRange(1), default=SEEDS, metavar="N", help="Number of fits per method and size.")
@spec_options([name for name in FitSpec.model_fields if name not in VARIED])
@overwrite_option
@common
def compare(data: str, outdir: str, methods: str | None, sizes: list[int] | None, quiet: bool, **options: Any) -> None:
    """Fit DATA with every method, and write error against time to OUTDIR: compare.csv and compare.svg."""
    from bigkpca.comparing import compare as run

    fields, others = given(options)
    grid: dict[str, Any] = {"methods": methods or (), "sizes": sizes or ()}
    click.echo(run(data, outdir, **grid, progress=ShownProgress(quiet), **others, **fields))
