"""The length sigma of a kernel: by rule, or by cross-validation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bigkpca.cli.options import PATH, json_option, running
from bigkpca.cli.progress import Report
from bigkpca.errors import SpecError
from bigkpca.spec import FitSpec, resolve

if TYPE_CHECKING:
    from bigkpca.evaluating.cross_validation import CrossValidation

_COLUMNS = ("sigma", "components", "ridge", "error", "standard_error")


@click.command(short_help="Find a length sigma for the kernel.")
@click.argument("data", type=PATH)
@click.option(
    "--kernel", metavar="NAME", default="gaussian", show_default=True, help="The kernel whose length is asked for."
)
@click.option("--seed", metavar="N", default="0", show_default=True, help="Seed of the sample.")
@click.option("--standardize", is_flag=True, help="Lengths for columns brought to mean 0 and deviation 1.")
@click.option("--cv", is_flag=True, help="Choose by how well pre-images restore held-out rows of a sample.")
@click.option("--preimage", metavar="WAY", help="With --cv: the way back from scores to rows.  [default: ridge]")
@click.option("--noise", type=float, metavar="SD", help="With --cv: restore rows from noise of this deviation.")
@click.option("--size", metavar="L", help="With --cv: landmarks of each fit.  [default: auto]")
@click.option("--components", metavar="R,R,...", help="With --cv: numbers of components to try.")
@click.option("--save", type=PATH, metavar="FILE", help="With --cv: write every setting that was tried to a .csv file.")
@json_option
@running
def sigma(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Candidate lengths sigma from distances of sampled pairs, each with its sampling error."""
    from bigkpca.data.opening import open_rows
    from bigkpca.execution.clusters import open_engine
    from bigkpca.execution.planning import check_peak, sample_bytes
    from bigkpca.fitting.sample import sample_lengths

    fields = {key: options[key] for key in ("kernel", "seed", "standardize")}
    if options["cv"]:
        _cross_validated(data, fields, as_json, quiet, options)
        return
    for name in ("preimage", "noise", "size", "components", "save"):
        if options[name] is not None:
            raise SpecError(f"--{name} is for --cv: add it, or leave --{name} out")
    spec, rows = FitSpec.checked(**fields), open_rows(data, options["array"])
    with open_engine(options["scheduler"], options["workers"]) as engine:
        fit = resolve(spec, rows)
        check_peak(sample_bytes(rows, fit, engine.threads), options["memory"], "allow more")
        engine.check_memory(lambda threads: sample_bytes(rows, fit, threads))
        lengths = sample_lengths(rows, spec, engine, Report(quiet))
    if as_json:
        click.echo(json.dumps({name: asdict(length) for name, length in lengths.items()}))
        return
    for name, length in lengths.items():
        click.echo(f"{name.replace('_', ' '):<14} {length.sigma:>12.6g}  ± {length.standard_error:.2g}")


def _cross_validated(data: str, fields: dict[str, Any], as_json: bool, quiet: bool, options: Mapping[str, Any]) -> None:
    """The error of each setting, a mark at the best, and the command that uses it."""
    from bigkpca.data.opening import open_rows
    from bigkpca.evaluating.cross_validation import cross_validate
    from bigkpca.execution.clusters import open_engine

    way = options["preimage"] or "ridge"
    spec = FitSpec.checked(**fields, preimage=way, noise=options["noise"], size=options["size"] or "auto")
    tried = options["components"]
    numbers = [_number(part) for part in tried.split(",")] if tried else None
    if options["save"]:
        _check_place(options["save"])
    with open_engine(options["scheduler"], options["workers"]) as engine:
        rows, limit = open_rows(data, options["array"]), options["memory"]
        found = cross_validate(rows, spec, engine, Report(quiet), components=numbers, limit=limit)
    if options["save"]:
        _save_settings(options["save"], found.settings)
    best = found.best
    if as_json:
        click.echo(json.dumps({**asdict(found), "best": asdict(best), "edges": found.edge_notes}))
        return
    units = ", columns in their standard deviations" if found.standardized else ""
    click.echo(f"mean squared error of pre-images{units}, {found.folds} folds of {found.rows:,} rows")
    click.echo("       sigma   components   ridge        error")
    for one in found.curve():
        ridge = "" if one.ridge is None else f"{one.ridge:g}"
        mark = "  best" if one == best else ""
        error = f"{one.error:>10.5g} ± {one.standard_error:.1g}"
        click.echo(f"{one.sigma:>12.6g}   {one.components:>10}   {ridge:<6}{error}{mark}")
    for edge in found.edge_notes:
        click.echo(edge)
    click.echo(_command(data, options["array"], spec, found))


def _command(data: str, array: str | None, spec: FitSpec, found: CrossValidation) -> str:
    """The fit with the best setting, whole: every option of the cross-validation that is not the default."""
    from bigkpca.numerics import preimages

    best, way = found.best, spec.preimage_value
    if best.ridge is not None:
        assert isinstance(way, preimages.Ridge | preimages.Denoising)
        way = replace(way, ridge=best.ridge)
    if isinstance(way, preimages.Denoising) and spec.noise:
        way = replace(way, noise=None)  # it is an option of its own
    words = ["bigkpca", "fit", data, "MODEL", "--sigma", f"{best.sigma:.6g}", "--components", str(best.components)]
    words += ["--preimage", preimages.written(way), "--size", str(found.size)]
    given, default = {name: getattr(spec, name) for name in ("kernel", "seed", "noise")}, FitSpec()
    for name, value in given.items():
        words += [f"--{name}", str(value)] if value != getattr(default, name) else []
    words += ["--standardize"] if spec.standardize else []
    words += ["--array", array] if array else []
    return shlex.join(words)


def _check_place(path: str) -> None:
    """Raise SpecError where the settings cannot be written, before any work."""
    place = Path(path)
    if not place.absolute().parent.is_dir():
        raise SpecError(f"{path} cannot be written: its folder does not exist")
    if place.is_dir():
        raise SpecError(f"{path} is a folder: give the name of a file, e.g. settings.csv")
    if place.exists() and not place.read_bytes().startswith(",".join(_COLUMNS).encode()):
        raise SpecError(
            f"{path} exists and was not made by bigkpca sigma, so it is never replaced: choose another path, or move "
            "it away yourself"
        )


def _number(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise SpecError(f"--components {text}: give numbers of components, e.g. 10,50,200")
    return int(text)


def _save_settings(path: str, settings: Any) -> None:
    import csv

    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        writer.writerows([getattr(one, column) for column in _COLUMNS] for one in settings)
