"""A model: what it costs, its fit, and how wrong it is."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.options import fit_options, given, json_option, overwrite_option, running
from bigkpca.cli.progress import Report
from bigkpca.cli.shown import show, show_choices, show_spectrum
from bigkpca.spec import FitSpec


@click.command(short_help="Tell what a fit would cost.")
@click.argument("data")
@fit_options
@json_option
@running
def plan(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Tell what a fit of DATA would cost, without running it, and whether it fits --memory and the workers."""
    from bigkpca.data.opening import open_rows
    from bigkpca.execution.engine import open_engine
    from bigkpca.execution.planning import plan_fit
    from bigkpca.fitting.fit import check_fits

    rows, spec = open_rows(data, options["array"]), FitSpec.checked(**given(options))
    with open_engine(options["scheduler"], options["workers"]) as engine:
        show(asdict(plan_fit(rows, spec, engine.threads)), as_json)
        check_fits(rows, spec, engine, options["memory"])


@click.command(short_help="Fit kernel PCA and save the model.")
@click.argument("data")
@click.argument("model")
@fit_options
@click.option("--time-budget", metavar="TIME", help="With --tol: end the growth of the size in time, e.g. '10 min'.")
@overwrite_option
@running
def fit(data: str, model: str, quiet: bool, **options: Any) -> None:
    """Fit kernel PCA to DATA and save it as MODEL."""
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows import fit

    run = {key: options[key] for key in ("array", "scheduler", "workers", "memory", "overwrite", "time_budget")}
    fitted = fit.fit(data, model, progress=Report(quiet), **run, **given(options))
    facts = model_info(fitted, model)
    shown = ("path", "method", "kernel", "landmarks", "random_features", "components", "bytes")
    show({key: facts[key] for key in shown if key in facts}, False)
    show_choices(facts)
    show_spectrum(facts)


@click.command(short_help="Estimate how wrong a model is.")
@click.argument("model")
@click.argument("data")
@click.option(
    "--sample", type=click.IntRange(2), default=500, show_default=True, metavar="N", help="Rows with exact kernels."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of the sample.")
@json_option
@running
def evaluate(model: str, data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate how wrong MODEL is on DATA, fitted or new, from exact kernels with sampled rows: one pass."""
    from bigkpca.workflows import evaluate

    found = evaluate.evaluate(model, data, progress=Report(quiet), **options)
    if as_json:
        click.echo(json.dumps(asdict(found), default=lambda array: array.tolist()))
        return
    click.echo(f"estimates from {found.sampled:,} of {found.rows:,} rows, ± standard errors")
    click.echo("component   eigenvalue         95 % interval   relative residual")
    for number, line in enumerate(zip(found.eigenvalues, found.intervals, found.residuals, strict=True), 1):
        value, (low, high), residual = line
        interval = f"{low:#.6g} to {high:#.6g}"
        click.echo(f"{number:>9}   {value:>#10.6g}   {interval:>19}   {residual:>17.2g}")
    frobenius, total = found.frobenius, found.total_variance
    click.echo(f"total variance   {total.value:.6g} ± {total.standard_error:.2g}")
    click.echo(f"|K - K^|_F       {frobenius.value:.6g} ± {frobenius.standard_error:.2g}")
