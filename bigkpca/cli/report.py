"""Draw the report of a model."""

from __future__ import annotations

from typing import Any

import click

from bigkpca.cli.options import PATH, common, overwrite_option
from bigkpca.cli.output import show
from bigkpca.errors import SpecError
from bigkpca.execution.shown_progress import ShownProgress


@click.command()
@click.argument("model", type=PATH)
@click.argument("out", metavar="OUT.html", type=PATH)
@click.option(
    "--scores", type=PATH, metavar="PATH", help="Feature store, or array of scores, to show.  [default: sampled rows]"
)
@click.option(
    "--labels", type=PATH, metavar="PATH|NAME", help="Labels: a file, or an array beside the rows.  [default: y]"
)
@click.option("--image-shape", metavar="H,W", help="Show rows as pictures.  [default: their shape before ingest]")
@click.option("--array", metavar="NAME", help="Array of the rows inside their Zarr group.")
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
