"""Use existing models and outputs: scores and pre-images of rows, merge, evaluate, export, report and verify."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import (
    PATH,
    Command,
    common,
    device_option,
    json_option,
    overwrite_option,
    running,
    whole_numbers,
)
from bigkpca.cli.printing import show, show_flagged, show_model
from bigkpca.execution.progress import ShownProgress
from bigkpca.spec.units import SAMPLED_ROWS


@command(
    "bigkpca merge monday.zarr tuesday.zarr week.zarr",
    "bigkpca merge s3://lab/day1.zarr s3://lab/day2.zarr s3://lab/day3.zarr model.zarr --overwrite",
)
@click.argument("models", type=PATH, nargs=-1, required=True)
@click.argument("out", type=PATH)
@overwrite_option
def merge(models: tuple[str, ...], out: str, overwrite: bool) -> None:
    """Merge MODELS, fitted with the same features to different rows, and save the model of all rows as OUT.

    Fit the first part, then every other part with fit --like FIRST_MODEL, on any machine, without a cluster.
    """
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows.fit import merge

    facts = model_info(merge(models, out, overwrite=overwrite), out)
    show_model(facts, ("path", "method", "kernel", "landmarks", "random_features", "rows", "components", "bytes"))


@command(
    "bigkpca evaluate model.zarr rows.zarr",
    "bigkpca evaluate model.zarr rows.zarr --sample 1000 --json",
)
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@option(
    "--sample",
    type=click.IntRange(2),
    metavar="N",
    show_default=f"{SAMPLED_ROWS}, or all",
    help="Number of rows whose kernels are computed exactly.",
)
@option("--random-state", "--seed", type=click.IntRange(0), default=0, metavar="N", help="Seed of the sample.")
@json_option
@running
def evaluate(model: str, data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate the error of MODEL on DATA, fitted or new, from exact kernels between sampled rows."""
    from bigkpca.storage.describe import captured_in_words, captured_info
    from bigkpca.storage.models import load_model
    from bigkpca.workflows import estimates

    fitted = load_model(model)
    found = estimates.evaluate(fitted, data, progress=ShownProgress(quiet), **options)
    explained = None if found.captured is None else captured_info(found.captured, fitted.variables)
    if as_json:
        facts = {**asdict(found), "captured": explained}
        click.echo(json.dumps(facts, default=lambda array: array.tolist()))
        return
    click.echo(
        f"shares of the variance in feature space, from {found.sampled:,} of {found.rows:,} rows, ± standard errors"
    )
    click.echo(f"explained by the scores    {found.explained}")
    click.echo(f"missed by the features     {found.unexplained}")
    click.echo(f"error of the kernel        {found.kernel}")
    for name, words in (captured_in_words(explained) if explained else {}).items():
        click.echo(f"{name}: {words}")


@command(
    "bigkpca export scores.zarr scores.csv --labels y",
    "bigkpca export scores.zarr scores.parquet",
    "bigkpca export model.zarr model.onnx",
)
@click.argument("scores", type=PATH)
@click.argument("out", metavar="OUT.csv|.parquet|.npy|.onnx", type=PATH)
@option(
    "--labels",
    type=PATH,
    metavar="PATH|NAME",
    help="Add labels: a file, or the name of an array beside the rows (y).",
)
@overwrite_option
@common
def export(scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write SCORES, or any rows, to the file OUT, with columns kernelpca0, kernelpca1, ...; or a model as .onnx."""
    from bigkpca.workflows import export

    show(asdict(export.export(scores, out, progress=ShownProgress(quiet), **options)), False)


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
    show_default="those of sampled rows",
    help="Feature store or array of scores to show.",
)
@option(
    "--labels",
    type=PATH,
    metavar="PATH|NAME",
    show_default="y, if it exists",
    help="Labels: a file, or the name of an array beside the rows.",
)
@option(
    "--image-shape",
    callback=whole_numbers,
    metavar="H,W",
    show_default="their shape before ingest",
    help="Show rows as images.",
)
@overwrite_option
@common
def report(model: str, out: str, quiet: bool, **options: Any) -> None:
    """Draw one page, OUT.html, that shows how accurate MODEL is and what it found."""
    from bigkpca.data.stores import store_of
    from bigkpca.reporting import report as draw

    path = draw(model, out, progress=ShownProgress(quiet), **options)
    show({"path": path, "bytes": store_of(path).file(path).bytes}, False)


@command("bigkpca verify scores.zarr")
@click.argument("path", type=PATH)
@json_option
@running
def verify(path: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Read everything stored at PATH and check it: arrays against the checksums of their chunks, and a model also
    against its digest."""
    from bigkpca.workflows import verify

    found = verify.verify(path, progress=ShownProgress(quiet), **options)
    show(asdict(found) | {"shape": list(found.shape)}, as_json)
    if not as_json:
        click.echo("all intact")


def _writing(command: Command) -> Command:
    """Options of commands that write block by block."""
    rows = option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows per task and chunk.")
    return rows(overwrite_option(running(command)))


@command(
    "bigkpca transform model.zarr rows.zarr scores.zarr",
    "bigkpca transform model.zarr rows.zarr scores.zarr --residual",
    "bigkpca transform model.zarr rows.zarr flagged.zarr --flag 0.01",
)
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.argument("out", type=PATH)
@click.option("--residual", is_flag=True, help="Also write the residual of each row, which is large for novel rows.")
@option(
    "--flag",
    type=float,
    metavar="SHARE",
    help="Flag unusual rows, and at most this share of ordinary rows, e.g. 0.01; the model needs --calibration-rows.",
)
@device_option
@_writing
def transform(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the scores of DATA under MODEL to the feature store OUT."""
    from bigkpca.storage.models import load_model
    from bigkpca.workflows import transform
    from bigkpca.workflows.flags import flagged_rows

    scores = transform.transform(model, data, out, progress=ShownProgress(quiet), **options)
    show({"path": out, "shape": list(scores.shape), "dtype": str(scores.dtype)}, False)
    if (found := flagged_rows(out)) is not None:
        show_flagged(found, load_model(model).check_calibrated())


@command("bigkpca reconstruct model.zarr scores.zarr restored.zarr")
@click.argument("model", type=PATH)
@click.argument("scores", type=PATH)
@click.argument("out", type=PATH)
@_writing
def reconstruct(model: str, scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the pre-images of SCORES of MODEL to OUT: rows with approximately these scores."""
    from bigkpca.workflows import transform

    _show_rows(out, transform.reconstruct(model, scores, out, progress=ShownProgress(quiet), **options))


@command("bigkpca denoise model.zarr noisy.zarr clean.zarr --workers 4")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.argument("out", type=PATH)
@_writing
def denoise(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the denoised rows of DATA to OUT: transform and reconstruct with MODEL in one pass."""
    from bigkpca.workflows import transform

    _show_rows(out, transform.denoise(model, data, out, progress=ShownProgress(quiet), **options))


def _show_rows(out: str, x: Any) -> None:
    """Print the path and shape of pre-images, and how many are far or did not converge."""
    from bigkpca.storage import groups

    far = int(groups.open_values(out, "far")[:].sum())
    stopped = x.shape[0] - int(groups.open_values(out, "converged")[:].sum()) - far
    show({"path": out, "shape": list(x.shape), "dtype": str(x.dtype), "not_converged": stopped, "far": far}, False)
