"""A model at work on rows: scores, and the ways back."""

from __future__ import annotations

from typing import Any

import click

from bigkpca.cli.options import PATH, overwrite_option, running
from bigkpca.cli.output import show
from bigkpca.cli.progress import Report


@click.command(short_help="Write the scores of rows.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.argument("out", type=PATH)
@click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one task and one shard.")
@click.option("--residual", is_flag=True, help="Also write what scores leave out of each row: novelty.")
@overwrite_option
@running
def transform(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the scores of DATA under MODEL to the feature store OUT."""
    from bigkpca.workflows import transform

    scores = transform.transform(model, data, out, progress=Report(quiet), **options)
    show({"path": out, "shape": list(scores.shape), "dtype": str(scores.dtype)}, False)


def _show_rows(out: str, x: Any) -> None:
    """Where pre-images are, and what is known of them."""
    from bigkpca.storage import block_arrays

    far = int(block_arrays.values(out, "far").sum())
    stopped = x.shape[0] - int(block_arrays.values(out, "converged").sum()) - far
    facts = {"path": out, "shape": list(x.shape), "dtype": str(x.dtype), "not_converged": stopped, "far": far}
    show(facts, False)


@click.command(short_help="Write the rows that scores stand for.")
@click.argument("model", type=PATH)
@click.argument("scores", type=PATH)
@click.argument("out", type=PATH)
@click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one task and one shard.")
@overwrite_option
@running
def reconstruct(model: str, scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the rows that SCORES of MODEL stand for, their pre-images, to OUT."""
    from bigkpca.workflows import transform

    _show_rows(out, transform.reconstruct(model, scores, out, progress=Report(quiet), **options))


@click.command(short_help="Remove noise from rows.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.argument("out", type=PATH)
@click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one task and one shard.")
@overwrite_option
@running
def denoise(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write what MODEL makes of the rows of DATA to OUT: transform and reconstruct in one pass."""
    from bigkpca.workflows import transform

    _show_rows(out, transform.denoise(model, data, out, progress=Report(quiet), **options))
