"""Use a model on rows: scores, and pre-images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import PATH, Command, default_of, overwrite_option, running
from bigkpca.cli.output import show
from bigkpca.execution.progress import ShownProgress


def _writes_rows(
    given: str, examples: Sequence[str], *own: Callable[[Command], Command]
) -> Callable[[Command], click.Command]:
    """A command MODEL GIVEN OUT that writes block by block; `own` are its own options."""

    def decorate(function: Command) -> click.Command:
        options: tuple[Callable[[Command], Command], ...] = (
            running,
            overwrite_option,
            *own,
            option(
                "--block-rows",
                type=click.IntRange(1),
                metavar="N",
                unset=default_of("block_rows"),
                help="Rows of one task and one shard.",
            ),
            click.argument("out", type=PATH),
            click.argument(given, type=PATH),
            click.argument("model", type=PATH),
        )
        for each in options:
            function = each(function)
        return command(*examples)(function)

    return decorate


_residual_option = option("--residual", is_flag=True, help="Also write the residual of each row, large for novel rows.")
_dtype_option = option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    unset="by rule: that of the model",
    help="Store scores as this type; features are as precise as the model computes them.",
)
_components_option = option(
    "--components",
    type=click.IntRange(1),
    metavar="K",
    unset="all of the model",
    help="Write the scores of the K leading components alone.",
)


@_writes_rows(
    "data",
    (
        "bigkpca transform model.zarr rows.zarr scores.zarr",
        "bigkpca transform model.zarr rows.zarr leading.zarr --components 5 --dtype float64 --residual",
    ),
    _residual_option,
    _dtype_option,
    _components_option,
)
def transform(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the scores of DATA under MODEL to the feature store OUT."""
    from bigkpca.workflows import transform

    scores = transform.transform(model, data, out, progress=ShownProgress(quiet), **options)
    show({"path": out, "shape": list(scores.shape), "dtype": str(scores.dtype)}, False)


@_writes_rows("scores", ("bigkpca reconstruct model.zarr scores.zarr restored.zarr",))
def reconstruct(model: str, scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the pre-images of SCORES of MODEL to OUT: rows with about these scores."""
    from bigkpca.workflows import transform

    _show_rows(out, transform.reconstruct(model, scores, out, progress=ShownProgress(quiet), **options))


@_writes_rows("data", ("bigkpca denoise model.zarr noisy.zarr clean.zarr --workers 4",))
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
