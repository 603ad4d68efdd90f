"""Make a dataset, and describe stored data."""

from __future__ import annotations

import csv
from typing import Any

import click

from bigkpca.cli.command import command, option, verbose_option
from bigkpca.cli.options import PATH, common, json_option, overwrite_option
from bigkpca.cli.printing import SPECTRUM, show, show_columns, show_model
from bigkpca.execution.progress import ShownProgress


def _names(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Comma-separated names; those that contain commas are quoted."""
    if not text:
        return ()
    return tuple(each.strip() for each in next(csv.reader([text.replace("\n", " ")], skipinitialspace=True)))


def _reading(_: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, Any]:
    """Options of the reader of text, each as KEY=VALUE; types of columns as NAME:TYPE,..."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param=param)
        found[key] = value
    if "column_types" in found:
        pairs = [each.rpartition(":") for each in found["column_types"].split(",")]
        found["column_types"] = {name: kind for name, _, kind in pairs}
    return found


@command(
    "bigkpca ingest rows.csv rows.zarr",
    "bigkpca ingest train-images.gz rows.zarr --labels train-labels.gz",
    "bigkpca ingest flights.csv flights.zarr --drop tailnum --categorical origin,destination --missing mean",
    "bigkpca ingest german.csv german.zarr --csv 'delimiter=;' --csv decimal_point=, --csv column_types=zip:string",
    "bigkpca ingest more.csv rows.zarr --append",
    "bigkpca ingest flights/ flights.zarr",
)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...", type=PATH)
@click.argument("destination", metavar="DST", type=PATH)
@option("--member", metavar="NAME", show_default="the only one", help="Array to read from .npz files.")
@option("--labels", type=PATH, metavar="NAME|FILE", help="Labels: an array, a column or a second file.")
@option("--sample-weight", type=PATH, metavar="NAME|FILE", help="Weights of the rows, like labels.")
@option("--dtype", metavar="T", show_default="that of the files", help="Dtype of the stored rows.")
@option("--columns", callback=_names, metavar="A,B,...", show_default="all", help="Use only these columns.")
@option("--drop", callback=_names, metavar="A,B,...", help="Leave out these columns.")
@option(
    "--categorical",
    callback=_names,
    metavar="A,B,...",
    show_default="none; text is refused",
    help="Make a column of 0 and 1 of each distinct value of these columns.",
)
@option(
    "--max-categories",
    type=click.IntRange(1),
    metavar="K",
    show_default="all, up to 1000",
    help="Keep the K most frequent of these values, and merge the others into '(other)'.",
)
@option(
    "--missing",
    type=click.Choice(["refuse", "mean"]),
    default="refuse",
    help="Treat missing values as an error, or fill in the mean of their column.",
)
@option("--text", metavar="NAME", help="Make rows of the characters of this column, for string kernels.")
@option(
    "--csv",
    callback=_reading,
    multiple=True,
    metavar="KEY=VALUE",
    help="How text is read: delimiter, encoding, decimal_point, skip_rows, header=no, null_values=A,B, "
    "column_types=NAME:TYPE,..., timestamp_parsers=FORMAT and others of Arrow's. May be repeated.",
)
@option("--like", type=PATH, metavar="DATASET", help="Use the columns, categories and means of DATASET.")
@option("--append", is_flag=True, help="Add rows to the dataset DST.")
@overwrite_option
@common
def ingest(sources: tuple[str, ...], destination: str, quiet: bool, **options: Any) -> None:
    """Make a dataset DST (chunked Zarr) from files, or from the files of folders: .npy, .npz, IDX (the format of
    MNIST), CSV and other delimited text, Parquet, Feather and FASTA. IDX, .npy and text may be compressed by gzip."""
    from bigkpca.ingesting import ingest as run
    from bigkpca.storage.describe import info as look

    progress = ShownProgress(quiet)
    done = run(list(sources), destination, progress=progress, **options)
    if done.already_done:
        progress.note(f"{destination} already holds these files: nothing to do")
    facts = look(destination)
    show({key: facts[key] for key in ("path", "shape", "dtype", "bytes")}, False)
    if not options["append"]:  # which has the columns of the dataset, with missing values of its first files
        show_columns(done.encoded)


@command(
    "bigkpca info model.zarr",
    "bigkpca info rows.zarr --json",
)
@click.argument("path", type=PATH)
@json_option
@verbose_option
def info(path: str, as_json: bool) -> None:
    """Describe the dataset, model, feature store or Zarr array at PATH."""
    from bigkpca.storage.describe import info as look

    facts = look(path)
    if as_json or facts["kind"] != "model":
        show(facts, as_json)
        return
    show_model(facts, [key for key in facts if key not in SPECTRUM])
