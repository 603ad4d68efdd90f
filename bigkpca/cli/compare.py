"""Compare all methods on the user's data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import (
    PATH,
    device_option,
    given,
    json_option,
    overwrite_option,
    running,
    spec_options,
    whole_numbers,
)
from bigkpca.cli.output import aligned
from bigkpca.execution.progress import ShownProgress
from bigkpca.numerics.display import share_at_most
from bigkpca.spec import VARIED, FitSpec
from bigkpca.spec.units import SEEDS, TIME_BUDGET

_COLUMNS = {
    "seconds": ("seconds", "{:.2f}".format),
    "planned_mb": ("planned MB", "{:.0f}".format),
    "score_error": ("scores", "{:.2%}".format),
    "eigenvalue_error": ("eigenvalues", "{:.2%}".format),
    "subspace_cosine": ("cosine", "{:.4f}".format),
    "preimage_error": ("pre-images", "{:.2%}".format),
    "relative_trace_error": ("proven", share_at_most),
}


@command(
    "bigkpca compare rows.zarr comparison",
    "bigkpca compare rows.zarr comparison --methods nystroem/kmeans,rff --sizes 200,800 --seeds 2",
    "bigkpca compare rows.zarr comparison --scheduler tcp://10.0.0.1:8786",
)
@click.argument("data", type=PATH)
@click.argument("outdir", type=PATH)
@option("--methods", metavar="M,M,...", unset="all", help="Methods to fit, e.g. nystroem/kmeans,columns,rff.")
@option(
    "--sizes",
    metavar="L,L,...",
    unset="automatic (up to that of a fit)",
    help="Numbers of landmarks or random features.",
)
@option("--seeds", type=click.IntRange(1), default=SEEDS, metavar="N", help="Number of fits per method and size.")
@option("--time-budget", metavar="TIME", default=TIME_BUDGET, help="Start no fit after this time.")
@spec_options([name for name in FitSpec.model_fields if name not in VARIED])
@device_option
@overwrite_option
@json_option
@running
def compare(
    data: str, outdir: str, methods: str | None, sizes: str | None, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Fit DATA with every method, and write error against time to OUTDIR: compare.csv and compare.svg."""
    from bigkpca.comparing import compare as run

    numbers = whole_numbers("--sizes", sizes or None, "whole numbers, e.g. 100,400,1600")
    fields, others = given(options)
    found = run(data, outdir, methods=methods or None, sizes=numbers, progress=ShownProgress(quiet), **others, **fields)
    if as_json:
        click.echo(json.dumps({key: value for key, value in asdict(found).items() if key != "groups"}))
        return
    click.echo(f"errors against {found.reference}; medians over seeds")
    if found.scheduler:
        click.echo(f"fits ran on {found.scheduler}")
    if found.device:
        click.echo(f"passes ran on {found.device}")
    lines = [["method", "landmarks", "size", *(title for title, _ in _COLUMNS.values())]]
    for group in found.groups:
        spreads = [(group.spreads[key], shown) for key, (_, shown) in _COLUMNS.items()]
        measures = [shown(spread.median) if spread else "-" for spread, shown in spreads]
        lines.append([group.variant.method, group.variant.landmarks, f"{group.size:,}", *measures])
    notes = [found.advice, *filter(None, [found.pca_note])]
    click.echo("\n".join([*aligned(lines, range(2)), *notes, f"path  {found.path}"]))
