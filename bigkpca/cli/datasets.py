"""Make a dataset, and describe stored data."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import Any, TypeVar

import click

from bigkpca.cli.command import command, option, verbose_option
from bigkpca.cli.options import PATH, array_option, common, json_option, memory_option, overwrite_option
from bigkpca.cli.output import SPECTRUM, show, show_model
from bigkpca.execution.progress import ShownProgress

T = TypeVar("T")


def _listed(text: str) -> tuple[str, ...]:
    """Comma-separated texts; those that contain commas are quoted."""
    line = text.replace("\n", " ") or '""'
    return tuple(each.strip() for each in next(csv.reader([line], skipinitialspace=True)))


def _names(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return None if text is None else _listed(text)


def _some(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...]:
    return () if text is None else _listed(text)


def _each_once(values: Iterable[tuple[str, T]], param: click.Parameter) -> dict[str, T]:
    """Values by column. Raises BadParameter for a column that is named twice."""
    found: dict[str, T] = {}
    for name, value in values:
        if name in found:
            raise click.BadParameter(f"column {name!r} is named twice", param=param)
        found[name] = value
    return found


def _levels(_: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Levels of columns, each as NAME=A,B,..."""
    if wrong := next((text for text in texts if "=" not in text), None):
        raise click.BadParameter(f"{wrong!r} is not of the form COLUMN=LOW,HIGH", param=param)
    return _each_once(((name, _listed(levels)) for name, _, levels in (text.rpartition("=") for text in texts)), param)


def _formats(_: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> str | dict[str, str] | None:
    """One format of all dates, or formats of columns, each as NAME=FORMAT."""
    parts = [text.rpartition("=") for text in texts]
    if all(mark and "%" not in name for name, mark, _ in parts):
        return _each_once(((name, given) for name, _, given in parts), param) or None
    if len(texts) > 1:
        raise click.BadParameter("give one format, or COLUMN=FORMAT for each column", param=param)
    return texts[0]


@command(
    "bigkpca ingest rows.csv rows.zarr",
    "bigkpca ingest train-images.gz rows.zarr --labels train-labels.gz",
    "bigkpca ingest flights.csv flights.zarr --drop tailnum --categories one-hot --missing median",
    "bigkpca ingest survey.csv survey.zarr --sample-weight households",
    "bigkpca ingest more.csv rows.zarr --append",
    "bigkpca ingest flights/ flights.zarr",
)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...", type=PATH)
@click.argument("destination", metavar="DST", type=PATH)
@option("--member", metavar="NAME", unset="the only one", help="Member to read from .npz and HDF5 files.")
@option("--labels", type=PATH, metavar="NAME|FILE", unset="none", help="Labels: a member, a column or a second file.")
@option(
    "--sample-weight",
    type=PATH,
    metavar="NAME|FILE",
    unset="none",
    help="Weights of the rows: a member, a column or a second file.",
)
@option(
    "--dtype", metavar="T", unset="automatic (that of the files, float64 for CSV)", help="Dtype of the stored rows."
)
@option("--columns", callback=_names, metavar="A,B,...", unset="all", help="Use only these columns.")
@option(
    "--drop",
    callback=_some,
    metavar="A,B,...",
    unset="none",
    help="Leave out these columns.",
)
@option(
    "--missing",
    type=click.Choice(["refuse", "drop", "mean", "median"]),
    default="refuse",
    help="Treat missing values as an error, drop their rows, or fill in the mean or median of the column.",
)
@option(
    "--categories",
    type=click.Choice(["one-hot"]),
    unset="none (text columns are an error)",
    help="Turn each distinct text of a column into a column of 0 and 1.",
)
@option(
    "--categorical",
    callback=_some,
    metavar="A,B,...",
    unset="none",
    help="Turn these columns into categories, whether they hold text, codes or numbers.",
)
@option(
    "--numeric",
    callback=_some,
    metavar="A,B,...",
    unset="none",
    help="Read these columns as numbers, ignoring currency symbols and dividing percentages by 100.",
)
@option(
    "--ordinal",
    callback=_levels,
    multiple=True,
    metavar="COLUMN=LOW,...,HIGH",
    unset="none",
    help="Turn the levels of a column into 0, 1, 2 and so on. Can be repeated.",
)
@option(
    "--max-categories",
    type=click.IntRange(1),
    metavar="K",
    unset="none (at most 1000 distinct texts)",
    help="Keep the K most frequent texts of a column as categories, and merge the others into '(other)'.",
)
@option(
    "--na-values",
    callback=_some,
    metavar="A,B,...",
    unset="none",
    help="Texts and numbers that also mean a missing value, in addition to NA, NaN, null and the like.",
)
@option("--decimal", metavar="MARK", default=".", help="Decimal separator of CSV files.")
@option("--thousands", metavar="MARK", unset="none", help="Thousands separator of CSV files.")
@option(
    "--date-format",
    callback=_formats,
    multiple=True,
    metavar="[COLUMN=]FORMAT",
    unset="ISO 8601 (2013-09-23 16:00:00)",
    help="Format of dates, e.g. '%d/%m/%Y', wherever it occurs, or of one column. Can be repeated.",
)
@option("--encoding", metavar="NAME", unset="UTF-8, or by its mark", help="Encoding of CSV files, such as cp1252.")
@option("--text", metavar="NAME", unset="none", help="Use the characters of this column as rows, for string kernels.")
@option(
    "--like",
    type=PATH,
    metavar="DATASET",
    unset="none",
    help="Use the columns, categories, means and medians of DATASET.",
)
@option(
    "--block-rows",
    type=click.IntRange(1),
    metavar="N",
    unset="automatic (from the width of the rows)",
    help="Rows per stored chunk.",
)
@memory_option("Refuse files whose rows, columns or lines would need more, e.g. '4 GB'.", unset="2 GB")
@option("--append", is_flag=True, help="Add rows to the dataset DST.")
@overwrite_option
@common
def ingest(sources: tuple[str, ...], destination: str, quiet: bool, **options: Any) -> None:
    """Make a dataset DST (chunked Zarr) from files, and from the files of folders: .npy, .npz, .csv, .tsv, .parquet,
    .feather, .arrow, .h5, .hdf5, .fasta, .fa, .fna or .faa, and IDX files (the format of MNIST). Text, FASTA and IDX
    files may be compressed with gzip."""
    from bigkpca.ingesting import ingest as run
    from bigkpca.storage.describe import info as look

    progress = ShownProgress(quiet)
    if run(sources, destination, progress=progress, **options).already_done:
        progress.note(f"{destination} already holds these files: nothing to do")
    facts = look(destination)
    show({key: facts[key] for key in ("path", "shape", "dtype", "bytes")}, False)


@command(
    "bigkpca info model.zarr",
    "bigkpca info rows.zarr --json",
)
@click.argument("path", type=PATH)
@array_option("Array to describe if PATH is a Zarr group.")
@json_option
@verbose_option
def info(path: str, array: str | None, as_json: bool) -> None:
    """Describe the dataset, model, feature store or Zarr array at PATH."""
    from bigkpca.storage.describe import info as look

    facts = look(path, array)
    if as_json or facts["kind"] != "model":
        show(facts, as_json)
        return
    show_model(facts, {key: facts[key] for key in facts if key not in SPECTRUM})
