"""Draw the report of a model."""

from __future__ import annotations

from typing import Any

import click

from bigkpca.cli.help_pages import command, option
from bigkpca.cli.options import PATH, array_option, common, overwrite_option
from bigkpca.cli.output import show
from bigkpca.errors import SpecError
from bigkpca.execution.shown_progress import ShownProgress


@command(
    "bigkpca report model.zarr report.html --scores scores.zarr",
    "bigkpca report model.zarr report.html --scores scores.zarr --labels y --image-shape 28,28",
)
@click.argument("model", type=PATH)
@click.argument("out", metavar="OUT.html", type=PATH)
@option(
    "--scores",
    type=PATH,
    metavar="PATH",
    unset="those of sampled rows",
    help="Feature store, or array of scores, to show.",
)
@option(
    "--labels",
    type=PATH,
    metavar="PATH|NAME",
    unset="y, where it is there",
    help="Labels: a file, or an array beside the rows.",
)
@option("--image-shape", metavar="H,W", unset="their shape before ingest", help="Show rows as pictures.")
@array_option("Array of the rows inside their Zarr group.")
@overwrite_option
@common
def report(model: str, out: str, image_shape: str | None, quiet: bool, **options: Any) -> None:
    """Draw one page, OUT.html, that shows how good MODEL is and what it found."""
    from bigkpca.data.stores import store_of
    from bigkpca.reporting import report as draw

    shape = _shape(image_shape) if image_shape else None
    path = draw(model, out, image_shape=shape, progress=ShownProgress(quiet), **options)
    show({"path": path, "bytes": store_of(path).file(path).bytes}, False)


def _shape(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise SpecError(f"--image-shape {text}: give height and width, e.g. 28,28")
    return tuple(map(int, parts))
