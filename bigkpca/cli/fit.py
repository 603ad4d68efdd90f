"""Fit a model, and estimate its cost beforehand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.options import PATH, fit_options, given, json_option, overwrite_option, run_options, running
from bigkpca.cli.output import show, show_choices, show_spectrum
from bigkpca.cli.progress import Report
from bigkpca.spec import FitSpec, resolve


@click.command()
@click.argument("data", type=PATH)
@fit_options
@json_option
@running
def plan(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate the cost of fitting DATA without running it, and check it against --memory and the workers."""
    from bigkpca.data.opening import open_rows
    from bigkpca.execution.planning import plan_fit
    from bigkpca.fitting.memory_limits import check_fits

    rows, spec = open_rows(data, options["array"]), FitSpec.checked(**given(options))
    run = run_options(options, Report(quiet))
    with run.engine() as engine:
        show(asdict(plan_fit(rows, spec, engine.threads)), as_json)
        check_fits(rows, resolve(spec, rows), engine, run.memory_limit)


@click.command()
@click.argument("data", type=PATH)
@click.argument("model", type=PATH)
@fit_options
@click.option("--time-budget", metavar="TIME", help="With --tol: stop growing the size after this time, e.g. '10 min'.")
@overwrite_option
@running
def fit(data: str, model: str, quiet: bool, **options: Any) -> None:
    """Fit kernel PCA to DATA and save it as MODEL."""
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows import fit

    run = {
        key: options[key] for key in ("array", "scheduler", "workers", "memory", "timeout", "overwrite", "time_budget")
    }
    fitted = fit.fit(data, model, progress=Report(quiet), **run, **given(options))
    facts = model_info(fitted, model)
    shown = ("path", "method", "kernel", "landmarks", "random_features", "components", "bytes")
    show({key: facts[key] for key in shown if key in facts}, False)
    show_choices(facts)
    show_spectrum(facts)
