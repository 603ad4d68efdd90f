"""Fit a model, estimate the cost of a fit, find the kernel length sigma, and compare methods."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import (
    PATH,
    common,
    device_option,
    fit_options,
    given,
    json_option,
    overwrite_option,
    running,
    spec_options,
    whole_numbers,
)
from bigkpca.cli.printing import show, show_model
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.progress import ShownProgress
from bigkpca.spec import VARIED, FitSpec
from bigkpca.spec.units import SEEDS


@command(
    "bigkpca plan rows.zarr",
    "bigkpca plan rows.zarr --size 4000 --memory '2 GB' --workers 4",
)
@click.argument("data", type=PATH)
@fit_options
@json_option
@device_option
@running
def plan(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate the cost of fitting DATA without fitting, and check it against --memory and the workers."""
    from bigkpca.workflows import estimates

    fields, run = given(options)
    facts = asdict(estimates.plan(data, progress=ShownProgress(quiet), **run, **fields))
    refused = facts.pop("refused")
    show(facts, as_json)
    if refused:
        raise MemoryLimitError(refused)


@command(
    "bigkpca fit rows.zarr model.zarr --components 20",
    "bigkpca fit rows.zarr model.zarr --kernel matern:nu=2.5 --size 2000 --transform scores.zarr",
    "bigkpca fit flights.zarr model.zarr --standardize --weight origin=4 --weight day=0.5",
    "bigkpca fit survey.zarr model.zarr --sample-weight sample_weight",
    "bigkpca fit rows.zarr model.zarr --tol 0.01 --memory '4 GB'",
    "bigkpca fit more-rows.zarr second.zarr --like model.zarr",
    "bigkpca fit rows.zarr model.zarr --scheduler tcp://scheduler:8786 --memory '4 GB'",
    "bigkpca fit rows.zarr model.zarr --device cuda",
)
@click.argument("data", type=PATH)
@click.argument("model", type=PATH)
@fit_options
@overwrite_option
@option("--transform", type=PATH, metavar="OUT", help="Also write the scores of DATA to the feature store OUT.")
@option(
    "--like",
    type=PATH,
    metavar="MODEL",
    help="Use the kernel, landmarks and scaling of this model, so that both can be merged: see bigkpca merge.",
)
@option(
    "--sample-weight",
    metavar="NAME",
    help="Weights of the rows: an array in the dataset (sample_weight, if ingest made it), or a file (.npy or Zarr).",
)
@device_option
@running
def fit(data: str, model: str, quiet: bool, **options: Any) -> None:
    """Fit kernel PCA to DATA and save it as MODEL."""
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows import fit

    fields, others = given(options)
    fitted = fit.fit(data, model, progress=ShownProgress(quiet), **others, **fields)
    written = {}
    if (scores := others["transform"]) is not None:
        written["scores"] = f"{scores}, {fitted.provenance['identity']['shape'][0]:,} × {fitted.components:,}"
    names = ("path", "method", "kernel", "landmarks", "random_features", "components", "bytes")
    show_model(model_info(fitted, model), names, **written)


@command(
    "bigkpca sigma rows.zarr",
    "bigkpca sigma rows.zarr --kernel laplacian --standardize",
)
@click.argument("data", type=PATH)
@spec_options(["kernel", "random_state", "standardize", "column_weights"])
@json_option
@running
def sigma(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Print candidate lengths sigma, from distances between sampled pairs, each with its sampling error."""
    from bigkpca.workflows import estimates

    fields, run = given(options)
    lengths = estimates.sigma(data, progress=ShownProgress(quiet), **fields, **run)
    if as_json:
        click.echo(json.dumps({name: asdict(length) for name, length in lengths.items()}))
        return
    for name, length in lengths.items():
        click.echo(f"{name.replace('_', ' '):<14} {length.sigma:>12.6g}  ± {length.standard_error:.2g}")


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
