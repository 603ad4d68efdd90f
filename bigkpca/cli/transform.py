"""Use a model on rows: scores, and pre-images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from bigkpca.cli.options import PATH, Command, overwrite_option, running
from bigkpca.cli.output import show
from bigkpca.execution.shown_progress import ShownProgress


def _writes_rows(given: str, *own: Callable[[Command], Command]) -> Callable[[Command], click.Command]:
    """A command MODEL GIVEN OUT that writes block by block; `own` are its own options."""

    def decorate(command: Command) -> click.Command:
        options: tuple[Callable[[Command], Command], ...] = (
            running,
            overwrite_option,
            *own,
            click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one task and one shard."),
            click.argument("out", type=PATH),
            click.argument(given, type=PATH),
            click.argument("model", type=PATH),
        )
        for option in options:
            command = option(command)
        return click.command()(command)

    return decorate


_residual_option = click.option(
    "--residual", is_flag=True, help="Also write the residual of each row, large for novel rows."
)
_dtype_option = click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    show_default="by rule: that of the model",
    help="Store scores as this type; features are as precise as the model computes them.",
)
_components_option = click.option(
    "--components",
    type=click.IntRange(1),
    metavar="K",
    show_default="all of the model",
    help="Write the scores of the K leading components alone.",
)


@_writes_rows("data", _residual_option, _dtype_option, _components_option)
def transform(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the scores of DATA under MODEL to the feature store OUT."""
    from bigkpca.workflows import transform

    scores = transform.transform(model, data, out, progress=ShownProgress(quiet), **options)
    show({"path": out, "shape": list(scores.shape), "dtype": str(scores.dtype)}, False)


@_writes_rows("scores")
def reconstruct(model: str, scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the pre-images of SCORES of MODEL to OUT: rows with about these scores."""
    from bigkpca.workflows import transform

    _show_rows(out, transform.reconstruct(model, scores, out, progress=ShownProgress(quiet), **options))


@_writes_rows("data")
def denoise(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the denoised rows of DATA to OUT: transform and reconstruct with MODEL in one pass."""
    from bigkpca.workflows import transform

    _show_rows(out, transform.denoise(model, data, out, progress=ShownProgress(quiet), **options))


def _show_rows(out: str, x: Any) -> None:
    """Print path and shape of pre-images, and how many are far or not converged."""
    from bigkpca.storage import block_arrays

    far = int(block_arrays.values(out, "far").sum())
    stopped = x.shape[0] - int(block_arrays.values(out, "converged").sum()) - far
    facts = {"path": out, "shape": list(x.shape), "dtype": str(x.dtype), "not_converged": stopped, "far": far}
    show(facts, False)
