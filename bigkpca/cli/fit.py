"""Fit a model, estimate the cost of a fit, and find the kernel length sigma."""

from __future__ import annotations

import csv
import io
import json
import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from bigkpca.cli.command import command, option
from bigkpca.cli.options import (
    PATH,
    default_of,
    device_option,
    fit_options,
    given,
    json_option,
    overwrite_option,
    running,
    weight_option,
    whole_numbers,
    word_option,
)
from bigkpca.cli.output import show, show_model
from bigkpca.data.stores import store_of
from bigkpca.errors import MemoryLimitError, SpecError
from bigkpca.execution.progress import ShownProgress
from bigkpca.numerics import preimages
from bigkpca.spec import FitSpec
from bigkpca.spec.units import SCORED_PREIMAGE

if TYPE_CHECKING:
    from bigkpca.evaluating import CrossValidation


@command(
    "bigkpca plan rows.zarr",
    "bigkpca plan rows.zarr --size 4000 --memory '2 GB' --workers 4",
)
@click.argument("data", type=PATH)
@fit_options
@json_option
@device_option
@running
def plan(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate the cost of fitting DATA without fitting, and check it against --memory and the workers."""
    from bigkpca.workflows import estimates

    fields, run = given(options)
    found = estimates.plan(data, progress=ShownProgress(quiet), **run, **fields)
    facts = asdict(found)
    del facts["refused"]
    if not found.device:
        del facts["device"], facts["device_bytes"]
    show(facts, as_json)
    if found.refused:
        raise MemoryLimitError(found.refused)


@command(
    "bigkpca fit rows.zarr model.zarr --components 20",
    "bigkpca fit rows.zarr model.zarr --kernel matern:nu=2.5 --size 2000 --transform scores.zarr",
    "bigkpca fit flights.zarr model.zarr --standardize --weight origin=4 --weight day=0.5",
    "bigkpca fit survey.zarr model.zarr --sample-weight sample_weight",
    "bigkpca fit rows.zarr model.zarr --tol 0.01 --time-budget '10 min'",
    "bigkpca fit more-rows.zarr second.zarr --like model.zarr",
    "bigkpca fit rows.zarr model.zarr --scheduler tcp://scheduler:8786 --memory '4 GB'",
    "bigkpca fit rows.zarr model.zarr --device cuda",
)
@click.argument("data", type=PATH)
@click.argument("model", type=PATH)
@fit_options
@option(
    "--time-budget",
    metavar="TIME",
    unset="no limit",
    help="With --tol: stop increasing the size after this time, e.g. '10 min'.",
)
@overwrite_option
@option(
    "--transform",
    type=PATH,
    metavar="OUT",
    unset="none",
    help="Also write the scores of DATA to the feature store OUT.",
)
@option(
    "--like",
    type=PATH,
    metavar="MODEL",
    unset="none",
    help="Use the kernel, landmarks and scaling of this model, so that both can be merged: see bigkpca merge.",
)
@option(
    "--sample-weight",
    metavar="NAME",
    unset="none",
    help="Weights of the rows: an array in the dataset (sample_weight, if ingest made it), or a file (.npy or Zarr).",
)
@device_option
@running
def fit(
    data: str,
    model: str,
    quiet: bool,
    transform: str | None,
    like: str | None,
    sample_weight: str | None,
    **options: Any,
) -> None:
    """Fit kernel PCA to DATA and save it as MODEL."""
    from bigkpca.storage.describe import model_info
    from bigkpca.workflows import fit

    fields, run = given(options)
    own: Any = {"transform": transform, "like": like, "sample_weight": sample_weight}
    fitted = fit.fit(data, model, progress=ShownProgress(quiet), **own, **run, **fields)
    facts = model_info(fitted, model)
    shown = ("path", "method", "kernel", "landmarks", "random_features", "components", "bytes")
    about = {key: facts[key] for key in shown if key in facts}
    if transform is not None:
        about["scores"] = f"{transform}, {fitted.provenance['identity']['shape'][0]:,} × {fitted.components:,}"
    show_model(facts, about)


_FIELDS = FitSpec.model_fields
_COLUMNS = ("sigma", "components", "ridge", "error", "standard_error")


@command(
    "bigkpca sigma rows.zarr",
    "bigkpca sigma rows.zarr --kernel laplacian --standardize",
    "bigkpca sigma rows.zarr --cv --components 10,50,200 --save settings.csv",
)
@click.argument("data", type=PATH)
@word_option("--kernel", "kernel", default=_FIELDS["kernel"].default, help="Kernel whose length to choose.")
@option(
    "--random-state", "--seed", metavar="N", default=str(_FIELDS["random_state"].default), help="Seed of the sample."
)
@option("--standardize", is_flag=True, help="Standardize the columns first.")
@weight_option
@option("--cv", is_flag=True, help="Cross-validate by the error of pre-images of held-out rows.")
@word_option("--preimage", "preimage", unset=SCORED_PREIMAGE, help="With --cv: how to turn scores back into rows.")
@option("--noise", type=float, metavar="SD", unset="none", help="With --cv: add noise of this standard deviation.")
@option("--size", metavar="L", unset=default_of("size"), help="With --cv: number of landmarks of each fit.")
@option(
    "--n-components",
    "--components",
    metavar="R,R,...",
    unset="automatic (a few, up to the size)",
    help="With --cv: numbers of components to try.",
)
@option(
    "--save",
    type=PATH,
    metavar="FILE",
    unset="none",
    help="With --cv: write all settings and errors to a .csv file.",
)
@json_option
@running
def sigma(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Print candidate lengths sigma, from distances between sampled pairs, each with its sampling error."""
    from bigkpca.execution.options import ReadingOptions
    from bigkpca.workflows import estimates

    fields = {key: options[key] for key in ("kernel", "random_state", "standardize", "column_weights")}
    run = {key: options[key] for key in ReadingOptions.__annotations__ if key in options}
    if options["cv"]:
        fields |= {
            "preimage": options["preimage"] or SCORED_PREIMAGE,
            "noise": options["noise"],
            "size": options["size"] or _FIELDS["size"].default,
        }
        tried = whole_numbers("--n-components", options["n_components"], "numbers of components, e.g. 10,50,200", 1)
        place = options["save"] and _check_place(options["save"], data)
        given_too: dict[str, Any] = {"n_components": tried}
        found = estimates.cross_validate(data, progress=ShownProgress(quiet), **given_too, **fields, **run)
        _show(found, data, options["array"], FitSpec.checked(**fields), as_json)
        if place:
            text = io.StringIO(newline="")
            writer = csv.writer(text)
            writer.writerow(_COLUMNS)
            writer.writerows([getattr(one, column) for column in _COLUMNS] for one in found.settings)
            store_of(place).write(place, text.getvalue().encode())
        return
    for name in ("preimage", "noise", "size", "n_components", "save"):
        if options[name] is not None:
            flag = f"--{name.replace('_', '-')}"
            raise SpecError(f"{flag} works only with --cv: add it, or leave {flag} out")
    lengths = estimates.sigma(data, progress=ShownProgress(quiet), **fields, **run)
    if as_json:
        click.echo(json.dumps({name: asdict(length) for name, length in lengths.items()}))
        return
    for name, length in lengths.items():
        click.echo(f"{name.replace('_', ' '):<14} {length.sigma:>12.6g}  ± {length.standard_error:.2g}")


def _show(found: CrossValidation, data: str, array: str | None, spec: FitSpec, as_json: bool) -> None:
    """Print the error of each setting, and the command that fits with the best one and the same other options."""
    best = found.best
    if as_json:
        click.echo(
            json.dumps({**asdict(found), "best": asdict(best), "edges": found.edge_notes, "pca_note": found.pca_note})
        )
        return
    units = ", in standard deviations of the columns" if found.standardized else ""
    units += ", times their weights" if found.weighted else ""
    click.echo(f"mean squared error of pre-images{units}, {found.folds} folds of {found.rows:,} rows")
    click.echo("       sigma   components   ridge        error")
    for one in found.curve():
        ridge = "" if one.ridge is None else f"{one.ridge:g}"
        mark = "  best" if one == best else ""
        error = f"{one.error:>10.5g} ± {one.standard_error:.1g}"
        click.echo(f"{one.sigma:>12.6g}   {one.components:>10}   {ridge:<6}{error}{mark}")
    for pca in found.pca:
        click.echo(f"{'linear PCA':>12}   {pca.components:>10}         {pca.error:>10.5g} ± {pca.standard_error:.1g}")
    if (note := found.pca_note) is not None:
        click.echo(note)
    for edge in found.edge_notes:
        click.echo(edge)
    preimage: Any = spec.own_preimage  # noise is an option by itself
    if best.ridge is not None:
        preimage = replace(preimage, ridge=best.ridge)
    words = ["bigkpca", "fit", data, "MODEL", "--sigma", f"{best.sigma:.6g}", "--components", str(best.components)]
    words += ["--preimage", preimages.written(preimage), "--size", str(found.size)]
    for name in ("kernel", "random_state", "noise"):
        value = getattr(spec, name)
        words += [f"--{name.replace('_', '-')}", str(value)] if value != _FIELDS[name].default else []
    words += ["--standardize"] if spec.standardize else []
    weights: Any = spec.column_weights or {}
    words += [word for name, weight in weights.items() for word in ("--weight", f"{name}={weight!r}")]
    words += ["--array", array] if array else []
    click.echo(shlex.join(words))


def _check_place(path: str, data: str) -> str:
    """The path of the settings. Raises SpecError if they cannot be written there, before any work."""
    from bigkpca.storage.output import check_file, output_path

    mark = ",".join(_COLUMNS).encode()
    if not check_file(path, lambda head: head.startswith(mark), "settings.csv"):
        raise SpecError(
            f"{path} exists and was not made by bigkpca sigma, so it is never replaced: choose another path, or move "
            "the file away"
        )
    return output_path(path, data)
