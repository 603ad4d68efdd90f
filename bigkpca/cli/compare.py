"""Compare all methods on the user's data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import (
    PATH,
    array_option,
    common,
    given,
    json_option,
    memory_option,
    overwrite_option,
    spec_options,
    whole_numbers,
)
from bigkpca.cli.output import aligned
from bigkpca.execution.progress import ShownProgress
from bigkpca.numerics.display import share_at_most
from bigkpca.spec import VARIED, FitSpec
from bigkpca.spec.units import SEEDS

_COLUMNS = {
    "seconds": ("seconds", "{:.2f}".format),
    "planned_mb": ("planned MB", "{:.0f}".format),
    "score_error": ("scores", "{:.2%}".format),
    "eigenvalue_error": ("eigenvalues", "{:.2%}".format),
    "cosine": ("cosine", "{:.4f}".format),
    "preimage_error": ("pre-images", "{:.2%}".format),
    "unexplained": ("proven", share_at_most),
}


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
@array_option
@memory_option("Leave out fits for which a process would need more, e.g. '2 GB'.")
@overwrite_option
@json_option
@common
def compare(
    data: str, outdir: str, methods: str | None, sizes: list[int] | None, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Fit DATA with every method, and write error against time to OUTDIR: compare.csv and compare.svg."""
    from bigkpca.comparing import compare as run

    fields, others = given(options)
    grid: dict[str, Any] = {"methods": methods or (), "sizes": sizes or ()}
    found = run(data, outdir, **grid, progress=ShownProgress(quiet), **others, **fields)
    if as_json:
        facts = {"reference": found.reference, "advice": found.advice, "pca_note": found.pca_note}
        trials = [{name: _known(value) for name, value in asdict(trial).items()} for trial in found.trials]
        click.echo(json.dumps({"path": found.path, **facts, "pca_error": _known(found.pca_error), "trials": trials}))
        return
    click.echo(f"errors against {found.reference}; medians over seeds")
    lines = [["method", "size", *(title for title, _ in _COLUMNS.values())]]
    for each in found.medians:
        cells = (_shown(getattr(each, name), form) for name, (_, form) in _COLUMNS.items())
        lines.append([each.method, f"{each.size:,}", *cells])
    click.echo("\n".join([*aligned(lines, range(1)), found.advice, found.pca_note, f"path  {found.path}"]))


def _shown(value: float, form: Callable[[float], str]) -> str:
    return "-" if math.isnan(value) else form(value)


def _known(value: Any) -> Any:
    """The value for JSON, which has no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value
