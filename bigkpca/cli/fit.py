"""Fit a model, estimate the cost of a fit, and find the kernel length sigma."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import (
    PATH,
    device_option,
    fit_options,
    given,
    json_option,
    overwrite_option,
    running,
    spec_options,
)
from bigkpca.cli.printing import show, show_model
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.progress import ShownProgress


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
    if not facts["device"]:
        del facts["device"]
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
