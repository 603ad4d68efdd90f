"""Merge models."""

from __future__ import annotations

import click

from bigkpca.cli.help_pages import command
from bigkpca.cli.options import PATH, overwrite_option
from bigkpca.cli.output import show, show_choices, show_spectrum


@command(
    "bigkpca merge monday.zarr tuesday.zarr week.zarr",
    "bigkpca merge s3://lab/day1.zarr s3://lab/day2.zarr s3://lab/day3.zarr model.zarr --overwrite",
)
@click.argument("models", type=PATH, nargs=-1, required=True)
@click.argument("out", type=PATH)
@overwrite_option
def merge(models: tuple[str, ...], out: str, overwrite: bool) -> None:
    """Add up MODELS, fitted with the same features to different rows, and save the model of all rows as OUT.

    Fit the first part, then each other one with fit --like FIRST_MODEL: on other machines, without a cluster.
    """
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows.merge import merge

    facts = model_info(merge(models, out, overwrite=overwrite), out)
    shown = ("path", "method", "kernel", "landmarks", "random_features", "rows", "components", "bytes")
    show({key: facts[key] for key in shown if key in facts}, False)
    show_choices(facts)
    show_spectrum(facts)
