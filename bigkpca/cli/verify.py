"""Check what is stored."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.help_pages import command
from bigkpca.cli.options import PATH, json_option, running
from bigkpca.cli.output import show
from bigkpca.execution.shown_progress import ShownProgress


@command(
    "bigkpca verify scores.zarr",
)
@click.argument("path", type=PATH)
@json_option
@running
def verify(path: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Read all that is stored at PATH, and check it: scores and rows by the digests of their blocks, a model by its
    digest, datasets and other arrays by the checksums of their chunks."""
    from bigkpca.workflows import verify

    found = verify.verify(path, progress=ShownProgress(quiet), **options)
    show(asdict(found) | {"shape": list(found.shape)}, as_json)
    if not as_json:
        click.echo(f"checked {found.files:,} {'file' if found.files == 1 else 'files'}: nothing is wrong")
