"""The length sigma of a kernel: by rule, or by cross-validation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bigkpca.cli.options import json_option, running
from bigkpca.cli.progress import Report
from bigkpca.errors import SpecError
from bigkpca.spec import FitSpec


@click.command()
@click.argument("data")
@click.option("--kernel", default="gaussian", show_default=True, help="The kernel whose length is asked for.")
@click.option("--seed", default="0", show_default=True, help="Seed of the sample.")
@click.option("--standardize", is_flag=True, help="Lengths for columns brought to mean 0 and deviation 1.")
@click.option("--cv", is_flag=True, help="Choose by how well pre-images restore held-out rows of a sample.")
@click.option("--preimage", default="ridge", show_default=True, help="With --cv: the way back from scores to rows.")
@click.option("--noise", type=float, metavar="SD", help="With --cv: restore rows from noise of this deviation.")
@click.option("--size", metavar="L", default="auto", show_default=True, help="With --cv: landmarks of each fit.")
@click.option("--components", metavar="R,R,...", help="With --cv: numbers of components to try.")
@click.option("--save", metavar="FILE", help="With --cv: write every setting that was tried to a .csv file.")
@json_option
@running
def sigma(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Candidate lengths sigma from distances of sampled pairs, each with its sampling error."""
    from bigkpca.choose import sample_lengths
    from bigkpca.engine import open_engine
    from bigkpca.sources import open_rows

    fields = {key: options[key] for key in ("kernel", "seed", "standardize")}
    if options["cv"]:
        _cross_validated(data, fields, as_json, quiet, options)
        return
    for name in ("noise", "components", "save"):
        if options[name] is not None:
            raise SpecError(f"--{name} is for --cv: add it, or leave --{name} out")
    run, spec = options, FitSpec.checked(**fields)
    with open_engine(run["scheduler"], run["workers"]) as engine:
        lengths = sample_lengths(open_rows(data, run["array"]), spec, engine, Report(quiet))
    if as_json:
        click.echo(json.dumps({name: asdict(length) for name, length in lengths.items()}))
        return
    for name, length in lengths.items():
        click.echo(f"{name.replace('_', ' '):<14} {length.sigma:>12.6g}  ± {length.standard_error:.2g}")


def _cross_validated(data: str, fields: dict[str, Any], as_json: bool, quiet: bool, options: Mapping[str, Any]) -> None:
    """The error of each setting, a mark at the best, and the command that uses it."""
    from bigkpca.crossvalidation import cross_validate
    from bigkpca.engine import open_engine
    from bigkpca.sources import open_rows

    spec = FitSpec.checked(**fields, **{key: options[key] for key in ("preimage", "noise", "size")})
    tried = options["components"]
    numbers = [_number(part) for part in tried.split(",")] if tried else None
    if options["save"] and not Path(options["save"]).absolute().parent.is_dir():
        raise SpecError(f"{options['save']} cannot be written: its folder does not exist")
    with open_engine(options["scheduler"], options["workers"]) as engine:
        rows = open_rows(data, options["array"])
        found = cross_validate(rows, spec, engine, Report(quiet), components=numbers)
    if options["save"]:
        _save_settings(options["save"], found.settings)
    best = found.best
    if as_json:
        click.echo(json.dumps({**asdict(found), "best": asdict(best)}))
        return
    click.echo(f"mean squared error of pre-images, {found.folds} folds of {found.rows:,} rows")
    click.echo("       sigma   components   ridge        error")
    for one in found.curve():
        ridge = "" if one.ridge is None else f"{one.ridge:g}"
        mark = "  best" if one == best else ""
        error = f"{one.error:>10.5g} ± {one.standard_error:.1g}"
        click.echo(f"{one.sigma:>12.6g}   {one.components:>10}   {ridge:<6}{error}{mark}")
    chosen = f"--sigma {best.sigma:.6g} --components {best.components} --preimage {spec.preimage_value.name}"
    click.echo(f"bigkpca fit {data} MODEL {chosen}{_typed(spec, options['array'])}")
    if best.ridge is not None:
        click.echo(
            f"in Python, preimage={type(spec.preimage_value).__name__}(ridge={best.ridge:g}) of bigkpca.preimages"
        )


def _typed(spec: FitSpec, array: str | None) -> str:
    """The other options of a cross-validation, where they are not the default, as `fit` takes them."""
    given = {name: getattr(spec, name) for name in ("kernel", "seed", "size", "noise")}
    default = FitSpec()
    words = [f" --{name} {value}" for name, value in given.items() if value != getattr(default, name)]
    return "".join([*words, " --standardize" * spec.standardize, f" --array {array}" if array else ""])


def _number(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise SpecError(f"--components {text}: give numbers of components, as 10,50,200")
    return int(text)


def _save_settings(path: str, settings: Any) -> None:
    import csv

    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sigma", "components", "ridge", "error", "standard_error"])
        writer.writerows([one.sigma, one.components, one.ridge, one.error, one.standard_error] for one in settings)
