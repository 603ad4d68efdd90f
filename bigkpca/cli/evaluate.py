"""Estimate how wrong a model is."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.help_pages import command, option
from bigkpca.cli.options import PATH, json_option, running
from bigkpca.execution.shown_progress import ShownProgress
from bigkpca.spec.defaults import SAMPLED_ROWS


@command(
    "bigkpca evaluate model.zarr rows.zarr",
    "bigkpca evaluate model.zarr rows.zarr --sample 1000 --json",
)
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@option(
    "--sample",
    type=click.IntRange(2),
    metavar="N",
    unset=f"{SAMPLED_ROWS}, or all",
    help="Rows with exact kernels.",
)
@option("--seed", type=click.IntRange(0), default=0, metavar="N", help="Seed of the sample.")
@json_option
@running
def evaluate(model: str, data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate how wrong MODEL is on DATA, fitted or new, from exact kernels with sampled rows: one pass."""
    from bigkpca.workflows import evaluate

    found = evaluate.evaluate(model, data, progress=ShownProgress(quiet), **options)
    if as_json:
        click.echo(json.dumps(asdict(found), default=lambda array: array.tolist()))
        return
    click.echo(f"estimates from {found.sampled:,} of {found.rows:,} rows, ± standard errors")
    click.echo("component       u'Kc u         95 % interval   relative residual")
    for number, line in enumerate(zip(found.eigenvalues, found.intervals, found.residuals, strict=True), 1):
        value, (low, high), residual = line
        interval = f"{low:#.6g} to {high:#.6g}"
        click.echo(f"{number:>9}   {value:>#10.6g}   {interval:>19}   {residual:>17.2g}")
    click.echo("Some eigenvalue of the exact matrix Kc is within the relative residual of u'Kc u, u the unit scores.")
    frobenius, total = found.frobenius, found.total_variance
    click.echo(f"total variance   {total.value:.6g} ± {total.standard_error:.2g}")
    click.echo(f"|K - K^|_F       {frobenius.value:.6g} ± {frobenius.standard_error:.2g}")
