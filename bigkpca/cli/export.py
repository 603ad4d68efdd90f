"""Write rows for other programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.options import PATH, common, overwrite_option
from bigkpca.cli.output import show
from bigkpca.execution.shown_progress import ShownProgress


@click.command()
@click.argument("scores", type=PATH)
@click.argument("out", metavar="OUT.csv|.parquet|.npy|.onnx", type=PATH)
@click.option("--labels", type=PATH, metavar="PATH|NAME", help="Add labels: a file, or an array beside the rows (y).")
@click.option("--row-numbers", is_flag=True, help="Add the number of each row, counted from 0.")
@click.option("--array", metavar="NAME", help="Array of the rows inside their Zarr group.")
@overwrite_option
@common
def export(scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write SCORES, or any rows, to the file OUT: columns kernelpca0, kernelpca1 and so on. Or a model as .onnx."""
    from bigkpca.workflows import export

    show(asdict(export.export(scores, out, progress=ShownProgress(quiet), **options)), False)
