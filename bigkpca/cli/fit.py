"""Fit a model, and estimate its cost beforehand."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from bigkpca.cli.help_pages import command, option
from bigkpca.cli.options import PATH, fit_options, given, json_option, overwrite_option, running
from bigkpca.cli.output import show, show_choices, show_spectrum
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.shown_progress import ShownProgress

if TYPE_CHECKING:
    from bigkpca.execution.planning import Plan

_TOLD_OTHERWISE = ("not_timed", "threads", "on_workers", "refused")
_UNITS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (0.0, 1.0, "s"))  # from so many seconds on, and their length


@command(
    "bigkpca plan rows.zarr",
    "bigkpca plan rows.zarr --size 4000 --memory '2 GB' --workers 4",
)
@click.argument("data", type=PATH)
@fit_options
@json_option
@running
def plan(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate the cost of fitting DATA without running it, and check it against --memory and the workers."""
    from bigkpca.workflows import choosing

    run = {key: options[key] for key in ("array", "scheduler", "workers", "memory", "timeout")}
    found = choosing.plan(data, progress=ShownProgress(quiet), **run, **given(options))
    facts = {key: value for key, value in asdict(found).items() if key not in _TOLD_OTHERWISE}
    if not as_json:
        seconds = facts.pop("expected_seconds")
        facts["expected_time"] = f"not known: {found.not_timed}" if found.not_timed else _told(seconds, found)
    show(facts, as_json)
    if found.refused:
        raise MemoryLimitError(found.refused)


def _told(seconds: float, plan: Plan) -> str:
    """An expected time in two digits, and what it holds for."""
    _, length, unit = next(each for each in _UNITS if seconds >= each[0])
    threads = "1 thread" if plan.threads == 1 else f"{plan.threads} threads"
    where = f"on this machine, {threads}"
    if plan.on_workers:
        where = f"on {threads} of workers, if each is as fast as one of this machine"
    return f"about {float(f'{seconds / length:.2g}'):,g} {unit} {where}"


@command(
    "bigkpca fit rows.zarr model.zarr --components 20",
    "bigkpca fit rows.zarr model.zarr --kernel matern:nu=2.5 --size 2000 --transform scores.zarr",
    "bigkpca fit rows.zarr model.zarr --tol 0.01 --time-budget '10 min'",
    "bigkpca fit more-rows.zarr second.zarr --like model.zarr",
    "bigkpca fit rows.zarr model.zarr --scheduler tcp://scheduler:8786 --memory '4 GB'",
)
@click.argument("data", type=PATH)
@click.argument("model", type=PATH)
@fit_options
@option(
    "--time-budget",
    metavar="TIME",
    unset="no limit",
    help="With --tol: stop growing the size after this time, e.g. '10 min'.",
)
@overwrite_option
@option(
    "--transform",
    type=PATH,
    metavar="OUT",
    unset="none",
    help="Also write the scores of DATA to the feature store OUT.",
)
@option(
    "--like",
    type=PATH,
    metavar="MODEL",
    unset="none",
    help="Take kernel, landmarks and scaling from this model, so that both add up: see bigkpca merge.",
)
@running
def fit(data: str, model: str, quiet: bool, transform: str | None, like: str | None, **options: Any) -> None:
    """Fit kernel PCA to DATA and save it as MODEL."""
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows import fit

    run = {
        key: options[key] for key in ("array", "scheduler", "workers", "memory", "timeout", "overwrite", "time_budget")
    }
    fitted = fit.fit(
        data, model, transform=transform, like=like, progress=ShownProgress(quiet), **run, **given(options)
    )
    facts = model_info(fitted, model)
    shown = ("path", "method", "kernel", "landmarks", "random_features", "components", "bytes")
    about = {key: facts[key] for key in shown if key in facts}
    if transform is not None:
        about["scores"] = f"{transform}, {fitted.provenance['identity']['shape'][0]:,} × {fitted.components:,}"
    show(about, False)
    show_choices(facts)
    show_spectrum(facts)
