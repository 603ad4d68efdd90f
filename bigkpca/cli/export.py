"""Write rows for other programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.help_pages import command, option
from bigkpca.cli.options import PATH, array_option, common, overwrite_option
from bigkpca.cli.output import show
from bigkpca.execution.shown_progress import ShownProgress


@command(
    "bigkpca export scores.zarr scores.csv --labels y --row-numbers",
    "bigkpca export scores.zarr scores.parquet",
    "bigkpca export model.zarr model.onnx",
)
@click.argument("scores", type=PATH)
@click.argument("out", metavar="OUT.csv|.parquet|.npy|.onnx", type=PATH)
@option(
    "--labels",
    type=PATH,
    metavar="PATH|NAME",
    unset="none",
    help="Add labels: a file, or an array beside the rows (y).",
)
@option("--row-numbers", is_flag=True, help="Add the number of each row, counted from 0.")
@array_option("Array of the rows inside their Zarr group.")
@overwrite_option
@common
def export(scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write SCORES, or any rows, to the file OUT: columns kernelpca0, kernelpca1 and so on. Or a model as .onnx."""
    from bigkpca.workflows import export

    show(asdict(export.export(scores, out, progress=ShownProgress(quiet), **options)), False)
