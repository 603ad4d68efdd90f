"""Fit a model, and estimate its cost beforehand."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from bigkpca.cli.options import PATH, fit_options, given, json_option, overwrite_option, run_options, running
from bigkpca.cli.output import show, show_choices, show_spectrum
from bigkpca.cli.progress import Report
from bigkpca.spec import FitSpec, resolve

if TYPE_CHECKING:
    from bigkpca.execution.engine import Engine

_UNITS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))  # from so many seconds on, and their length


@click.command()
@click.argument("data", type=PATH)
@fit_options
@json_option
@running
def plan(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate the cost of fitting DATA without running it, and check it against --memory and the workers."""
    from bigkpca.data.opening import open_rows
    from bigkpca.execution.planning import Threads, measured_speed, not_timed, plan_resolved, timed
    from bigkpca.fitting.memory_limits import check_fits

    rows, spec = open_rows(data, options["array"]), FitSpec.checked(**given(options))
    run = run_options(options, Report(quiet))
    with run.engine() as engine:
        fit = resolve(spec, rows)
        planned, unknown = plan_resolved(rows, fit, engine.threads), not_timed(rows, fit)
        if unknown is None:
            planned = timed(planned, fit, measured_speed(), Threads(engine.all_threads, engine.threads))
        facts = asdict(planned)
        if not as_json:
            seconds = facts.pop("expected_seconds")
            facts["expected_time"] = f"not known: {unknown}" if unknown else _told(seconds, engine)
        show(facts, as_json)
        check_fits(rows, fit, engine, run.memory_limit)


def _told(seconds: float, engine: Engine) -> str:
    """An expected time in two digits, and what it holds for."""
    _, length, unit = next(each for each in _UNITS if seconds >= each[0])
    count = engine.all_threads
    threads = "1 thread" if count == 1 else f"{count} threads"
    where = f"on this machine, {threads}"
    if engine.client is not None:
        where = f"on {threads} of workers, if each is as fast as one of this machine"
    return f"about {float(f'{seconds / length:.2g}'):,g} {unit} {where}"


@click.command()
@click.argument("data", type=PATH)
@click.argument("model", type=PATH)
@fit_options
@click.option("--time-budget", metavar="TIME", help="With --tol: stop growing the size after this time, e.g. '10 min'.")
@overwrite_option
@click.option("--transform", type=PATH, metavar="OUT", help="Also write the scores of DATA to the feature store OUT.")
@running
def fit(data: str, model: str, quiet: bool, transform: str | None, **options: Any) -> None:
    """Fit kernel PCA to DATA and save it as MODEL."""
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows import fit

    run = {
        key: options[key] for key in ("array", "scheduler", "workers", "memory", "timeout", "overwrite", "time_budget")
    }
    fitted = fit.fit(data, model, transform=transform, progress=Report(quiet), **run, **given(options))
    facts = model_info(fitted, model)
    shown = ("path", "method", "kernel", "landmarks", "random_features", "components", "bytes")
    about = {key: facts[key] for key in shown if key in facts}
    if transform is not None:
        about["scores"] = f"{transform}, {fitted.provenance['identity']['shape'][0]:,} × {fitted.components:,}"
    show(about, False)
    show_choices(facts)
    show_spectrum(facts)
